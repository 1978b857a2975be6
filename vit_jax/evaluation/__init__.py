"""Predictions to scores: accuracy, probes, retrieval, attention maps."""
