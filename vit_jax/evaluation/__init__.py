"""Predictions to scores: accuracy, probes, retrieval, attention maps.

scores            names and formulas of measurements; predictions of a loaded model
ranking           what is predicted for an image: its most probable classes, or numbers
multilabel        scores of several classes an image, and their thresholds
regression        scores of numbers
labelled          scores of a loaded model for images with either
ensemble          several models that predict together
temperature       fits the temperature of a classifier
batched           functions of parameters and images, applied in batches
all_outputs       outputs for all images of a split
evaluator         metrics of parameters on a test split, with their probes
probes            k-NN, linear and few-shot classifiers of features
retrieval         images that find their texts, and back
attention_maps    attention rollout and distances, as arrays
prediction_files  predictions of many images, a row an image
feature_files     features of many images in an .npz or .parquet file
"""

# What other packages import.
__all__ = (
  'all_outputs',
  'attention_maps',
  'batched',
  'ensemble',
  'evaluator',
  'feature_files',
  'labelled',
  'multilabel',
  'prediction_files',
  'probes',
  'ranking',
  'regression',
  'retrieval',
  'scores',
  'temperature',
)
