"""Compiled programs, kept between processes."""

import os
import warnings

import jax
import platformdirs

from vit_jax.runtime import onednn
from vit_jax.runtime import processor
from vit_jax.runtime import storage

_MAX_BYTES = 4 * 2**30  # Above this, JAX deletes the oldest programs.


def enable() -> None:
  """Keeps compiled programs in the user's cache directory, if it is writable.

  JAX's own settings override this: `JAX_COMPILATION_CACHE_DIR`, or
  `JAX_ENABLE_COMPILATION_CACHE=0` for no cache.
  """
  if jax.config.values['jax_compilation_cache_dir']:
    return
  path = storage.local_path(folder())
  try:
    path.mkdir(parents=True, exist_ok=True)
  except OSError:
    return  # Otherwise JAX warns at each program.
  if not os.access(path, os.W_OK):
    return
  jax.config.update('jax_compilation_cache_dir', str(path))
  jax.config.update('jax_compilation_cache_max_size', _MAX_BYTES)
  # Below JAX's second, as small programs add up; not zero, as JAX looks at every
  # entry when it adds one, to keep the limit.
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.05)
  jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)
  if onednn.is_used():
    # XLA cannot write programs with calls of oneDNN, and JAX warns at each.
    warnings.filterwarnings(
      'ignore', r'Error writing persistent compilation cache entry.*bad_alloc'
    )


def folder() -> storage.Path:
  """Returns the folder of compiled programs.

  JAX's keys only have the kind of accelerator: with a shared home, a host could
  load a program with instructions that it lacks. So the folder is the processor's.
  """
  if chosen := jax.config.values['jax_compilation_cache_dir']:
    return storage.as_path(chosen)
  return (
    platformdirs.user_cache_path('vit_jax') / f'xla-{processor.fingerprint()}'
  )
