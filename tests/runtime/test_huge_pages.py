"""A process that trains on CPUs asks for huge pages, by starting again."""

import pathlib
import sys

from processes import start_command
import pytest

_CODE = """
import os, sys
from vit_jax.runtime import huge_pages
huge_pages.use()
print(os.getpid(), os.environ.get('GLIBC_TUNABLES'), *sys.argv[1:])
"""


def setting(**environment):
  process = start_command(
    sys.executable, '-c', _CODE, 'a b', '--c', **environment
  )
  out, err = process.communicate()
  assert not err
  pid, value, *rest = out.split()
  assert (int(pid), rest) == (process.pid, ['a', 'b', '--c'])
  return value


def test_a_process_restarts_with_huge_pages():
  enabled = pathlib.Path('/sys/kernel/mm/transparent_hugepage/enabled')
  if '[madvise]' not in (enabled.read_text() if enabled.exists() else ''):
    pytest.skip('Programs need not ask for huge pages here.')
  assert setting(GLIBC_TUNABLES=None) == 'glibc.malloc.hugetlb=1'
  assert setting(GLIBC_TUNABLES=None, JAX_PLATFORMS='cuda,cpu') == 'None'


def test_huge_pages_keep_tunables_of_the_user():
  assert setting(GLIBC_TUNABLES='glibc.malloc.arena_max=2').endswith('max=2')
