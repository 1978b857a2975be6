"""A local stand-in of the Hugging Face hub that keeps what is pushed to it."""

import base64
import contextlib
import hashlib
import http.server
import json
import re
import threading
import urllib.parse

_IS_COMMIT = re.compile('[0-9a-f]{40}')


class Handler(http.server.BaseHTTPRequestHandler):
  """Knows how to make a repository, a branch and a commit, and to read them."""

  repositories: dict  # {name: {branch: {path: bytes}}}
  tokens: list  # The token of each request that writes.
  token = 'good'
  refusal: tuple | None = None  # Status, code and message of every answer.

  def do_POST(self):
    body = self.rfile.read(int(self.headers.get('Content-Length') or 0))
    if self._refused():
      return
    if 'validate-yaml' in self.path:
      self._answer({'errors': [], 'warnings': []})
      return
    given = (self.headers.get('Authorization') or '').removeprefix('Bearer ')
    self.tokens.append(given)
    if given != self.token:
      self._answer({'error': 'Invalid token'}, 401)
      return
    path = urllib.parse.urlparse(self.path).path
    parts = urllib.parse.unquote(path).strip('/').split('/')
    if path == '/api/repos/create':
      asked = json.loads(body)
      name = '/'.join(filter(None, (asked.get('organization'), asked['name'])))
      self.repositories.setdefault(name, {'main': {}})
      self._answer({'url': f'{self.url}/{name}', 'name': name})
      return
    name, action, branch = '/'.join(parts[2:4]), parts[4], parts[5]
    if action == 'branch':
      branches = self.repositories[name]
      branches.setdefault(branch, dict(branches['main']))
      self._answer({})
    elif action == 'preupload':
      files = [
        {'path': x['path'], 'uploadMode': 'regular', 'shouldIgnore': False}
        for x in json.loads(body)['files']
      ]
      self._answer({'files': files})
    elif action == 'commit':
      for line in map(json.loads, body.splitlines()):
        if line['key'] == 'file':
          content = base64.b64decode(line['value']['content'])
          self.repositories[name][branch][line['value']['path']] = content
      self._answer(
        {
          'success': True,
          'commitOid': _hash(branch),
          'commitUrl': f'{self.url}/{name}/commit/{_hash(branch)}',
          'pullRequestUrl': None,
        }
      )

  def do_GET(self):
    if self._refused():
      return
    parts = self._parts()
    if parts[0] != 'api':
      content = self._file(parts)
      self._answer(content, 200 if content is not None else 404)
      return
    if parts[1:] == ['whoami-v2']:
      self._answer({'name': 'user', 'type': 'user', 'orgs': []})
      return
    name = '/'.join(parts[2:4])
    files = self._files(name)
    if files is None:
      what = 'Revision' if name in self.repositories else 'Repo'
      self._answer({'error': f'{what} not found'}, 404, error=f'{what}NotFound')
    elif 'tree' in parts:
      rows = [
        {'type': 'file', 'path': p, 'size': len(x), 'oid': 'x'}
        for p, x in files.items()
      ]
      self._answer(rows)
    else:
      siblings = [{'rfilename': p} for p in files]
      self._answer({'id': name, 'sha': self._commit(), 'siblings': siblings})

  def do_HEAD(self):
    content = self._file(self._parts())
    self._answer(content, 200 if content is not None else 404, body=False)

  def _refused(self):
    if self.refusal:
      status, code, message = self.refusal
      self._answer({'error': message}, status, error=code)
    return bool(self.refusal)

  def _parts(self):
    """Returns the parts of the path; branches may have slashes in them."""
    path = urllib.parse.urlparse(self.path).path
    return [urllib.parse.unquote(part) for part in path.strip('/').split('/')]

  def _file(self, parts):
    """Returns the content of [datasets/]user/name/resolve/branch/path."""
    parts = parts[1:] if parts[0] == 'datasets' else parts
    files = self._files('/'.join(parts[:2])) or {}
    return files.get('/'.join(parts[4:]))

  def _files(self, name):
    """Returns the files of a repository at the branch or commit of the path."""
    branches = self.repositories.get(name, {})
    return {_hash(x): files for x, files in branches.items()}.get(
      self._commit()
    )

  def _commit(self):
    """Returns the commit that the path names; each branch has one."""
    parts = self._parts()
    found = [x for x in ('resolve', 'revision', 'tree') if x in parts]
    branch = parts[parts.index(found[0]) + 1] if found else 'main'
    return branch if _IS_COMMIT.fullmatch(branch) else _hash(branch)

  def _answer(self, content, status=200, body=True, error=''):
    data = (
      content if isinstance(content, bytes) else json.dumps(content).encode()
    )
    self.send_response(status)
    self.send_header('Content-Length', str(len(data)))
    self.send_header('ETag', hashlib.sha256(data).hexdigest())
    self.send_header('X-Repo-Commit', self._commit())
    if error:
      self.send_header('X-Error-Code', error)
    self.end_headers()
    if body:
      self.wfile.write(data)

  def log_message(self, *args):
    pass


def _hash(branch):
  return hashlib.sha1(branch.encode()).hexdigest()


@contextlib.contextmanager
def serve():
  """Gives a class like `Handler`, with its `url`."""
  handler = type('Handler', (Handler,), {'repositories': {}, 'tokens': []})
  with http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as httpd:
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    handler.url = f'http://127.0.0.1:{httpd.server_port}'
    yield handler
    httpd.shutdown()
