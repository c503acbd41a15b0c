from dataclasses import replace

import numpy as np
import pytest

from specmodel.baselines import Baseline, Baselines
from specmodel.calibration import Calibration
from specmodel.errors import ParameterError
from specmodel.prediction import baseline_of
from specmodel.question import AcceptLength, Configuration, Question

NAN = float("nan")


def entry(
    workload: str, batch: float, context: float, rate: float, step_s: float = NAN
) -> Baseline:
    return Baseline(
        workload=workload,
        batch_size=batch,
        context_tokens=context,
        tokens_per_s=rate,
        step_time_s=step_s,
    )


MIXED = Baselines(
    entries=(
        entry("chat", 8, NAN, 500.0, 0.0160),
        entry("short", 8, NAN, 400.0, 0.0200),
        entry("chat", 1, NAN, 90.0, 0.0111),
        entry("chat", 8, 4096, 300.0, 0.0267),
        entry("code", NAN, NAN, 120.0),
        entry("math", NAN, NAN, 150.0),
    )
)


def test_the_fastest_workload_of_each_load_is_found() -> None:
    found = MIXED.best("tokens_per_s", max, [8, 1, 8, NAN], [NAN, NAN, 4096, NAN])
    np.testing.assert_array_equal(found, [500, 90, 300, 150])


def test_a_load_that_was_not_measured_is_unknown() -> None:
    assert np.isnan(MIXED.best("tokens_per_s", max, [16, 8], [NAN, 1024])).tolist() == [True, True]
    assert np.isnan(MIXED.best("step_time_s", min, NAN, NAN))


def test_the_deficit_compares_workloads_of_one_load_only() -> None:
    found = MIXED.deficit([400, 500, 300, 120], [8, 8, 8, NAN], [NAN, NAN, 4096, NAN])
    np.testing.assert_allclose(found, [0.2, 0.0, 0.0, 0.2])


def test_a_deficit_is_never_negative_and_zero_where_nothing_is_known() -> None:
    assert MIXED.deficit([600, 50, NAN], [8, 64, 8], NAN).tolist() == [0, 0, 0]


def test_the_step_time_is_that_of_the_fastest_workload() -> None:
    np.testing.assert_allclose(MIXED.best("step_time_s", min, [8, 1], NAN), [0.0160, 0.0111])


def test_shapes_are_kept() -> None:
    batch = np.array([[8.0, 1.0], [1.0, 8.0]])
    assert MIXED.best("tokens_per_s", max, batch, NAN).tolist() == [[500, 90], [90, 500]]
    assert MIXED.best("tokens_per_s", max, 8, NAN).shape == ()
    assert MIXED.deficit(400.0, 8, NAN).shape == ()


def test_a_throughput_must_be_positive() -> None:
    with pytest.raises(ParameterError, match="baseline_tokens_per_s must be positive, got 0"):
        MIXED.deficit([400, 0, NAN], 8, NAN)


def test_a_baseline_is_found_by_workload_and_load_and_replicates_are_averaged() -> None:
    twice = Baselines(entries=(*MIXED.entries, entry("chat", 8, NAN, 520.0, 0.0154)))
    eight, long = Configuration(batch_size=8), Configuration(batch_size=8, context_tokens=1024)

    def rate(baselines: Baselines, workload: str, load: Configuration) -> float | None:
        system = replace(Calibration.from_prior(), baselines=baselines)
        accept = AcceptLength.exact(2.0)
        question = Question(accept_length=accept, configuration=load, workload=workload)
        return baseline_of(system, question)[0]

    assert rate(twice, "chat", eight) == pytest.approx(510.0)
    assert rate(MIXED, "chat", long) is None
    assert rate(MIXED, "other", eight) is None
    assert rate(MIXED, "code", Configuration()) == 120.0


def test_the_batch_curve_needs_two_batches_with_a_step_time() -> None:
    assert Baselines(entries=()).curve() is None
    assert Baselines(entries=MIXED.entries[4:]).curve() is None
    one_batch = Baselines(entries=MIXED.entries[:2])
    assert one_batch.curve() is None
    curve = MIXED.curve()
    assert curve is not None
    assert curve.num_batches == 2
    np.testing.assert_allclose(curve.at([1, 8], 0).step_time_s, [0.0111, 0.0160])


def test_no_baseline_knows_nothing() -> None:
    none = Baselines(entries=())
    assert np.isnan(none.best("tokens_per_s", max, [8], [NAN])).tolist() == [True]
    assert none.deficit([100.0], [8], [NAN]).tolist() == [0.0]
