"""Links of the documentation lead somewhere, and its code runs."""

import itertools
import re

from golden_files import REPOSITORY
import jax.numpy as jnp
import numpy as np
import pytest

README = REPOSITORY / 'README.md'
DOCS = sorted((REPOSITORY / 'docs').glob('*.md'))
PAGES = [
  *sorted(REPOSITORY.glob('*.md')),
  *DOCS,
  REPOSITORY / 'benchmarks' / 'RESULTS.md',
  REPOSITORY / 'checkpoints' / 'README.md',
]


def short(page):
  return str(page.relative_to(REPOSITORY))


def anchors(path):
  """Returns the anchors that GitHub gives the headings of a page."""
  headings = re.findall(r'^#+ (.*)$', path.read_text(), re.M)
  plain = [re.sub(r'[^\w\- ]', '', heading.lower()) for heading in headings]
  return {heading.replace(' ', '-') for heading in plain}


@pytest.mark.parametrize('page', PAGES, ids=short)
def test_links_lead_to_files_and_headings(page):
  links = re.findall(r'\]\(([^)#\s]*)(?:#([^)\s]*))?\)', page.read_text())
  for target, anchor in links:
    if '://' in target:
      continue
    path = page.parent / target if target else page
    assert path.exists(), target
    if anchor and path.suffix == '.md':
      assert anchor in anchors(path), f'{target}#{anchor}'


@pytest.mark.parametrize('page', PAGES, ids=short)
def test_files_and_functions_that_are_named_exist(page):
  pattern = r'`([\w./]+\.(?:py|toml))(?:::(\w+))?`'
  for name, function in re.findall(pattern, page.read_text()):
    paths = [REPOSITORY / place / name for place in ('', 'vit_jax', 'configs')]
    found = [path for path in paths if path.exists()]
    assert found, name
    if function:
      text = found[0].read_text()
      assert re.search(rf'^(def|class) {function}\b', text, re.M), function


def test_every_page_is_linked_from_the_readme():
  text = README.read_text()
  for page in DOCS:
    assert page.stem == 'index' or f'docs/{page.name}' in text, page


def test_every_run_file_is_in_the_table():
  text = (REPOSITORY / 'docs' / 'fine-tuning.md').read_text()
  table = text.partition('## Run files')[2].partition('##')[0]
  named = set()
  for name in re.findall(r'`([\w{},]+)\.py', table):
    parts = [x.split(',') for x in re.split(r'[{}]', name)]
    named |= {''.join(x) for x in itertools.product(*parts)}
  files = {path.stem for path in (REPOSITORY / 'configs').glob('*.py')}
  assert named == files


def test_the_readme_is_short():
  assert README.read_text().count('\n') <= 150


@pytest.mark.slow
def test_a_loop_of_ones_own_trains_a_new_head():
  text = (REPOSITORY / 'docs' / 'fine-tuning.md').read_text()
  (code,) = re.findall(r'```python\n(.*?)```', text, re.DOTALL)
  names = {}
  exec(code, names)  # What a reader pastes.
  images = np.random.default_rng(0).uniform(-1, 1, (4, 48, 48, 3))
  labels = jnp.array([0, 1, 0, 1])
  params = names['params']
  state, losses = names['tx'].init(params), []
  for _ in range(3):
    params, state, loss = names['step'](params, state, images, labels)
    losses.append(float(loss))
  assert losses[0] == pytest.approx(np.log(2))
  assert losses[2] < losses[1] < losses[0]
