import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from drafter.checkpoint import random_weights
from drafter.public_models import example_spec
from drafter.reference import DraftModel, draft_chain
from drafter.reference.layer import rms_norm
from drafter.spec import DraftSpec, Rope
from specmodel.errors import ParameterError

Request = tuple[DraftModel, Tensor, Tensor, Tensor]
MakeRequest = Callable[..., Request]
ATTENTION = "layers.0.self_attn"


def example_weights(**changes: Any) -> tuple[DraftSpec, dict[str, Tensor]]:
    spec = dataclasses.replace(example_spec(), **changes)
    return spec, random_weights(spec, seed=0, dtype=torch.float64)


def logits(request: Request, num_steps: int = 3) -> Tensor:
    return draft_chain(*request, num_steps=num_steps).logits


# --- passes ---


def test_rows_one_by_one_through_the_cache_equal_all_at_once(any_request: Request) -> None:
    model, tokens, states, positions = any_request
    whole = model.extend(tokens, states, positions)
    cache, rows = model.empty_cache(), []
    for row in range(len(tokens)):
        one = slice(row, row + 1)
        step = model.extend(tokens[one], states[one], positions[one], cache)
        cache = step.cache
        rows.append(step)
    torch.testing.assert_close(torch.cat([row.logits for row in rows]), whole.logits)
    torch.testing.assert_close(torch.cat([row.carry for row in rows]), whole.carry)
    torch.testing.assert_close(cache.keys, whole.cache.keys)
    torch.testing.assert_close(cache.values, whole.cache.values)


def test_a_row_knows_nothing_of_the_rows_after_it(any_request: Request) -> None:
    model, tokens, states, positions = any_request
    whole = model.extend(tokens, states, positions)
    tokens, states = tokens.clone(), states.clone()
    tokens[3:], states[3:] = 7, -5.0
    changed = model.extend(tokens, states, positions)
    assert torch.equal(changed.logits[:3], whole.logits[:3])
    assert not torch.allclose(changed.logits[3:], whole.logits[3:])


def test_only_distances_between_positions_matter(any_request: Request) -> None:
    model, tokens, states, positions = any_request
    shifted = (model, tokens, states, positions + 1000)
    torch.testing.assert_close(logits(shifted), logits(any_request))
    spread = (model, tokens, states, 2 * positions)
    assert not torch.allclose(logits(spread), logits(any_request))


def test_the_cache_of_before_is_left_as_it_was(any_request: Request) -> None:
    model, tokens, states, positions = any_request
    before = model.extend(tokens, states, positions).cache
    keys = before.keys.clone()
    first = model.extend(tokens[:2], states[:2], positions[:2] + 5, before)
    again = model.extend(tokens[:2], states[:2], positions[:2] + 5, before)
    assert torch.equal(first.logits, again.logits)
    assert len(before) == 5
    assert torch.equal(before.keys, keys)


def test_single_precision_is_near_double_precision(any_request: Request) -> None:
    exact = any_request[0]
    model = DraftModel(exact.spec, exact.weights, dtype=torch.float32)
    expected, found = logits(any_request), logits((model, *any_request[1:]))
    assert found.dtype == torch.float32
    # a few hundred roundings of 2^-24, and logits of order one
    assert float((found - expected).norm() / expected.norm()) < 1e-5


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float16, 2e-2), (torch.bfloat16, 1.5e-1)])
def test_short_dtypes_compute_too(dtype: torch.dtype, bound: float, any_request: Request) -> None:
    exact = any_request[0]
    model = DraftModel(exact.spec, exact.weights, dtype=dtype)
    expected, found = logits(any_request, 1), logits((model, *any_request[1:]), 1)
    assert found.dtype == dtype
    assert float((found - expected).norm() / expected.norm()) < bound


# --- switches, each against what it is by definition ---


