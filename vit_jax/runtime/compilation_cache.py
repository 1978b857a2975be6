"""Programs that were compiled once are not compiled again."""

import hashlib
import os
import pathlib
import platform

import jax
import platformdirs

from vit_jax.runtime import storage

# Of all programs together; the oldest are deleted.
_MAX_BYTES = 4 * 2**30


def enable() -> None:
  """Keeps compiled programs in the user's cache directory, if it can be written.

  JAX's own settings come first: `JAX_COMPILATION_CACHE_DIR`, or
  `JAX_ENABLE_COMPILATION_CACHE=0` for no cache.
  """
  if jax.config.jax_compilation_cache_dir:
    return
  path = folder()
  try:
    path.mkdir(parents=True, exist_ok=True)
  except OSError:
    return  # Otherwise JAX warns at each program.
  if not os.access(path, os.W_OK):
    return
  jax.config.update('jax_compilation_cache_dir', str(path))
  jax.config.update('jax_compilation_cache_max_size', _MAX_BYTES)
  # Lower than JAX's second, as small programs add up; not zero, as JAX looks at
  # every entry, to keep the limit, when it adds one.
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.05)
  jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)


def folder() -> storage.Path:
  """Returns the folder of compiled programs."""
  if chosen := jax.config.jax_compilation_cache_dir:
    return storage.as_path(chosen)
  return platformdirs.user_cache_path('vit_jax') / f'xla-{_processor()}'


def _processor() -> str:
  """Returns a short name of what this processor can do.

  JAX asks for the kind of accelerator only: a program for the processor of one
  host could have instructions that another host, with the same home, has not.
  """
  try:
    lines = pathlib.Path('/proc/cpuinfo').read_text().splitlines()
  except OSError:  # Not on Linux.
    lines = [platform.processor()]
  features = sorted({x for x in lines if x.startswith(('flags', 'Features'))})
  return hashlib.sha256('\n'.join(features or lines).encode()).hexdigest()[:8]
