import numpy as np
import pytest

from specmodel.architecture import attention_flop_per_token, matrix_flop_per_token, preset
from specmodel.errors import ParameterError


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
def test_an_impossible_context_is_refused(context: float) -> None:
    with pytest.raises(ParameterError, match="context_tokens"):
        attention_flop_per_token(preset("Qwen3-8B"), context)
