import numpy as np
import pytest

from specmodel.architecture import kv_cache, preset, presets
from specmodel.errors import ParameterError
from specmodel.units import KIBI


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
    assert cache.bytes_per_token_beyond_windows == 18 * layer
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


def test_context_parallelism_shares_the_latent_and_data_parallelism_shares_nothing() -> None:
    kimi, llama = preset("Kimi-K2.5"), preset("Llama-3.1-8B")
    whole = kv_cache(kimi).bytes_per_token
    assert kv_cache(kimi, tp_size=8, context_parallel=8).bytes_per_token == whole / 8
    alone = kv_cache(llama, tp_size=8, data_parallel_attention=True)
    assert alone.bytes_per_token == kv_cache(llama).bytes_per_token


@pytest.mark.parametrize("context", [-1, float("nan"), float("inf"), [1, -2]])
def test_an_impossible_context_is_refused(context: float) -> None:
    cache = kv_cache(preset("Qwen3-8B"))
    with pytest.raises(ParameterError, match="context_tokens"):
        cache.held_bytes(context)
    with pytest.raises(ParameterError, match="context_tokens"):
        cache.read_bytes(context)
