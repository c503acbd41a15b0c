"""What was measured of a draft model on a device: the record that `drafter` writes and others read."""

from specmodel.measurement.draft_record import Clocks as Clocks
from specmodel.measurement.draft_record import Comparison as Comparison
from specmodel.measurement.draft_record import DraftRecord as DraftRecord
from specmodel.measurement.draft_record import DraftShapes as DraftShapes
from specmodel.measurement.draft_record import DraftTiming as DraftTiming
from specmodel.measurement.draft_record import ExtendTiming as ExtendTiming
from specmodel.measurement.draft_record import KernelTiming as KernelTiming
from specmodel.measurement.draft_record import StepTiming as StepTiming
from specmodel.measurement.draft_record import comparisons as comparisons
from specmodel.measurement.draft_record import load_record as load_record
from specmodel.measurement.draft_record import save_record as save_record
