"""Kernels of this machine against the fp64 reference: logits of whole drafts, chain and tree."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from drafter.check_cases import (
    MARGIN,
    CheckCase,
    CheckResult,
    cases_of,
    check_cases,
)
from drafter.check_inputs import CheckRound, check_rounds, relative_distance, slots_of
from drafter.graph_checks import check_graphs
from drafter.kernels.draft_shape import DraftShape
from drafter.kernels.draft_steps import DraftSteps
from drafter.model_to_run import model_to_run
from drafter.random_weights import random_weights
from drafter.reference.cache import KvCache
from drafter.reference.draft_model import DraftModel
from drafter.reference.tree import Frontier
from drafter.subject import names_folder
from drafter.torch_extra import torch

Weights = Mapping[str, torch.Tensor]

_FP64_BYTES: Final = 8
_ROOM: Final = 1.25


class _Row(NamedTuple):
    """Logits after one node, from the kernels and from the reference; best tokens of both."""

    out: torch.Tensor
    truth: torch.Tensor
    token: int
    true_token: int


def check_against_reference(
    case: CheckCase, weights: Weights, *, device: torch.device
) -> CheckResult:
    r"""Compare the logits of every node of a draft with the reference.

    .. math:: \max_i \frac{\|z_i - \hat z_i\|}{\|\hat z_i\|}
        \le \epsilon \text{ or } \max(\epsilon, \min(2 e_{\text{torch}}, 0.1))

    Parameters
    ----------
    case : CheckCase
        The draft.
    weights : mapping of str to torch.Tensor
        Canonical names; both sides compute with them rounded to the storage type.
    device : torch.device
        Where the kernels run.

    Returns
    -------
    CheckResult

    Raises
    ------
    ParameterError
        If the case does not fit the kernels.

    Notes
    -----
    The reference is fed what the kernels chose, so that one near tie does not part the drafts; guesses
    are compared where the margin of the best is 4 allowed errors or more. :math:`e_{\text{torch}}` is the
    error of the reference itself when it computes in the storage type, fed the same. For a checkpoint's
    own weights, which may be badly scaled, it bounds what is asked of kernels. drafter.md 15.

    Examples
    --------
    >>> check_against_reference.__name__
    'check_against_reference'
    """
    dtype: torch.dtype = getattr(torch, case.dtype)
    stored = {
        name: value.to(device, dtype if value.is_floating_point() else None)
        for name, value in weights.items()
    }
    steps = _kernels(case, stored, dtype, device)
    earlier, last = rounds = check_rounds(case, dtype)
    if case.before:
        steps.load(*(part.to(device) for part in earlier))
        steps.run()
    steps.load(*(part.to(device) for part in last))
    if steps.logits is not None:
        steps.logits.fill_(float("nan"))
    steps.run()
    place = reference_device(stored, device)
    rows, plain = (
        _followed(case, steps, stored, rounds, dtype=each, place=place)
        for each in (torch.float64, dtype)
    )
    error = max(relative_distance(row.out, row.truth) for row in rows)
    lost = max(
        relative_distance(other.truth, row.truth) for other, row in zip(plain, rows, strict=True)
    )
    allowed = case.allowed(lost)
    sure = [row for row in rows if _margin(row.truth) > MARGIN * allowed]
    return CheckResult(
        name=case.name,
        dtype=case.dtype,
        quantity="logits",
        error=error,
        limit=allowed,
        torch_error=lost,
        tokens=len(sure),
        equal_tokens=sum(row.token == row.true_token for row in sure),
    )


def reference_device(weights: Weights, device: torch.device) -> torch.device:
    r"""Where the reference computes: beside the kernels where fp64 weights fit, else on the CPU.

    .. math:: 1.25 \cdot 8 P \le F

    Parameters
    ----------
    weights : mapping of str to torch.Tensor
        With :math:`P` numbers.
    device : torch.device
        Where the kernels run, with :math:`F` bytes free.

    Returns
    -------
    torch.device

    Notes
    -----
    For Llama-3.1-8B 950 million numbers with the embedding, 8 GB; a CPU needs about a second for each
    pass over them, a GPU some milliseconds.

    Examples
    --------
    >>> reference_device({}, torch.device("cpu"))
    device(type='cpu')
    """
    if device.type != "cuda":
        return device
    needed = _FP64_BYTES * sum(each.numel() for each in weights.values())
    torch.cuda.empty_cache()  # what torch keeps for itself is free too
    free, _ = torch.cuda.mem_get_info(device)
    return device if _ROOM * needed <= free else torch.device("cpu")


def _followed(
    case: CheckCase,
    steps: DraftSteps,
    weights: Weights,
    rounds: tuple[CheckRound, CheckRound],
    *,
    dtype: torch.dtype,
    place: torch.device,
) -> list[_Row]:
    """Every node of the draft, computed by the reference in one type where it is placed."""
    owned = {name: value.to(place) for name, value in weights.items()}
    placed = tuple(CheckRound(*(part.to(place) for part in each)) for each in rounds)
    follow = _chain_rows if case.topk == 1 else _tree_rows
    with place:  # the reference makes angles, masks and positions where it is told
        model = DraftModel(case.spec, owned, dtype=dtype)
        return [
            row
            for request in range(case.batch_size)
            for row in follow(case, steps, model, _extended(case, model, placed, request), request)
        ]


def _kernels(
    case: CheckCase, weights: Weights, dtype: torch.dtype, device: torch.device
) -> DraftSteps:
    """Buffers of a case that keep the logits."""
    shape = DraftShape(
        batch_size=case.batch_size,
        num_steps=case.num_steps,
        topk=case.topk,
        num_draft_tokens=case.num_draft_tokens,
        most_accepted=max(case.before, case.accepted),
        capacity=max(slots_of(case), 2 * case.before + 1),
        num_splits=2,
        is_fused=case.is_fused,
        keeps_logits=True,
    )
    return DraftSteps.alone(case.spec, weights, shape, dtype=dtype, device=device)


def _extended(
    case: CheckCase, model: DraftModel, rounds: Sequence[CheckRound], request: int
) -> Frontier:
    """The reference after the last accepted token."""
    cache: KvCache | None = None
    extended = None
    for given, count in zip(rounds, (case.before, case.accepted), strict=True):
        if count:
            start = int(given.before[request])
            extended = model.extend(
                given.tokens[request, :count],
                given.captured[request, :count],
                torch.arange(start, start + count),
                cache,
            )
            cache = extended.cache
    if extended is None:  # narrows the type: accepted tokens are at least one
        raise AssertionError
    return Frontier.at_root(extended)


def _chain_rows(
    case: CheckCase, steps: DraftSteps, model: DraftModel, front: Frontier, request: int
) -> Iterator[_Row]:
    """Logits along a chain."""
    place = front.logits.device
    logits, drafted = _kept(steps, place), steps.chain.drafted.to(place)
    first = case.before + case.accepted
    for step in range(case.num_steps):
        if step:
            fed = drafted[request, step - 1 : step]
            position = torch.tensor([first + step - 1])
            front = front.grown(model, torch.tensor([0]), fed, position)
        token = int(drafted[request, step])
        yield _row(model, logits[step, request], front.logits[0], token)


def _tree_rows(
    case: CheckCase, steps: DraftSteps, model: DraftModel, front: Frontier, request: int
) -> Iterator[_Row]:
    """Logits of every node of a tree that went on."""
    place = front.logits.device
    logits, tokens = _kept(steps, place), steps.candidates.tokens.cpu()[request]
    yield _row(model, logits[0, request], front.logits[0], int(tokens[0]))
    own = slice(request * case.topk, (request + 1) * case.topk)
    for level in range(1, case.num_steps):
        kept = steps.frontiers[level - 1]
        parents = kept.carry_rows[own].to(place).long() - request * case.topk
        if level == 1:
            parents = torch.zeros(case.topk, dtype=torch.int64)
        position = kept.positions[own][:1].to(place).long()
        front = front.grown(model, parents, kept.tokens[own].to(place), position)
        for branch in range(case.topk):
            # a level's children stand after those of the levels before, each node's best first
            best = case.topk * (1 + (level - 1) * case.topk + branch)
            out = logits[level, request * case.topk + branch]
            yield _row(model, out, front.logits[branch], int(tokens[best]))


def _row(model: DraftModel, out: torch.Tensor, truth: torch.Tensor, token: int) -> _Row:
    """Logits of both sides, and the best token of the target's vocabulary that each gives."""
    return _Row(out, truth, token, int(model.target_ids(truth.argmax()[None])[0]))