def test_the_fed_back_state_is_the_normed_one_with_norm_output(make_request: MakeRequest) -> None:
    spec, weights = example_weights()
    plain = make_request(weights=weights)
    normed = make_request(weights=weights, norm_output=True)
    torch.testing.assert_close(logits(plain, 1), logits(normed, 1))
    assert not torch.allclose(logits(plain, 2)[1], logits(normed, 2)[1])
    carries = [draft_chain(*request, num_steps=1).carries for request in (plain, normed)]
    expected = rms_norm(carries[0], weights["norm.weight"], spec.rms_norm_eps)
    torch.testing.assert_close(carries[1], expected)


def test_the_residual_is_normed_where_the_norm_changes_nothing_either_way(
    make_request: MakeRequest,
) -> None:
    _, weights = example_weights(use_aux_hidden_state=False, target_hidden_size=24)
    weights["layers.0.hidden_norm.weight"] = torch.ones(24, dtype=torch.float64)
    outcomes = []
    for switch in (False, True):
        model, tokens, states, positions = make_request(
            weights=weights,
            use_aux_hidden_state=False,
            target_hidden_size=24,
            norm_before_residual=switch,
            rms_norm_eps=1e-12,
        )
        unit = rms_norm(states, torch.ones(24), 0.0)
        outcomes.append(
            (model.extend(tokens, unit, positions), model.extend(tokens, 3 * unit, positions))
        )
    (plain, plain_scaled), (normed, normed_scaled) = outcomes
    torch.testing.assert_close(normed.carry, plain.carry)
    torch.testing.assert_close(normed_scaled.carry, plain.carry)
    # without the switch the residual keeps the scale: 3 h = h + 2 h, and attention sees no scale
    assert not torch.allclose(plain_scaled.carry, plain.carry)


def test_norms_before_fusion_equal_normed_states_without_them(make_request: MakeRequest) -> None:
    for switch, names, width in (
        ("fc_norm", ["fc_norm.0", "fc_norm.1", "fc_norm.2"], 20),
        ("norm_before_fc", ["input_norm"], 60),
    ):
        spec, weights = example_weights(**{switch: True})
        model, tokens, states, positions = make_request(weights=weights, **{switch: True})
        parts = [
            rms_norm(part, weights[f"{name}.weight"], spec.rms_norm_eps)
            for name, part in zip(names, states.split(width, dim=-1), strict=True)
        ]
        plain = make_request(weights=weights)[0]
        torch.testing.assert_close(
            model.extend(tokens, states, positions).logits,
            plain.extend(tokens, torch.cat(parts, dim=-1), positions).logits,
        )


def test_no_fusion_equals_a_fusion_that_picks_one_state(make_request: MakeRequest) -> None:
    changes = {"target_hidden_size": 24}
    _, weights = example_weights(**changes)
    weights["fc.weight"] = torch.eye(24, 72, dtype=torch.float64)
    fused, tokens, states, positions = make_request(weights=weights, **changes)
    alone = make_request(weights=weights, **changes, use_aux_hidden_state=False)[0]
    assert torch.equal(
        fused.extend(tokens, states, positions).logits,
        alone.extend(tokens, states[:, :24], positions).logits,
    )


def test_a_bias_of_the_fusion_is_added_to_every_row(make_request: MakeRequest) -> None:
    _, weights = example_weights(fc_bias=True)
    model, tokens, states, positions = make_request(weights=weights, fc_bias=True)
    plain, *_ = make_request(weights={n: t for n, t in weights.items() if n != "fc.bias"})
    hidden = states @ weights["fc.weight"].T + weights["fc.bias"]
    torch.testing.assert_close(
        model.extend(tokens, states, positions).logits,
        plain.step(tokens, hidden, positions, plain.empty_cache()).logits,
    )


