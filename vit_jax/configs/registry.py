"""The public weights of `registry.toml`: names, addresses, scores."""

from collections.abc import Sequence
import dataclasses
import functools
import importlib.resources
import re
import tomllib

# Models whose configs are in their files.
FAMILIES = (
  *('DeiT', 'DeiT III', 'MAE', 'DINOv2', 'DINOv3'),
  *('SigLIP', 'SigLIP 2', 'CLIP'),
)


_OF_IMAGENET = re.compile(r'--imagenet2012-|[._]in1k(_\d+)?(@.*)?$')


@dataclasses.dataclass(frozen=True)
class Entry:
  """One set of public weights.

  Attributes:
    name: value of `config.pretrained`.
    model: key of `configs.models.MODEL_CONFIGS`, or one of `FAMILIES`.
    sources: addresses, in the order they are tried.
    dataset: data set of the last training.
    num_classes: size of the head.
    resolution: side of the images in pixels.
    size_mib: size of the first source.
    mean: subtracted from pixels in [0, 1]; one number, or one a channel.
    std: divides pixels after that.
    head: 'ok', 'zero' (all zeros), 'none', or '' if unknown.
    top1: published accuracy on the validation images of ImageNet.
    top1_source: publication that has `top1`.
    vocabulary: address of the tokeniser's vocabulary of a LiT model.
    licence: licence of the weights.
    gated: whether the first source needs an account that accepted the licence.
  """

  name: str
  model: str
  sources: list[str]
  dataset: str
  num_classes: int | None = None
  resolution: int | None = None
  size_mib: float | int | None = None
  mean: float | int | list[float] = 0.5
  std: float | int | list[float] = 0.5
  head: str = ''
  top1: float | None = None
  top1_source: str = ''
  vocabulary: str = ''
  licence: str = 'Apache-2.0'
  gated: bool = False

  @property
  def is_family(self) -> bool:
    """Whether only the file tells the config of the model."""
    return self.model in FAMILIES

  @property
  def is_augreg(self) -> bool:
    """Whether the weights belong to the AugReg release (arXiv:2106.10270)."""
    return any('augreg' in source for source in self.sources)


@functools.cache
def entries() -> dict[str, Entry]:
  """Returns the entries by name."""
  file = importlib.resources.files('vit_jax.configs') / 'registry.toml'
  tables = tomllib.loads(file.read_text(encoding='utf-8'))
  return {
    name: Entry(name=name, **tables[table.get('same_as', name)])
    for name, table in tables.items()
  }


def dataset_of(name: str) -> str:
  """Returns the data set that weights of a name were trained on last, or ''.

  Beside the entries, it knows the names of AugReg's files and of timm's weights.
  """
  if name in entries():
    return entries()[name].dataset
  return 'imagenet2012' if _OF_IMAGENET.search(name) else ''


def table(entries: Sequence[Entry]) -> str:
  """Returns a heading and a line for each entry."""
  rows = [
    (
      *('name', 'model', 'px', 'MiB', 'trained on', 'head', 'top-1', 'mean'),
      'licence',
    )
  ]
  for e in entries:
    size = f'{e.size_mib:.0f}' if e.size_mib else '-'
    top1 = f'{e.top1:.2%} ({e.top1_source})' if e.top1 else '-'
    px, head = str(e.resolution or '-'), e.head or '?'
    mean = ' '.join(
      map(str, [e.mean] if isinstance(e.mean, float | int) else e.mean)
    )
    licence = f'{e.licence} (gated)' if e.gated else e.licence
    rows.append(
      (e.name, e.model, px, size, e.dataset, head, top1, mean, licence)
    )
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  line = '  '.join(f'{{:{width}}}' for width in widths)
  return '\n'.join(line.format(*row).rstrip() for row in rows)
