import numpy as np
import pytest

from specmodel.architecture import collectives, expected_ranks, preset
from specmodel.errors import ParameterError


@pytest.mark.parametrize(
    ("name", "layer_all_reduces", "bytes_per_token"),
    [
        ("Kimi-K2.5", 122, 14_336),
        ("Kimi-K2.6", 122, 14_336),
        ("DeepSeek-V3", 122, 14_336),
        ("DeepSeek-R1", 122, 14_336),
        ("GLM-5", 156, 12_288),
        ("Qwen3.5-397B-A17B", 120, 8_192),
    ],
)
@pytest.mark.parametrize("tp_size", [2, 8, 16])
def test_all_reduces_of_tensor_parallelism(
    name: str, layer_all_reduces: int, bytes_per_token: int, tp_size: int
) -> None:
    """The table of allreduce.md 10.2."""
    found = collectives(preset(name), tp_size)
    assert found.layer_all_reduces == layer_all_reduces
    assert found.all_reduces == layer_all_reduces + 1
    assert found.bytes_per_token == bytes_per_token


def test_the_logits_of_kimi_are_328_kilobytes_a_row() -> None:
    found = collectives(preset("Kimi-K2.5"), 8)
    assert found.logits_bytes_per_row == pytest.approx(328e3, abs=500)


def test_one_rank_makes_no_collective() -> None:
    found = collectives(preset("Kimi-K2.5"), 1, attention="data", experts="expert")
    assert found.all_reduces == found.all_gathers == found.reduce_scatters == 0
    assert found.all_to_alls == 0


def test_expert_parallelism_inside_the_tensor_parallel_group_changes_nothing() -> None:
    shape = preset("Qwen3-235B-A22B")
    assert collectives(shape, 8, experts="expert") == collectives(shape, 8)


def test_data_parallel_attention_gathers_and_scatters_around_each_feed_forward_block() -> None:
    found = collectives(preset("DeepSeek-V3"), 8, attention="data")
    assert (found.all_reduces, found.all_gathers, found.reduce_scatters) == (0, 61, 61)
    assert found.bytes_per_token == 14_336


def test_dispatch_and_combine_replace_the_gathers_of_layers_that_route() -> None:
    found = collectives(
        preset("DeepSeek-V3"), 8, attention="data", experts="expert", all_to_all=True
    )
    assert (found.all_gathers, found.reduce_scatters, found.all_to_alls) == (3, 3, 2 * 58)
    assert found.all_to_all_bytes_per_token == pytest.approx(
        14_336 * expected_ranks(256, 8, 8), rel=1e-12
    )


@pytest.mark.parametrize(("experts", "per_token", "ranks"), [(16, 4, 4), (64, 6, 8), (12, 1, 3)])
def test_expected_ranks_is_the_mean_of_uniform_routing(
    experts: int, per_token: int, ranks: int
) -> None:
    rng = np.random.default_rng(5)
    draws = 20_000
    chosen = np.argsort(rng.random((draws, experts)), axis=1)[:, :per_token] // (experts // ranks)
    counts = np.array([len(set(row)) for row in chosen.tolist()])
    tolerance = 4 * counts.std() / np.sqrt(draws) + 1e-9
    assert expected_ranks(experts, per_token, ranks) == pytest.approx(counts.mean(), abs=tolerance)


def test_expected_ranks_limits() -> None:
    assert expected_ranks(8, 8, 4) == 4.0
    assert expected_ranks(256, 8, 1) == 1.0
    assert expected_ranks(256, 8, 256) == pytest.approx(8.0)
    assert 1.0 <= expected_ranks(10, 3, 7) <= 3.0


@pytest.mark.parametrize(
    "change",
    [{"attention": "pipeline"}, {"experts": "x"}, {"bytes_per_value": 0.0}, {"tp_size": 0}],
)
def test_an_unknown_layout_is_refused(change: dict[str, object]) -> None:
    arguments: dict[str, object] = {"tp_size": 8} | change
    with pytest.raises(ParameterError, match=next(iter(change))):
        collectives(preset("Kimi-K2.5"), **arguments)  # type: ignore[arg-type]
