"""A local server of one file, which can be slow, cut answers and refuse.

It is also a Hugging Face hub, all of whose repositories hold that file under
the names `HUB_FILES`.
"""

import contextlib
import hashlib
import http.server
import json
import threading

from made import TOKEN

HUB_FILES = [
  'config.json',
  'model.safetensors',
  'preprocessor_config.json',
  'README.md',
]
_COMMIT = 'c' * 40


class Handler(http.server.BaseHTTPRequestHandler):
  """Serves `content`; cuts each answer after `limit` bytes; may refuse."""

  content, limit, status, ranges = b'', None, 200, True
  gate: threading.Event | None = None  # Half of each answer waits for it.
  requests: list  # The ranges of the answers that had content.
  hub_requests: list  # (path, authorization) of the others.

  def do_HEAD(self):
    self.hub_requests.append((self.path, self.headers.get('Authorization')))
    if self.status != 200:
      self.send_error(self.status)
      return
    self.send_response(200)
    self.send_header('Content-Length', str(len(self.content)))
    self.send_header('ETag', hashlib.sha256(self.content).hexdigest())
    self.send_header('X-Repo-Commit', _COMMIT)
    self.end_headers()

  def do_GET(self):
    wanted = self.headers.get('Range')
    if self.path.startswith('/api/'):
      self._describe_repository()
      return
    self.requests.append(wanted)
    if self.status != 200:
      self.send_error(self.status)
      return
    start = 0
    if wanted and self.ranges:
      start = int(wanted.removeprefix('bytes=').removesuffix('-'))
      if start >= len(self.content):
        self.send_response(416)
        self.send_header('Content-Range', f'bytes */{len(self.content)}')
        self.end_headers()
        return
    body = self.content[start:]
    self.send_response(206 if start else 200)
    self.send_header('Content-Length', str(len(body)))
    self.end_headers()
    with contextlib.suppress(ConnectionError):  # Clients may be killed.
      if self.gate is not None:
        half = len(body) // 2
        self.wfile.write(body[:half])
        self.gate.wait()
        body = body[half:]
      self.wfile.write(body[: self.limit])

  def _describe_repository(self):
    self.hub_requests.append((self.path, self.headers.get('Authorization')))
    if self.status != 200:
      self.send_error(self.status)
      return
    size = len(self.content)
    answer = [
      {'type': 'file', 'path': name, 'size': size, 'oid': 'x'}
      for name in HUB_FILES
    ]
    if '/tree/' not in self.path:
      files = [{'rfilename': name} for name in HUB_FILES]
      answer = {'id': 'org/vit', 'sha': _COMMIT, 'siblings': files}
    self.send_response(200)
    self.end_headers()
    self.wfile.write(json.dumps(answer).encode())

  def log_message(self, *args):
    pass


@contextlib.contextmanager
def serve():
  """Gives a class like `Handler`, with its `url`; its fields may change."""
  handler = type('Handler', (Handler,), {'requests': [], 'hub_requests': []})
  with http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as httpd:
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    handler.url = f'http://127.0.0.1:{httpd.server_port}'
    handler.content = TOKEN.read_bytes()
    yield handler
    if handler.gate is not None:
      handler.gate.set()
    httpd.shutdown()
