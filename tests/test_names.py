"""Names of classes and files, whatever their letters, come through unchanged."""

import csv
import html.parser
import json
import os
import warnings
import xml.etree.ElementTree

import cv2
import numpy as np
from processes import call_command
from processes import start
import pytest
from runs import tiny

import vit_jax
from vit_jax import checkpoint
from vit_jax.commands import output as output_lib
from vit_jax.commands import predict
from vit_jax.commands import train as train_command
from vit_jax.data import inputs
from vit_jax.data import sources
from vit_jax.evaluation import feature_files
from vit_jax.evaluation import scores
from vit_jax.reporting import attention_pictures
from vit_jax.reporting import contact_sheet
from vit_jax.reporting import plot
from vit_jax.reporting import report
from vit_jax.runtime import exits
from vit_jax.weights import formats

CLASSES = sorted(
  ['$5_$10', '100 % \\<b>&"x",y', 'two\nlines', 'שלום 🐶', '"a_b^{c']
)
FILE = '$x_$ % \\<&",\n א🐱.png'


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
  """A finished run on a folder of such names, with its report."""
  root = tmp_path_factory.mktemp('$a_$b & "c"')
  for split in ('train', 'test'):
    for label, name in enumerate(CLASSES):
      (root / 'images' / split / name).mkdir(parents=True)
      for i in range(2):
        image = np.full((16, 24, 3), 40 * label + 9 * i, np.uint8)
        data = cv2.imencode('.png', image)[1].tobytes()
        (root / 'images' / split / name / f'{i}{FILE}').write_bytes(data)
  config = tiny(root / 'images')
  config.update({'total_steps': 2, 'warmup_steps': 1, 'eval_every': 2})
  # Less to compile.
  config.update({'accum_steps': 1, 'stochastic_depth_rate': 0.0})
  config.model.transformer.update({'dropout_rate': 0.0, 'num_layers': 1})
  config.report = True
  train_command.train_and_report(config, str(root / 'run'))
  return root / 'run'


def files_of(workdir):
  return inputs.find([str(workdir.parent / 'images' / 'test')])


class Text(html.parser.HTMLParser):
  """The cells of a page's tables, and the text of its pictures."""

  def __init__(self, page):
    super().__init__()
    self.text = []
    self.feed(page)

  def handle_data(self, data):
    self.text.append(data)


@pytest.mark.slow
def test_run_and_report_keep_class_names(workdir):
  assert checkpoint.read(workdir).class_names == CLASSES
  assert checkpoint.read(workdir / 'artifact').class_names == CLASSES
  config = json.loads((workdir / 'config.json').read_text())
  assert config['dataset'] == str(workdir.parent / 'images')
  page = (workdir / 'report.html').read_text()
  assert set(CLASSES) <= set(Text(page).text)
  report.of_workdir(str(workdir))
  assert (workdir / 'report.html').read_text() == page


@pytest.mark.slow
def test_evaluation_keeps_class_names(workdir):
  predictor = vit_jax.load(workdir)
  source = sources.get_source(str(workdir.parent / 'images'), 'test')
  rows = predictor.probabilities(source)
  p = scores.predict(rows, predictor.labels, source)
  result = json.loads(json.dumps(scores.details(p, predictor.labels)))
  assert list(result['classes']) == result['labels'] == CLASSES


@pytest.mark.slow
@pytest.mark.parametrize('how', ['--csv', '--json'])
def test_predictions_keep_names(how, workdir):
  names = files_of(workdir)
  result = call_command(
    'predict',
    f'--model={workdir}/artifact',
    f'--labels={workdir}/labels.txt',
    how,
    f'{workdir.parent}/images/test',
  )
  assert result.returncode == 0, result.stderr
  if how == '--csv':
    rows = list(csv.DictReader(result.stdout.splitlines(keepends=True)))
    found = [(row['image'], row['class']) for row in rows]
  else:
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    found = [(r['image'], x['class']) for r in rows for x in r['predictions']]
  assert sorted(found) == sorted((n, c) for n in names for c in CLASSES)


