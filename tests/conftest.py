"""What holds for every test: properties draw the same examples in every run and on every machine."""

from hypothesis import settings

settings.register_profile("specmodel", deadline=None, derandomize=True)
settings.load_profile("specmodel")
