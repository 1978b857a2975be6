"""Fine-tunes released or other weights on a folder of images.

python -m vit_jax.main --config=configs/folder.py:b16,/path/to/data \
  --workdir=/tmp/folder

Instead of b16: any name that `vit-jax models` prints, or the path of weights of
transformers, timm or another run, which decide the model. Released ViTs use images of
384 px, like the paper; --config.pp.crop=224 is faster. Other weights use the size that
they were trained at.

The folder looks like {train,test}/<class>/<image>, or <class>/<image>, of which a fifth
of each class is then tested. A table (.csv, .tsv, .jsonl, .parquet) works too.
"""

import ml_collections

from vit_jax.configs import common
from vit_jax.configs import registry
from vit_jax.configs import run_files


def get_config(model_folder: str) -> ml_collections.ConfigDict:
  model, folder = run_files.model_and_data(
    model_folder, example='folder.py:b16,/path/to/data', data='a folder'
  )
  config = common.with_dataset(common.get_config(), folder)
  config = common.with_model(config, model)
  entry = registry.entries().get(config.pretrained)
  if entry is not None and not entry.is_family:
    # A Mixer accepts no other size; ViT-Mini_8 is made for small images.
    keeps_size = entry.model.startswith(('Mixer', 'ViT-Mini'))
    config.pp.crop = entry.resolution if keeps_size else 384
  config.total_steps = 500
  config.warmup_steps = 100
  return config
