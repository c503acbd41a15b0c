"""Names that can mean several things: what each meaning gives, which one a table decides, what to ask."""

from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from operator import mul
from typing import Any, Final, NamedTuple

from calibration.readers.check import longest_accept_length, number
from calibration.readers.reading import Cell

_TOLERANCE = 0.02  # of an accept length, for the rounding of both


class Meaning(NamedTuple):
    """One meaning of a name: what it counts and the accept length that follows."""

    name: str  # of a column that means this alone
    says: str
    formula: str  # for people: r is the value, k the depth
    accept_length: Callable[[Any, float], float]  # from the value and the depth
    needs_depth: bool = False


_RATES = (
    Meaning(
        "accepted_per_drafted",
        "accepted of drafted tokens",
        "1 + k r",
        lambda r, k: 1 + k * r,
        needs_depth=True,
    ),
    Meaning(
        "accepted_per_emitted",
        "accepted of emitted tokens",
        "1 / (1 - r)",
        lambda r, _: 1 / max(1 - r, 1e-9),
    ),
    Meaning(
        "emitted_per_verified",
        "emitted of verified tokens",
        "(k + 1) r",
        lambda r, k: (k + 1) * r,
        needs_depth=True,
    ),
    Meaning(
        "conditional_rate",
        "chance of each next draft token",
        "1 + r + ... + r^k",
        lambda r, k: sum(r**depth for depth in range(int(k) + 1)),
        needs_depth=True,
    ),
)
_PER_ROUND = (
    Meaning("drafts_per_round", "accepted draft tokens a round", "1 + r", lambda r, _: 1 + r),
    Meaning("tokens_a_round", "tokens a round, the bonus token in", "r", lambda r, _: r),
)
_POSITIONS = (
    Meaning(
        "full_accuracy",
        "chance that all drafts up to a position are accepted",
        "1 + their sum",
        lambda r, _: 1 + sum(r),
    ),
    Meaning(
        "conditional_accuracy",
        "chance of a position after the ones before",
        "1 + their products",
        lambda r, _: 1 + sum(accumulate(r, mul)),
    ),
)

# The meanings of each open column, and of each column that has one of them alone.
MEANINGS: Final[Mapping[str, tuple[Meaning, ...]]] = {
    "acceptance_rate": _RATES,
    "accepted_per_round": _PER_ROUND,
    "position_rates": _POSITIONS,
    **{one.name: (one,) for one in (*_RATES, *_PER_ROUND)},
}


def possible(name: str, rows: Iterable[Mapping[str, Cell]]) -> tuple[Meaning, ...]:
    """Return the meanings of a column that no row contradicts, by its accept length or what can be."""
    left = MEANINGS[name]
    for cells in rows:
        value, stated = cells.get(name), number(cells, "accept_length")
        if name == "acceptance_rate" and isinstance(value, float) and value > 1:
            return ()
        if value is None or number(cells, "num_steps") == 0:
            continue
        longest = longest_accept_length(cells)
        left = tuple(
            one
            for one in left
            for found in [_given(one, value, cells)]
            if found is None
            or (
                1 <= found <= (longest[0] if longest else found) * (1 + 1e-9)
                and (stated is None or abs(found - stated) <= _TOLERANCE * stated)
            )
        )
    return left


def meant(meanings: tuple[Meaning, ...], name: str, cells: Mapping[str, Cell]) -> float | str:
    """Return the accept length that a column gives a row; where it is open, the question."""
    value = cells[name]
    given = {one: _given(one, value, cells) for one in meanings}
    if not given and name == "acceptance_rate" and isinstance(value, float) and value > 1:
        return (
            "is above 1, so no rate: call it accept_length where the bonus token is counted, "
            "drafts_per_round where it is not, or write a percent sign"
        )
    if not given:
        return "fits no meaning that is known: check it, or give accept_length"
    if len(given) == 1:
        ((only, found),) = given.items()
        return found if found is not None else f"gives {only.formula}, which needs num_steps"
    said = "; ".join(
        f"{one.name} ({one.says}: {one.formula}"
        + (f" = {found:.2f})" if found is not None else ")")
        for one, found in given.items()
    )
    return f"can mean several things, with accept lengths of their own: {said}; call the column by the one that it is, or add accept_length"


def _given(meaning: Meaning, value: Cell, cells: Mapping[str, Cell]) -> float | None:
    """Return the accept length that a meaning gives, None where the depth it needs is not known."""
    depth = number(cells, "num_steps")
    if depth is None and meaning.needs_depth:
        return None
    return meaning.accept_length(value, depth or 0.0)
