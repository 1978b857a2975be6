"""Predictions to scores: accuracy, probes, retrieval, attention maps.

scores            names and formulas of measurements; predictions of a loaded model
ranking           the most probable classes of images
evaluator         metrics of parameters on a test split, with their probes
probes            k-NN, linear and few-shot classifiers of features
retrieval         images that find their texts, and back
attention_maps    attention rollout and distances, as arrays
prediction_files  predictions of many images, a row an image
feature_files     features of many images in an .npz or .parquet file
"""
