"""Feeds a text to the readers of all trainers but speculators, as the reader of files does."""

from calibration.training.lines import physical_lines
from calibration.training.modelopt_log import ModelOptLines
from calibration.training.records import RawLog, RecordTable, Split
from calibration.training.small_trainers import (
    AutomodelLines,
    DeepSpecLines,
    Eagle1Lines,
    Eagle3Lines,
    HfTrainerLines,
    TorchSpecLines,
)
from calibration.training.specforge_log import SpecForgeLines

READERS = (
    SpecForgeLines,
    Eagle3Lines,
    Eagle1Lines,
    TorchSpecLines,
    ModelOptLines,
    AutomodelLines,
    DeepSpecLines,
    HfTrainerLines,
)


def fed(text: str | bytes) -> RawLog:
    """Return what all readers find in one file; each is given every line."""
    raw = RawLog()
    readers = [make(raw) for make in READERS]
    content = text if isinstance(text, bytes) else text.encode()
    for line, stream, piece in physical_lines([content]):
        for reader in readers:
            reader.feed(line, stream, piece)
    for reader in readers:
        reader.finish()
    return raw


def values(table: RecordTable, name: str) -> list[float]:
    """Return a column."""
    return list(table.column(name).tolist())


def marginals(raw: RawLog, family: str, split: Split) -> list[list[float]]:
    """Return the marginal accuracies of a table."""
    return list(raw.table(family, split).records().stacked("marginal").tolist())
