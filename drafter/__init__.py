"""A complete EAGLE-3 draft model in Triton, its reference and its timing; it measures, never predicts.

Importing the package loads neither torch nor triton; what needs them is imported where it is used.
"""
