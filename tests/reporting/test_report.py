"""The page that a run leaves: whole, on its own, and safe to open."""

import dataclasses
import html.parser
import json
import re
import shutil
import subprocess

from conftest import call_command
from conftest import HANG_SECONDS
from conftest import make_image_folder
from conftest import tiny
import jax
import numpy as np
import pytest

from vit_jax import checkpoint
from vit_jax.commands import train as train_command
from vit_jax.data import sources
from vit_jax.reporting import report
from vit_jax.runtime import errors
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.training import resume

NASTY = '<img src=x onerror=alert(1)> & "red"'


class Page(html.parser.HTMLParser):
  """What is in a page: its elements, and where they point."""

  def __init__(self, text):
    super().__init__()
    self.ids, self.links, self.tags, self.text = set(), [], [], ''
    self.feed(text)

  def handle_starttag(self, tag, attrs):
    attrs = dict(attrs)
    self.tags.append(tag)
    self.ids.add(attrs.get('id'))
    self.links += [attrs[k] for k in ('src', 'href') if k in attrs]

  def handle_data(self, data):
    self.text += data


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
  """A finished run on a folder one of whose classes has a nasty name."""
  root = tmp_path_factory.mktemp('report')
  folder = make_image_folder(root / 'images')
  for split in ('train', 'test'):
    (folder / split / 'red').rename(folder / split / NASTY)
  test = folder / 'test'  # One of whose labels is wrong.
  (test / 'blue' / '1.jpg').rename(test / 'green' / 'blue.jpg')
  config = tiny(folder)
  config.report, config.total_steps, config.eval_every = True, 6, 3
  config.ema_decay = 0.5
  train_command.train_and_report(config, str(root / 'run'))
  return root / 'run'


def page(workdir):
  return Page((workdir / 'report.html').read_text())


def test_a_run_leaves_a_page_that_needs_nothing_else(workdir):
  found = page(workdir)
  assert found.ids >= {
    'curves', 'predictions', 'confusion', 'calibration', 'confused',
    'classes', 'model', 'settings', 'environment',
  }  # fmt: skip
  # Loss, accuracy, learning rate, speed; confusions; calibration.
  assert found.tags.count('svg') == 6
  local = [x for x in found.links if not x.startswith(('data:', '#'))]
  assert not local
  text = (workdir / 'report.html').read_text()
  assert not re.search(r'@import|url\((?!#)|<script', text)
  assert 'width=device-width' in text
  assert 'prefers-color-scheme: dark' in text


def test_names_of_classes_are_text(workdir):
  found = page(workdir)
  assert NASTY in found.text
  assert found.tags.count('img') == len(
    [x for x in found.links if x.startswith('data:image/jpeg')]
  )


def test_the_numbers_are_those_of_the_run(workdir):
  found = page(workdir)
  lines = (workdir / 'metrics.jsonl').read_text().splitlines()
  last = [json.loads(x) for x in lines if 'accuracy_test_ema' in x][-1]
  assert last['examples_test'] == 15
  # What is evaluated are the averaged parameters.
  assert f'{last["accuracy_test_ema"]:.2%} are correct' in found.text.replace(
    '\n', ' '
  )
  config = json.loads((workdir / 'config.json').read_text())
  assert f'base_lr{config["base_lr"]}' in re.sub(r'\s', '', found.text)
  environment = json.loads((workdir / 'environment.json').read_text())
  assert environment['packages']['jax'] in found.text
  # Each of the 15 images is among the surest, right or wrong, up to 8 of each.
  right = round(last['accuracy_test_ema'] * 15)
  shown = min(right, 8) + min(15 - right, 8)
  assert found.tags.count('img') == 2 * shown


def test_written_again_it_is_the_same(workdir, tmp_path):
  before = (workdir / 'report.html').read_text()
  result = call_command('report', str(workdir))
  assert result.returncode == 0, result.stderr
  assert (workdir / 'report.html').read_text() == before
  # Elsewhere, and with a file that is no image.
  images = tmp_path / 'moved'
  shutil.copytree(workdir.parent / 'images', images)
  (images / 'test' / 'blue' / '0.jpg').write_text('no image')
  path = report.of_workdir(str(workdir), str(images))
  assert '1 images cannot be decoded' in path.read_text()
  path.write_text(before)


