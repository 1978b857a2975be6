"""Programs that were compiled once are not compiled again."""

import hashlib
import pathlib
import platform

import jax
import platformdirs

# Of all programs together; the oldest are deleted.
_MAX_BYTES = 4 * 2**30


def enable() -> None:
  """Keeps compiled programs in the user's cache directory.

  JAX's own settings come first: `JAX_COMPILATION_CACHE_DIR`, or
  `JAX_ENABLE_COMPILATION_CACHE=0` for no cache.
  """
  if jax.config.jax_compilation_cache_dir:
    return
  folder = platformdirs.user_cache_path('vit_jax') / f'xla-{_processor()}'
  jax.config.update('jax_compilation_cache_dir', str(folder))
  jax.config.update('jax_compilation_cache_max_size', _MAX_BYTES)
  # Lower than JAX's second, as small programs add up; not zero, as JAX looks at
  # every entry, to keep the limit, when it adds one.
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.05)
  jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)


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
