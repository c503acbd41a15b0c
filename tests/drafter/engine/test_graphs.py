"""On a GPU: a replayed graph gives what the eager path gives, bit for bit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch

from drafter.checkpoint import random_weights
from drafter.engine.captured_run import CapturedRun
from drafter.engine.draft_engine import DraftedChain, DraftEngine
from drafter.kernels.tree import Tree
from drafter.spec import DraftSpec
from specmodel.errors import ParameterError

SPEC = DraftSpec(
    hidden_size=256,
    target_hidden_size=192,
    num_aux_states=3,
    num_heads=8,
    num_kv_heads=2,
    head_dim=64,
    mlp_width=640,
    target_vocab_size=2000,
    draft_vocab_size=1003,
)
on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
Drafted = DraftedChain | Tree


def two_rounds(engine: DraftEngine, batch_size: int, **ask: int) -> list[torch.Tensor]:
    """Everything that two rounds draft, and the cache after them."""
    generator = torch.Generator().manual_seed(7)
    results: list[torch.Tensor] = []
    for before in (0, 4):
        drafted: Drafted = engine.draft(
            torch.randint(2000, (batch_size, 4), generator=generator).cuda(),
            torch.randn(batch_size, 4, 576, generator=generator).cuda(),
            torch.full((batch_size,), before, dtype=torch.int32).cuda(),
            torch.full((batch_size,), 4, dtype=torch.int32).cuda(),
            **ask,
        )
        results += [part.clone() for part in drafted]
    return [
        *results,
        engine.state.keys[:batch_size].clone(),
        engine.state.values[:batch_size].clone(),
    ]


@pytest.fixture
def engine() -> Callable[..., DraftEngine]:
    weights = random_weights(SPEC, seed=0, dtype=torch.bfloat16)

    def make(**options: Any) -> DraftEngine:
        return DraftEngine(SPEC, weights, capacity=256, most_requests=16, **options)

    return make


CHAIN = {"num_steps": 5}
TREE = {"num_steps": 4, "topk": 4, "num_draft_tokens": 16}


@pytest.mark.parametrize("batch_size", [1, 4, 16])
@pytest.mark.parametrize("ask", [CHAIN, TREE], ids=["chain", "tree"])
class TestOnAGpu:
    pytestmark = on_gpu

    def test_a_graph_gives_what_the_eager_path_gives_bit_for_bit(
        self, engine: Callable[..., DraftEngine], batch_size: int, ask: dict[str, int]
    ) -> None:
        replayed = two_rounds(engine(uses_graphs=True), batch_size, **ask)
        eager = two_rounds(engine(uses_graphs=False), batch_size, **ask)
        for one, other in zip(replayed, eager, strict=True):
            assert torch.equal(one, other)

    def test_launches_that_overlap_give_what_launches_in_turn_give(
        self, engine: Callable[..., DraftEngine], batch_size: int, ask: dict[str, int]
    ) -> None:
        if torch.cuda.get_device_capability() < (9, 0):
            pytest.skip("launches overlap from compute capability 9.0 on")
        overlapping = two_rounds(engine(is_programmatic=True), batch_size, **ask)
        in_turn = two_rounds(engine(is_programmatic=False), batch_size, **ask)
        for one, other in zip(overlapping, in_turn, strict=True):
            if one.is_floating_point():  # the two are compiled apart, and may round apart
                distance = torch.linalg.vector_norm((one - other).double())
                assert distance <= 1.5e-2 * torch.linalg.vector_norm(other.double())
            else:
                assert torch.equal(one, other)

    def test_a_captured_bucket_counts_its_nodes(
        self, engine: Callable[..., DraftEngine], batch_size: int, ask: dict[str, int]
    ) -> None:
        made = engine()
        run = made.run_of(made.bucket(batch_size=batch_size, most_accepted=4, **ask))
        assert run.graph is not None
        # seven kernels of the layer and two of the head, a step
        assert run.graph.num_nodes is None or run.graph.num_nodes >= 9 * ask["num_steps"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_work_that_waits_for_the_device_is_refused_before_it_is_captured() -> None:
    value = torch.ones(1, device="cuda")
    with pytest.raises(RuntimeError, match="synchroniz"):
        CapturedRun(lambda: print(value.item()), device=torch.device("cuda"))  # noqa: T201


def test_nothing_is_captured_without_a_cuda_device() -> None:
    with pytest.raises(ParameterError, match="device must be a CUDA device"):
        CapturedRun(lambda: None, device=torch.device("cpu"))


class FakeCuda:
    """The few calls of torch.cuda that a capture makes, in the order in which it makes them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        for name in ("synchronize", "current_stream"):
            monkeypatch.setattr(torch.cuda, name, lambda _=None: self)
        monkeypatch.setattr(torch.cuda, "Stream", lambda _: self)
        monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
        monkeypatch.setattr(torch.cuda, "graph", self.capture)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda **_: self)

    def wait_stream(self, _: object) -> None:
        """Streams wait for each other."""

    def synchronize(self) -> None:
        self.calls.append("synchronize")

    def raw_cuda_graph(self) -> int:
        raise RuntimeError("no driver")

    def instantiate(self) -> None:
        self.calls.append("instantiate")

    def replay(self) -> None:
        self.calls.append("replay")

    @contextmanager
    def capture(self, graph: object, *, pool: object, stream: object) -> Iterator[None]:
        assert (graph, pool, stream) == (self, None, self)
        self.calls.append("begin")
        yield
        self.calls.append("end")


def test_work_runs_before_it_is_captured_and_not_when_it_is_replayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = FakeCuda(monkeypatch)
    captured = CapturedRun(lambda: cuda.calls.append("run"), device=torch.device("cuda"))
    captured.replay()
    begin = cuda.calls.index("begin")
    assert cuda.calls[:begin] == ["run", "run", "synchronize", "run"]
    assert cuda.calls[begin:] == ["begin", "run", "end", "instantiate", "replay"]
    assert captured.num_nodes is None


def test_an_engine_on_a_cpu_names_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drafter.engine.draft_engine.IS_INTERPRETED", False)
    weights = random_weights(SPEC, seed=0, dtype=torch.bfloat16)
    with pytest.raises(ParameterError, match="on a CPU start with TRITON_INTERPRET=1"):
        DraftEngine(SPEC, weights, device="cpu")
