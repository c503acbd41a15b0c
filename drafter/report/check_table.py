"""Results of checks as text and as JSON."""

from collections.abc import Sequence
from typing import Any, Final

from drafter.check_cases import CheckResult
from drafter.report.layout import noted, table

SCHEMA_VERSION: Final = 1
"""Layout of the JSON; it rises when a key changes its meaning."""


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
    rows = [["draft", "type", "compared", "error", "allowed", "tokens", ""]]
    rows += [
        [
            each.name,
            each.dtype,
            each.quantity,
            f"{each.error:.1e}",
            f"{each.limit:.1e}",
            f"{each.equal_tokens}/{each.tokens}" if each.tokens else "-",
            "ok" if each.passed else "FAILED",
        ]
        for each in results
    ]
    failed = sum(not each.passed for each in results)
    note = (
        "Relative error of the norm of a row of logits against fp64 torch, the largest of a draft; tokens: "
        "best guesses that agree, of those whose margin is large enough to tell."
    )
    verdict = f"{failed} of {len(results)} failed" if failed else f"all {len(results)} passed"
    title = f"Kernels on {where}"
    return "\n\n".join([title, table(rows, align="lllrrrl"), noted(note), verdict])


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
                "allowed": each.limit,
                "tokens": each.tokens,
                "equal_tokens": each.equal_tokens,
                "passed": each.passed,
            }
            for each in results
        ],
    }
