"""Expert counts of known target models, for points that do not state them."""

import csv
import re
from functools import lru_cache
from importlib import resources
from typing import NamedTuple

_SUFFIX = re.compile(
    r"[-_ ](instruct|chat|it|base|thinking|hf|fp8|fp4|nvfp4|mxfp4|mxfp8|bf16|int4|int8|awq|gptq|"
    r"w4a16|w8a8|gguf|qat|dynamic|quantized|\d{4})$"
)


class ExpertCounts(NamedTuple):
    """Routed experts of a layer and experts per token; both 0 for a dense model."""

    num_experts: int
    experts_per_token: int


def _key(name: str) -> str:
    """Name without organisation, case, brackets and endings that do not change the experts."""
    key = re.sub(r"\(.*?\)", "", name.rstrip("/").rsplit("/", 1)[-1]).strip().lower()
    key = key.removeprefix("meta-").replace("_", "-").replace("llama3", "llama-3")
    previous = ""
    while previous != key:
        previous, key = key, _SUFFIX.sub("", key)
    return key


@lru_cache(maxsize=1)
def _catalogue() -> dict[str, ExpertCounts]:
    """Counts by key."""
    text = resources.files("calibration").joinpath("data", "models.csv").read_text("utf-8")
    known: dict[str, ExpertCounts] = {}
    for row in csv.DictReader(text.splitlines()):
        counts = ExpertCounts(int(float(row["num_experts"])), int(float(row["experts_per_token"])))
        for name in (row["model"], *row["aliases"].split(";")):
            known.setdefault(_key(name), counts)
    return known


def expert_counts(target_model: str) -> ExpertCounts | None:
    r"""Expert counts of a target model, if it is a known one.

    .. math:: \text{name} \mapsto (E, K)

    Parameters
    ----------
    target_model : str
        As points or an engine name it; organisation, case and endings such as ``-Instruct`` or
        ``-FP8`` do not matter.

    Returns
    -------
    ExpertCounts or None
        None for a model that is not in the catalogue.

    Notes
    -----
    From the models' own configurations; the sources stand in ``calibration/data/models.csv``.

    Examples
    --------
    >>> expert_counts("Qwen/Qwen3-30B-A3B-Instruct-2507")
    ExpertCounts(num_experts=128, experts_per_token=8)
    >>> expert_counts("meta-llama/Llama-3.1-8B-Instruct")
    ExpertCounts(num_experts=0, experts_per_token=0)
    >>> expert_counts("my own model") is None
    True
    """
    return _catalogue().get(_key(target_model)) if target_model else None
