"""What the hardware model misses at a load: a smooth error that loads near each other share."""

from dataclasses import dataclass, fields
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specmodel.errors import ParameterError

Array = NDArray[np.float64]

CONTEXT_ORIGIN_TOKENS: Final = 4096.0
"""Context below which the cache is a small part of a step (judgement). [tokens]"""

DEPTH_TOKENS: Final = 6.0
"""Distance in depth over which the error of the draft passes changes (judgement). [tokens]"""

LOCAL_TOKENS: Final = 2.0
"""Distance in depth over which a load's own error changes; in rows and context it is an octave
(judgements). [tokens]"""

SHARED_PER_CHANGE: Final = 0.5
"""Correlation of the errors of two rigs, neither measured, for each thing that differs between them: a
ratio of their times is then as uncertain as one of them (judgement). [-]"""

ADDED_PER_CHANGE: Final = 1.0
"""Variance that each change of a measured rig adds to its error, over that of the error itself: a ratio of
times is as uncertain as before, and what the form missed on the measured rig is carried in full. Pairs of
measured rigs (DeepSeek-V4-Flash on two and four GPUs, GLM-5.2 in six formats, an all-reduce kernel) lie
within a third of that (judgement). [-]"""

LEAST_SPREAD: Final = 1e-4
"""Of the noise and of the distance, which are divided by. [-]"""

MOST_SPREAD: Final = 10.0
"""No form is wrong by more, on the log scale. [-]"""

DEGREES_OF_FREEDOM: Final = 8.0
"""Of every interval of the physical form: its spreads come from that many independent public systems,
fewer than the tables they have. [-]"""


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelError:
    """Standard deviations of the error on the log scale, by what it varies with.

    The values are near those that maximise the marginal likelihood of the packaged tables whose rig is
    known, one vote per family of tables, with every factor of the form free: within 5 of its logarithm,
    and wider in `local`. `scripts/learn_model_error.py` prints the maximum, and that without each family:
    `rows` is then between 0.07 (without GLM-5.1) and 0.15. The tables hardly tell `rounds` (from 0.03 to
    0.16 the logarithm moves by 1.5, its maximum at 0.05): the largest of these is taken, since it charges
    a round that is dear by one point to the rounds rather than to the target's pass (judgement).
    """

    # of a forward pass of the target over one row, besides the factors of the form, [-]
    level: float = 0.06
    rows: float = 0.14  # of what each octave of rows adds, over the root of an octave, [-]
    context: float = 0.08  # of a forward pass against the context, [-]
    context_octaves: float = 1.4  # distance over which that changes
    rounds: float = 0.16  # of every round of a rig alike, [-]
    draft: float = 0.27  # of the draft passes, [-]
    tree: float = 0.12  # of rounds that draft trees, [-]
    local: float = 0.05  # of a load by itself and its close neighbours, [-]
    noise: float = 0.03  # of one measurement, [-]

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = LEAST_SPREAD if field.name in {"noise", "context_octaves"} else 0.0
            if not least <= value <= MOST_SPREAD:
                raise ParameterError(field.name, value, f"from {least:g} to {MOST_SPREAD:g}")