def _kept(steps: DraftSteps, place: torch.device) -> torch.Tensor:
    """Logits of the kernels in fp64, beside those of the reference."""
    if steps.logits is None:  # narrows the type: the shape keeps them
        raise AssertionError
    return steps.logits.to(place).double()


def _margin(logits: torch.Tensor) -> float:
    """Distance of the two best logits over their root mean square, [-]."""
    first, second = logits.double().topk(2).values.tolist()
    return float((first - second) / logits.double().square().mean().sqrt())


def checks(
    model: str | None = None, *, dtype: str = "bfloat16", device: torch.device
) -> Iterator[CheckResult]:
    """Every check that the device allows.

    Parameters
    ----------
    model : str, optional
        Folder of a checkpoint or name of a public shape; small models of every kind by default.
    dtype : str
        Storage type of that model.
    device : torch.device
        Where the kernels run; graphs are compared on a CUDA device only.

    Yields
    ------
    CheckResult
        As each is found.

    Raises
    ------
    SpecModelError
        If there is no such model, or the kernels do not compute it.

    Notes
    -----
    Small models have random weights.

    Examples
    --------
    >>> checks.__name__
    'checks'
    """
    if model is None:
        cases = check_cases()
        weights = [random_weights(case.spec, seed=0, dtype=torch.float32) for case in cases]
    else:
        loaded = model_to_run(model, device=device.type)
        cases = cases_of(loaded.spec, dtype=dtype, is_trained=names_folder(model))
        weights = [dict(loaded.weights)] * len(cases)
    for case, own in zip(cases, weights, strict=True):
        yield check_against_reference(case, own, device=device)
        if device.type == "cuda":
            yield from check_graphs(case, own, device=device)
