"""Settings: defaults, possible values and checks.

common                every setting and its default
presets               config for a data set, for given weights, or for a sweep
images                the settings of images, `config.pp`
labels                tasks: what images are labelled with, losses, metrics
losses                the settings of the training loss, and of a teacher
optimization          the settings of the schedule and the optimizer
models                sizes of the released models
spec                  properties of a model, from its config
registry              released weights: names, addresses, scores (`registry.toml`)
run_files             run files by path or name
rules                 how a setting is declared: its default and its values
resolved              fills open settings: defaults, stages, epochs to steps
validate              refuses settings that cannot work
image_towers          refuses sizes and parts of image towers that cannot work
unused                refuses settings that another one makes useless
arguments             settings to the arguments of a model class
vit                   official run file: any released ViT on any data set
augreg                official run file: AugReg
mixer_base16_cifar10  official run file: Mixer-B/16
inference_time        official run file: images per second
"""

# What other packages import.
__all__ = (
  'arguments',
  'common',
  'images',
  'labels',
  'losses',
  'models',
  'registry',
  'resolved',
  'rules',
  'run_files',
  'spec',
  'unused',
  'validate',
)
