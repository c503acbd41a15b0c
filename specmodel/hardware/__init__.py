"""The catalogue of GPUs and interconnects: datasheet rates with measured ones beside them."""

from specmodel.hardware.catalogue import gpu as gpu
from specmodel.hardware.catalogue import gpus as gpus
from specmodel.hardware.catalogue import interconnect as interconnect
from specmodel.hardware.catalogue import interconnects as interconnects
from specmodel.hardware.records import Gpu as Gpu
from specmodel.hardware.records import Interconnect as Interconnect

__all__ = ["Gpu", "Interconnect", "gpu", "gpus", "interconnect", "interconnects"]