def test_biases_of_attention_equal_one_more_input_that_is_one(make_request: MakeRequest) -> None:
    """Hidden states scaled so that one normed input is 1 for every row."""
    _, weights = example_weights(attention_bias=True)
    model, tokens, states, positions = make_request(weights=weights, attention_bias=True)
    plain_weights = {name: values for name, values in weights.items() if "bias" not in name}
    # the last embedding column is made so large that after the norm it is sqrt(24) in every row
    for each in (weights, plain_weights):
        each["embed_tokens.weight"] = each["embed_tokens.weight"].clone()
        each["embed_tokens.weight"][:, 23] = 1e9
        each["layers.0.input_layernorm.weight"] = torch.ones(24, dtype=torch.float64)
    for name in "qkv":
        key = f"{ATTENTION}.{name}_proj"
        plain_weights[f"{key}.weight"] = weights[f"{key}.weight"].clone()
        plain_weights[f"{key}.weight"][:, 23] += weights[f"{key}.bias"] / 24**0.5
    biased = DraftModel(model.spec, weights)
    biased.weights[f"{ATTENTION}.o_proj.bias"] = torch.zeros(24, dtype=torch.float64)
    plain = DraftModel(dataclasses.replace(model.spec, attention_bias=False), plain_weights)
    torch.testing.assert_close(
        plain.extend(tokens, states, positions).logits,
        biased.extend(tokens, states, positions).logits,
    )


def test_the_bias_of_the_output_of_attention_is_added_to_the_residual(
    make_request: MakeRequest,
) -> None:
    """With an MLP that gives nothing, the residual is the state, what the heads say, and the bias."""
    spec, weights = example_weights(attention_bias=True)
    weights["layers.0.mlp.down_proj.weight"] = torch.zeros(24, 40, dtype=torch.float64)
    carries = []
    for bias in (weights[f"{ATTENTION}.o_proj.bias"], torch.zeros(24, dtype=torch.float64)):
        request = make_request(
            weights=weights | {f"{ATTENTION}.o_proj.bias": bias}, attention_bias=True
        )
        carries.append(request[0].extend(*request[1:]).carry)
    expected = weights[f"{ATTENTION}.o_proj.bias"].expand(5, spec.hidden_size)
    torch.testing.assert_close(carries[0] - carries[1], expected)


def test_normed_heads_do_not_know_the_scale_of_their_projections(make_request: MakeRequest) -> None:
    _, weights = example_weights(qk_norm=True)
    scaled = dict(weights)
    for name in ("q", "k"):
        scaled[f"{ATTENTION}.{name}_proj.weight"] = 7.0 * weights[f"{ATTENTION}.{name}_proj.weight"]
    requests = [
        make_request(weights=each, qk_norm=norm, rms_norm_eps=1e-12)
        for norm in (True, False)
        for each in (weights, scaled)
    ]
    found = [logits(request) for request in requests]
    torch.testing.assert_close(found[0], found[1])
    assert not torch.allclose(found[2], found[3])


def test_a_norm_of_heads_comes_before_the_rotation(make_request: MakeRequest) -> None:
    """A weight that differs within a pair does not commute with the rotation of that pair."""
    _, weights = example_weights(qk_norm=True)
    model, tokens, states, positions = make_request(weights=weights, qk_norm=True)
    cache = model.extend(tokens, states, positions).cache
    still = model.extend(tokens, states, 0 * positions).cache  # no turn
    norms = still.keys / weights[f"{ATTENTION}.k_norm.weight"]
    torch.testing.assert_close(
        norms.square().mean(dim=-1), torch.ones(5, 2, dtype=torch.float64), rtol=1e-4, atol=0.0
    )
    pairs = [(keys[..., :4].square() + keys[..., 4:].square()) for keys in (cache.keys, still.keys)]
    torch.testing.assert_close(pairs[0], pairs[1])


def test_a_window_of_one_sees_only_itself_and_a_wide_one_everything(
    make_request: MakeRequest,
) -> None:
    _, weights = example_weights()
    narrow = make_request(weights=weights, sliding_window=1)
    model, tokens, states, positions = narrow
    alone = model.extend(tokens[-1:], states[-1:], positions[-1:])
    torch.testing.assert_close(model.extend(tokens, states, positions).logits[-1:], alone.logits)
    wide, none = make_request(weights=weights, sliding_window=8), make_request(weights=weights)
    assert torch.equal(logits(wide), logits(none))
    assert not torch.allclose(logits(narrow), logits(none))


