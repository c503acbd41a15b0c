"""The draft model of a rig: what is said of it, and what is assumed where nothing is."""

import dataclasses
from dataclasses import dataclass
from typing import Final, final

from calibration.physical.assumed_rig import usual_draft
from calibration.physical.measured_draft import MOST_S, MeasuredDraft
from specmodel.architecture import ModelShape
from specmodel.cost.round_inputs import Drafter
from specmodel.errors import ParameterError
from specmodel.rig import DraftPasses, mtp_passes

KINDS: Final = ("eagle3", "mtp", "parallel", "lookup")
"""What can be said of how it drafts."""

WORDS: Final = (
    ("lookup", ("ngram", "n-gram", "suffix", "lookup", "pld")),
    ("parallel", ("dflash", "dspark", "p-eagle", "peagle", "medusa", "parallel")),
    ("mtp", ("mtp", "nextn")),
    ("eagle3", ("eagle",)),
)
"""Words in the names that engines and points have for algorithms, in the order in which they are tried."""

MOST_VOCABULARY: Final = 10_000_000
"""No vocabulary is larger. [tokens]"""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DraftChoice:
    """What is known of a draft model; what is not is assumed from the target.

    Parameters
    ----------
    kind : str
        One of `KINDS`; empty for the usual one of the target.
    vocab_size : int or None
        Rows of its head; the usual ones when None, [tokens].
    tp_size : int or None
        1 for a draft model on each GPU alone; as the target's when None, [-].
    step_s, extend_s : float or None
        Known times of a decode pass and of the first pass of a round, [s].
    times : MeasuredDraft or None
        Times over loads, of a drafter record; they go before `step_s`.

    Raises
    ------
    ParameterError
        If the kind is not known or a number is out of bounds.

    Examples
    --------
    >>> DraftChoice(kind="mtp").kind
    'mtp'
    """

    kind: str = ""
    vocab_size: int | None = None
    tp_size: int | None = None
    step_s: float | None = None
    extend_s: float | None = None
    times: MeasuredDraft | None = None

    def __post_init__(self) -> None:
        if self.kind not in {"", *KINDS}:
            raise ParameterError("draft.kind", repr(self.kind[:40]), f"one of {', '.join(KINDS)}")
        if self.vocab_size is not None and not 1 <= self.vocab_size <= MOST_VOCABULARY:
            raise ParameterError("draft.vocab", self.vocab_size, f"from 1 to {MOST_VOCABULARY}")
        if self.tp_size is not None and self.tp_size < 1:
            raise ParameterError("draft.tp_size", self.tp_size, "at least 1")
        for name in ("step_s", "extend_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= MOST_S:
                raise ParameterError(f"draft.{name}", f"{value:g}", f"above 0, at most {MOST_S:g}")

    def described(self, model: ModelShape) -> tuple[str, DraftPasses | Drafter]:
        r"""Return the draft model in words, and its passes.

        .. math:: \text{target} \mapsto \text{passes}

        Parameters
        ----------
        model : ModelShape
            The target.

        Returns
        -------
        words : str
        passes : DraftPasses or Drafter

        Raises
        ------
        ParameterError
            If the target has no layer that a draft model could be like.

        Notes
        -----
        A block drafter makes one pass of the usual layer; a lookup costs its host time alone.

        Examples
        --------
        >>> from specmodel.architecture import preset
        >>> DraftChoice(kind="lookup").described(preset("Qwen3-8B"))[0]
        'a lookup without a model'
        """
        if self.kind == "lookup":
            return "a lookup without a model", Drafter(kind="lookup", work=None)
        if self.kind == "mtp":
            words, passes = "an MTP layer like the model's own", mtp_passes(model)
        else:
            words, passes = usual_draft(model, eagle3=self.kind in {"eagle3", "parallel"})
        if self.kind == "parallel":
            words = "a block drafter: one pass of " + words
            passes = dataclasses.replace(passes, kind="parallel")
        if self.vocab_size is not None:
            words += f" over {self.vocab_size} tokens"
            passes = dataclasses.replace(
                passes,
                first=dataclasses.replace(passes.first, vocab_size=self.vocab_size),
                later=passes.later
                and dataclasses.replace(passes.later, vocab_size=self.vocab_size),
            )
        if self.times is not None:
            words = self.times.words
            passes = dataclasses.replace(
                passes,
                measured_step_s=self.times.step_s,
                measured_extend_s=self.times.extend_s,
                step_host_s=0.0,
            )
        elif self.step_s is not None:
            words += ", its time measured"
            passes = dataclasses.replace(
                passes,
                measured_step_s=self.step_s,
                measured_extend_s=self.extend_s or self.step_s,
                step_host_s=0.0,
            )
        return words, passes

    def head_size(self, model: ModelShape) -> int | None:
        """Vocabulary that the draft model of a target proposes from; None where there is no model."""
        passes = self.described(model)[1]
        return passes.first.vocab_size if isinstance(passes, DraftPasses) else None


def kind_of(algorithm: str) -> str:
    r"""Kind of draft model in the name of an algorithm.

    .. math:: \text{name} \mapsto \text{kind}

    Parameters
    ----------
    algorithm : str
        As an engine or a table writes it.

    Returns
    -------
    str
        Of `KINDS`; empty where no word of it is known.

    Notes
    -----
    ``EAGLE`` of any version is a head of one layer.

    Examples
    --------
    >>> [kind_of(name) for name in ("EAGLE3", "NEXTN", "DFLASH", "ngram", "none")]
    ['eagle3', 'mtp', 'parallel', 'lookup', '']
    """
    lowered = algorithm.strip().lower()
    return next((kind for kind, words in WORDS if any(word in lowered for word in words)), "")
