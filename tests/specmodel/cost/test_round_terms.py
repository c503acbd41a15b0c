import numpy as np
import pytest

from specmodel.cost import UNKNOWN_DEPTH_NUM_STEPS, BatchCurve, expected_experts, round_terms
from specmodel.cost.relative import REFERENCE_STEP_TIME_S
from specmodel.errors import ParameterError

FIXED_S, REQUEST_S, KV_S = 0.009, 0.0005, 1e-8


def step_s(batch: float, context: float) -> float:
    return FIXED_S + REQUEST_S * batch + KV_S * batch * context


def curve_over(batches: list[float], contexts: list[float]) -> BatchCurve:
    pairs = [(b, c) for b in batches for c in contexts]
    return BatchCurve.from_points(
        [b for b, _ in pairs], [c for _, c in pairs], [step_s(b, c) for b, c in pairs]
    )


def test_what_is_not_stated_is_a_chain_of_one_dense_request() -> None:
    terms = round_terms(num_steps=5, topk=np.nan, batch_size=np.nan)
    stated = round_terms(num_steps=5, topk=1, num_draft_tokens=6, batch_size=1, num_experts=0)
    for name in ("num_steps", "tree", "verify_growth", "loads", "loads_added", "kv_growth"):
        assert getattr(terms, name).tolist() == getattr(stated, name).tolist()
    assert terms.verify_growth.tolist() == [1.0]
    assert terms.loads_added.tolist() == [0.0]


def test_an_unknown_depth_is_the_documented_one() -> None:
    assert round_terms(num_steps=np.nan).num_steps.tolist() == [UNKNOWN_DEPTH_NUM_STEPS]


def test_without_a_curve_a_mixture_pays_for_the_experts_that_verification_adds() -> None:
    terms = round_terms(num_steps=3, batch_size=8, num_experts=128, experts_per_token=8)
    before, after = (float(expected_experts(tokens, 128, 8)) for tokens in (8, 32))
    assert terms.loads[0] == pytest.approx(before / 8)
    assert terms.loads_added[0] == pytest.approx((after - before) / 8)


def test_with_a_curve_verification_is_the_baseline_at_the_verified_rows() -> None:
    curve = curve_over([1, 2, 4, 8, 16, 32], [0])
    terms = round_terms(num_steps=3, batch_size=[1, 8], context_tokens=0, curve=curve)
    expected = [step_s(4, 0) / step_s(1, 0), step_s(32, 0) / step_s(8, 0)]
    np.testing.assert_allclose(terms.verify_growth, expected, rtol=1e-4)  # read to a thousandth
    assert terms.loads_added.tolist() == [0.0, 0.0]


def test_kv_is_counted_once_per_request_and_its_repetition_apart() -> None:
    curve = curve_over([1, 2, 4, 8, 16, 32], [0, 8192])
    terms = round_terms(num_steps=3, batch_size=8, context_tokens=8192, curve=curve)
    base = step_s(8, 8192)
    once = FIXED_S + REQUEST_S * 32 + KV_S * 8 * 8192
    assert terms.verify_growth[0] == pytest.approx(once / base, rel=1e-4)
    assert terms.kv_growth[0] == pytest.approx(KV_S * 8 * 3 * 8192 / base, rel=1e-4)
    together = terms.verify_growth[0] + terms.kv_growth[0]
    assert together == pytest.approx(step_s(32, 8192) / base, rel=1e-4)


def test_a_draft_step_is_scaled_to_the_reference_step() -> None:
    curve = curve_over([1, 8], [0])
    terms = round_terms(num_steps=3, batch_size=8, context_tokens=0, curve=curve)
    assert terms.draft_scale[0] == pytest.approx(REFERENCE_STEP_TIME_S / step_s(8, 0), rel=1e-4)
    timed = round_terms(num_steps=3, step_time_s=[0.020, np.nan])
    np.testing.assert_allclose(timed.draft_scale, [REFERENCE_STEP_TIME_S / 0.020, 1.0])


def test_without_draft_tokens_verification_is_a_baseline_step() -> None:
    curve = curve_over([1, 8], [0, 4096])
    for known in (None, curve):
        terms = round_terms(
            num_steps=0,
            batch_size=8,
            context_tokens=4096,
            num_experts=64,
            experts_per_token=4,
            curve=known,
        )
        assert terms.verify_growth[0] == pytest.approx(1.0, rel=1e-12)
        assert terms.loads_added[0] == 0.0
        assert terms.kv_growth[0] == 0.0
        assert terms.tree[0] == 0.0


def test_a_batch_curve_of_one_batch_is_not_used() -> None:
    curve = curve_over([8], [0, 4096])
    terms = round_terms(num_steps=3, batch_size=8, num_experts=64, experts_per_token=4, curve=curve)
    assert terms.loads_added[0] > 0


def test_scalars_and_arrays_agree_and_rows_can_be_taken() -> None:
    curve = curve_over([1, 4, 16], [0, 4096])
    depth, batch, context = [1, 3, 7], [1, 4, 16], [0, 1000, 4096]
    together = round_terms(num_steps=depth, batch_size=batch, context_tokens=context, curve=curve)
    assert len(together) == 3
    for row in range(3):
        alone = round_terms(
            num_steps=depth[row], batch_size=batch[row], context_tokens=context[row], curve=curve
        )
        taken = together.take(np.array([row]))
        for name in ("num_steps", "verify_growth", "kv_growth", "draft_scale", "expert_growth"):
            assert getattr(alone, name)[0] == pytest.approx(getattr(taken, name)[0], rel=1e-12)


@pytest.mark.parametrize("with_curve", [False, True])
def test_no_configuration_gives_no_terms(*, with_curve: bool) -> None:
    curve = curve_over([1, 4], [0]) if with_curve else None
    assert len(round_terms(num_steps=[], curve=curve)) == 0


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("num_steps", (-1, 1, 4, 1)),
        ("topk", (3, 0, 4, 1)),
        ("num_draft_tokens", (3, 1, 0, 1)),
        ("batch_size", (3, 1, 4, 0.5)),
    ],
)
def test_impossible_configurations_are_refused(
    name: str, arguments: tuple[float, float, float, float]
) -> None:
    depth, branches, verified, batch = arguments
    with pytest.raises(ParameterError) as refused:
        round_terms(num_steps=depth, topk=branches, num_draft_tokens=verified, batch_size=batch)
    assert refused.value.name == name