def test_grouped_heads_equal_separate_heads_with_copied_projections(
    make_request: MakeRequest,
) -> None:
    _, weights = example_weights()
    copied = dict(weights)
    for name in ("k", "v"):
        key = f"{ATTENTION}.{name}_proj.weight"
        copied[key] = weights[key].unflatten(0, (2, 8)).repeat_interleave(2, dim=0).flatten(0, 1)
    grouped = logits(make_request(weights=weights))
    torch.testing.assert_close(logits(make_request(weights=copied, num_kv_heads=4)), grouped)


def test_linear_scaling_equals_positions_that_are_further_apart(make_request: MakeRequest) -> None:
    _, weights = example_weights()
    model, tokens, states, positions = make_request(weights=weights)
    scaled = make_request(weights=weights, rope=Rope(kind="linear", factor=4.0))[0]
    torch.testing.assert_close(
        scaled.extend(tokens, states, 4 * positions).logits,
        model.extend(tokens, states, positions).logits,
    )


def test_the_magnitude_of_yarn_is_a_sharper_attention(make_request: MakeRequest) -> None:
    _, weights = example_weights()
    rope = Rope(kind="yarn", original_max_positions=512, attention_factor=2.0)
    sharp = dict(weights)  # factor 1 stretches nothing; both sides of a product carry the magnitude
    sharp[f"{ATTENTION}.q_proj.weight"] = 4.0 * weights[f"{ATTENTION}.q_proj.weight"]
    torch.testing.assert_close(
        logits(make_request(weights=weights, rope=rope)), logits(make_request(weights=sharp))
    )


def test_the_dynamic_kind_is_stretched_only_when_more_context_is_asked_for(
    make_request: MakeRequest,
) -> None:
    spec, weights = example_weights(rope=Rope(kind="dynamic", factor=4.0), max_positions=8)
    plain = logits(make_request(weights=weights))
    rows = make_request(weights=weights)[1:]
    within = DraftModel(spec, weights)
    beyond = DraftModel(spec, weights, context_tokens=64)
    assert torch.equal(logits((within, *rows)), plain)
    assert not torch.allclose(logits((beyond, *rows)), plain)


# --- what is refused ---


def test_a_bias_that_the_spec_has_not_is_refused() -> None:
    spec, weights = example_weights()
    weights[f"{ATTENTION}.q_proj.bias"] = torch.zeros(32, dtype=torch.float64)
    with pytest.raises(ParameterError, match=r"got with layers\.0\.self_attn\.q_proj\.bias"):
        DraftModel(spec, weights)


def test_a_missing_or_misshaped_tensor_is_refused_by_name() -> None:
    spec, weights = example_weights()
    del weights["norm.weight"]
    with pytest.raises(ParameterError, match=r"norm\.weight must be \(24,\).*got no such tensor"):
        DraftModel(spec, weights)
    weights["norm.weight"] = torch.ones(23)
    with pytest.raises(ParameterError, match=r"norm\.weight must be \(24,\).*got \(23,\)"):
        DraftModel(spec, weights)


@pytest.mark.parametrize(
    ("tokens", "width", "positions", "message"),
    [
        ([1, 61], 60, [0, 1], "tokens must be target ids from 0 to 60, got 61"),
        ([-1, 2], 60, [0, 1], "tokens must be target ids from 0 to 60, got -1"),
        ([1, 2], 40, [0, 1], r"shape of aux_states must be \[T, 60\].*got \[2, 40\]"),
        ([1, 2, 3], 60, [0, 1, 2], r"shape of hidden must be \[3, 24\]"),
        ([1, 2], 60, [0], r"shape of positions must be \[2\], got \[1\]"),
    ],
)
def test_rows_that_do_not_fit_are_refused(
    tokens: list[int], width: int, positions: list[int], message: str, make_request: MakeRequest
) -> None:
    model = make_request()[0]
    with pytest.raises(ParameterError, match=message):
        model.extend(torch.tensor(tokens), torch.ones(2, width), torch.tensor(positions))
