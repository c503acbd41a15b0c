"""Calibrations whose rig is known, each fitted once, and records whose checksum fits their content."""

import hashlib
import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from calibration import fit
from calibration.points.packaged import packaged_table
from calibration.rig.from_points import AskedRig
from specmodel.calibration import Calibration

REFERENCE_RIG = AskedRig(model="Kimi-K2.5", gpu="RTX PRO 6000 Server", num_gpus=8)
LLAMA_RIG = AskedRig(model="Llama-3.1-8B", gpu="H100")

ONE_POINT = "accept_length,throughput,baseline,num_steps\n2.1,82.3,90.0,3\n"
"""The reference case of theory.md part E, at a stated depth."""

LLAMA_POINTS = """accept_length,throughput,baseline,num_steps,batch_size,context_tokens
2.1,215,120,3,1,512
2.3,214,120,5,1,512
2.1,3720,2900,3,32,512
2.3,3330,2900,5,32,512
"""
"""A dense model at two depths and two batches, made up."""


@cache
def packaged(name: str) -> Calibration:
    """A packaged table of one system."""
    return fit(packaged_table(name).path, profile=False)


def of_points(text: str, rig: AskedRig = REFERENCE_RIG) -> Calibration:
    """Points typed as CSV, on a rig that the user names."""
    with TemporaryDirectory() as folder:
        bench = Path(folder) / "bench.csv"
        bench.write_text(text, encoding="utf-8")
        return fit(bench, profile=False, rig=rig)


def sealed(record: dict[str, Any]) -> str:
    """A calibration file of a record, with the checksum that its content has."""
    content = {key: value for key, value in record.items() if key != "content_sha256"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return json.dumps({**content, "content_sha256": hashlib.sha256(text.encode()).hexdigest()})
