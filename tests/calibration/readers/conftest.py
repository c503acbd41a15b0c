"""What tests of readers ask of a reading."""

from calibration.readers import Reading


def codes(reading: Reading) -> set[str]:
    """The codes of its warnings."""
    return {warning.code for warning in reading.warnings}


def dropped(reading: Reading) -> dict[str, int]:
    """How often each reason left something out."""
    return {one.code: one.count for one in reading.dropped}
