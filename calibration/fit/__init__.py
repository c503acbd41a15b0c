"""Fit: from points of one system to a calibration."""
