"""ReaL labels of ImageNet: where they are kept, and whose they are."""

import file_server
import numpy as np
import pytest

from vit_jax.data import real_labels
from vit_jax.runtime import errors


class Named:
  class_names, image_shape = (), None

  def __init__(self, *names):
    self._names = names

  def __len__(self):
    return len(self._names)

  def __getitem__(self, index):
    return {'name': self._names[index]}


def test_real_labels_are_those_of_the_file(tmp_path):
  path = tmp_path / 'real.json'
  path.write_text('[[1], [], [2, 3]]')
  images = Named(
    'a/ILSVRC2012_val_00000003.JPEG', 'x, ILSVRC2012_val_00000001.JPEG', 'y'
  )
  assert real_labels.read(path, images, np.array([0, 1])) == [
    [2, 3],
    [1],
  ]
  with pytest.raises(errors.UserError, match='y is not a validation image'):
    real_labels.read(path, images, np.array([2]))
  far = Named('ILSVRC2012_val_00000004.JPEG')
  with pytest.raises(errors.UserError, match='to 00000003: it has no ReaL'):
    real_labels.read(path, far, np.array([0]))
  for text in ('{', '[1]', '[["a"]]', '7'):
    path.write_text(text)
    with pytest.raises(errors.UserError, match='is not a list of lists'):
      real_labels.read(path, images, np.array([0]))


def test_real_labels_are_kept_with_the_data_sets(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with file_server.serve() as server:
    server.content = b'[[1], []]'
    url, root = f'{server.url}/master/real.json', str(tmp_path / 'data')
    path = real_labels.find(url, root)
    assert path == tmp_path / 'data' / 'imagenet_real' / 'real.json'
    assert path.read_bytes() == server.content
    assert real_labels.find(url, root) == path
    assert len(server.requests) == 1
    assert [p.name for p in tmp_path.iterdir()] == ['data']  # No checkpoints/.
    path.unlink()
    server.status = 403
    with pytest.raises(errors.UserError, match=f'403.* Put the file at {path}'):
      real_labels.find(url, root)
  assert real_labels.find('x.json') == real_labels.pathlib.Path('x.json')
  with pytest.raises(errors.UserError, match='x.json cannot be read: No such'):
    real_labels.read(tmp_path / 'x.json', Named('y'), np.array([0]))
