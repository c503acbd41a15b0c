"""Read measurements, fit the model to them, and answer from the command line."""
