"""All families that read lines, fed the blocks of a log together."""

from collections.abc import Callable
from typing import Final, Protocol

from calibration.training.automodel_log import AutomodelLines
from calibration.training.deepspec_log import DeepSpecLines
from calibration.training.eagle_log import Eagle1Lines, Eagle3Lines
from calibration.training.hf_trainer_log import HfTrainerLines
from calibration.training.marked_lines import line_groups
from calibration.training.modelopt_log import ModelOptLines
from calibration.training.physical_lines import CutText, physical_lines
from calibration.training.records import RawLog
from calibration.training.specforge_log import SpecForgeLines
from calibration.training.speculators_blocks import SpeculatorsBlocks
from calibration.training.speculators_console import SpeculatorsLines
from calibration.training.torchspec_log import TorchSpecLines

_SHARED: Final = "position "


class FamilyLines(Protocol):
    """Reads the records of one family from lines."""

    def feed(self, line: int, stream: str, text: str) -> bool:
        """Take a line; True where it is one of the family."""

    def finish(self) -> None:
        """Add what is open at the end of a file."""


_FACTORIES: Final[tuple[Callable[[RawLog], FamilyLines], ...]] = (
    Eagle3Lines,
    Eagle1Lines,
    TorchSpecLines,
    AutomodelLines,
    DeepSpecLines,
    ModelOptLines,
    HfTrainerLines,
)


class LineReaders:
    """Feeds the lines of logs to all families until one takes each.

    Records of speculators and SpecForge that look alike are taken in whole blocks first.
    """

    def __init__(self, raw: RawLog) -> None:
        self.num_lines = 0
        self._speculators = SpeculatorsLines(raw)
        self._blocks = SpeculatorsBlocks(self._speculators)
        self._specforge = SpecForgeLines(raw)
        self._readers: list[FamilyLines] = [
            self._speculators,
            self._specforge,
            *(make(raw) for make in _FACTORIES),
        ]

    def feed(self, block: bytes) -> None:
        """Take some whole lines in UTF-8; the last ones of a file may lack the line end."""
        first_line = self.num_lines + 1
        for line, rest in self._blocks.rest(first_line, block):
            for at, lines in self._specforge.steps.rest(line, rest, self._is_specforge):
                self._feed_groups(at, lines)
        self.num_lines += block.count(b"\n")

    def finish(self) -> None:
        """End a file: nothing that is open goes on in the next one."""
        for reader in self._readers:
            reader.finish()

    def _is_specforge(self) -> bool:
        """Return whether SpecForge is asked first: its dictionaries are not offered to others then."""
        return self._readers[0] is self._specforge

    def _feed_groups(self, first_line: int, lines: bytes) -> None:
        """Feed the lines that may be part of a record, and pass over the others."""
        is_open = self._speculators.has_open
        for group in line_groups(first_line, lines, is_open=is_open):
            if group.is_marked:
                self._feed_lines(group.line, group.text)
            elif self._speculators.has_open:
                self._speculators.interrupt(group.line, group.text)

    def _feed_lines(self, first_line: int, text: bytes) -> None:
        """Feed lines one by one."""
        for number, stream, line in physical_lines([text], first_line=first_line):
            if _may_be_metrics(line):
                self._feed(number, stream, line)
            else:  # it may go on with a record that was wrapped
                self._speculators.feed(number, stream, line)

    def _feed(self, line: int, stream: str, text: str) -> None:
        """Offer a line to the families, the one that took the last line first.

        Blocks of positions are offered to all: several families print them alike.
        """
        shared = _SHARED in text
        for place, reader in enumerate(self._readers):
            if reader.feed(line, stream, text) and not shared:
                if place:
                    self._readers.insert(0, self._readers.pop(place))
                return


def _may_be_metrics(text: str) -> bool:
    """Return whether a line may be a record, for a quick look: most lines of some logs are not."""
    return (
        "acc" in text
        or "loss" in text
        or "{" in text
        or "AR:" in text
        or "Acc" in text
        or "poch " in text
        or _SHARED in text
        or isinstance(text, CutText)
    )