def test_images_are_not_looked_at_where_none_is_evaluated(workdir, tmp_path):
  config = tiny(workdir.parent / 'images')
  config.report, config.total_steps, config.eval_every = True, 2, 0
  config.warmup_steps = 1
  train_command.train_and_report(config, str(tmp_path))
  found = page(tmp_path)
  assert {'curves', 'model'} <= found.ids
  assert 'predictions' not in found.ids
  found = Page(report.of_workdir(str(tmp_path)).read_text())
  assert 'predictions' in found.ids  # As it was asked for.


def test_what_is_not_read_and_a_perfect_model_are_said(
  workdir, tmp_path, monkeypatch
):
  shutil.copytree(workdir, tmp_path / 'run')
  images = shutil.copytree(workdir.parent / 'images', tmp_path / 'images')
  (images / 'test' / 'green' / 'x.tif').write_bytes(b'II*')
  source = sources.get_source(str(images), 'test')
  run = str(tmp_path / 'run')
  data = resume.check_data(workdir_lib.at(run), {'test': source}, resumed=False)
  resume.remember_data(workdir_lib.at(run), data)
  evaluated = report.scores.predict

  def perfect(*args):
    p = evaluated(*args)
    best = np.concatenate([p.labels[:, None], p.best[:, 1:]], axis=1)
    return dataclasses.replace(p, best=best)

  monkeypatch.setattr(report.scores, 'predict', perfect)
  found = Page(report.of_workdir(str(tmp_path / 'run')).read_text())
  assert found.ids >= {'confusion', 'confused', 'data'}
  assert 'No image was predicted as another class.' in found.text
  assert '1 .tif' in found.text


def test_the_speed_is_the_median():
  rows = [{'step': i, 'img_sec_train': x} for i, x in enumerate([1, 75, 1141])]
  assert dict(report._facts(rows))['images/s, median'] == '75'


def test_of_a_run_that_goes_on(workdir, tmp_path):
  shutil.copytree(workdir, tmp_path / 'run')
  for name in ('artifact', 'artifact_ema', 'report.html'):
    path = tmp_path / 'run' / name
    path.unlink() if path.is_file() else shutil.rmtree(path)
  found = Page(report.of_workdir(str(tmp_path / 'run')).read_text())
  assert 'predictions' in found.ids  # Of the newest checkpoint.
  shutil.rmtree(tmp_path / 'run' / 'checkpoints')
  found = Page(report.of_workdir(str(tmp_path / 'run')).read_text())
  assert 'curves' in found.ids
  assert not found.ids & {'predictions', 'model'}


def test_of_a_head_that_has_learned_nothing(workdir):
  weights = checkpoint.read(workdir / 'artifact')
  head = jax.tree.map(np.zeros_like, weights.params['head'])
  weights = dataclasses.replace(weights, params=weights.params | {'head': head})
  source = sources.get_source('digits', 'test')  # It is not looked at.
  assert not report._predictions(weights, source, batch_size=8)


def test_of_images_and_texts(lit_run):
  _, workdir = lit_run
  found = Page(report.of_workdir(str(workdir)).read_text())
  assert {'curves', 'model', 'settings'} <= found.ids
  assert 'predictions' not in found.ids


def test_what_is_no_run(tmp_path):
  with pytest.raises(errors.UserError, match='is not a workdir'):
    report.of_workdir(str(tmp_path))


@pytest.mark.skipif(not shutil.which('chromium'), reason='needs Chromium')
@pytest.mark.parametrize('width', [390, 1200])
def test_in_a_browser(workdir, width):
  result = subprocess.run(
    [
      'chromium',
      '--headless=new',
      '--no-sandbox',
      '--disable-gpu',
      '--enable-logging=stderr',
      f'--window-size={width},900',
      '--virtual-time-budget=2000',
      '--dump-dom',
      f'file://{workdir}/report.html',
    ],
    capture_output=True,
    text=True,
    check=True,
    timeout=HANG_SECONDS,
  )
  assert 'CONSOLE' not in result.stderr
  assert {'confusion', 'environment'} <= Page(result.stdout).ids
