"""Per-depth draft accuracies: joint and conditional ones look alike and must never be mixed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from specmodel.acceptance.bounds import FloatArray, unit_interval, whole
from specmodel.errors import ParameterError

ROUNDING_NOISE = 1e-9
"""A rise of full accuracy up to this size is floating-point noise and is levelled."""


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class _Accuracy:
    """One probability per draft depth, depth 1 first."""

    values: FloatArray

    name: ClassVar[str] = "accuracy"

    def __init__(self, values: ArrayLike) -> None:
        array = unit_interval(self.name, values)
        if array.ndim != 1 or array.size == 0:
            shape = "an empty list" if array.size == 0 else f"{array.ndim} dimensions"
            raise ParameterError(self.name, shape, "a list with one probability per depth")
        array = np.array(self._lawful(array))
        array.setflags(write=False)
        object.__setattr__(self, "values", array)

    @staticmethod
    def _lawful(values: FloatArray) -> FloatArray:
        """The values as this kind stores them; raises when they cannot be of this kind."""
        return values

    @property
    def num_steps(self) -> int:
        """The draft depth at which the list was measured."""
        return int(self.values.size)

    def __len__(self) -> int:
        return self.num_steps

    def __iter__(self) -> Iterator[float]:
        return iter(self.values.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash((type(self), self.values.tobytes()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.values.tolist()})"


class FullAccuracy(_Accuracy):
    r"""Probability that *all* draft tokens up to a depth are accepted (joint, survival).

    .. math:: S_i = \prod_{j \le i} a_j, \qquad S_1 \ge S_2 \ge \dots

    Parameters
    ----------
    values : array-like, shape (num_steps,)
        :math:`S_1, S_2, \dots`, in [0, 1], never rising, [-].

    Raises
    ------
    ParameterError
        If the list is empty, leaves [0, 1] or rises with depth.

    Notes
    -----
    vLLM prints these as "per-position acceptance rate" [vllm-project-vllm-32628]_, speculators as
    ``full_acc``.

    Examples
    --------
    >>> FullAccuracy([0.742, 0.47, 0.29, 0.15, 0.097]).accept_length()
    2.749
    """

    __slots__ = ()
    name: ClassVar[str] = "full_accuracy"

    @staticmethod
    def _lawful(values: FloatArray) -> FloatArray:
        rises = np.flatnonzero(np.diff(values) > ROUNDING_NOISE)
        if rises.size:
            i = int(rises[0])
            raise ParameterError(
                f"full_accuracy at depth {i + 2}",
                f"{values[i + 1]:g}",
                f"at most its value at depth {i + 1}, {values[i]:g}",
                "a joint probability never rises; if these are conditional accuracies, "
                "pass them as such",
            )
        return np.minimum.accumulate(values)

    def accept_length(self, num_steps: int | None = None) -> float:
        r"""Tokens emitted per round by a chain, bonus token included.

        .. math:: \tau = 1 + \sum_{i \le k} S_i

        An identity up to the measured depth, which is the default; deeper only where the list ends at zero.
        """
        depth = self.num_steps if num_steps is None else int(whole("num_steps", num_steps))
        if depth > self.num_steps and self.values[-1] > 0.0:
            raise ParameterError(
                "num_steps",
                depth,
                f"at most {self.num_steps}, the measured depth",
                "use tail_spread() to carry the list further",
            )
        return 1.0 + float(self.values[:depth].sum())

    def to_conditional(self) -> "ConditionalAccuracy":
        r"""The conditional accuracies of the same drafter, up to and including a first zero.

        .. math:: a_i = S_i / S_{i-1}
        """
        before = np.concatenate([[1.0], self.values[:-1]])
        reached = before > 0.0
        return ConditionalAccuracy(self.values[reached] / before[reached])


class ConditionalAccuracy(_Accuracy):
    r"""Probability that a draft token is accepted given that all before it were.

    .. math:: a_i = P(\text{token } i \text{ accepted} \mid 1 \dots i-1 \text{ accepted})

    Parameters
    ----------
    values : array-like, shape (num_steps,)
        :math:`a_1, a_2, \dots`, in [0, 1]; may rise or fall, [-].

    Raises
    ------
    ParameterError
        If the list is empty or leaves [0, 1].

    Notes
    -----
    speculators prints these as ``cond_acc``. Conditionals multiply, they never add.

    Examples
    --------
    >>> ConditionalAccuracy([0.77, 0.65, 0.60, 0.57, 0.53]).accept_length()
    2.833
    """

    __slots__ = ()
    name: ClassVar[str] = "conditional_accuracy"

    def accept_length(self, num_steps: int | None = None) -> float:
        r"""Tokens emitted per round by a chain, bonus token included.

        .. math:: \tau = 1 + \sum_{i \le k} \prod_{j \le i} a_j
        """
        return self.to_full().accept_length(num_steps)

    def to_full(self) -> FullAccuracy:
        """The joint accuracies of the same drafter."""
        return FullAccuracy(np.cumprod(self.values))
