"""Predictions: from a calibration and questions to answers."""