@dataclass(frozen=True, eq=False)
class Loads:
    """Base steps and rounds at their loads, as arrays of one length."""

    num_steps: Array  # draft depth; 0 for a base step, [tokens]
    topk: Array  # branches, verified rows of a request, [-], [tokens]
    num_draft_tokens: Array
    batch_size: Array  # running requests, context, [-], [tokens]
    context_tokens: Array

    def __len__(self) -> int:
        return int(self.num_steps.size)

    @classmethod
    def of(
        cls,
        *,
        num_steps: ArrayLike,
        topk: ArrayLike = 1.0,
        num_draft_tokens: ArrayLike | None = None,
        batch_size: ArrayLike = 1.0,
        context_tokens: ArrayLike = 0.0,
    ) -> "Loads":
        """Loads of the broadcast shape; a chain where verified rows are not given.

        .. math:: n = k + 1
        """
        depth = np.asarray(num_steps, dtype=np.float64)
        rows = depth + 1.0 if num_draft_tokens is None else num_draft_tokens
        try:
            arrays = np.broadcast_arrays(depth, topk, rows, batch_size, context_tokens)
        except ValueError:
            raise ParameterError("loads", "arrays of several lengths", "of one length") from None
        return cls(*(np.ravel(each).astype(np.float64) for each in arrays))

    @property
    def rounds(self) -> NDArray[np.bool_]:
        """Whether each is a round and no base step."""
        return self.num_steps > 0

    @property
    def rows(self) -> Array:
        """Rows that the target's forward pass processes, [tokens]."""
        return self.batch_size * np.where(self.rounds, self.num_draft_tokens, 1.0)

    def base_steps(self) -> "Loads":
        """The step without speculation at each of these loads."""
        return Loads.of(
            num_steps=np.zeros(len(self)),
            batch_size=self.batch_size,
            context_tokens=self.context_tokens,
        )

    def take(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> "Loads":
        """Some of them."""
        return Loads(*(getattr(self, each.name)[chosen] for each in fields(self)))

    @classmethod
    def concatenated(cls, *several: "Loads") -> "Loads":
        """Loads one after another."""
        names = [each.name for each in fields(cls)]
        return cls(*(np.concatenate([getattr(each, name) for each in several]) for name in names))


def error_covariance(
    first: Loads, first_share: Array, second: Loads, second_share: Array, form: ModelError
) -> Array:
    r"""Covariance of the form's errors in ln time at two sets of loads.

    .. math:: w w' \left(\sigma_l^2 + \sigma_r^2 \min(\log_2 r, \log_2 r') + \sigma_C^2 e^{-|\Delta c|/\ell_C}\right)
              + \sigma_n^2 e^{-|\Delta \log_2 r| - |\Delta c| - |\Delta k|/2}
              + \sigma_0^2 + (1-w)(1-w')\sigma_d^2 e^{-|\Delta k|/\ell_k} + \sigma_t^2

    A Gaussian process. The error belongs to the target's forward pass at its rows, so a base step of 32
    requests tells of a round that verifies 4 tokens for each of 8 (theory.md B10): a kernel that
    changes at 32 rows does so in both. Against the rows it is a random walk that starts at one row,
    where a pass reads its weights and little else; such paths have steps, as the switches of kernels and
    all-reduces make them.
    """
    if (len(first), len(second)) != (first_share.size, second_share.size):
        raise ParameterError("share", first_share.size, f"one for each of {len(first)} loads")

    def near(before: Array, after: Array, width: float) -> Array:
        return np.asarray(np.exp(-np.abs(before[:, None] - after[None, :]) / width))

    walked = np.minimum(np.log2(first.rows)[:, None], np.log2(second.rows)[None, :])
    target = form.level**2 + form.rows**2 * np.maximum(walked, 0.0)
    target += form.context**2 * near(_octaves(first), _octaves(second), form.context_octaves)
    draft = form.draft**2 * near(first.num_steps, second.num_steps, DEPTH_TOKENS)
    trees = np.outer(first.topk > 1, second.topk > 1)
    of_rounds = (
        form.rounds**2
        + np.outer(1.0 - first_share, 1.0 - second_share) * draft
        + form.tree**2 * trees
    )
    local = (
        form.local**2
        * near(np.log2(first.rows), np.log2(second.rows), 1.0)
        * near(_octaves(first), _octaves(second), 1.0)
        * near(first.num_steps, second.num_steps, LOCAL_TOKENS)
    )
    both = np.outer(first.rounds, second.rounds)
    return np.asarray(local + np.outer(first_share, second_share) * target + both * of_rounds)


def _octaves(loads: Loads) -> Array:
    """Octaves of context above the origin."""
    return np.asarray(np.log2(1.0 + loads.context_tokens / CONTEXT_ORIGIN_TOKENS))
