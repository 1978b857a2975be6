"""Finding and downloading pretrained weights."""

import functools
import re
import shutil

import file_server
from golden_files import GOLDEN
from golden_files import REPOSITORY
import huggingface_hub
import jax
from made import TOKEN
import numpy as np
import pytest

from vit_jax import checkpoint
from vit_jax.configs import common
from vit_jax.configs import models as model_configs
from vit_jax.configs import registry
from vit_jax.runtime import download
from vit_jax.runtime import errors
from vit_jax.weights import released
from vit_jax.weights.families import clip


def test_find_names_missing_file(tmp_path):
  with pytest.raises(errors.UserError, match=r'no checkpoint file .*none.npz'):
    checkpoint.load(tmp_path / 'none.npz')
  with pytest.raises(errors.UserError) as e:
    released.find('my-model', str(tmp_path))
  assert f'{tmp_path}/my-model.npz is missing' in str(e.value)
  assert 'or give its path' in str(e.value)
  assert 'config.' not in str(e.value)  # It may be a teacher, or --model.


def test_find_suggests_similar_names(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(errors.UserError, match='no checkpoint file or folder'):
    released.find('a/ViT-B_16')
  with pytest.raises(errors.UserError, match="Did you mean 'ViT-B_16'"):
    released.find('vit-B_16')


def known(monkeypatch, *sources):
  """Makes `sources` the sources of ViT-B_16 in the registry."""
  entry = registry.Entry(
    name='ViT-B_16', model='ViT-B_16', sources=list(sources), dataset='none'
  )
  monkeypatch.setattr(registry, 'entries', lambda: {'ViT-B_16': entry})


@pytest.fixture
def server():
  with file_server.serve() as handler:
    yield handler


def test_find_downloads_released_name_once(server, tmp_path, monkeypatch):
  known(monkeypatch, f'{server.url}/ViT-B_16.npz')
  find = functools.partial(released.find, 'ViT-B_16', str(tmp_path))
  assert find() == find() == tmp_path / 'ViT-B_16.npz'
  assert len(server.requests) == 1


def test_http_403_names_file_and_place(server, tmp_path, monkeypatch):
  known(monkeypatch, f'{server.url}/ViT-B_16.npz')
  server.status = 403
  with pytest.raises(errors.UserError) as e:
    released.find('ViT-B_16', str(tmp_path))
  for words in ('HTTP 403', f'put it at {tmp_path}', 'pretrained_dir'):
    assert words in str(e.value)
  assert not list(tmp_path.iterdir())


def test_find_searches_a_bucket(server, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  path = released.find('ViT-B_16', f'{server.url}/imagenet21k')
  assert path.read_bytes() == server.content
  assert path.is_relative_to('checkpoints')
  # Another bucket with a file of the same name is another file.
  server.content = b'other'
  other = released.find(f'{server.url}/sam/ViT-B_16.npz?download=true')
  assert other.read_bytes() == b'other'
  assert other.name == 'ViT-B_16.npz'
  assert path.read_bytes() != b'other'
  # So may be another query, such as ?id=2.
  server.content = b'third'
  third = released.find(f'{server.url}/sam/ViT-B_16.npz?id=2')
  assert third.read_bytes() == b'third'
  assert other.read_bytes() == b'other'
  with pytest.raises(errors.UserError, match=r'has \.\. in its path'):
    released.find(f'{server.url}/../../x.npz')


def test_https_url_maps_gs_addresses():
  got = download.https_url('gs://vit_models/imagenet21k/ViT-B_16.npz')
  assert got == (
    'https://storage.googleapis.com/vit_models/imagenet21k/ViT-B_16.npz'
  )


@pytest.fixture
def hub(server, monkeypatch):
  """A server that `huggingface_hub` asks."""
  download = functools.partial(
    huggingface_hub.snapshot_download, endpoint=server.url
  )
  monkeypatch.setattr(huggingface_hub, 'snapshot_download', download)
  return server


def test_find_tries_next_source_and_the_hub(hub, tmp_path, monkeypatch):
  known(monkeypatch, 'http://127.0.0.1:1/ViT-B_16.npz', 'hf://org/vit')
  path = released.find('ViT-B_16', str(tmp_path))
  assert path == tmp_path / 'ViT-B_16'
  assert sorted(p.name for p in path.iterdir()) == [
    'config.json',
    'model.safetensors',
    'preprocessor_config.json',
  ]
  assert released.find('ViT-B_16', str(tmp_path)) == path
  assert len(hub.requests) == 3


def test_find_takes_a_repository_and_revision(hub, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for name in ('org/vit.a', 'org/vit.b@v1'):
    path = released.find(f'hf://{name}')
    assert path.samefile(tmp_path / 'checkpoints/huggingface.co' / name)
    assert (path / 'model.safetensors').read_bytes() == hub.content
  asked = [path for path, _ in hub.hub_requests]
  assert '/api/models/org/vit.a/revision/main' in asked
  assert '/api/models/org/vit.b/revision/v1' in asked
  with pytest.raises(errors.UserError, match='hf://a/b/c: .*not USER/NAME'):
    released.find('hf://a/b/c')


def test_find_names_all_failed_sources(hub, tmp_path, monkeypatch):
  known(monkeypatch, 'http://127.0.0.1:1/ViT-B_16.npz', 'hf://org/vit')
  hub.status = 404
  with pytest.raises(errors.UserError) as e:
    released.find('ViT-B_16', str(tmp_path))
  assert '127.0.0.1:1' in str(e.value)
  assert 'hf://org/vit: ' in str(e.value)
  assert 'no such repository' in str(e.value)
  assert not list(tmp_path.iterdir())


INDEX = """name,ds,final_val,infer_samples_per_sec,filename,adapt_filename
R+Ti/16,i21k,0.31,1,R_Ti_16-i21k-a,R_Ti_16-i21k-a--x
R+Ti/16,i21k,0.42,NaN,R_Ti_16-i21k-b,R_Ti_16-i21k-b--x
R+Ti/16,i21k,0.33,1,R_Ti_16-i21k-e,R_Ti_16-i21k-e--x
R+Ti/16,i21k,nan,1,R_Ti_16-i21k-f,R_Ti_16-i21k-f--x
R+Ti/16,i21k,0.5
R+Ti/16,i1k,0.77,,R_Ti_16-i1k-c,R_Ti_16-i1k-c--x
Ti/16,i21k,0.55,2,Ti_16-i21k-d,Ti_16-i21k-d--x
"""


def test_find_takes_augreg_file_with_highest_final_val(tmp_path):
  (tmp_path / 'index.csv').write_text(INDEX)
  best = tmp_path / 'R_Ti_16-i21k-b.npz'
  best.write_bytes(TOKEN.read_bytes())
  assert released.find('R_Ti_16', str(tmp_path)) == best
  # A whole name needs no index.
  (tmp_path / 'index.csv').unlink()
  assert released.find('R_Ti_16-i21k-b', str(tmp_path)) == best


def test_find_names_wrong_augreg_index(tmp_path):
  with pytest.raises(errors.UserError, match='index.csv cannot be read'):
    released.find('B_16', str(tmp_path))
  (tmp_path / 'index.csv').write_text(INDEX)
  with pytest.raises(errors.UserError, match='no ImageNet-21k weights of B_16'):
    released.find('B_16', str(tmp_path))
  (tmp_path / 'index.csv').write_text('a,b\n1,2\n')
  with pytest.raises(errors.UserError, match='not an AugReg index'):
    released.find('B_16', str(tmp_path))


def test_registry_has_each_released_model():
  entries = registry.entries()
  for entry in entries.values():
    assert entry.is_family or entry.model in model_configs.MODEL_CONFIGS
    assert bool(entry.sources) != (entry.name == 'ViT-Mini_8')
    for source in entry.sources:
      assert source.startswith(('gs://', 'https://', 'hf://')), source
    assert entry.head in ('ok', 'zero', 'none', '')
    assert entry.top1 is None or (0.6 < entry.top1 < 0.9 and entry.top1_source)
  plain = [n for n in model_configs.MODEL_CONFIGS if 'norep' not in n]
  for name in plain[2:]:  # But for the two that are for testing.
    assert entries[name].model == name
  lits = [e for e in entries.values() if e.model.startswith('LiT')]
  assert len(lits) == 5
  assert all(entry.vocabulary for entry in lits)


def test_rows_of_families_agree():
  rows = [e for e in registry.entries().values() if e.is_family]
  assert {entry.model for entry in rows} == set(registry.FAMILIES)
  sources = [source for entry in rows for source in entry.sources]
  assert len(sources) == len(set(sources))
  for entry in rows:
    if entry.model.startswith(('SigLIP', 'CLIP')):
      continue
    prefix = entry.model.replace('DeiT III', 'DeiT3')
    size, patch = re.match(rf'{prefix}-([\w+]+?)_(1[46])', entry.name).groups()
    assert entry.resolution % int(patch) == 0
    for source in entry.sources:
      assert source.startswith(('hf://timm/', 'hf://facebook/'))
      assert size[0].lower() in source.partition('/')[2]
      assert re.search(rf'patch{patch}_|vit\w+{patch}|dinov2-', source), source
    assert len(entry.mean) == len(entry.std) == 3
    assert (entry.head == 'ok') == (entry.num_classes == 1000)
    assert entry.licence
    assert entry.gated == (entry.model == 'DINOv3')
    config = common.with_model(common.get_config(), entry.name)
    assert (config.model, config.pretrained) == (None, entry.name)


def test_rows_of_clips_agree():
  rows = [e for e in registry.entries().values() if e.model == 'CLIP']
  for entry in rows:
    size, patch = re.match(r'(?:Open)?CLIP-(\w+)_(\d+)', entry.name).groups()
    assert entry.resolution % int(patch) == 0
    [source] = entry.sources
    words = {'B': 'base', 'L': 'large'}
    name = f'-{size}-{patch}-' if 'laion' in source else f'{words[size]}-patch'
    assert name in source, source
    assert entry.licence == 'MIT'
    assert tuple(entry.mean) == clip.MEAN
    assert tuple(entry.std) == clip.STD


def test_weights_with_the_name_of_a_family_are_read(tmp_path):
  shutil.copytree(GOLDEN / 'timm_vit', tmp_path / 'DeiT-B_16')
  weights = checkpoint.read(released.find('DeiT-B_16', str(tmp_path)))
  assert weights.model['model_name'] == 'DeiT-B_16'


def test_weights_of_the_repository_predict():
  entry = registry.entries()['ViT-Mini_8']
  path = released.find(entry.name, str(REPOSITORY / 'checkpoints'))
  assert path.stat().st_size == pytest.approx(entry.size_mib * 2**20, rel=1e-3)
  assert path.stat().st_size < 9e6
  weights = checkpoint.read(path)
  assert sum(x.size for x in jax.tree.leaves(weights.params)) < 5e6
  image = np.linspace(-1, 1, 64 * 64 * 3).reshape(1, 64, 64, 3)
  logits = weights.module().apply(
    {'params': weights.params}, image, train=False
  )
  assert logits.shape == (1, entry.num_classes)
  assert 0.1 < np.std(logits) < 10


def test_find_weights_of_the_package_anywhere(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  path = REPOSITORY / 'checkpoints' / 'ViT-Mini_8.npz'
  assert released.find('ViT-Mini_8') == path
  assert released.names_here() == ['ViT-Mini_8']
  (tmp_path / 'checkpoints').mkdir()
  mine = tmp_path / 'checkpoints' / 'ViT-Mini_8.npz'
  mine.write_bytes(b'')
  assert released.find('ViT-Mini_8').resolve() == mine  # It comes first.


def test_registry_table_lists_models():
  entries = registry.entries()
  names = ('ViT-L_32', 'augreg-B_16-384', 'DINOv3-L_16-sat')
  lines = registry.table([entries[name] for name in names])
  heading, zero, augreg, gated = lines.split('\n')
  assert gated.endswith('0.43 0.411 0.296  DINOv3 License (gated)')
  assert heading.split()[:3] == ['name', 'model', 'px']
  assert zero.split()[:3] == ['ViT-L_32', 'ViT-L_32', '224']
  assert ' zero ' in zero
  assert '85.49% (official README)' in augreg


def test_rows_of_siglips_agree():
  """Names of repositories and of big_vision's files say the same sizes."""
  rows = [e for e in registry.entries().values() if 'SigLIP' in e.model]
  assert len(rows) == 25
  words = {'B': 'base', 'L': 'large', 'So400m': 'so400m', 'g': 'giant-opt'}
  for entry in rows:
    version, size, patch, i18n = re.match(
      r'(SigLIP2?)-(\w+?)_(\d+)(-i18n)?-\d+$', entry.name
    ).groups()
    hub, file = entry.sources
    px = entry.resolution
    assert entry.name.endswith(f'-{px}')
    assert entry.model == version.replace('2', ' 2')
    name = f'{version.lower()}-{words[size]}-patch{patch}-{px}'
    assert hub.startswith(f'hf://google/{name}')
    assert bool(i18n) == hub.endswith(('-multilingual', '-i18n'))
    folder = f'gs://big_vision/{version.lower()}/'
    assert file.startswith(folder)
    assert file.endswith('.npz')
    name = file.removeprefix(folder)
    language = '(i18n|en)_' if version == 'SigLIP' else 'siglip2_'
    letter = 'g-opt' if size == 'g' else size.lower()
    assert re.search(rf'{language}{letter}_?({patch})?_{px}\b|_{px}_', name)
    assert ('i18n' in name) == bool(i18n)
