"""Plans say what a step needs and what fits, without the hardware."""

import re

from golden_files import GOLDEN
import jax
from pictures import make_table
from processes import run
import pytest
from run_files import tiny
from runs import tiny_lit

from vit_jax.commands import plan as command
from vit_jax.data import batching
from vit_jax.data import sources
from vit_jax.models import arithmetic
from vit_jax.planning import compilation
from vit_jax.planning import hlo
from vit_jax.planning import memory_search
from vit_jax.planning import plan
from vit_jax.planning import tables
from vit_jax.runtime import download
from vit_jax.runtime import errors
from vit_jax.runtime import sharding
from vit_jax.training import out_of_memory
from vit_jax.training import tasks

TINY = '--config=tests/run_files/tiny.py:cifar10'


@pytest.mark.slow
def test_plan_prints_memory_and_collectives_of_eight_devices():
  result = run(
    *('vit_jax', 'plan'),
    TINY,
    '--devices=8',
    '--mesh=data:4,fsdp:2',
    '--memory_gib=0.0004',  # Too little for eight images more a device.
    '--config.batch=64',
    '--config.accum_steps=1',
    '--config.remat=full',
    '--config.scan_layers=True',
  )
  assert result.returncode == 0, result.stderr
  assert 'Compiling batch 64, accum_steps 1' in result.stderr
  lines = result.stdout.splitlines()
  assert "on 8 x cpu, mesh {'data': 4, 'fsdp': 2, 'model': 1}" in lines[0]
  table = dict(line[2:-2].split(' | ', 1) for line in lines if '|' in line)
  assert table['1'] == '30.73 KiB | 46.1 KiB'
  assert table['2 (this)'] == f'{table["parameters"]} | {table["optimizer"]}'
  assert table['parameters'] == '16.41 KiB'
  # Of two layers six kernels each, forward and backward.
  count, size = table['all-gather'].split(' | ')
  assert int(count) >= 2 * 6 * 2
  assert size.endswith('KiB')
  # Gradients are summed between devices, activations are not.
  assert float(table['all-reduce'].split()[2]) < 2 * 30.73
  largest, fewest = lines[-2:]
  assert re.fullmatch(
    r'Largest batch that fits: batch 64, accum_steps 1, remat full;'
    r' \S+ KiB of 419.4 KiB.',
    largest,
  )
  assert fewest.startswith(
    'Fewest accum_steps that fits: batch 64, accum_steps 1'
  )


@pytest.mark.slow
def test_plan_of_eight_devices_refuses_mistakes_in_one_line():
  result = run('vit_jax', 'plan', TINY, '--devices=8', '--config.batch=12')
  assert result.returncode == 1
  assert 'Traceback' not in result.stderr
  assert (
    'vit-jax plan: A batch of 6 cannot be split over 8 devices. Choose a'
    ' multiple of 8.'
  ) in result.stderr
  result = run('vit_jax', 'plan', TINY, '--devices=8', '--topology=v5e:2x2')
  assert 'Give --topology or --devices, not both.' in result.stderr


def test_mistakes_in_meshes_and_data_are_named(tmp_path):
  with pytest.raises(
    errors.UserError, match=r'--mesh=rows:3 must be like data'
  ):
    command.parse_mesh('rows:3')
  with pytest.raises(errors.UserError, match='whose product must be the 8'):
    sharding.make_mesh(
      **command.parse_mesh('data:3'), devices=jax.devices() * 8
    )
  with pytest.raises(errors.UserError, match='whose product must be the 1 '):
    sharding.make_mesh(fsdp=0)
  with pytest.raises(errors.UserError, match='pictures.*give num_classes=N'):
    sources.stand_in('pictures', 'train', data_dir=str(tmp_path))


def test_parse_mesh_fills_in_ones():
  assert command.parse_mesh('data:64, fsdp:4') == {
    'data': 64,
    'fsdp': 4,
    'model': 1,
  }
  assert command.parse_mesh('fsdp:-1') == {'data': 1, 'fsdp': -1, 'model': 1}


def data_and_batch(dataset, num_classes=None):
  config = tiny.get_config(dataset)
  run = plan.resolve_here(config, sharding.make_mesh(), num_classes)
  data = batching.of_config(run.config, run.splits)
  return data, compilation.batch(run, data)


