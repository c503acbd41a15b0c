"""Inputs of a check, the cache that it needs, and the distance of two results."""

from typing import NamedTuple, final

from drafter.check_cases import CheckCase
from drafter.torch_extra import torch


@final
class CheckRound(NamedTuple):
    """Inputs of one extend pass, for B requests and M tokens each.

    Parameters
    ----------
    tokens : torch.Tensor, shape (B, M)
        int64 ids of the target vocabulary.
    captured : torch.Tensor, shape (B, M, states)
        Hidden states of the target.
    before, accepted : torch.Tensor, shape (B,)
        int32 tokens in the cache, and newly accepted ones, [tokens].

    Examples
    --------
    >>> CheckRound._fields[0]
    'tokens'
    """

    tokens: torch.Tensor
    captured: torch.Tensor
    before: torch.Tensor
    accepted: torch.Tensor


def check_rounds(case: CheckCase, dtype: torch.dtype) -> tuple[CheckRound, CheckRound]:
    r"""Random inputs of the pass before, and of the one that is checked, equally wide.

    .. math:: M = \max(M_{\text{before}}, M_{\text{accepted}})

    Parameters
    ----------
    case : CheckCase
        The draft.
    dtype : torch.dtype
        Of the captured states.

    Returns
    -------
    tuple of CheckRound
        The first is empty where nothing is in the cache before.

    Examples
    --------
    >>> from drafter.check_cases import check_cases
    >>> [tuple(each.tokens.shape) for each in check_rounds(check_cases()[0], torch.float32)]
    [(1, 0), (1, 3)]
    """
    generator = torch.Generator().manual_seed(17)
    width = max(case.before, case.accepted)
    spec = case.spec
    states = spec.num_captured_states * spec.target_hidden_size

    def given(count: int, before: int) -> CheckRound:
        shape = (case.batch_size, width if count else 0)
        return CheckRound(
            torch.randint(spec.target_vocab_size, shape, generator=generator),
            torch.randn(*shape, states, generator=generator).to(dtype),
            torch.full((case.batch_size,), before, dtype=torch.int32),
            torch.full((case.batch_size,), max(count, 1), dtype=torch.int32),
        )

    return given(case.before, 0), given(case.accepted, case.before)


def slots_of(case: CheckCase) -> int:
    r"""Slots of the cache that a case needs.

    .. math:: M_{\text{before}} + M_{\text{accepted}} + (d - 1) k + 1

    Parameters
    ----------
    case : CheckCase
        Of :math:`d` steps and :math:`k` branches.

    Returns
    -------
    int
        [tokens].

    Examples
    --------
    >>> from drafter.check_cases import check_cases
    >>> slots_of(check_cases()[0])
    6
    """
    return case.before + case.accepted + (case.num_steps - 1) * case.topk + 1


def relative_distance(out: torch.Tensor, truth: torch.Tensor) -> float:
    r"""Relative error of the norm.

    .. math:: \frac{\|z - \hat z\|}{\|\hat z\|}

    Parameters
    ----------
    out, truth : torch.Tensor
        :math:`z` and :math:`\hat z`, of one shape.

    Returns
    -------
    float
        Infinite where something is no number, [-].

    Examples
    --------
    >>> relative_distance(torch.tensor([3.0, 4.5]), torch.tensor([3.0, 4.0]))
    0.1
    """
    norm = torch.linalg.vector_norm
    error = float(norm(out.double() - truth.double()) / norm(truth.double()))
    return error if error == error else float("inf")  # noqa: PLR0124 - NaN is no small error
