"""`python -m calibration` is the command line."""

from calibration.cli import main

main(prog_name="specmodel")
