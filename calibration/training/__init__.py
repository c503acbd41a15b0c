"""Training logs of draft models: read, checked, turned into accept lengths, projected.

Files -> records (`records`, one module per family) -> one clean log (`normalise`, `checks`) -> curves
and their projection -> accept lengths -> what they are worth in serving.
"""