@pytest.mark.slow
def test_tables_have_one_line_for_each_class(workdir, capsys):
  names = files_of(workdir)
  rows = zip(names, vit_jax.load(workdir).predict(names), strict=True)
  output_lib.show(rows, names, as_json=False, as_csv=False)
  lines = capsys.readouterr().out.splitlines()
  assert len(lines) == 5 * len(names)
  assert sum(line.endswith(r'two\nlines') for line in lines) == len(names)


@pytest.mark.slow
def test_pictures_are_drawn(workdir, tmp_path):
  names = files_of(workdir)[:2]
  paths = attention_pictures.draw(vit_jax.load(workdir), names, tmp_path)
  assert len(set(paths)) == 2 * 3 + 3
  assert all(cv2.imread(str(path)) is not None for path in paths)
  config = tiny(workdir.parent / 'images')
  images, captions = contact_sheet.load_batch(config, 10, test=True)
  assert {line for lines in captions for line in lines} == set(CLASSES)
  assert contact_sheet.draw(images, captions).min() == 0


@pytest.mark.slow
def test_features_keep_file_names(workdir, tmp_path):
  names = files_of(workdir)
  output = tmp_path / '$x_$ % "א🐱.npz'
  rows = [(name, np.zeros(3)) for name in names]
  feature_files.write(rows, str(output))
  assert np.load(output)['names'].tolist() == names


@pytest.mark.slow
@pytest.mark.parametrize('to', ['huggingface', 'timm'])
def test_converted_weights_keep_class_names(to, workdir, tmp_path):
  out = tmp_path / '$out_$'
  formats.convert(checkpoint.read(workdir / 'artifact'), str(out), to)
  assert checkpoint.read(out).class_names == CLASSES


@pytest.mark.parametrize(
  'name',
  [*CLASSES, '$', '$$', '\\$', 'x_{', '%s', '\x1b[31m\x07', 'n' * 255],
)
def test_figures_show_a_name_as_it_is(name, tmp_path):
  figure = plot.matrix(np.eye(2), [name, 'other'], x='$x_', y='y')
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    text = plot.svg(figure)
    plot.save(plot.pictures({name: np.zeros((4, 4, 3))}), tmp_path / 'x.png')
  drawn = xml.etree.ElementTree.fromstring(text).itertext()
  line = ' '.join(
    name.replace('\x1b', '\ufffd').replace('\x07', '\ufffd').split()
  )
  want = line if len(line) <= 28 else line[:27] + '…'
  assert {want, 'other', '$x_'} <= set(drawn)


@pytest.mark.slow
def test_file_names_need_not_be_text(workdir, tmp_path):
  pq = pytest.importorskip('pyarrow.parquet')
  image = os.fsencode(files_of(workdir)[0])
  name = os.fsdecode(os.fsencode(tmp_path) + b'/caf\xe9.png')
  os.link(image, name)
  feature_files.write([(name, np.zeros(3))], str(tmp_path / 'x.parquet'))
  table = pq.read_table(tmp_path / 'x.parquet')
  assert table['name'].to_pylist() == [f'{tmp_path}/caf\\xe9.png']
  with start(
    'vit_jax', 'predict', f'--model={workdir}/artifact', '--csv', name
  ) as process:
    assert os.fsencode(name) in process.stdout.buffer.read()


def test_labels_may_begin_with_a_quotation_mark(tmp_path):
  path = tmp_path / 'labels.txt'
  path.write_text('"two\\nlines"\n"Heroes" by Bowie\nplain')
  twice = tmp_path / 'twice.txt'
  twice.write_text('crane\nbird\ncrane\n')
  assert predict.read_labels(str(twice), 3) == [
    'crane (0)',
    'bird',
    'crane (2)',
  ]
  assert predict.read_labels(str(path), 3) == [
    'two\nlines',
    '"Heroes" by Bowie',
    'plain',
  ]


def test_long_names_make_short_file_names():
  stem = attention_pictures._stem('א' * 120 + '.png')
  assert len(stem.encode()) == 200
  assert stem == 'א' * 100


def test_errors_name_settings_as_flags_on_a_command_line_alone():
  text = 'Set config.pp.crop=(8, 8) or (v=1), not config.x or /a/v=1. v=2: b=3'
  assert exits.with_flags(text) == (
    'Set config.pp.crop=(8, 8) or (--v=1), not config.x or /a/v=1. --v=2: b=3'
  )
