"""What was measured of a draft model on a device: the record that `drafter` writes and others read."""

from specmodel.measurement.comparison import Comparison as Comparison
from specmodel.measurement.comparison import comparisons as comparisons
from specmodel.measurement.draft_record import Clocks as Clocks
from specmodel.measurement.draft_record import DraftRecord as DraftRecord
from specmodel.measurement.draft_record import DraftShapes as DraftShapes
from specmodel.measurement.record_file import load_record as load_record
from specmodel.measurement.record_file import save_record as save_record
from specmodel.measurement.timings import DraftTiming as DraftTiming
from specmodel.measurement.timings import ExtendTiming as ExtendTiming
from specmodel.measurement.timings import KernelTiming as KernelTiming
from specmodel.measurement.timings import StepTiming as StepTiming

__all__ = [
    "Clocks",
    "Comparison",
    "DraftRecord",
    "DraftShapes",
    "DraftTiming",
    "ExtendTiming",
    "KernelTiming",
    "StepTiming",
    "comparisons",
    "load_record",
    "save_record",
]
