"""Options that describe a rig, for the commands that price one."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from calibration.commands.options import INPUT_FILE, NameOrFile, with_options

if TYPE_CHECKING:
    from calibration.rig.draft import DraftChoice
    from calibration.rig.from_points import AskedRig
    from specmodel.cost.allreduce import AllReduceCurve

MOST_GPUS: Final = 4096
"""More GPUs are not one rig. [-]"""

rig_options = partial(
    with_options,
    [
        click.option(
            "--model",
            type=NameOrFile(),
            default="",
            help="Name of a packaged model, or its config.json.  [default: that of the points]",
        ),
        click.option(
            "--gpu", default="", help="Name of a GPU, such as H100.  [default: that of the points]"
        ),
        click.option(
            "--num-gpus", type=click.IntRange(1, MOST_GPUS), help="GPUs that share the model."
        ),
        click.option(
            "--interconnect",
            default="",
            help="Link between them, such as nvlink4 or pcie5.  [default: that of the points, else the "
            "card's usual one]",
        ),
        click.option(
            "--dtype", default="", help="Stored weights, such as fp8.  [default: as released]"
        ),
        click.option(
            "--kv-dtype",
            type=click.Choice(["bf16", "fp16", "fp8", "int8", "fp4"]),
            help="Format of the KV cache.  [default: bf16]",
        ),
        click.option(
            "--allreduce",
            type=INPUT_FILE,
            help="Measured all-reduces, of `specmodel allreduce fit`.",
        ),
        click.option(
            "--allreduce-kernel",
            type=click.Choice(["nccl", "engine"]),
            help="Whose all-reduce runs.  [default: as vLLM's gate decides]",
        ),
        click.option(
            "--draft-kind",
            type=click.Choice(["eagle3", "mtp", "parallel", "lookup"]),
            help="What drafts: an EAGLE-3 head, an MTP layer, a block in one pass, a lookup.  [default: as "
            "the points say, else the model's MTP layer, else an EAGLE-3 head]",
        ),
        click.option(
            "--drafter", type=INPUT_FILE, help="Measured draft passes, of `specmodel drafter time`."
        ),
    ],
)

"""Options of a rig."""


def asked_rig(
    *,
    num_gpus: int | None,
    kv_dtype: str | None,
    allreduce: Path | None,
    allreduce_kernel: str | None,
    draft_kind: str | None,
    drafter: Path | None,
    **names: Any,
) -> "AskedRig":
    """Return what the options say of a rig; measured all-reduces of another number of GPUs are refused."""
    from calibration.rig.from_points import AskedRig

    return AskedRig(
        **names,
        num_gpus=num_gpus,
        kv_dtype=kv_dtype or "",
        curves=() if allreduce is None else measured_curves(allreduce, num_gpus),
        kernel=allreduce_kernel or "",
        draft=_draft_choice(draft_kind, drafter),
    )


def _draft_choice(kind: str | None, drafter: Path | None) -> "DraftChoice | None":
    """What the options say of the draft model; None where they say nothing."""
    if kind is None and drafter is None:
        return None
    from calibration.rig.draft import DraftChoice, read_measured_draft

    # a record is of one GPU, so the draft model is whole on each
    return DraftChoice(
        kind=kind or "",
        times=None if drafter is None else read_measured_draft(drafter),
        tp_size=None if drafter is None else 1,
    )


def measured_curves(path: Path, num_gpus: int | None) -> "tuple[tuple[int, AllReduceCurve], ...]":
    """Return measured all-reduces by ranks; those of the rig must be among them."""
    from calibration.allreduce.fitting import load_all_reduces
    from specmodel.errors import FormatError

    found = tuple((one.fit.num_ranks, one.fit.curve) for one in load_all_reduces(path))
    ranks = sorted({count for count, _ in found})
    if num_gpus is not None and num_gpus not in ranks:
        known = ", ".join(map(str, ranks)) or "none"
        raise FormatError(path, f"no all-reduce of {num_gpus} ranks; it has {known}")
    return found
