"""The acceptance of a training log as `specmodel predict` asks for it."""

from pathlib import Path

from calibration.predict.accept_lengths import AskedAcceptLength
from calibration.training.log_acceptance import log_acceptance
from calibration.training.reading import read_training_log
from calibration.training.records import Kind
from specmodel.errors import FormatError


def asked_by_log(path: Path, asked: AskedAcceptLength) -> AskedAcceptLength:
    """Return the question with the acceptance that a log last shows."""
    log = read_training_log(path)
    found = log_acceptance(log)
    source, printed = found.source, found.printed
    if source is not None and "depth0-only" not in log.codes:
        joint = source.accuracies.get(Kind.JOINT)
        if joint is not None:
            return asked._replace(full_accuracy=joint)
        for kind in (Kind.CONDITIONAL, Kind.MARGINAL, Kind.OVERLAP):
            if kind in source.accuracies:
                return asked._replace(conditional_accuracy=source.accuracies[kind])
    if printed is not None and printed.accept_length is not None:
        return asked._replace(accept_length=printed.accept_length)
    raise FormatError(
        path,
        f"this log implies no accept length ({', '.join(sorted(log.codes)) or 'no accuracy'}); log an "
        "accuracy for each depth",
        code="no-accept-length",
    )
