"""The commands of `specmodel drafter`, one a module."""
