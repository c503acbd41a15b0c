"""What a model is made of: parameters, bytes, operations and collectives from its counts."""

from specmodel.architecture.blocks import CompressedAttention as CompressedAttention
from specmodel.architecture.blocks import DenseMlp as DenseMlp
from specmodel.architecture.blocks import GroupedAttention as GroupedAttention
from specmodel.architecture.blocks import LatentAttention as LatentAttention
from specmodel.architecture.blocks import LinearAttention as LinearAttention
from specmodel.architecture.blocks import MoeMlp as MoeMlp
from specmodel.architecture.blocks import SparseIndex as SparseIndex
from specmodel.architecture.collectives import Collectives as Collectives
from specmodel.architecture.collectives import collectives as collectives
from specmodel.architecture.collectives import expected_ranks as expected_ranks
from specmodel.architecture.config_json import shape_from_config as shape_from_config
from specmodel.architecture.config_json import shape_from_text as shape_from_text
from specmodel.architecture.flops import attention_flop_per_token as attention_flop_per_token
from specmodel.architecture.flops import expert_flop_per_token as expert_flop_per_token
from specmodel.architecture.flops import matrix_flop_per_token as matrix_flop_per_token
from specmodel.architecture.kv import CacheEntries as CacheEntries
from specmodel.architecture.kv import KvCache as KvCache
from specmodel.architecture.kv import kv_cache as kv_cache
from specmodel.architecture.memory import MemoryFit as MemoryFit
from specmodel.architecture.memory import memory_fit as memory_fit
from specmodel.architecture.memory import require_fit as require_fit
from specmodel.architecture.parameters import ParameterCounts as ParameterCounts
from specmodel.architecture.parameters import mtp_parameters as mtp_parameters
from specmodel.architecture.parameters import parameter_counts as parameter_counts
from specmodel.architecture.presets import Preset as Preset
from specmodel.architecture.presets import has_preset as has_preset
from specmodel.architecture.presets import preset as preset
from specmodel.architecture.presets import presets as presets
from specmodel.architecture.quantisation import Quantisation as Quantisation
from specmodel.architecture.quantisation import WeightFormat as WeightFormat
from specmodel.architecture.quantisation import quantisation as quantisation
from specmodel.architecture.quantisation import weight_format as weight_format
from specmodel.architecture.shape import LayerGroup as LayerGroup
from specmodel.architecture.shape import ModelShape as ModelShape
from specmodel.architecture.stated_weights import stated_weights as stated_weights
from specmodel.architecture.weights import WeightBytes as WeightBytes
from specmodel.architecture.weights import weight_bytes as weight_bytes

__all__ = [
    "CacheEntries",
    "Collectives",
    "CompressedAttention",
    "DenseMlp",
    "GroupedAttention",
    "KvCache",
    "LatentAttention",
    "LayerGroup",
    "LinearAttention",
    "MemoryFit",
    "ModelShape",
    "MoeMlp",
    "ParameterCounts",
    "Preset",
    "Quantisation",
    "SparseIndex",
    "WeightBytes",
    "WeightFormat",
    "attention_flop_per_token",
    "collectives",
    "expected_ranks",
    "expert_flop_per_token",
    "has_preset",
    "kv_cache",
    "matrix_flop_per_token",
    "memory_fit",
    "mtp_parameters",
    "parameter_counts",
    "preset",
    "presets",
    "quantisation",
    "require_fit",
    "shape_from_config",
    "shape_from_text",
    "stated_weights",
    "weight_bytes",
    "weight_format",
]
