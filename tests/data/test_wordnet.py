"""Names of classes of ImageNet, in words and as WordNet ids."""

import shutil

from golden_files import REPOSITORY
import pytest

from vit_jax import checkpoint
from vit_jax.configs import registry
from vit_jax.data import class_names
from vit_jax.data import real_labels
from vit_jax.data import wordnet
from vit_jax.evaluation import scores
from vit_jax.runtime import errors
from vit_jax.weights import record as weights_lib

IMAGENET, TINY = wordnet.names('imagenet2012'), wordnet.names('tiny_imagenet')


def test_classes_have_the_published_order():
  assert (len(IMAGENET), len(TINY)) == (1000, 200)
  found = {i: IMAGENET[i] for i in (0, 207, 281, 999)}
  assert found == {
    0: 'tench',
    207: 'golden retriever',
    281: 'tabby',
    999: 'toilet tissue',
  }
  assert TINY[::199] == ['goldfish', 'acorn']
  assert wordnet.names('cifar10') == []


def test_names_and_ids_are_the_same_classes():
  ids = wordnet.ids(weights_lib.distinct(IMAGENET))
  assert ids is not None
  assert ids == sorted(ids)  # As folders of images are.
  assert ids[281] == 'n02123045'
  assert wordnet.ids(IMAGENET) == ids
  assert wordnet.ids(['tench, Tinca tinca', *IMAGENET[1:]]) == ids
  assert wordnet.ids(['n02123045', 'n01440764']) == ['n02123045', 'n01440764']
  tiny = wordnet.ids(TINY)
  assert tiny is not None
  assert tiny[0] == ids[1]
  for names in (['tench'], IMAGENET[::-1], ['cat', 'dog'], ['n00000000']):
    assert wordnet.ids(names) is None


def test_images_in_folders_of_ids_fit_models_with_words():
  ids = wordnet.ids(IMAGENET)
  assert ids is not None
  assert scores.class_map(ids, IMAGENET).tolist() == list(range(1000))
  assert scores.class_map(IMAGENET, ids).tolist() == list(range(1000))
  assert scores.class_map([ids[281], ids[0]], IMAGENET).tolist() == [281, 0]
  tiny = scores.class_map(wordnet.ids(TINY), IMAGENET)
  assert [IMAGENET[i] for i in tiny] == TINY


def test_real_labels_number_the_classes_of_imagenet():
  ids = wordnet.imagenet_ids()
  assert real_labels.numbers(IMAGENET) == list(range(1000))
  assert real_labels.numbers([f'class {i}' for i in range(1000)])[-1] == 999
  assert real_labels.numbers([ids[7], ids[3]]) == [7, 3]
  assert real_labels.numbers(TINY)[TINY.index('apron')] == 411
  for names in (['cat', 'dog'], [f'class {i}' for i in range(200)]):
    with pytest.raises(errors.UserError, match='are those of ImageNet, but'):
      real_labels.numbers(names)


@pytest.mark.parametrize(
  'some, others', [(['b', 'a'], ['a', 'b', 'c']), (['tench'], ['a', 'b'])]
)
def test_other_names_are_compared_as_they_are(some, others):
  assert class_names.comparable(some, others) == (some, others)


@pytest.mark.parametrize(
  'name, dataset',
  [
    ('ViT-B_16-224', 'imagenet2012'),
    ('B_16-i21k-300ep-lr_0.001--imagenet2012-steps_20k', 'imagenet2012'),
    ('vit_base_patch16_224.augreg_in21k_ft_in1k', 'imagenet2012'),
    ('vit_base_patch16_224.augreg_in1k_384@main', 'imagenet2012'),
    ('vit_base_patch16_224.augreg_in21k', ''),
    ('in1k_of_mine', ''),
    ('ViT-Mini_8', 'tiny_imagenet'),
  ],
)
def test_names_of_weights_tell_their_data(name, dataset):
  assert registry.dataset_of(name) == dataset


def test_only_released_weights_get_names(tmp_path):
  path = REPOSITORY / 'checkpoints' / 'ViT-Mini_8.npz'
  assert checkpoint.read(path).class_names == TINY
  shutil.copy(path, tmp_path / 'mine.npz')
  names = checkpoint.read(tmp_path / 'mine.npz').class_names
  assert names == [f'class {i}' for i in range(200)]
  # Weights of another number of classes are others, whatever their name is.
  shutil.copy(path, tmp_path / 'ViT-B_16-224.npz')
  assert checkpoint.read(tmp_path / 'ViT-B_16-224.npz').class_names == names
