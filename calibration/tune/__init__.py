"""Depths by batch, and the flags and files that engines read, from a calibration."""
