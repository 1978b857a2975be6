"""Downloads: resumed when cut, checked, and shared by processes."""

import os
import sys
import threading
import time

import file_server
from made import TOKEN
from processes import running
from processes import start_command
from processes import wait_for
import pytest

from vit_jax.runtime import download
from vit_jax.runtime import errors


@pytest.fixture
def server():
  with file_server.serve() as handler:
    yield handler


def test_cut_download_resumes(server, tmp_path):
  path = tmp_path / 'x' / 'model.npz'
  server.limit = 100_000
  with pytest.raises(errors.UserError, match='try again to continue'):
    download.download(f'{server.url}/model.npz', path)
  assert not path.exists()
  download.download(f'{server.url}/model.npz', path)
  assert path.read_bytes() == server.content
  assert server.requests == [None, 'bytes=100000-']
  assert [p.name for p in path.parent.iterdir()] == ['model.npz']


def test_download_restarts_without_ranges(server, tmp_path):
  path = tmp_path / 'model.npz'
  (tmp_path / 'model.npz.part').write_bytes(b'other')
  server.ranges = False
  download.download(f'{server.url}/model.npz', path)
  assert path.read_bytes() == server.content


def test_whole_partial_file_is_moved_into_place(server, tmp_path):
  (tmp_path / 'model.npz.part').write_bytes(server.content)
  download.download(f'{server.url}/model.npz', tmp_path / 'model.npz')
  assert (tmp_path / 'model.npz').read_bytes() == server.content


def test_partial_file_of_another_size_is_replaced(server, tmp_path):
  (tmp_path / 'model.npz.part').write_bytes(server.content + b'more')
  download.download(f'{server.url}/model.npz', tmp_path / 'model.npz')
  assert (tmp_path / 'model.npz').read_bytes() == server.content


def test_download_names_folder_that_cannot_be_made(server, tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(errors.UserError, match='cannot be fetched'):
    download.download(f'{server.url}/x', tmp_path / 'file' / 'x')


def test_wrong_checksum_is_refused(server, tmp_path):
  with pytest.raises(errors.UserError, match='arrived damaged: its SHA-256'):
    download.download(f'{server.url}/x', tmp_path / 'x', sha256='0' * 64)
  assert not list(tmp_path.iterdir())


def start(code, folder):
  """Starts a process that says when it is about to run `code`.

  While it waits for another process, a file of its number is in FOLDER.waiting.
  """
  code = f"""
import logging as python_logging, os, pathlib, sys
from absl import logging
logging.set_verbosity('info')
class Waiting(python_logging.Handler):
  def emit(self, record):
    if 'another process' in record.getMessage():
      folder = pathlib.Path(sys.argv[1] + '.waiting')
      folder.mkdir(exist_ok=True)
      (folder / str(os.getpid())).touch()
logging.get_absl_logger().addHandler(Waiting())
print('ready', flush=True)
{code}"""
  process = start_command(sys.executable, '-c', code, str(folder))
  assert process.stdout.readline() == 'ready\n'
  return process


FILE = """
from vit_jax.runtime import download
download.download('{url}/model.npz', sys.argv[1] + '/model.npz')
"""
HUB = """
import os
os.environ['HF_ENDPOINT'] = '{url}'
os.environ['HF_TOKEN'] = 'hf_secret'
import pathlib
from vit_jax.weights import released
path = pathlib.Path(sys.argv[1]) / 'vit.npz'
released.download_first(['hf://org/vit'], path)
"""


@pytest.mark.parametrize('code, count', [(FILE, 1), (HUB, 3)])
def test_processes_share_one_download(server, tmp_path, code, count):
  server.gate = threading.Event()
  code = code.format(url=server.url)
  processes = [start(code, tmp_path) for _ in range(3)]
  with running(processes) as wait:
    while not server.requests:
      time.sleep(0.01)
    waiting = tmp_path.with_name(f'{tmp_path.name}.waiting')
    while len(list(waiting.glob('*'))) < 2:
      # Without a lock, the others would ask too.
      assert len(server.requests) <= count
      assert all(process.poll() is None for process in processes)
      time.sleep(0.01)
    server.gate.set()
    results = wait()
  assert [r.returncode for r in results] == [0, 0, 0], results
  assert len(server.requests) == count
  files = [p for p in tmp_path.rglob('*') if p.is_file()]
  assert len(files) == count
  assert all(p.read_bytes() == TOKEN.read_bytes() for p in files)
  assert sum('another process' in r.stderr for r in results) == 2
  tokens = [token for path, token in server.hub_requests if 'org/vit' in path]
  assert set(tokens) == ({'Bearer hf_secret'} if 'hf://' in code else set())


def test_download_of_killed_process_resumes(server, tmp_path):
  server.gate = threading.Event()
  server.content = os.urandom(1 << 22)
  code = FILE.format(url=server.url)
  first = start(code, tmp_path)
  part = tmp_path / 'model.npz.part'
  wait_for(
    lambda: part.exists() and part.stat().st_size,
    lambda: first.poll() is None,
  )
  second = start(code, tmp_path)
  with running([second]) as wait:
    os.kill(first.pid, 9)
    first.communicate()
    server.gate.set()
    [result] = wait()
  assert result.returncode == 0, result.stderr
  assert (tmp_path / 'model.npz').read_bytes() == server.content
  assert server.requests[1].startswith('bytes=')
  assert [p.name for p in tmp_path.iterdir()] == ['model.npz']


def test_failed_download_can_be_tried_again(server, tmp_path):
  server.status = 404
  for _ in range(2):  # No lock is left that the next one would wait for.
    with pytest.raises(errors.UserError, match='404'):
      download.download(f'{server.url}/x', tmp_path / 'x')
  server.status = 200
  download.download(f'{server.url}/x', tmp_path / 'x')
  assert [p.name for p in tmp_path.iterdir()] == ['x']
