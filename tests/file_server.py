"""A local server of one file, which can be slow, cut answers and refuse."""

import contextlib
import http.server
import threading

from made import TOKEN


class Handler(http.server.BaseHTTPRequestHandler):
  """Serves `content`; cuts each answer after `limit` bytes; may refuse."""

  content, limit, status, ranges = b'', None, 200, True
  gate: threading.Event | None = None  # Half of each answer waits for it.
  requests: list

  def do_GET(self):
    wanted = self.headers.get('Range')
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

  def log_message(self, *args):
    pass


@contextlib.contextmanager
def serve():
  """Gives a class like `Handler`, with its `url`; its fields may change."""
  handler = type('Handler', (Handler,), {'requests': []})
  with http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as httpd:
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    handler.url = f'http://127.0.0.1:{httpd.server_port}'
    handler.content = TOKEN.read_bytes()
    yield handler
    if handler.gate is not None:
      handler.gate.set()
    httpd.shutdown()
