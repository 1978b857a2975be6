"""What `benchmarks.accelerator` measures, part by part."""

from collections.abc import Iterator, Mapping
import dataclasses
import json
from typing import Any

Results = Mapping[str, dict[str, Any]]

# Changes of the policy, one at a time, in the names of `arithmetic.Policy`.
CHANGES = (
  'results',
  'attention_weights',
  'kept_by_norm',
  'activation_again',
  'fused_qkv',
)

FLAGS = (
  '--xla_gpu_enable_cublaslt=true',
  '--xla_gpu_enable_triton_gemm=false',
  '--xla_gpu_cudnn_gemm_fusion_level=2',
  '--xla_gpu_enable_command_buffer=',
)

_GAIN = 1.01  # A change that is faster by less is noise.


@dataclasses.dataclass(frozen=True)
class Job:
  """One measurement: a function of `accelerator_kinds.KINDS` and its arguments."""

  part: int
  kind: str
  what: dict[str, Any]
  flags: str = ''  # Of XLA.

  @property
  def name(self) -> str:
    what = json.dumps(self.what, sort_keys=True)
    return ' '.join(filter(None, (self.kind, what, self.flags)))


@dataclasses.dataclass(frozen=True)
class Sizes:
  """What is measured: `FULL`, `SHORT` for one model in minutes, `TINY` to rehearse."""

  product: int
  copy_mib: int
  tokens: tuple[tuple[int, int], ...]  # (tokens, padded to)
  attention_batch: int
  models: dict[str, tuple[int, ...]]  # Batches of training.
  inference: tuple[int, ...]
  resolution: int
  main: str  # The model of parts 3 and 4.
  main_batch: int
  photographs: int
  steps: int
  workers: tuple[int, ...] = (0, 8)
  implementations: tuple[str, ...] = ('xla', 'cudnn')
  flags: tuple[str, ...] = FLAGS


FULL = Sizes(
  product=16384,
  copy_mib=4096,
  tokens=(
    (197, 197),
    (197, 200),
    (197, 208),
    (197, 256),
    (256, 256),
    (577, 577),
  ),
  attention_batch=128,
  models={
    'ViT-B_16': (256, 128, 512),
    'ViT-S_16': (512, 1024),
    'ViT-L_16': (128, 256),
    'ViT-H_14': (64, 128),
  },
  inference=(1, 64, 512),
  resolution=224,
  main='ViT-B_16',
  main_batch=256,
  photographs=4000,
  steps=60,
)

SHORT = dataclasses.replace(
  FULL,
  tokens=((197, 197), (256, 256)),
  models={FULL.main: (FULL.main_batch,)},
  inference=(FULL.main_batch,),
  flags=('--xla_gpu_enable_triton_gemm=false',),
)

TINY = Sizes(
  product=64,
  copy_mib=1,
  tokens=((5, 5), (5, 8)),
  attention_batch=2,
  models={'ViT-Mini_8': (2,)},
  inference=(1,),
  resolution=32,
  main='ViT-Mini_8',
  main_batch=2,
  photographs=32,
  steps=6,
  workers=(0,),
  implementations=('xla',),
  flags=(),
)


def missing(
  part: int, sizes: Sizes, results: Results, images: str = ''
) -> list[Job]:
  """Returns the jobs of a part that have no result yet; later ones may follow."""
  jobs = {1: _ceilings, 2: _models, 3: _choices, 4: _runs}[part]
  found = jobs(sizes, results, images)
  return [job for job in found if job.name not in results]


def _ceilings(sizes: Sizes, *_: Any) -> Iterator[Job]:
  yield Job(1, 'machine', {})
  for results in ('bfloat16', 'float32'):
    yield Job(1, 'product', {'size': sizes.product, 'results': results})
  yield Job(1, 'copy', {'mib': sizes.copy_mib})
  for tokens, padded in sizes.tokens:
    for name in ('ours', *sizes.implementations):
      if name == 'ours' and padded != tokens:
        continue
      for backward in (False, True):
        what = {
          'tokens': tokens,
          'padded': padded,
          'batch': sizes.attention_batch,
          'heads': 12,
          'width': 64,
          'implementation': name,
          'backward': backward,
        }
        yield Job(1, 'attention', what)


def _model(
  part: int, sizes: Sizes, step: str, variant: str, batch: int, **more: Any
) -> Job:
  what = {
    'step': step,
    'library': 'vit_jax',
    'variant': variant,
    'resolution': sizes.resolution,
    'batch': batch,
    'dtype': 'bfloat16',
  }
  flags = more.pop('flags', '')
  return Job(part, 'model', what | more, flags)


def _models(sizes: Sizes, *_: Any) -> Iterator[Job]:
  for variant, batches in sizes.models.items():
    for batch in batches:
      yield _model(2, sizes, 'train', variant, batch)
    for batch in sizes.inference:
      yield _model(2, sizes, 'inference', variant, batch)
  yield _model(2, sizes, 'train', sizes.main, sizes.main_batch, dtype='float32')


def _choices(sizes: Sizes, results: Results, images: str) -> Iterator[Job]:
  """Yields peers, attention, one change each, then what follows from them."""
  del images
  main = ('train', sizes.main, sizes.main_batch)
  for variant, (batch, *_) in sizes.models.items():
    for step in ('train', 'inference'):
      for compiled in (True, False):
        more = {'library': 'timm', 'compiled': compiled}
        yield _model(3, sizes, step, variant, batch, **more)
  plain = _model(3, sizes, *main)
  yield plain
  for name in sizes.implementations[1:]:
    yield _model(3, sizes, *main, attention=name)
  changes = {name: _model(3, sizes, *main, policy=name) for name in CHANGES}
  yield from changes.values()
  if not all(job.name in results for job in (plain, *changes.values())):
    return
  speed = lambda job: results[job.name].get('images_s', 0.0)
  best = [n for n, job in changes.items() if speed(job) > _GAIN * speed(plain)]
  winner = {'policy': '+'.join(best)} if best else {}
  yield _model(3, sizes, *main, **winner)
  for name in sizes.implementations[1:]:
    yield _model(3, sizes, *main, **winner, attention=name)
  for flag in sizes.flags:
    yield _model(3, sizes, *main, **winner, flags=flag)
  for variant, (batch, *_) in sizes.models.items():
    for step in ('train', 'inference'):
      yield _model(3, sizes, step, variant, batch, **winner)


def _runs(sizes: Sizes, results: Results, images: str) -> Iterator[Job]:
  del results
  size = f'pp.crop={sizes.resolution}'
  for attention in sizes.implementations:
    settings = [
      size,
      f'attention={attention}',
      f'batch={min(32, sizes.photographs // 2)}',
      'total_steps=8',
      'checkpoint_every=2',
    ]
    what = {'model': sizes.main, 'settings': settings, 'kill_at': 5}
    yield Job(4, 'resume', what)
  for workers in sizes.workers:
    settings = [
      size,
      f'batch={sizes.main_batch}',
      f'total_steps={sizes.steps}',
      f'progress_every={max(1, sizes.steps // 6)}',
      f'num_workers={workers}',
      'checkpoint_every=100000',
    ]
    what = {
      'model': sizes.main,
      'images': images,
      'count': sizes.photographs,
      'settings': settings,
    }
    yield Job(4, 'photographs', what)
  settings = [
    size,
    f'batch={min(sizes.main_batch, 48)}',
    'total_steps=6',
    'profile_steps=(4,5)',
  ]
  yield Job(4, 'trace', {'model': sizes.main, 'settings': settings})
