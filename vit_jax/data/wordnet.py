"""Classes of ImageNet and Tiny ImageNet: their WordNet ids and their words."""

from collections.abc import Sequence
import functools
import importlib.resources


@functools.cache
def _classes() -> dict[str, dict[str, str]]:
  """Returns {data set: {WordNet id: words}}, in the order of the logits.

  The file has the words of WordNet 3.0. The third column marks Tiny ImageNet.
  """
  file = importlib.resources.files('vit_jax.data') / 'imagenet_classes.tsv'
  lines = file.read_text(encoding='utf-8').splitlines()
  rows = [line.split('\t') for line in lines]
  return {
    'imagenet2012': {row[0]: row[1] for row in rows},
    'tiny_imagenet': {row[0]: row[1] for row in rows if len(row) > 2},
  }


def _first(words: str) -> str:
  return words.split(', ')[0]


def names(dataset: str) -> list[str]:
  """Returns the first word of each class, 'tench'; empty for other data sets.

  Two of them are 'crane', two of ImageNet's 'maillot'.
  """
  return [_first(words) for words in _classes().get(dataset, {}).values()]


def imagenet_ids() -> list[str]:
  """Returns the WordNet ids of ImageNet's classes, in the order of the logits."""
  return list(_classes()['imagenet2012'])


def ids(names: Sequence[str]) -> list[str] | None:
  """Returns the WordNet ids of classes of ImageNet; None if they are others.

  Args:
    names: ids in any order; or 'tench' or 'tench, Tinca tinca' for each class of
      ImageNet or Tiny ImageNet, in its order. 'crane (134)' tells equal names apart.
  """
  if set(names) <= set(_classes()['imagenet2012']):
    return list(names)
  for classes in _classes().values():
    if len(classes) == len(names) and all(
      name.removesuffix(f' ({i})') in (words, _first(words))
      for i, (name, words) in enumerate(
        zip(names, classes.values(), strict=True)
      )
    ):
      return list(classes)
  return None
