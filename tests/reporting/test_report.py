"""The page that a run leaves: whole, on its own, and safe to open."""

import dataclasses
import html.parser
import json
import re
import shutil
import subprocess

import jax
import numpy as np
from pictures import make_image_folder
from processes import call_command
from processes import HANG_SECONDS
import pytest
from runs import tiny

from vit_jax import checkpoint
from vit_jax.commands import train as train_command
from vit_jax.configs import models as model_configs
from vit_jax.data import datasets
from vit_jax.data import pipeline
from vit_jax.data import sources
from vit_jax.reporting import report
from vit_jax.runtime import errors
from vit_jax.runtime import files
from vit_jax.runtime import workdir as workdir_lib
from vit_jax.training import same_data

NASTY = '<img src=x onerror=alert(1)> & "red"'


class Page(html.parser.HTMLParser):
  """The ids, links, tags and text of a page."""

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
  test = folder / 'test'
  # One label is wrong.
  (test / 'blue' / '1.jpg').rename(test / 'green' / 'blue.jpg')
  config = tiny(folder)
  config.report, config.total_steps, config.eval_every = True, 6, 3
  config.ema_decay = 0.5
  config.accum_steps, config.model.transformer.num_layers = 1, 1
  train_command.train_and_report(config, str(root / 'run'))
  return root / 'run'


def page(workdir):
  return Page((workdir / 'report.html').read_text())


def test_page_needs_no_other_file(workdir):
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


def test_class_names_are_escaped(workdir):
  found = page(workdir)
  assert NASTY in found.text
  assert found.tags.count('img') == len(
    [x for x in found.links if x.startswith('data:image/jpeg')]
  )


def test_page_has_the_numbers_of_the_run(workdir):
  found = page(workdir)
  lines = (workdir / 'metrics.jsonl').read_text().splitlines()
  last = [json.loads(x) for x in lines if 'accuracy_test_ema' in x][-1]
  assert last['examples_test'] == 15
  assert 'Predicted by the moving average of the parameters.' in found.text
  assert f'{last["accuracy_test_ema"]:.2%} are correct' in found.text.replace(
    '\n', ' '
  )
  assert 'five most probable' not in found.text  # There are three classes.
  config = json.loads((workdir / 'config.json').read_text())
  assert f'base_lr{config["base_lr"]}' in re.sub(r'\s', '', found.text)
  environment = json.loads((workdir / 'environment.json').read_text())
  assert environment['packages']['jax'] in found.text
  # Up to 8 correct, 8 wrong and the 8 least confident predictions are shown.
  right = round(last['accuracy_test_ema'] * 15)
  shown = min(right, 8) + min(15 - right, 8) + 8
  assert found.tags.count('img') == 2 * shown


def test_page_written_again_is_the_same(workdir):
  before = (workdir / 'report.html').read_text()
  result = call_command('report', str(workdir))
  assert result.returncode == 0, result.stderr
  assert (workdir / 'report.html').read_text() == before


def test_test_images_are_not_read_without_evaluations(workdir, tmp_path):
  run = shutil.copytree(workdir, tmp_path / 'run')
  config = json.loads((run / 'config.json').read_text())
  (run / 'config.json').write_text(json.dumps(config | {'eval_every': 0}))
  report.of_workdir(str(run))
  found = page(run)
  assert {'curves', 'model'} <= found.ids
  assert 'predictions' not in found.ids
  report.of_workdir(str(run), str(workdir.parent / 'images'))
  assert 'predictions' in page(run).ids


def test_unread_files_and_a_perfect_model_are_reported(
  workdir, tmp_path, monkeypatch
):
  shutil.copytree(workdir, tmp_path / 'run')
  images = shutil.copytree(workdir.parent / 'images', tmp_path / 'moved')
  (images / 'test' / 'blue' / '0.jpg').write_text('not an image')
  (images / 'test' / 'green' / 'x.jp2').write_bytes(b'II*')
  source = sources.get_source(str(images), 'test')
  run = workdir_lib.at(tmp_path / 'run')
  split = pipeline.Decoded(source)
  data = same_data.check(run, datasets.Splits(split, split), resumed=False)
  same_data.remember(run, data)
  evaluated = report.scores.predict

  def perfect(*args):
    p = evaluated(*args)
    best = np.concatenate([p.labels[:, None], p.best[:, 1:]], axis=1)
    return dataclasses.replace(p, best=best)

  monkeypatch.setattr(report.scores, 'predict', perfect)
  path = report.of_workdir(str(tmp_path / 'run'), str(images))
  found = Page(path.read_text())
  assert found.ids >= {'confusion', 'confused', 'data'}
  assert 'No image was predicted as another class.' in found.text
  assert '1 .jp2' in found.text
  assert '1 images cannot be decoded' in found.text


