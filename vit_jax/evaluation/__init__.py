"""Predictions to scores: accuracy, probes, retrieval, attention maps.

evaluator       accuracy and loss of parameters on a test split
predictions     predictions of a loaded model on labelled images
scores          predictions to accuracy, calibration, confusions
probes          k-NN, linear and few-shot classifiers of features
retrieval       images that find their texts, and back
attention_maps  attention rollout and distances, as arrays
"""
