"""Per-depth draft accuracies: three kinds that look alike and must never be mixed."""

import abc
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from specmodel.acceptance.bounds import FloatArray, unit_interval, whole
from specmodel.errors import ParameterError

ROUNDING_NOISE = 1e-9
"""A rise of full accuracy up to this size is floating-point noise and is levelled."""


@final
class MarginalAccuracyWarning(UserWarning):
    """Marginal accuracies are used as conditional ones.

    Parameters
    ----------
    message : str
        What was assumed and what follows.
    """

    code: ClassVar[str] = "marginal-approximation"


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class AbstractAccuracy(abc.ABC):
    """One probability per draft depth, depth 1 first.

    Parameters
    ----------
    values : array-like, shape (num_steps,)
        Probabilities in [0, 1], not percentages, [-].

    Raises
    ------
    ParameterError
        If the list is empty, not one-dimensional, not finite or outside [0, 1].
    """

    values: FloatArray

    name: ClassVar[str] = "accuracy"

    def __init__(self, values: ArrayLike) -> None:
        array = np.array(self._lawful(_listed(self.name, values)))
        array.setflags(write=False)
        object.__setattr__(self, "values", array)

    @staticmethod
    @abc.abstractmethod
    def _lawful(values: FloatArray) -> FloatArray:
        """Return the values as this kind stores them; raise when they cannot be of this kind."""

    @property
    def num_steps(self) -> int:
        """The draft depth at which the list was measured."""
        return int(self.values.size)

    def __len__(self) -> int:
        return self.num_steps

    def __iter__(self) -> Iterator[float]:
        return iter(self.values.tolist())

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and np.array_equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash((type(self), self.values.tobytes()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.values.tolist()})"


@final
class FullAccuracy(AbstractAccuracy):
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
        """Refuse a list that rises with depth."""
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

        Parameters
        ----------
        num_steps : int, optional
            :math:`k`, draft depth, at most the measured one, [tokens]. The measured depth when
            left out. Deeper is allowed only where the list ends at zero: nothing survives it.

        Returns
        -------
        float
            :math:`\tau`, between 1 and num_steps + 1, [tokens].

        Raises
        ------
        ParameterError
            If `num_steps` is beyond the measured depth.

        Notes
        -----
        An identity: a round emits its accepted tokens and one token of the target. Beyond the
        measured depth a tail is an assumption; see `extend`.

        Examples
        --------
        >>> FullAccuracy([0.742, 0.47, 0.29, 0.15, 0.097]).accept_length(3)
        2.502
        """
        depth = self.num_steps if num_steps is None else int(whole("num_steps", num_steps))
        if depth > self.num_steps and self.values[-1] > 0.0:
            raise ParameterError(
                "num_steps",
                depth,
                f"at most {self.num_steps}, the measured depth",
                "use extend() to carry the list further with a tail",
            )
        return 1.0 + float(self.values[:depth].sum())

    def truncate(self, num_steps: int) -> "FullAccuracy":
        """Return the list cut at a smaller depth.

        Parameters
        ----------
        num_steps : int
            Depth to keep, from 1 to the measured one, [tokens].

        Returns
        -------
        FullAccuracy
            The first `num_steps` values.

        Raises
        ------
        ParameterError
            If `num_steps` is below 1 or beyond the measured depth.

        Examples
        --------
        >>> FullAccuracy([0.742, 0.47, 0.29]).truncate(2)
        FullAccuracy([0.742, 0.47])
        """
        depth = int(whole("num_steps", num_steps, 1))
        if depth > self.num_steps:
            raise ParameterError("num_steps", depth, f"at most {self.num_steps}", "use extend()")
        return FullAccuracy(self.values[:depth])

    def to_conditional(self) -> "ConditionalAccuracy":
        r"""Return the conditional accuracies of the same drafter.

        .. math:: a_i = S_i / S_{i-1}

        Returns
        -------
        ConditionalAccuracy
            As deep as the list, or up to and including its first zero: nothing reaches the depths
            behind a zero, so nothing can be said about them.

        Examples
        --------
        >>> FullAccuracy([0.8, 0.4, 0.1]).to_conditional()
        ConditionalAccuracy([0.8, 0.5, 0.25])
        >>> FullAccuracy([0.3, 0.0, 0.0]).to_conditional()
        ConditionalAccuracy([0.3, 0.0])
        """
        before = np.concatenate([[1.0], self.values[:-1]])
        reached = before > 0.0
        return ConditionalAccuracy(self.values[reached] / before[reached])


@final
class ConditionalAccuracy(AbstractAccuracy):
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
    speculators prints these as ``cond_acc``.

    Examples
    --------
    >>> ConditionalAccuracy([0.77, 0.65, 0.60, 0.57, 0.53]).accept_length()
    2.833
    """

    __slots__ = ()
    name: ClassVar[str] = "conditional_accuracy"

    @staticmethod
    def _lawful(values: FloatArray) -> FloatArray:
        """Accept any probabilities."""
        return values

    def accept_length(self, num_steps: int | None = None) -> float:
        r"""Tokens emitted per round by a chain, bonus token included.

        .. math:: \tau = 1 + \sum_{i \le k} \prod_{j \le i} a_j

        Parameters
        ----------
        num_steps : int, optional
            :math:`k`, draft depth, at most the measured one, [tokens]. The measured depth when
            left out.

        Returns
        -------
        float
            :math:`\tau`, between 1 and num_steps + 1, [tokens].

        Raises
        ------
        ParameterError
            If `num_steps` is beyond the measured depth and the list does not end at zero.

        Notes
        -----
        The chain rule: conditionals multiply. They never add.

        Examples
        --------
        >>> ConditionalAccuracy([0.5, 0.5]).accept_length()
        1.75
        """
        return self.to_full().accept_length(num_steps)

    def to_full(self) -> FullAccuracy:
        r"""Return the joint accuracies of the same drafter.

        .. math:: S_i = \prod_{j \le i} a_j

        Returns
        -------
        FullAccuracy
            Of the same depth.

        Examples
        --------
        >>> ConditionalAccuracy([0.8, 0.5, 0.25]).to_full()
        FullAccuracy([0.8, 0.4, 0.1])
        """
        return FullAccuracy(np.cumprod(self.values))


