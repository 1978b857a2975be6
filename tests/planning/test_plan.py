"""Plans say what a step needs and what fits, without the hardware."""

import functools
import re
from unittest import mock

from golden_files import GOLDEN
import jax
from pictures import make_table
from processes import run
import pytest
from run_files import tiny
from runs import tiny_lit

from vit_jax.commands import plan as command
from vit_jax.data import batching
from vit_jax.data import stand_ins
from vit_jax.data.rows import arrow_folders
from vit_jax.models import arithmetic
from vit_jax.models import flops
from vit_jax.planning import compilation
from vit_jax.planning import plan
from vit_jax.planning import tables
from vit_jax.runtime import download
from vit_jax.runtime import errors
from vit_jax.runtime import sharding
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
    stand_ins.of_dataset('pictures', 'train', data_dir=str(tmp_path))


def test_an_axis_of_a_mesh_is_given_once():
  with pytest.raises(errors.UserError, match='each once'):
    command.parse_mesh('data:2,data:1')


@pytest.mark.parametrize(
  'limit, title', [(99, 'DOES NOT FIT'), (700, 'at most')]
)
def test_the_table_of_memory_says_what_does_not_fit(limit, title):
  program = compilation.Program(
    parameters=100, optimizer=100, average=100, temporaries=200, peak=500,
    fits=True, flops=1.0, collectives={},
  )  # fmt: skip
  table = tables.memory(program, limit)
  assert title in table
  assert 'moving average' in table


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


def test_compiling_for_changes_the_activations():
  assert arithmetic.policy('bfloat16').activations == 'float32'
  with arithmetic.compiling_for('tpu'):
    assert arithmetic.policy('bfloat16').activations == 'bfloat16'
  assert arithmetic.policy('bfloat16').activations == 'float32'


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


@pytest.mark.parametrize(
  'dataset',
  ['/none/folder', '/none/x.csv', '/none/x-{0..9}.tar', 'hf://datasets/a/b'],
)
def test_data_that_are_not_here_need_a_number_of_classes_alone(
  dataset, monkeypatch
):
  monkeypatch.setattr(arrow_folders, 'find', None)  # It asks the hub.
  data, _ = data_and_batch(dataset, num_classes=3)
  assert len(data.class_names) == 3


def test_an_address_without_a_number_of_classes_is_refused():
  with pytest.raises(
    errors.UserError, match='downloaded here: give num_classes'
  ):
    data_and_batch('hf://datasets/a/b')


def test_two_devices_of_a_chip_share_its_peak():
  def peak(kind, cores):
    device = functools.partial(mock.Mock, jax.Device, device_kind=kind)
    return flops.peak_flops(device(core_on_chip=i % cores) for i in range(4))

  assert peak('TPU v4', cores=1) == 275e12
  assert peak('TPU v4', cores=2) == 275e12 / 2
  assert peak('TPU v3', cores=2) == 61.5e12  # The table has that of a device.
