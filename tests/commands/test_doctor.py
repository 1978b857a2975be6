"""The doctor finds problems, gives advice and continues."""

import functools
import importlib.metadata
import shutil

from golden_files import REPOSITORY
from processes import call_command
import pytest

from vit_jax.commands import doctor
from vit_jax.planning import readiness
from vit_jax.runtime import environment
from vit_jax.runtime import errors


def statuses(findings):
  return {finding.what: finding.status for finding in findings}


@pytest.mark.slow
def test_doctor_finds_nothing_wrong(image_folder):
  result = call_command('doctor', f'--dataset={image_folder}')
  assert result.returncode == 0, result.stdout + result.stderr
  assert result.stdout.endswith('Ready.\n')
  assert 'FAILED' not in result.stdout
  assert 'No images to test' not in result.stdout + result.stderr
  assert '3 classes, 36 images in train (36 decoded), 15 im' in result.stdout
  assert 'ViT-Mini_8' in result.stdout
  assert 'two steps, losses 2.303, ' in result.stdout


def test_failed_checks_do_not_stop_the_others(capsys):
  checks = [
    functools.partial(readiness.check_weights, 'ViT-B_61'),
    functools.partial(readiness.check_dataset, '/nowhere'),
    readiness.check_devices,
  ]
  assert doctor.show(readiness.examine(checks)) == 2
  weights, dataset, devices = capsys.readouterr().out.splitlines()
  assert weights.startswith('FAILED  weights')
  assert "Did you mean 'ViT-B_16'?" in weights
  assert dataset.startswith('FAILED  dataset')
  assert '/nowhere' in dataset
  assert devices.startswith('ok      devices')


def break_nothing(root):
  pass


def break_file(root):
  (root / 'train' / 'red' / '3.jpg').write_text('no image')


def remove_test(root):
  shutil.rmtree(root / 'test')


def keep_one_class(root):
  for split in ('train', 'test'):
    shutil.rmtree(root / split / 'red')
    shutil.rmtree(root / split / 'blue')


def add_jp2(root):
  (root / 'test' / 'red' / '3.jp2').write_bytes(b'II*')


@pytest.mark.parametrize(
  ('change', 'status', 'text'),
  [
    (
      break_nothing,
      readiness.OK,
      '36 images in train (36 decoded), 15 images in',
    ),
    (break_file, readiness.FAILED, 'red/3.jpg cannot be decoded: not a JPEG, '),
    (remove_test, readiness.FAILED, "Split 'test' of"),
    (keep_one_class, readiness.FAILED, "has only one class, 'green'"),
    (add_jp2, readiness.WARNING, 'files that are not read, test: 1 .jp2'),
  ],
)
def test_a_folder_is_opened_as_training_does(
  change, status, text, image_folder, capsys
):
  change(image_folder)
  check = functools.partial(readiness.check_dataset, str(image_folder))
  assert doctor.show(readiness.examine([check])) == (status == readiness.FAILED)
  out = capsys.readouterr().out
  assert out.startswith(status)
  assert text in out.splitlines()[0]


def test_untested_versions_are_warned_of(monkeypatch):
  assert statuses(readiness.check_versions())['packages'] == readiness.OK
  known = environment.version
  versions = {'jax': '0.4.1', 'optax': None}
  monkeypatch.setattr(
    environment, 'version', lambda name: versions.get(name, known(name))
  )
  _, packages = readiness.check_versions()
  assert packages.status == readiness.WARNING
  assert 'jax 0.4.1 (tested: <0.13,>=0.10)' in packages.text
  assert 'optax missing' in packages.text


def test_a_package_that_is_not_installed_is_warned_of(monkeypatch):
  def missing(name):
    raise importlib.metadata.PackageNotFoundError(name)

  monkeypatch.setattr(importlib.metadata, 'metadata', missing)
  [finding] = readiness.check_versions()
  assert finding.status == readiness.WARNING
  assert 'not installed' in finding.text


def test_tested_versions_are_those_of_setup():
  tested = environment.tested()
  assert 'pytest' not in tested
  text = (REPOSITORY / 'setup.py').read_text()
  assert all(f"'{name}" in text for name in ('jax', 'grain'))
  assert {'jax', 'flax', 'grain', 'simplejpeg'} <= set(tested)


def test_unused_accelerators_are_warned_of(monkeypatch):
  monkeypatch.setattr(
    readiness.os.path, 'exists', lambda path: path == '/dev/nvidiactl'
  )
  [finding] = readiness.check_devices()
  assert finding.status == readiness.WARNING
  assert 'NVIDIA GPU that JAX does not use' in finding.text
  assert 'vit_jax[cuda]' in finding.advice


def test_a_platform_that_is_not_here_has_its_own_advice(capsys):
  def check_devices():
    raise RuntimeError("Unable to initialize backend 'tpu': no TPU. More.")

  doctor.show(readiness.examine([check_devices]))
  assert 'Unset JAX_PLATFORMS' in capsys.readouterr().out


def test_unexpected_errors_are_named(capsys):
  def check_something():
    raise ZeroDivisionError('by zero')

  def check_another():
    raise errors.UserError('Do this.')

  assert doctor.show(readiness.examine([check_something, check_another])) == 2
  out = capsys.readouterr().out
  assert 'FAILED  something   ZeroDivisionError: by zero' in out
  assert 'FAILED  another     Do this.' in out


@pytest.mark.parametrize('free', [1, 100])
def test_little_disk_space_is_warned_of(monkeypatch, free):
  monkeypatch.setattr(
    readiness.shutil,
    'disk_usage',
    lambda path: type('Usage', (), {'free': free * 2**30}),
  )
  want = readiness.OK if free == 100 else readiness.WARNING
  assert set(statuses(readiness.check_disk()).values()) == {want}