@final
class MarginalAccuracy(AbstractAccuracy):
    r"""Probability that a depth is right whatever came before (earlier tokens from the data).

    Parameters
    ----------
    values : array-like, shape (num_steps,)
        In [0, 1], [-].

    Raises
    ------
    ParameterError
        If the list is empty or leaves [0, 1].

    Notes
    -----
    SpecForge prints these as ``acc``. There is no lawful way to an accept length: success at
    one depth says nothing about success given success before. `assume_independent_context`
    makes the usual assumption, and says so.

    Examples
    --------
    >>> MarginalAccuracy([0.68, 0.63, 0.61]).num_steps
    3
    """

    __slots__ = ()
    name: ClassVar[str] = "marginal_accuracy"

    @staticmethod
    def _lawful(values: FloatArray) -> FloatArray:
        """Accept any probabilities."""
        return values

    def assume_independent_context(self) -> ConditionalAccuracy:
        """Return the values read as conditional accuracies, with a warning.

        Returns
        -------
        ConditionalAccuracy
            The same numbers.

        Warns
        -----
        MarginalAccuracyWarning
            Always: the product of marginals is an approximation, usually on the low side, because
            a start that was right makes the next token easier. Served acceptance of drafters
            trained on text that the target model did not write was far below it.

        Examples
        --------
        >>> import warnings
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore", MarginalAccuracyWarning)
        ...     MarginalAccuracy([0.68, 0.63]).assume_independent_context()
        ConditionalAccuracy([0.68, 0.63])
        """
        warnings.warn(
            "marginal accuracies are read as conditional ones (independent depths); the accept "
            "length from their product is an approximation, log full or conditional accuracy "
            "for a better one",
            MarginalAccuracyWarning,
            stacklevel=2,
        )
        return ConditionalAccuracy(self.values)


def _listed(name: str, values: ArrayLike) -> FloatArray:
    """Return a non-empty one-dimensional list of probabilities."""
    array = unit_interval(name, values)
    if array.ndim != 1 or array.size == 0:
        shape = "an empty list" if array.size == 0 else f"{array.ndim} dimensions"
        raise ParameterError(name, shape, "a list with one probability per depth")
    return array
