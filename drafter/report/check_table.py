"""Results of checks as text and as JSON."""

from collections.abc import Sequence
from typing import Any, Final

from drafter.check_cases import GRAPH, MOST_ALLOWED, OVERLAP, TORCH_ERRORS, CheckResult
from drafter.report.layout import noted, table

SCHEMA_VERSION: Final = 1
"""Layout of the JSON; it rises when a key changes its meaning."""


_SHORT: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def checks_text(results: Sequence[CheckResult], where: str) -> str:
    """Return a table of checks.

    Parameters
    ----------
    results : sequence of CheckResult
        What was found.
    where : str
        What the kernels ran on.

    Returns
    -------
    str
        80 columns wide.
    """
    rows = [["draft", "type", "compared", "error", "torch", "allowed", "tokens", ""]]
    rows += [
        [
            each.name,
            _SHORT[each.dtype],
            each.quantity,
            f"{each.error:.1e}",
            "-" if each.torch_error is None else f"{each.torch_error:.1e}",
            f"{each.limit:.1e}",
            f"{each.equal_tokens}/{each.tokens}" if each.tokens else "-",
            "ok" if each.passed else "FAILED",
        ]
        for each in results
    ]
    failed = sum(not each.passed for each in results)
    note = (
        "Relative error of the norm of a row of logits against fp64 torch, the largest of a draft; "
        "torch: that of the same draft in plain torch, in the same type; allowed: the limit of the type; "
        f"for a checkpoint twice what torch loses where that is more, up to {MOST_ALLOWED:g}; tokens: "
        "best guesses that agree, of those whose margin is large enough to tell."
    )
    notes = [noted(note)]
    if any(each.quantity in {GRAPH, OVERLAP} for each in results):
        notes.append(
            noted(
                "graph = eager: 0 where every bit is that of launches in turn, else 1; overlap ~ eager: "
                "the largest relative error of scores and cache against launches in turn; tokens: every "
                "integer of the draft."
            )
        )
    coarse = [each for each in results if not each.passed and _is_coarse(each)]
    if coarse:
        notes.append(
            noted(
                f"in {', '.join(sorted({_SHORT[each.dtype] for each in coarse}))} torch itself loses more "
                "than a check can tell from wrong kernels; check these weights with --dtype float32"
            )
        )
    verdict = f"{failed} of {len(results)} failed" if failed else f"all {len(results)} passed"
    title = f"Kernels on {where}"
    return "\n\n".join([title, table(rows, align="lllrrrrl"), "\n".join(notes), verdict])


def _is_coarse(result: CheckResult) -> bool:
    """Whether the type costs these weights so much that nothing can be said of the kernels."""
    lost = result.torch_error
    return lost is not None and not TORCH_ERRORS * lost <= MOST_ALLOWED


def checks_json(results: Sequence[CheckResult], where: str) -> dict[str, Any]:
    """Return checks for machines.

    Parameters
    ----------
    results : sequence of CheckResult
        What was found.
    where : str
        What the kernels ran on.

    Returns
    -------
    dict
        With ``schema_version``.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "device": where,
        "passed": all(each.passed for each in results),
        "checks": [
            {
                "name": each.name,
                "dtype": each.dtype,
                "compared": each.quantity,
                # JSON has no infinity
                "error": min(each.error, 1e308),
                "torch_error": None if each.torch_error is None else min(each.torch_error, 1e308),
                "allowed": each.limit,
                "tokens": each.tokens,
                "equal_tokens": each.equal_tokens,
                "passed": each.passed,
            }
            for each in results
        ],
    }
