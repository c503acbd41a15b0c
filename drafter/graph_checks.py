"""Captured graphs and overlapping launches against launches in turn."""

from collections.abc import Iterator, Mapping, Sequence

from drafter.check_cases import GRAPH, OVERLAP, CheckCase, CheckResult
from drafter.check_inputs import check_rounds, relative_distance, slots_of
from drafter.engine.draft_engine import DraftEngine
from drafter.torch_extra import torch

Weights = Mapping[str, torch.Tensor]


def check_graphs(
    case: CheckCase, weights: Weights, *, device: torch.device
) -> Iterator[CheckResult]:
    r"""Compare captured graphs, and launches that overlap, with launches in turn.

    .. math:: \max_x \frac{\|x - \hat x\|}{\|\hat x\|} \le \epsilon

    Parameters
    ----------
    case : CheckCase
        The draft.
    weights : mapping of str to torch.Tensor
        Canonical names.
    device : torch.device
        A CUDA device.

    Yields
    ------
    CheckResult

    Raises
    ------
    ParameterError
        If the device is no CUDA device, or the case does not fit the kernels.

    Notes
    -----
    A graph replays the same machine code in the same order on the same numbers, so any bit that differs
    is an error. Launches that overlap are compiled apart, since the kernels wait for those before them,
    and a compiler may order or contract their sums otherwise: scores and cache may differ by what the
    storage type costs, :math:`\epsilon`, while tokens, parents and masks have to be equal.

    Examples
    --------
    >>> check_graphs.__name__
    'check_graphs'
    """
    plain = _drafted(case, weights, device, uses_graphs=False, is_programmatic=False)
    replayed = _drafted(case, weights, device, uses_graphs=True, is_programmatic=False)
    equal = all(torch.equal(a, b) for a, b in zip(plain, replayed, strict=True))
    yield CheckResult(
        name=case.name,
        dtype=case.dtype,
        quantity=GRAPH,
        error=0.0 if equal else 1.0,
        limit=0.0,
    )
    if torch.cuda.get_device_capability(device) >= (9, 0):
        overlapping = _drafted(case, weights, device, uses_graphs=True, is_programmatic=True)
        yield _nearly_equal(case, plain, overlapping)


def _nearly_equal(
    case: CheckCase, plain: Sequence[torch.Tensor], other: Sequence[torch.Tensor]
) -> CheckResult:
    """What overlapping launches drafted, against the same in turn."""
    pairs = list(zip(plain, other, strict=True))
    floats = [pair for pair in pairs if pair[0].is_floating_point()]
    integers = [pair for pair in pairs if not pair[0].is_floating_point()]
    return CheckResult(
        name=case.name,
        dtype=case.dtype,
        quantity=OVERLAP,
        # what is equal may be all zeros, which has no relative error
        error=max(0.0 if torch.equal(a, b) else relative_distance(b, a) for a, b in floats),
        limit=case.limit,
        tokens=sum(a.numel() for a, _ in integers),
        equal_tokens=sum(int((a == b).sum()) for a, b in integers),
    )


def _drafted(
    case: CheckCase,
    weights: Weights,
    device: torch.device,
    *,
    uses_graphs: bool,
    is_programmatic: bool,
) -> list[torch.Tensor]:
    """Everything that an engine drafts, and its cache."""
    dtype: torch.dtype = getattr(torch, case.dtype)
    engine = DraftEngine(
        case.spec,
        weights,
        dtype=dtype,
        device=device,
        capacity=slots_of(case),
        most_requests=case.batch_size,
        uses_graphs=uses_graphs,
        is_programmatic=is_programmatic,
    )
    results = []
    for given in check_rounds(case, dtype):
        if given.tokens.shape[1]:
            drafted = engine.draft(
                *(part.to(device) for part in given),
                num_steps=case.num_steps,
                topk=case.topk,
                num_draft_tokens=case.num_draft_tokens,
            )
            results += [part.clone() for part in drafted]
    return [*results, engine.state.keys.clone(), engine.state.values.clone()]
