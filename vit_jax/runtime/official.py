"""Names of the official code that do not exist here, and what replaces them."""

REPLACED = {
  'vit_jax': {
    'gsam': 'vit_jax.training.optimizers.create_optimizer(sam_rho=...)',
    'input_pipeline': 'vit_jax.data.sources and vit_jax.data.pipeline',
    'preprocess': 'vit_jax.data.texts.text and vit_jax.data.augmentation.transforms.EvalImage',
    'test_utils': 'vit_jax.models.init_params and vit_jax.checkpoint.save',
    'utils': 'vit_jax.training.optimizers.create_learning_rate_schedule and'
    ' vit_jax.training.update.accumulate_gradient',
  },
  'vit_jax.checkpoint': {
    'copy': 'vit_jax.weights.released.find',
    'get_augreg_df': 'vit_jax.configs.registry.entries',
    'inspect_params': 'vit_jax.weights.checks.check_fit',
    'recover_tree': 'vit_jax.weights.record.unflatten',
  },
  'vit_jax.train': {'make_update_fn': 'vit_jax.training.update.train_step'},
  'LitModel': {
    'get_image_preprocessing': 'vit_jax.data.augmentation.transforms.EvalImage',
    'get_pp': 'vit_jax.zero_shot.load',
    'get_tokenizer': 'vit_jax.data.texts.text.get_tokenizer',
    'load_variables': 'vit_jax.checkpoint.load',
    'vocab_path': 'vit_jax.weights.released.find_vocabulary',
  },
  'config': {
    'model_or_filename': 'config.pretrained',
    'model_type': 'nothing: the fields of config.model say the family',
    'shuffle_buffer': 'nothing: the whole split is shuffled',
    'tfds_manual_dir': 'vit-jax prepare --manual_dir',
    'train': 'config.trainer',
  },
}


def replacement(where: str, name: str) -> str:
  """Returns a sentence that names what replaces an official name; '' if nothing.

  `where` is the module or class of the official code, or 'config'.
  """
  if name not in REPLACED[where]:
    return ''
  return (
    f' {where}.{name} of the official code is replaced by'
    f' {REPLACED[where][name]}.'
  )


def missing(where: str, name: str) -> AttributeError:
  """Returns the error for `__getattr__` of a module to raise."""
  return AttributeError(
    f'{where} has no {name!r}.{replacement(where, name)}', name=name
  )
