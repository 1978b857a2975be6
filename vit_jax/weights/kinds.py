"""What a file is that cannot be read as the weights it should be."""

import contextlib
import json
import pathlib
import zipfile

_SIGNATURES = (  # What a wrong file starts with, and what it then is.
  (b'version https://git-lfs', 'a Git LFS pointer: run `git lfs pull`'),
  (b'<', 'an HTML or XML page, perhaps the error page of a download'),
  (b'\x93NUMPY', 'a single .npy array'),
  (b'\x89HDF', 'an HDF5 file'),
)

PICKLE = (
  'a pickle, which is never opened: it could run code. Where torch is'
  ' installed, safetensors.torch.save_file(torch.load(FILE,'
  " weights_only=True), 'model.safetensors') converts it"
)

_MAX_SAFETENSORS = 1 << 44  # A header that says more is damaged.


def what_it_is(path: pathlib.Path) -> str:
  """Returns what a file is that is not what it should be."""
  size = path.stat().st_size
  if not size:
    return 'an empty file'
  with open(path, 'rb') as f:
    start = f.read(64)
  for signature, meaning in _SIGNATURES:
    if start.lstrip().startswith(signature):
      return meaning
  if start.startswith(b'\x80'):
    return PICKLE
  if start.startswith(b'PK'):
    with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as z:
      if any(name.endswith('data.pkl') for name in z.namelist()):
        return f'a PyTorch file, {PICKLE}'
    return (
      f'cut or damaged after {size} bytes, or holds objects that are not'
      f' arrays. Fetch it again'
    )
  if start[8:9] == b'{':
    return _what_is_wrong_with_safetensors(path)
  return f'of an unknown kind (it starts with {start[:8]!r})'


def _what_is_wrong_with_safetensors(path: pathlib.Path) -> str:
  """Returns how long a file should be, as its header says, if it is shorter."""
  size = path.stat().st_size
  with open(path, 'rb') as f:
    length = int.from_bytes(f.read(8), 'little')
    header = f.read(min(length, size))
  whole = 8 + length
  if size < whole <= _MAX_SAFETENSORS:
    return f'cut in its header, after {size:,} bytes. Fetch it again'
  with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
    tensors = json.loads(header).items()
    ends = (x['data_offsets'][1] for k, x in tensors if k != '__metadata__')
    whole += max(ends, default=0)
  if size < whole <= _MAX_SAFETENSORS:
    return f'cut, {size:,} of {whole:,} bytes. Fetch it again'
  return f'damaged: its header does not fit its {size:,} bytes. Fetch it again'
