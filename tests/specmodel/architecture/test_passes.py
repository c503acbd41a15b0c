import numpy as np
import pytest

from specmodel.architecture import (
    attention_flop_per_token,
    collectives,
    kv_cache,
    matrix_flop_per_token,
    parameter_counts,
    preset,
    presets,
    weight_bytes,
)
from specmodel.cost import expected_experts
from specmodel.errors import ParameterError
from specmodel.units import GIGA, KIBI

# --- weights ---

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


def test_a_dense_model_reads_the_same_whatever_its_tokens() -> None:
    weights = weight_bytes(preset("Qwen3-32B"))
    assert weights.expert == 0.0
    assert weights.read([0, 1, 100]).tolist() == [weights.dense] * 3


@pytest.mark.parametrize("size", [0, -1, 1.5, True, 10**9])
def test_an_impossible_number_of_ranks_is_refused(size: int) -> None:
    with pytest.raises(ParameterError, match="tp_size"):
        weight_bytes(preset("Qwen3-8B"), tp_size=size)


# --- cache ---


@pytest.mark.parametrize(
    ("name", "size_bytes"),
    [
        ("Llama-3.1-8B", 128 * KIBI),  # 32 layers x 2 x 8 heads x 128 x 2 B
        ("Llama-3.1-70B", 320 * KIBI),
        ("Qwen3-235B-A22B", 94 * 2 * 4 * 128 * 2),
        ("DeepSeek-V3", 61 * (512 + 64) * 2),
        ("Kimi-K2.5", 61 * (512 + 64) * 2),
        ("Qwen3-Next-80B-A3B", 12 * 2 * 2 * 256 * 2),  # the 12 layers with full attention
        ("GLM-5", 78 * (512 + 64 + 128) * 2),  # with the keys of the indexer
    ],
)
def test_bytes_of_a_token_in_sixteen_bits(name: str, size_bytes: int) -> None:
    cache = kv_cache(preset(name))
    assert cache.bytes_per_token == size_bytes
    assert kv_cache(preset(name), bytes_per_value=1.0).bytes_per_token == size_bytes / 2


def test_a_window_stops_growing_when_it_is_full() -> None:
    cache = kv_cache(preset("gpt-oss-120b"))  # 18 of 36 layers with a window of 128
    layer = 2 * 8 * 64 * 2
    assert cache.bytes_per_token == 36 * layer
    expected = [36 * layer * 100, 36 * layer * 128, 18 * layer * (128 + 4096)]
    assert cache.held_bytes([100, 128, 4096]).tolist() == expected


def test_linear_attention_holds_a_state_and_no_tokens() -> None:
    cache = kv_cache(preset("Qwen3-Next-80B-A3B"))
    state = 36 * (32 * 128 * 128 * 4 + (2 * 16 * 128 + 32 * 128) * 3 * 2)
    assert cache.state_bytes == state
    assert float(cache.held_bytes(0)) == state


def test_compressed_entries_stand_for_several_tokens() -> None:
    """DeepSeek-V4-Flash: windows of 128 in 43 layers, 21 layers 4:1 with index keys, 20 at 128:1."""
    cache = kv_cache(preset("DeepSeek-V4-Flash"))
    context = 8192
    window = 43 * 128 * 512 * 2
    entries = 21 * (context / 4) * (512 + 128) * 2 + 20 * (context / 128) * 512 * 2
    assert float(cache.held_bytes(context)) == pytest.approx(window + entries, rel=1e-12)


def test_sparse_attention_reads_index_keys_and_the_chosen_tokens() -> None:
    cache = kv_cache(preset("DeepSeek-V3.2"))
    layer = (512 + 64) * 2
    assert float(cache.read_bytes(100_000)) == 61 * (2048 * layer + 100_000 * 128 * 2)
    assert float(cache.read_bytes(1000)) == float(cache.held_bytes(1000))


def test_no_query_reads_more_than_is_held() -> None:
    contexts = np.array([0, 1, 127, 128, 129, 5000, 10**6])
    for each in presets().values():
        cache = kv_cache(each.shape)
        held, read = cache.held_bytes(contexts), cache.read_bytes(contexts)
        assert np.all(read <= held)
        assert np.all(np.diff(held) >= 0)


