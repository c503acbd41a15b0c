"""Predictions of a changed rig: identities between their numbers, units, and what is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest

from calibration.rig.draft import DraftChoice
from calibration.rig.from_points import AskedRig
from calibration.rig.prediction import (
    ChangedRig,
    calibrated_scenario,
    changed_rig,
    rig_prediction,
    speedup_draws,
    speedup_ratio,
    with_load_changes,
)
from calibration.rig.pricing import Pricing
from calibration.rig.scenario import Scenario
from specmodel.architecture import preset
from specmodel.ask import Ask
from specmodel.calibration import Calibration
from specmodel.errors import ParameterError, SpecModelError, UsageError
from specmodel.prediction import Prediction, accept_length_over
from specmodel.question import AcceptLength, Configuration, Estimate, Question
from tests.calibration.rig.known_rigs import LLAMA_POINTS, LLAMA_RIG, ONE_POINT, of_points, packaged

ROUND_OF_A_BLOCK = """accept_length,throughput,baseline,num_steps,num_draft_tokens,algorithm
4.1,182.3,90.0,1,16,DFLASH
"""
PER_USER = """accept_length,throughput,baseline,num_steps,batch_size,throughput_scope
2.1,82.3,60.0,3,8,per_user
2.2,62.3,50.0,3,32,per_user
"""
AGGREGATE = """accept_length,throughput,baseline,num_steps,batch_size
2.1,658.4,480,3,8
2.2,1993.6,1600,3,32
"""


def question(
    accept_length: float = 2.5,
    *,
    depth: float | None = 3,
    batch_size: float = 1,
    context_tokens: float = 0,
    baseline_tokens_per_s: float | None = None,
    log_sd: float = 0.0,
    num_draft_tokens: float | None = None,
) -> Question:
    estimate = Estimate(median=accept_length, low=accept_length, high=accept_length)
    return Question(
        accept_length=AcceptLength(estimate=estimate, log_sd=log_sd),
        configuration=Configuration(
            num_steps=depth,
            batch_size=batch_size,
            context_tokens=context_tokens,
            num_draft_tokens=num_draft_tokens,
        ),
        baseline_tokens_per_s=baseline_tokens_per_s,
    )


def predicted(rig: ChangedRig, one: Question) -> Prediction:
    return rig_prediction(rig, one)


def kimi(*changes: tuple[str, str]) -> ChangedRig:
    return changed_rig(packaged("rtx6kpro-kimi-k26-dcp4"), changes)


def llama(*changes: tuple[str, str]) -> ChangedRig:
    return changed_rig(of_points(LLAMA_POINTS, LLAMA_RIG), changes)


CHANGES = [
    (),
    (("interconnect", "nvlink5"),),
    (("gpu", "B200"), ("tp_size", "8")),
    (("draft.kind", "mtp"), ("schedule", "host")),
    (("model", "DeepSeek-V3"), ("dtype", "nvfp4")),
    (("kv_dtype", "fp8"), ("context_tokens", "16384")),
]


@pytest.mark.parametrize("changes", CHANGES)
@pytest.mark.parametrize("accept_length", [1.0, 1.8, 2.5, 4.0])
def test_the_numbers_of_a_prediction_fit_each_other(
    changes: tuple[tuple[str, str], ...], accept_length: float
) -> None:
    rig = kimi(*changes)
    one = question(accept_length, batch_size=2, context_tokens=16384)
    found = predicted(rig, one)
    share = found.non_decode_share
    cost = found.round_cost
    speedup = 1 / (share + (1 - share) * cost.median / accept_length)
    assert found.speedup.median == pytest.approx(speedup)
    assert cost.low >= 1
    for estimate in (cost, found.speedup, found.break_even_accept_length):
        assert estimate.low <= estimate.median <= estimate.high
    assert found.break_even_accept_length.median == pytest.approx(cost.median)
    assert sum(part.share for part in found.breakdown) == pytest.approx(1)
    assert found.output_tokens_per_s is not None
    assert found.per_user_tokens_per_s is not None
    assert found.baseline_tokens_per_s is not None
    assert found.tpot_s is not None
    assert found.output_tokens_per_s.median == pytest.approx(
        found.baseline_tokens_per_s * found.speedup.median
    )
    assert found.per_user_tokens_per_s.median == pytest.approx(found.output_tokens_per_s.median / 2)
    assert found.tpot_s.high == pytest.approx(1 / found.per_user_tokens_per_s.low)
    round_s = sum(part.time_s or 0.0 for part in found.breakdown)
    decode = 2 * accept_length / round_s  # tokens/s while it decodes
    assert found.output_tokens_per_s.median < decode * 1.000001


@pytest.mark.parametrize("changes", CHANGES)
@pytest.mark.parametrize("accept_length", [1.0, 1.4, 1.7, 1.9, 2.1, 2.5, 3.2, 4.0])
def test_the_probability_of_being_faster_is_that_of_the_interval(
    changes: tuple[tuple[str, str], ...], accept_length: float
) -> None:
    found = predicted(kimi(*changes), question(accept_length, context_tokens=16384))
    low, median, high = found.speedup.low, found.speedup.median, found.speedup.high
    probability = found.probability_faster
    assert 0 <= probability <= 1
    assert (probability >= 0.95) == (low >= 1) or abs(low - 1) < 1e-3
    assert (probability <= 0.05) == (high <= 1) or abs(high - 1) < 1e-3
    assert (probability >= 0.5) == (median >= 1) or abs(median - 1) < 1e-6


def test_a_higher_accept_length_is_faster_and_its_spread_widens() -> None:
    rig = kimi(("interconnect", "nvlink5"))
    medians = [predicted(rig, question(value)).speedup.median for value in (1.0, 2.0, 3.0, 4.0)]
    assert medians == sorted(medians)
    widths = [
        found.speedup.high / found.speedup.low
        for found in (predicted(rig, question(log_sd=sd)) for sd in (0.0, 0.1, 0.3))
    ]
    assert widths[0] < widths[1] < widths[2]


def test_a_ratio_is_that_of_two_predictions_and_no_wider() -> None:
    rig = kimi(("context_tokens", "32768"))
    base, changed = question(context_tokens=0), question(context_tokens=32768)
    ratio = speedup_ratio(rig, base, changed)
    before, after = predicted(rig.unchanged, base), predicted(rig, changed)
    assert ratio.median == pytest.approx(after.speedup.median / before.speedup.median)
    assert ratio.high / ratio.low < (after.speedup.high / after.speedup.low) * (
        before.speedup.high / before.speedup.low
    )
    same = speedup_ratio(rig.unchanged, base, base)
    assert [same.low, same.median, same.high] == pytest.approx([1, 1, 1], abs=1e-6)


def test_a_measured_load_is_predicted_as_it_was_measured() -> None:
    calibration = packaged("rtx6kpro-kimi-k26-dcp4")
    rig = kimi()
    off = []
    for one in calibration.observations:
        configuration = one.configuration
        found = predicted(
            rig,
            Question(
                accept_length=AcceptLength.exact(one.accept_length_at), configuration=configuration
            ),
        )
        measured = one.output_tokens_per_s / one.baseline_tokens_per_s
        off.append(abs(math.log(found.speedup.median / measured)))
        assert found.speedup.low < measured < found.speedup.high
    assert np.median(off) < 0.02


def test_draws_are_those_of_the_interval() -> None:
    rig = llama(("dtype", "fp8"))
    # where rounds are cheaper, the interval ends at the accept length
    asked = [question(depth=depth, batch_size=128) for depth in (3, 4, 5)]
    draws = speedup_draws(rig, asked, np.full((20000, 3), 2.5), np.random.default_rng(0))
    for index, one in enumerate(asked):
        found = predicted(rig, one).speedup
        assert np.median(draws[:, index]) == pytest.approx(found.median, rel=0.01)
        inside = np.mean((draws[:, index] > found.low) & (draws[:, index] < found.high))
        assert 0.9 <= inside < 0.96  # a new measurement has noise besides


@pytest.mark.parametrize("target", [0.8, 1.0, 1.5])
def test_the_accept_length_that_a_target_needs_gives_it(target: float) -> None:
    rig = kimi(("interconnect", "nvlink5"))
    before = predicted(rig, question())
    needed = accept_length_over(before.round_cost, target, before.non_decode_share)
    assert needed.low <= needed.median <= needed.high
    again = predicted(rig, question(needed.median, depth=3))
    assert again.speedup.median == pytest.approx(target)


def test_a_target_that_no_accept_length_reaches_needs_an_infinite_one() -> None:
    found = predicted(kimi(), question())
    assert found.non_decode_share > 0
    beyond = accept_length_over(
        found.round_cost, 2 / found.non_decode_share, found.non_decode_share
    )
    assert math.isinf(beyond.median)


def test_throughputs_per_user_stay_per_user() -> None:
    user, whole = (changed_rig(of_points(text), ()) for text in (PER_USER, AGGREGATE))
    one = question(batch_size=8)
    apart, together = predicted(user, one), predicted(whole, one)
    assert apart.output_tokens_per_s == apart.per_user_tokens_per_s
    assert together.output_tokens_per_s is not None
    assert together.per_user_tokens_per_s is not None
    assert together.output_tokens_per_s.median == pytest.approx(
        8 * together.per_user_tokens_per_s.median
    )
    given = predicted(user, question(batch_size=8, baseline_tokens_per_s=60))
    assert given.baseline_tokens_per_s == 60
    assert given.per_user_tokens_per_s is not None
    assert given.per_user_tokens_per_s.median == pytest.approx(60 * given.speedup.median)


def test_a_baseline_that_is_given_is_that_of_the_changed_rig() -> None:
    found = predicted(
        kimi(("interconnect", "nvlink5")), question(batch_size=4, baseline_tokens_per_s=500)
    )
    assert found.output_tokens_per_s is not None
    assert found.output_tokens_per_s.median == pytest.approx(500 * found.speedup.median)


def test_a_block_is_priced_at_its_own_accept_length() -> None:
    rig = changed_rig(of_points(ROUND_OF_A_BLOCK), (("batch_size", "2"),))
    asked = question(4.1, depth=1, num_draft_tokens=16, batch_size=2)
    found = predicted(rig, asked)
    share = found.non_decode_share
    assert found.speedup.median == pytest.approx(
        1 / (share + (1 - share) * found.round_cost.median / 4.1)
    )
    with pytest.raises(ParameterError, match="from 1 to 16"):
        predicted(rig, question(17, depth=1, num_draft_tokens=16))


def test_a_depth_that_nobody_stated_follows_from_the_verified_tokens_or_is_asked_for() -> None:
    rig = kimi()
    told = predicted(rig, question(depth=None, num_draft_tokens=4))
    assert told.speedup.median == pytest.approx(predicted(rig, question()).speedup.median)
    with pytest.raises(UsageError, match="--depth"):
        predicted(rig, question(depth=None))


def test_an_accept_length_above_the_longest_is_refused() -> None:
    with pytest.raises(ParameterError, match="accept_length"):
        predicted(kimi(), question(4.2))


def test_what_was_measured_fits_whatever_its_memory_is_computed_to_be() -> None:
    calibration = packaged("rtx6kpro-kimi-k26-dcp4")
    rig, physical = calibrated_scenario(
        calibration, Ask(num_steps=(3,), batch_size=8, context_tokens=131072), accept_length=2.3
    )
    pricing = Pricing(rig, physical)
    price = pricing.price(rig)
    assert not price.memory.fits  # by 3 %: the engine holds the cache tighter than is assumed
    changed = replace(rig, interconnect="nvlink5")
    assert pricing.price(changed).step_s.median < price.step_s.median
    for larger in (
        replace(rig, batch_size=256),
        replace(rig, context_tokens=262144),
        replace(rig, tp_size=4),
        replace(rig, context_parallel=1),
        replace(rig, model=preset("Kimi-K2.5")),
    ):
        with pytest.raises(ParameterError, match="does not fit"):
            pricing.price(larger)


def test_loads_among_the_changes_fill_what_was_asked() -> None:
    asked = with_load_changes(Ask(topk=1), [("depth", "5"), ("batch_size", "1.5"), ("gpu", "H100")])
    assert asked == Ask(num_steps=(5,), topk=1, batch_size=1.5)
    with pytest.raises(UsageError, match="twice"):
        with_load_changes(Ask(num_steps=(3,)), [("depth", "3")])


@pytest.mark.parametrize(
    ("calibration", "said"),
    [
        (Calibration.from_prior(), "the packaged prior is of no rig"),
        (replace(of_points(ONE_POINT), physical=None), "before there was a physical form"),
        (
            replace(of_points(ONE_POINT), physical=None, rig_note="no GPU; give --gpu"),
            "not known: no GPU; give --calibration of a `specmodel fit` with --model and --gpu",
        ),
    ],
)
def test_a_calibration_without_a_rig_says_what_to_do(calibration: Calibration, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        changed_rig(calibration, [("tp_size", "4")])
    assert said in str(caught.value)


def test_changes_are_checked_before_anything_is_priced() -> None:
    for pair in (("tp_size", "x"), ("gpu", "H10O"), ("batch", "2")):
        with pytest.raises(SpecModelError):
            kimi(pair)


def test_more_gpus_of_a_known_rig_keep_its_name_and_change_its_times() -> None:
    rig = kimi(("tp_size", "16"))
    assert isinstance(rig.rig, Scenario)
    assert (rig.rig.tp_size, rig.pricing.base.tp_size, rig.unchanged.rig.tp_size) == (16, 8, 8)


def test_a_lookup_has_no_draft_model_to_read() -> None:
    text = ONE_POINT
    asked = AskedRig(model="Qwen3-8B", gpu="H100", draft=DraftChoice(kind="lookup"))
    found = predicted(changed_rig(of_points(text, asked), ()), question())
    assert not any("draft memory" in part.term for part in found.breakdown)
