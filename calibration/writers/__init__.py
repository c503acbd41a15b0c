"""Files and flags that engines read, from a calibration; nothing beyond what its points reach."""

from calibration.writers.accept_lengths_by_depth import AcceptLengths as AcceptLengths
from calibration.writers.depth_schedule import depth_schedule as depth_schedule
from calibration.writers.dspark_table import dspark_additive_table as dspark_additive_table
from calibration.writers.dspark_table import dspark_sampled_table as dspark_sampled_table
from calibration.writers.dspark_table import dspark_table_text as dspark_table_text
from calibration.writers.dspark_table import write_dspark_table as write_dspark_table
from calibration.writers.loaded_server import LoadedOverhead as LoadedOverhead
from calibration.writers.loaded_server import loaded_overhead_at as loaded_overhead_at
from calibration.writers.schedule import BatchChoice as BatchChoice
from calibration.writers.schedule import DepthRange as DepthRange
from calibration.writers.schedule import DepthSchedule as DepthSchedule
from calibration.writers.schedule import schedule_text as schedule_text
from calibration.writers.schedule import write_schedule_text as write_schedule_text
from calibration.writers.sglang_adaptive import sglang_adaptive_config as sglang_adaptive_config
from calibration.writers.sglang_adaptive import sglang_adaptive_text as sglang_adaptive_text
from calibration.writers.sglang_adaptive import write_sglang_adaptive as write_sglang_adaptive
from calibration.writers.sglang_flags_line import SglangSpeculation as SglangSpeculation
from calibration.writers.sglang_flags_line import sglang_flags as sglang_flags
from calibration.writers.sglang_flags_line import sglang_flags_line as sglang_flags_line
from calibration.writers.sglang_flags_line import write_sglang_flags as write_sglang_flags
from calibration.writers.synthetic import SyntheticSettings as SyntheticSettings
from calibration.writers.synthetic import synthetic_settings as synthetic_settings
from calibration.writers.synthetic import synthetic_text as synthetic_text
from calibration.writers.synthetic import write_synthetic_settings as write_synthetic_settings
from calibration.writers.vllm_config import vllm_config_text as vllm_config_text
from calibration.writers.vllm_config import vllm_schedule as vllm_schedule
from calibration.writers.vllm_config import vllm_speculative_config as vllm_speculative_config
from calibration.writers.vllm_config import write_vllm_config as write_vllm_config

__all__ = [
    "AcceptLengths",
    "BatchChoice",
    "DepthRange",
    "DepthSchedule",
    "LoadedOverhead",
    "SglangSpeculation",
    "SyntheticSettings",
    "depth_schedule",
    "dspark_additive_table",
    "dspark_sampled_table",
    "dspark_table_text",
    "loaded_overhead_at",
    "schedule_text",
    "sglang_adaptive_config",
    "sglang_adaptive_text",
    "sglang_flags",
    "sglang_flags_line",
    "synthetic_settings",
    "synthetic_text",
    "vllm_config_text",
    "vllm_schedule",
    "vllm_speculative_config",
    "write_dspark_table",
    "write_schedule_text",
    "write_sglang_adaptive",
    "write_sglang_flags",
    "write_synthetic_settings",
    "write_vllm_config",
]
