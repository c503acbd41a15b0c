"""`python -m calibration` is the command line."""

from calibration.cli import main

if __name__ == "__main__":
    main(prog_name="specmodel")
