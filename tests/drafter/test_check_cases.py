"""What is asked of kernels: the limit of the type, or what the type costs a checkpoint's own weights."""

import math
from types import SimpleNamespace

import pytest
import torch

from drafter import checks
from drafter.check_cases import CheckCase, CheckResult, allowed_error, cases_of, check_cases
from drafter.checkpoint import random_weights
from drafter.checks import check_rounds, reference_device
from drafter.public_models import public_shape
from drafter.reference import DraftModel
from drafter.report import checks_text
from tests.extent import sample


@pytest.mark.parametrize(
    ("torch_error", "allowed"),
    [(1e-3, 1.5e-2), (7.5e-3, 1.5e-2), (2e-2, 4e-2), (0.05, 0.1), (0.3, 0.1)],
)
def test_a_checkpoint_may_lose_twice_what_torch_loses_up_to_a_tenth(
    torch_error: float, allowed: float
) -> None:
    assert allowed_error(1.5e-2, torch_error) == pytest.approx(allowed)


@pytest.mark.parametrize("overflown", [math.nan, math.inf])
def test_a_torch_that_overflows_allows_nothing(overflown: float) -> None:
    assert allowed_error(3e-3, overflown) == 3e-3


def test_only_weights_of_a_checkpoint_are_allowed_more_than_the_type() -> None:
    spec = public_shape("gpt-oss").spec
    (trained, *_) = cases_of(spec, dtype="bfloat16", is_trained=True)
    (random, *_) = cases_of(spec, dtype="bfloat16")
    assert (trained.allowed(2e-2), random.allowed(2e-2)) == (4e-2, 1.5e-2)
    assert not any(case.is_trained for case in check_cases())


def test_the_reference_computes_on_the_gpu_only_where_fp64_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weights = {"head": torch.empty(1000, 100, dtype=torch.bfloat16, device="meta")}
    # 100,000 numbers of 8 bytes and a quarter more
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    for free, place in ((1_000_000, "cuda"), (999_999, "cpu")):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _, free=free: (free, 10**9))
        assert reference_device(weights, torch.device("cuda")).type == place


def result(**changes: object) -> CheckResult:
    fields: dict[str, object] = {
        "name": "chain, unfused",
        "dtype": "bfloat16",
        "quantity": "overlap = eager",
        "error": 0.2,
        "limit": 0.1,
        "torch_error": 0.06,
        "tokens": 10,
        "equal_tokens": 10,
    }
    return CheckResult(**(fields | changes))  # type: ignore[arg-type]


def test_a_type_that_is_too_coarse_for_the_weights_is_said() -> None:
    text = checks_text([result()], "a GPU")
    assert "check these weights with --dtype float32" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    assert "--dtype" not in checks_text([result(torch_error=0.02)], "a GPU")
    assert "--dtype" not in checks_text([result(error=0.01)], "a GPU")
    assert "6.0e-02" in text


META = torch.device("meta")


@pytest.fixture
def read_meta(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors without numbers answer where the reference reads one; they mix with no other device."""
    for name, answer in (("__bool__", True), ("__int__", 3), ("__float__", 0.5)):
        sound = getattr(torch.Tensor, name)
        monkeypatch.setattr(
            torch.Tensor,
            name,
            lambda self, answer=answer, sound=sound: answer if self.is_meta else sound(self),
        )
    monkeypatch.setattr(DraftModel, "_check", lambda *_: None)


@sample(5)
@pytest.mark.usefixtures("read_meta")
@pytest.mark.parametrize("case", check_cases(), ids=lambda case: f"{case.name}, {case.dtype}")
def test_the_whole_reference_computes_where_it_is_placed(case: CheckCase) -> None:
    """A mask or an angle left on the CPU would end a check on a GPU."""
    dtype: torch.dtype = getattr(torch, case.dtype)
    weights = {
        name: weight.to(META, dtype if weight.is_floating_point() else None)
        for name, weight in random_weights(case.spec, seed=0, dtype=torch.float32).items()
    }
    rows = case.batch_size * case.topk

    def space(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=META)

    front = SimpleNamespace(carry_rows=space(rows), positions=space(rows), tokens=space(rows))
    steps = SimpleNamespace(
        logits=space(case.num_steps, rows, case.spec.draft_vocab_size, dtype=torch.float32),
        chain=SimpleNamespace(drafted=space(case.batch_size, case.num_steps)),
        candidates=SimpleNamespace(tokens=torch.zeros(case.batch_size, 99, dtype=torch.int64)),
        frontiers=[front] * (case.num_steps - 1),
    )
    rounds = check_rounds(case, dtype)
    for each in (torch.float64, dtype):
        found = checks._followed(case, steps, weights, rounds, dtype=each, place=META)  # type: ignore[arg-type]
        assert found
        assert all(row.truth.is_meta and row.out.is_meta for row in found)
