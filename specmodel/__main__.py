"""`python -m specmodel` is the command line, which the package `calibration` brings."""

from runpy import run_module

run_module("calibration", run_name="__main__", alter_sys=True)
