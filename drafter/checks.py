"""Kernels and captured graphs against the fp64 reference."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from drafter.check_cases import (
    GRAPH,
    MARGIN,
    OVERLAP,
    CheckCase,
    CheckResult,
    cases_of,
    check_cases,
)
from drafter.checkpoint import model_to_run, random_weights
from drafter.engine.draft_engine import DraftEngine
from drafter.kernels.draft_steps import DraftShape, DraftSteps
from drafter.public_models import names_folder
from drafter.reference.draft_model import DraftModel
from drafter.reference.drafts import Frontier
from drafter.reference.layer import KvCache
from drafter.torch_extra import torch


class CheckRound(NamedTuple):
    """Inputs of one extend pass, for B requests and M tokens each."""

    tokens: torch.Tensor
    captured: torch.Tensor
    before: torch.Tensor
    accepted: torch.Tensor


def check_rounds(case: CheckCase, dtype: torch.dtype) -> tuple[CheckRound, CheckRound]:
    """Random inputs of the pass before, and of the one that is checked, equally wide."""
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
    """Slots of the cache that a case needs."""
    return case.before + case.accepted + (case.num_steps - 1) * case.topk + 1


def relative_distance(out: torch.Tensor, truth: torch.Tensor) -> float:
    r"""Relative error of the norm.

    .. math:: \frac{\|z - \hat z\|}{\|\hat z\|}
    """
    norm = torch.linalg.vector_norm
    error = float(norm(out.double() - truth.double()) / norm(truth.double()))
    return error if error == error else float("inf")  # noqa: PLR0124 - NaN is no small error


Weights = Mapping[str, torch.Tensor]


def check_graphs(
    case: CheckCase, weights: Weights, *, device: torch.device
) -> Iterator[CheckResult]:
    r"""Compare captured graphs, and launches that overlap, with launches in turn.

    .. math:: \max_x \frac{\|x - \hat x\|}{\|\hat x\|} \le \epsilon

    A graph replays the same machine code in the same order on the same numbers, so any bit that differs
    is an error. Launches that overlap are compiled apart, since the kernels wait for those before them,
    and a compiler may order or contract their sums otherwise: scores and cache may differ by what the
    storage type costs, :math:`\epsilon`, while tokens, parents and masks have to be equal.
    """
    plain = _drafted(case, weights, device, uses_graphs=False, is_programmatic=False)
    replayed = _drafted(case, weights, device, uses_graphs=True, is_programmatic=False)
    equal = all(torch.equal(a, b) for a, b in zip(plain, replayed, strict=True))
    yield CheckResult(
        name=case.name, dtype=case.dtype, quantity=GRAPH, error=0.0 if equal else 1.0, limit=0.0
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

    The reference is fed what the kernels chose, so that one near tie does not part the drafts; guesses
    are compared where the margin of the best is 4 allowed errors or more. :math:`e_{\text{torch}}` is the
    error of the reference itself when it computes in the storage type, fed the same. For a checkpoint's
    own weights, which may be badly scaled, it bounds what is asked of kernels. drafter.md 15.
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

    For Llama-3.1-8B 950 million numbers with the embedding, 8 GB; a CPU needs about a second for each
    pass over them, a GPU some milliseconds.
    """
    if device.type != "cuda":
        return device
    needed = 8 * sum(each.numel() for each in weights.values())
    torch.cuda.empty_cache()  # what torch keeps for itself is free too
    free, _ = torch.cuda.mem_get_info(device)
    return device if 1.25 * needed <= free else torch.device("cpu")


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

    Small models have random weights.
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