def test_the_speed_is_the_median():
  rows = [{'step': i, 'img_sec_train': x} for i, x in enumerate([1, 75, 1141])]
  assert dict(report._facts(rows, False))['images/s, median'] == '75'


def test_facts_are_those_of_the_parameters_that_predict():
  rows = [
    {'accuracy_test': 0.5, 'accuracy_test_ema': 0.75, 'mae_test': 123456.7}
  ]
  facts = dict(report._facts(rows, True))
  assert (facts['top-1'], facts['top-1, last parameters']) == (
    '75.00%',
    '50.00%',
  )
  assert facts['mean absolute error'] == '123457'
  facts = dict(report._facts(rows, False))
  assert (facts['top-1'], facts['top-1, averaged']) == ('50.00%', '75.00%')


def test_page_of_a_running_run_shows_its_checkpoint(workdir, tmp_path):
  shutil.copytree(workdir, tmp_path / 'run')
  for name in ('artifact', 'artifact_ema', 'report.html'):
    path = tmp_path / 'run' / name
    path.unlink() if path.is_file() else shutil.rmtree(path)
  found = Page(report.of_workdir(str(tmp_path / 'run')).read_text())
  assert 'predictions' in found.ids
  shutil.rmtree(tmp_path / 'run' / 'checkpoints')
  found = Page(report.of_workdir(str(tmp_path / 'run')).read_text())
  assert 'curves' in found.ids
  assert not found.ids & {'predictions', 'model'}


def test_page_of_a_run_that_goes_on_shows_its_newest_checkpoint(
  workdir, tmp_path, monkeypatch
):
  shutil.copytree(workdir, tmp_path / 'run')
  steps = tmp_path / 'run' / 'checkpoints'
  newest = max(
    int(path.name) for path in steps.iterdir() if path.name.isdigit()
  )
  read, seen = checkpoint.read, []

  def spy(path):
    seen.append(read(path).info['step'])
    return read(path)

  monkeypatch.setattr(report.checkpoint, 'read', spy)
  report.of_workdir(str(tmp_path / 'run'), predicts=False)
  shutil.copytree(steps / str(newest), steps / str(newest + 5))
  report.of_workdir(str(tmp_path / 'run'), predicts=False)
  assert seen == [newest, newest + 5]


def test_untrained_head_makes_no_predictions(workdir):
  weights = checkpoint.read(workdir / 'artifact')
  head = jax.tree.map(np.zeros_like, weights.params['head'])
  weights = dataclasses.replace(weights, params=weights.params | {'head': head})
  source = sources.get_source('digits', 'test')
  assert not report._test_images(weights, source, batch_size=8)


@pytest.mark.slow
def test_page_of_a_contrastive_run_has_curves(lit_run):
  _, workdir = lit_run
  found = Page(report.of_workdir(str(workdir)).read_text())
  assert {'curves', 'model', 'settings'} <= found.ids
  assert 'predictions' not in found.ids
  for fact in ('text found first', 'image found first', 'temperature'):
    assert fact in found.text
  assert 'top-1' not in found.text


def test_folder_without_a_run_is_refused(tmp_path):
  with pytest.raises(errors.UserError, match='is not a workdir'):
    report.of_workdir(str(tmp_path))


def test_settings_that_an_earlier_run_lacks_have_defaults(tmp_path):
  model = model_configs.get_model_config('testing').to_dict()
  config = {'dataset': 'digits', 'model': model, 'pp': {'crop': [8, 8]}}
  files.write_json(config, tmp_path / 'config.json')
  assert report.of_workdir(str(tmp_path)).is_file()
  files.write_json({**config, 'batch_eval': 'many'}, tmp_path / 'config.json')
  with pytest.raises(errors.UserError, match='belongs to another version'):
    report.of_workdir(str(tmp_path))


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which('chromium'), reason='needs Chromium')
@pytest.mark.parametrize('width', [390, 1200])
def test_browser_shows_the_page_without_errors(workdir, width):
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
