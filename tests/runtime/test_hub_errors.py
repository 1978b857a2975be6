"""What the Hugging Face hub refuses: one line that says what to try."""

import functools

import hub_server
import huggingface_hub
import pytest

from vit_jax.data import sources
from vit_jax.runtime import errors
from vit_jax.weights import hub as hub_lib
from vit_jax.weights import released

_RIGHTS = 'You don\'t have the rights to create "user/x"'


@pytest.fixture
def hub(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with hub_server.serve() as handler:
    point_to(handler.url, tmp_path, monkeypatch)
    yield handler


def point_to(url, folder, monkeypatch):
  api = functools.partial(huggingface_hub.HfApi, endpoint=url)
  download = functools.partial(
    huggingface_hub.snapshot_download,
    endpoint=url,
    cache_dir=folder / 'hub',
  )
  monkeypatch.setattr(huggingface_hub, 'HfApi', api)
  monkeypatch.setattr(huggingface_hub, 'snapshot_download', download)
  monkeypatch.setattr(huggingface_hub.constants, 'ENDPOINT', url)


def messages(folder):
  """Returns what is said to who reads a model, reads a data set and pushes."""
  said = []
  for call in (
    lambda: released.find('hf://user/x@v1'),
    lambda: sources.get_source('hf://datasets/user/x@v1', 'train'),
    lambda: hub_lib.push(folder, 'user/x', revision='v1'),
  ):
    with pytest.raises(errors.UserError) as error:
      call()
    said.append(str(error.value))
  assert not any('\n' in text or 'http' in text.split('. ')[0] for text in said)
  model, data, pushed = said
  assert model.startswith('hf://user/x@v1: ')
  assert data.startswith('hf://datasets/user/x@v1: ')
  assert pushed.startswith('user/x cannot be pushed: ')
  return said


@pytest.mark.parametrize(
  ('refusal', 'reason', 'advice'),
  [
    ((404, 'RepoNotFound', ''), 'no such repository', 'Check the name at {}'),
    ((401, 'RepoNotFound', ''), 'no such repository', 'HF_TOKEN'),
    ((404, 'RevisionNotFound', ''), 'no such branch', 'See {}/tree/main'),
    ((403, 'GatedRepo', ''), 'owner must give', 'Ask at {}, and log in'),
    ((401, 'GatedRepo', ''), 'owner must give', 'HF_TOKEN'),
    ((401, '', 'Invalid token.'), 'answers 401: Invalid token.', 'HF_TOKEN'),
    ((403, '', _RIGHTS), f'answers 403: {_RIGHTS}.', 'Log in with `hf auth'),
    ((520, '', ''), 'answers 520', 'Try again later'),
  ],
)
def test_a_refusal_says_what_to_try(hub, tmp_path, refusal, reason, advice):
  hub.refusal = refusal
  for text, path, verb in zip(
    messages(tmp_path),
    ('user/x', 'datasets/user/x', 'user/x'),
    ('read', 'read', 'write to'),
    strict=True,
  ):
    assert reason in text
    assert advice.format(f'{hub.url}/{path}') in text
    if 'HF_TOKEN' in text:
      assert f'that may {verb} it' in text


def test_a_hub_that_cannot_be_reached_is_named(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  point_to('http://127.0.0.1:1', tmp_path, monkeypatch)
  said = []
  for call in (
    lambda: released.find('hf://user/x'),
    lambda: sources.get_source('hf://datasets/user/x', 'train'),
    lambda: hub_lib.push(tmp_path, 'user/x'),
  ):
    with pytest.raises(errors.UserError) as error:
      call()
    said.append(str(error.value))
  for text in said:
    assert 'http://127.0.0.1:1 cannot be reached: ' in text
    assert 'HF_ENDPOINT' in text


def test_offline_mode_is_named(hub, tmp_path, monkeypatch):
  monkeypatch.setattr(huggingface_hub.constants, 'HF_HUB_OFFLINE', True)
  model, data, pushed = messages(tmp_path)
  for text in (model, data):
    assert 'HF_HUB_OFFLINE is set, and it was not downloaded before' in text
    assert 'give a folder' in text
  assert 'HF_HUB_OFFLINE is set, and nothing is uploaded' in pushed


def test_a_name_of_another_form_is_refused(tmp_path):
  with pytest.raises(errors.UserError, match="'a/b/c' is not USER/NAME"):
    released.find('hf://a/b/c')