def task_of(run):
  return tasks.make(run, batching.of_config(run.config, run.splits))


def test_open_splits_stands_in_for_known_data_sets():
  data, batch = data_and_batch('imagenet2012')
  assert len(data.class_names) == 1000
  assert batch['image'].shape == (8, 16, 24, 3)  # Resized on the host.
  data, batch = data_and_batch('cifar100', num_classes=7)
  assert len(data.class_names) == 7
  assert batch['image'].shape == (8, 32, 32, 3)  # Raw.
  assert batch['label'].shape == (8,)


@pytest.mark.parametrize(
  'columns, shape',
  [
    ({'labels': 'labels'}, (8, 3)),
    ({'target': 'red,bright'}, (8, 2)),
    ({'target': 'red', 'weight': 'weight'}, (8, 1)),
  ],
)
def test_steps_of_tables_are_traced(columns, shape, tmp_path):
  names = [name for x in columns.values() for name in x.split(',')]
  config = tiny.get_config(str(make_table(tmp_path / 'images', names, 12)))
  config.columns.update(columns)
  run = plan.resolve_here(config, sharding.make_mesh(), None)
  task = task_of(run)
  batch = compilation.batch(run, task.data)
  assert batch['label'].shape == shape
  assert ('weight' in batch) == ('weight' in columns)
  compilation.trace_step(run, task)


def test_model_of_weights_downloads_nothing(monkeypatch, tmp_path):
  def fail(*args):
    raise AssertionError(args)

  monkeypatch.setattr(download, 'download', fail)
  config = tiny.get_config('cifar10').unlock()
  config.model, config.pretrained_dir = None, str(tmp_path)
  known, mesh = {}, sharding.make_mesh()
  for name in ('augreg-L_16-384', str(GOLDEN / 'hf_vit')):
    config.pretrained = name
    known[name] = plan.resolve_here(config, mesh).config
  assert [c.model.hidden_size for c in known.values()] == [1024, 32]
  for name in ('https://example.com/a.npz', 'unknown'):
    config.pretrained = name
    with pytest.raises(errors.UserError, match=f'{name}, are not here: a plan'):
      plan.local_pretrained(config)


@pytest.mark.slow
def test_compile_step_of_lit_needs_no_captions(tmp_path):
  config = tiny_lit(tmp_path)
  config.pretrained_dir = str(tmp_path)
  run = plan.resolve_here(config, sharding.make_mesh())
  program = compilation.compile_step(run, task_of(run))
  assert program.fits
  # The image tower is locked: it has no optimizer state.
  assert program.parameters / 2 < program.optimizer < 2 * program.parameters
  assert program.peak > program.parameters + program.optimizer
  assert program.flops > 0
  assert program.collectives == {}


def fake_search(limit, remat='', out_of_memory=10_000):
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
  search = memory_search.Search(program, limit, 4, {setting: program(setting)})
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
  assert tables.search(search, setting).splitlines() == [
    'Largest batch that fits: batch 256, accum_steps 2, remat off; 450 bytes of'
    ' 500 bytes.',
    'Fewest accum_steps that fits: batch 512, accum_steps 4, remat off; 450'
    ' bytes of 500 bytes.',
    'Least remat that fits: batch 512, accum_steps 2, remat full; 450 bytes of'
    ' 500 bytes.',
  ]
  search, setting, _ = fake_search(100)
  assert tables.search(search, setting).startswith('Nothing fits')


