"""The search finds the settings that fit."""

from vit_jax.planning import compilation
from vit_jax.planning import memory_search
from vit_jax.planning import tables

TRANSFORMER = {'transformer': {}}


def fake_search(limit, remat='', out_of_memory=10_000, least=1):
  """Returns a search among programs of 10 bytes an image, and what it compiles.

  100 bytes are of the state, 30 of the sums of gradients.
  """
  compiled = []

  def program(setting):
    compiled.append(setting)
    images = setting.batch // (4 * setting.accum_steps)
    slope = {'': 10, 'full': 5}.get(setting.remat, 9)
    peak = 100 + slope * images + (30 if setting.accum_steps > 1 else 0)
    fits = peak < out_of_memory
    return compilation.Program(30, 40, 0, peak if fits else None, fits, 1.0, {})

  setting = memory_search.Setting(512, 2, remat)
  programs = {setting: program(setting)}
  search = memory_search.Search(program, limit, 4, programs, least)
  return search, setting, compiled


def test_search_finds_largest_batch_and_fewest_parts():
  search, _, compiled = fake_search(475)
  assert search.largest_batch(1, '') == memory_search.Setting(32 * 4, 1, '')
  assert search.largest_batch(2, '') == memory_search.Setting(32 * 8, 2, '')
  assert search.fewest_parts(512, '') == memory_search.Setting(512, 4, '')
  assert len(compiled) <= 6
  # One part has no sums, and just fits.
  search, _, _ = fake_search(100 + 10 * 128)
  assert search.fewest_parts(512, '') == memory_search.Setting(512, 1, '')
  search, _, _ = fake_search(90)
  assert search.fewest_parts(512, '') is None
  assert search.largest_batch(1, '') is None


def test_search_without_peak_of_failed_compilation():
  search, _, compiled = fake_search(475, out_of_memory=475)
  assert search.fewest_parts(512, '') == memory_search.Setting(512, 4, '')
  assert len(compiled) <= 6


def test_search_tries_remat_if_the_batch_does_not_fit():
  search, setting, _ = fake_search(500)
  assert tables.search(search, setting, TRANSFORMER).splitlines() == [
    'Largest batch that fits: batch 256, accum_steps 2, remat off; 450 bytes of'
    ' 500 bytes.',
    'Fewest accum_steps that fits: batch 512, accum_steps 4, remat off; 450'
    ' bytes of 500 bytes.',
    'Least remat that fits: batch 512, accum_steps 2, remat full; 450 bytes of'
    ' 500 bytes.',
  ]
  search, setting, _ = fake_search(100)
  found = tables.search(search, setting, TRANSFORMER)
  assert found.startswith('Nothing fits')


def test_search_tries_only_what_the_model_and_its_images_allow():
  search, setting, compiled = fake_search(500)
  text = tables.search(search, setting, {'transformer': None})
  assert 'remat off' in text
  assert 'Least' not in text
  assert not any(s.remat for s in compiled)
  # Eight images a part of all four devices are two on each.
  search, _, _ = fake_search(155, least=8)
  assert search.fewest_parts(512, '') == memory_search.Setting(512, 64, '')
  search, _, _ = fake_search(145, least=8)
  assert search.fewest_parts(512, '') is None
  assert search.largest_batch(2, '') is None