@pytest.mark.parametrize(
    ("name", "ranks", "share"),
    [
        ("Llama-3.1-8B", 4, 1 / 4),
        ("Llama-3.1-8B", 16, 1 / 8),  # 8 heads, each on two ranks
        ("Kimi-K2.5", 8, 1.0),  # the latent is on every rank
    ],
)
def test_ranks_share_heads_not_latents(name: str, ranks: int, share: float) -> None:
    whole, rank = kv_cache(preset(name)), kv_cache(preset(name), tp_size=ranks)
    assert rank.bytes_per_token == pytest.approx(share * whole.bytes_per_token)


def test_context_parallelism_shares_the_latent() -> None:
    kimi = preset("Kimi-K2.5")
    whole = kv_cache(kimi).bytes_per_token
    assert kv_cache(kimi, tp_size=8, context_parallel=8).bytes_per_token == whole / 8


@pytest.mark.parametrize("context", [-1, float("nan"), float("inf"), [1, -2]])
def test_an_impossible_context_is_refused(context: float) -> None:
    cache = kv_cache(preset("Qwen3-8B"))
    with pytest.raises(ParameterError, match="context_tokens"):
        cache.held_bytes(context)
    with pytest.raises(ParameterError, match="context_tokens"):
        cache.read_bytes(context)


# --- operations ---


def test_matrices_of_llama_cost_two_operations_a_weight() -> None:
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    assert matrix_flop_per_token(preset("Llama-3.1-8B")) == 2 * (32 * layer + 128256 * 4096)


def test_a_tied_head_is_multiplied_and_an_embedding_is_not() -> None:
    shape = preset("Qwen3-4B")
    layer = 2 * 2560 * 4096 + 2 * 2560 * 1024 + 3 * 2560 * 9728
    assert matrix_flop_per_token(shape) == 2 * (36 * layer + 151936 * 2560)


def test_a_token_of_a_mixture_costs_its_own_experts_only() -> None:
    """Qwen3-235B: 22 B a token with the embedding of 0.62 B."""
    assert matrix_flop_per_token(preset("Qwen3-235B-A22B")) == pytest.approx(
        2 * (22.19e9 - 0.62e9), rel=2e-3
    )


def test_attention_grows_with_the_context_up_to_its_window() -> None:
    shape = preset("gpt-oss-20b")  # 12 full layers, 12 with a window of 128
    pair = 4 * 64 * 64
    expected = [24 * pair * 100, 12 * pair * (128 + 10_000)]
    assert attention_flop_per_token(shape, [100, 10_000]).tolist() == expected


def test_latent_attention_is_counted_on_the_latent() -> None:
    found = attention_flop_per_token(preset("DeepSeek-V3"), 1000)
    assert float(found) == 61 * 2 * 128 * (512 + 64 + 512) * 1000


def test_linear_attention_costs_the_same_at_any_context() -> None:
    shape = preset("Qwen3-Next-80B-A3B")
    short, long = attention_flop_per_token(shape, [0, 1000])
    assert long - short == 12 * 4 * 16 * 256 * 1000
    assert short == 36 * 6 * 32 * 128 * 128


def test_sparse_attention_adds_a_cheap_scorer_and_bounds_the_rest() -> None:
    dense, sparse = preset("DeepSeek-V3"), preset("DeepSeek-V3.2")
    contexts = np.array([100.0, 100_000.0])
    ratio = attention_flop_per_token(sparse, contexts) / attention_flop_per_token(dense, contexts)
    assert ratio[0] > 1.0
    assert ratio[1] < 0.15


@pytest.mark.parametrize("context", [-1, float("nan"), float("inf")])
def test_operations_at_an_impossible_context_are_refused(context: float) -> None:
    with pytest.raises(ParameterError, match="context_tokens"):
        attention_flop_per_token(preset("Qwen3-8B"), context)


# --- all-reduces ---


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


def test_one_rank_makes_no_collective() -> None:
    assert collectives(preset("Kimi-K2.5"), 1).all_reduces == 0