HLO = """HloModule jit_step

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %add.1 = f32[] add(%a, %b)
}

%all-reduce-scatter.3 (input: f32[64,8]) -> f32[16,8] {
  %input = f32[64,8]{1,0:T(8,128)} parameter(0)
  %all-reduce.9 = f32[64,8]{1,0:T(8,128)} all-reduce(%input), channel_id=7, to_apply=%add
  ROOT %slice = f32[16,8]{1,0} dynamic-slice(%all-reduce.9)
}

%condition (state: (s32[], f32[8])) -> pred[] {
  %limit = s32[]{:T(128)} constant(12)
  ROOT %less = pred[] compare(%index, %limit), direction=LT
}

%body (state: (s32[], f32[8])) -> (s32[], f32[8]) {
  %x = bf16[16,64]{1,0} parameter(0)
  %gather = bf16[64,64]{1,0} all-gather(%x), channel_id=1, dimensions={0}
  %again = bf16[64,64]{1,0} all-gather(%x), channel_id=1, dimensions={0}
  ROOT %t = (s32[], f32[8]) tuple(%i, %y)
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %q = pred[3]{0} parameter(1)
  %loop = (s32[], f32[8]) while(%init), condition=%condition, body=%body
  %known = (s32[], f32[8]) while(%init), condition=%condition, body=%body.2, backend_config={"known_trip_count":{"n":"5"}}
  %fusion = f32[16,8]{1,0} fusion(%w), kind=kCustom, calls=%all-reduce-scatter.3
  %start = (f32[8]{0}, f32[32]{0}) all-gather-start(%p), channel_id=4, dimensions={0}
  ROOT %sum = (f32[8]{0}, pred[3]{0}) all-reduce(%p, %q), channel_id=5, to_apply=%add
}

%body.2 (state: (s32[], f32[8])) -> (s32[], f32[8]) {
  %y = f32[10]{0} parameter(0)
  %move = f32[10]{0} collective-permute(%y), channel_id=6
}
"""


def test_collectives_count_each_repetition():
  assert hlo.collectives(HLO) == {
    'all-gather': hlo.Collective(12 + 1, 12 * 64 * 64 * 2 + 32 * 4),
    'all-reduce': hlo.Collective(1, 8 * 4 + 3),
    'collective-permute': hlo.Collective(5, 5 * 10 * 4),
    'reduce-scatter': hlo.Collective(1, 64 * 8 * 4),
  }


def test_compiling_for_changes_the_activations():
  assert arithmetic.policy('bfloat16').activations == 'float32'
  with arithmetic.compiling_for('tpu'):
    assert arithmetic.policy('bfloat16').activations == 'bfloat16'
  assert arithmetic.policy('bfloat16').activations == 'float32'


def test_advice_names_settings_that_need_less_memory():
  config = tiny.get_config('cifar10')
  error = jax.errors.JaxRuntimeError(
    'RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12.50GiB.\nmore'
  )
  with pytest.raises(errors.UserError) as caught, out_of_memory.advice(config):
    raise error
  assert str(caught.value) == (
    'Out of memory with a batch of 8 in 2 parts on 1 devices (Out of memory'
    ' while trying to allocate 12.50GiB.). Try config.accum_steps=4 or'
    ' config.remat=full or config.batch=4 or a smaller config.pp.crop than'
    ' (16, 24); if it was an evaluation, a smaller config.batch_eval.'
    ' vit-jax plan with the same run file prints what fits.'
  )
  other = jax.errors.JaxRuntimeError('INTERNAL: no')
  with pytest.raises(jax.errors.JaxRuntimeError), out_of_memory.advice(config):
    raise other


def test_smaller_names_settings_for_many_devices():
  config = tiny.get_config('cifar10')
  config.update({'batch': 96, 'accum_steps': 3, 'remat': 'full'})
  config.mesh.data = 4
  axes = {'data': 4, 'fsdp': 2, 'model': 1}
  assert out_of_memory.smaller(config, axes, 'tpu') == [
    'dtype=bfloat16',
    'accum_steps=4',
    'mesh.fsdp=4 config.mesh.data=2',
    'batch=48',
  ]


def test_plan_of_tpu_topology():
  pytest.importorskip('libtpu')
  result = run('vit_jax', 'plan', TINY, '--topology=v5e:2x2', '--search=false')
  assert result.returncode == 0, result.stderr
  assert 'on 4 x TPU v5 lite' in result.stdout
  assert ' of 15.75 GiB' in result.stdout
  assert '| all-reduce | ' in result.stdout
  with pytest.raises(errors.UserError, match='topology v9:2x2 is not known'):
    plan.devices('v9:2x2', None)
  # Activations are in bfloat16, which they are not on the CPU that compiles.
  config = tiny.get_config('cifar10')
  config.dtype = 'bfloat16'
  mesh = sharding.make_mesh(devices=plan.devices('v5e:2x2', None))
  planned = plan.resolve_here(config, mesh)
  _, traced = compilation.trace_step(planned, task_of(planned))
  assert re.search(r':bf16\[[\d,]*\] = tanh', str(traced.jaxpr))
