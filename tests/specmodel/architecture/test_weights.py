import numpy as np
import pytest

from specmodel.architecture import mtp_parameters, parameter_counts, preset, presets, weight_bytes
from specmodel.cost import expected_experts
from specmodel.errors import ParameterError
from specmodel.units import GIGA

KIMI_PARTS_GB = {  # allreduce.md 12: read by one of 8 ranks for one token
    "attention": 1.31,
    "attention_replicated": 1.85,
    "shared_experts": 0.66,
    "router": 0.33,
    "head": 0.29,
    "dense_mlp": 0.10,
}


@pytest.mark.parametrize(("part", "size_gb"), KIMI_PARTS_GB.items())
def test_parts_of_kimi_on_eight_ranks(part: str, size_gb: float) -> None:
    rank = weight_bytes(preset("Kimi-K2.5"), tp_size=8)
    assert getattr(rank, part) / GIGA == pytest.approx(size_gb, abs=0.005)


def test_one_token_reads_eight_experts_and_six_gigabytes_of_kimi() -> None:
    rank = weight_bytes(preset("Kimi-K2.5"), tp_size=8)
    assert (rank.active - rank.dense) / GIGA == pytest.approx(1.49, abs=0.005)
    assert rank.active / GIGA == pytest.approx(6.0, abs=0.05)


def test_a_verify_of_four_tokens_adds_three_milliseconds_of_weights_to_kimi() -> None:
    """allreduce.md 12: 31.0 experts, +3.0 ms at 0.8 x 1.792 TB/s."""
    rank = weight_bytes(preset("Kimi-K2.5"), tp_size=8)
    experts = expected_experts(4, rank.num_experts, rank.experts_per_token)
    assert float(experts) == pytest.approx(31.0, abs=0.06)
    added = float(rank.read(experts)) - rank.active
    assert added / (0.8 * 1.792e12) == pytest.approx(3.0e-3, abs=0.05e-3)


def test_all_experts_and_the_embedding_make_the_whole() -> None:
    for each in presets().values():
        weights = weight_bytes(each.shape)
        table = 0.0 if weights.tied else weights.embedding
        everything = float(weights.read(weights.num_experts)) + table + weights.other
        assert everything == pytest.approx(weights.total, rel=1e-9)


def test_bytes_of_a_model_in_sixteen_bits_are_twice_its_parameters() -> None:
    for name in ("Llama-3.1-8B", "Qwen3-235B-A22B", "Qwen3-4B", "Gemma-4-26B-A4B"):
        shape = preset(name)
        assert weight_bytes(shape).total == pytest.approx(2 * parameter_counts(shape).total)


@pytest.mark.parametrize("name", ["Llama-3.1-8B", "Kimi-K2.5", "Qwen3-235B-A22B", "gpt-oss-120b"])
def test_more_ranks_hold_less_each_and_not_less_together(name: str) -> None:
    sizes = [1, 2, 4, 8, 16, 64]
    each = np.array([weight_bytes(preset(name), tp_size=size).total for size in sizes])
    assert np.all(np.diff(each) < 0)
    assert np.all(np.diff(each * sizes) > 0)  # replicated parts


def test_a_key_value_projection_is_split_by_no_more_ranks_than_heads() -> None:
    shape = preset("Qwen3-235B-A22B")  # 4 key-value heads
    grouped = 2 * 94 * 2 * 4096 * 4 * 128
    whole, rank = weight_bytes(shape), weight_bytes(shape, tp_size=8)
    queries = whole.attention - grouped
    assert rank.attention == pytest.approx(queries / 8 + grouped / 4)


def test_data_parallel_attention_holds_attention_whole() -> None:
    shape = preset("DeepSeek-V3")
    whole = weight_bytes(shape)
    rank = weight_bytes(shape, tp_size=8, data_parallel_attention=True)
    assert rank.attention == whole.attention
    assert rank.routed_experts == pytest.approx(whole.routed_experts / 8)


def test_a_dense_model_reads_the_same_whatever_its_tokens() -> None:
    weights = weight_bytes(preset("Qwen3-32B"))
    assert weights.expert == 0.0
    assert weights.read([0, 1, 100]).tolist() == [weights.dense] * 3


@pytest.mark.parametrize(
    ("name", "billions"),
    [("DeepSeek-V3", 11.6), ("Hy3-295B-A21B", 3.8), ("Kimi-K2.5", 0.0)],
)
def test_multi_token_prediction_layers_have_their_published_size(
    name: str, billions: float
) -> None:
    """DeepSeek-V3: 685 B on the hub less 671 B, with copies of embedding and head; Hy3: 3.8 B."""
    assert mtp_parameters(preset(name)) / GIGA == pytest.approx(billions, abs=0.1)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, 10**9])
def test_an_impossible_number_of_ranks_is_refused(size: int) -> None:
    with pytest.raises(ParameterError, match="tp_size"):
        weight_bytes(preset("Qwen3-8B"), tp_size=size)
