"""A step is called faster only where the difference is larger than what identical runs differ by."""

from dataclasses import replace

import pytest

from specmodel.errors import ParameterError
from specmodel.measurement import StepTiming, comparisons
from specmodel.measurement.draft_record import compared
from tests.specmodel.measurement.example_record import example_record

ROW = StepTiming(
    batch_size=1,
    context_tokens=2048,
    topk=1,
    time_s=1e-4,
    floor_s=8e-5,
    baseline_s=1.2e-4,
    baseline_spread=0.03,
    spread=0.02,
    num_samples=16,
)


@pytest.mark.parametrize(
    ("baseline_s", "verdict"),
    [
        (1.2e-4, "faster"),
        (1.051e-4, "faster"),  # the spreads are 5 % together
        (1.049e-4, "not separable"),
        (1.0e-4, "not separable"),
        (0.953e-4, "not separable"),  # 1 / 1.05 is 0.952
        (0.951e-4, "slower"),
        (0.5e-4, "slower"),
    ],
)
def test_the_difference_has_to_exceed_both_spreads(baseline_s: float, verdict: str) -> None:
    found = compared(replace(ROW, baseline_s=baseline_s))
    assert found is not None
    assert found.verdict == verdict
    assert found.ratio == pytest.approx(baseline_s / 1e-4)
    assert found.low == pytest.approx(found.ratio / 1.05)
    assert found.high == pytest.approx(found.ratio * 1.05)


def test_runs_that_agree_by_chance_claim_no_difference_below_one_percent() -> None:
    exact = replace(ROW, spread=0.0, baseline_spread=0.0)
    verdicts = [compared(replace(exact, baseline_s=time_s)) for time_s in (1.009e-4, 1.011e-4)]
    assert [each.verdict for each in verdicts if each] == ["not separable", "faster"]


def test_a_step_without_a_baseline_is_compared_with_nothing() -> None:
    alone = replace(ROW, baseline_s=None, baseline_spread=None)
    assert compared(alone) is None
    both = replace(example_record(), steps=(alone, replace(ROW, batch_size=2)))
    assert [each.row.batch_size for each in comparisons(both)] == [2]


@pytest.mark.parametrize(
    "change", [{"baseline_spread": None}, {"baseline_s": None}, {"baseline_spread": -0.1}], ids=str
)
def test_a_baseline_and_its_spread_come_together(change: dict[str, float | None]) -> None:
    with pytest.raises(ParameterError, match="spread"):
        replace(ROW, **change)  # type: ignore[arg-type]
