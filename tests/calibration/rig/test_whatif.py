"""What a change of a rig does to the speed-up: directions that physics demands, and measurement."""

import sys
from typing import Any

import pytest

from calibration.report.rig_text import what_if_text
from calibration.rig.pricing import ScenarioPrice
from calibration.rig.scenario import Scenario
from calibration.rig.whatif import KEYS, Row, WhatIf, changed, what_if
from specmodel.architecture import preset
from specmodel.cost.allreduce import AllReduceCurve
from specmodel.errors import ParameterError, SpecModelError, UnknownKeyError


def scenario(model: str = "QwQ-32B", **given: Any) -> Scenario:
    usual: dict[str, Any] = {"gpu": "H100", "depth": 3, "accept_length": 2.5}
    return Scenario(model=preset(model), **{**usual, **given})


KIMI = scenario(
    "Kimi-K2.6", gpu="RTX PRO 6000 Server", tp_size=8, interconnect="pcie5", context_tokens=1000
)


def only(found: WhatIf) -> Row:
    (row,) = found.rows
    return row


def priced(row: Row) -> ScenarioPrice:
    assert row.priced is not None, row.reason
    return row.priced


def ratio(base: Scenario, key: str, text: str) -> float:
    row = only(what_if(base, [(key, text)]))
    assert row.ratio is not None, row.reason
    return row.ratio.median


def all_reduce_share(of: ScenarioPrice) -> float:
    times = [time for name, time in of.parts_s.items() if "all-reduce" in name]
    assert len(times) == 2
    return sum(times) / of.round_s.median


def test_nvlink_shrinks_the_share_of_all_reduces() -> None:
    found = what_if(KIMI, [("interconnect", "nvlink4")])
    assert all_reduce_share(priced(only(found))) < 0.5 * all_reduce_share(found.base)


def test_one_gpu_makes_no_all_reduce() -> None:
    assert all_reduce_share(what_if(scenario()).base) == 0


def test_a_larger_batch_of_a_dense_model_lowers_the_speedup() -> None:
    speedups = [ratio(scenario("Llama-3.1-8B"), "batch_size", text) for text in ("8", "64", "256")]
    assert 1 >= speedups[0] > speedups[1] > speedups[2]


def test_a_bandwidth_bound_batch_does_not_slow_a_step_of_a_dense_model() -> None:
    found = what_if(scenario("Llama-3.1-8B"), [("batch_size", "2")])
    assert priced(only(found)).step_s.median < 1.05 * found.base.step_s.median


def test_a_deeper_draft_at_the_same_accept_length_lowers_the_speedup() -> None:
    assert ratio(KIMI, "depth", "5") < 1 < ratio(KIMI, "depth", "2")


@pytest.mark.parametrize("base", [scenario(), KIMI], ids=["dense", "mixture"])
def test_parts_sum_to_the_round(base: Scenario) -> None:
    found = what_if(base)
    for each in [found.base, *(row.priced for row in found.rows if row.priced)]:
        assert sum(each.parts_s.values()) == pytest.approx(each.round_s.median)


@pytest.mark.parametrize("base", [scenario(), KIMI], ids=["dense", "mixture"])
def test_speedup_and_throughput_follow_from_the_round(base: Scenario) -> None:
    found = what_if(base).base
    cost = found.round_s.median / found.step_s.median
    assert found.round_cost.median == pytest.approx(cost)
    assert found.speedup.median == pytest.approx(2.5 / cost)
    assert found.speedup.low == pytest.approx(2.5 / found.round_cost.high)
    assert found.output_tokens_per_s.median == pytest.approx(2.5 / found.round_s.median)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("interconnect", "PCIe 5.0 x16"),
        ("tp_size", "8"),
        ("num_gpus", "8"),
        ("batch_size", "1"),
        ("context_tokens", "1000"),
        ("dtype", "int4"),
        ("depth", "3"),
        ("gpu", "rtx pro 6000 blackwell server"),
    ],
)
def test_setting_the_value_of_the_base_changes_nothing(key: str, text: str) -> None:
    row = only(what_if(KIMI, [(key, text)]))
    assert row.ratio is not None
    assert [row.ratio.low, row.ratio.median, row.ratio.high] == pytest.approx([1, 1, 1])


def test_what_base_and_change_share_cancels() -> None:
    found = what_if(KIMI, [("context_tokens", "2000"), ("interconnect", "nvlink4")])
    wide = found.base.speedup.high / found.base.speedup.low
    near, far = sorted(row.ratio.high / row.ratio.low for row in found.rows if row.ratio)
    assert near < 0.99 * wide
    assert near < far < wide**2


def test_changes_are_ordered_by_their_effect() -> None:
    rows = what_if(KIMI).rows
    effects = [max(row.ratio.median, 1 / row.ratio.median) for row in rows if row.ratio]
    assert len(effects) >= 5
    assert effects == sorted(effects, reverse=True)


def test_all_together_is_what_each_of_them_changes() -> None:
    found = what_if(KIMI, [("depth", "5"), ("batch_size", "16")])
    assert found.together is not None
    both = priced(found.together).scenario
    assert (both.depth, both.batch_size) == (5, 16)
    assert what_if(KIMI, [("depth", "5"), ("depth", "7")]).together is None
    apart = what_if(KIMI, [("depth", "5"), ("num_steps", "7")]).together
    assert apart is None


def test_a_change_that_does_not_fit_is_said_and_not_priced() -> None:
    found = what_if(KIMI, [("tp_size", "4"), ("batch_size", "1000000")])
    assert all(row.priced is None and "does not fit" in row.reason for row in found.rows)
    assert "8 GPUs would do" in "".join(row.reason for row in found.rows)


def test_a_shorter_draft_than_the_accept_length_is_said_and_not_priced() -> None:
    with pytest.raises(ParameterError, match="depth"):
        what_if(scenario(depth=1))
    assert "accept_length" in only(what_if(scenario(), [("depth", "1")])).reason
    assert all(row.priced for row in what_if(scenario()).rows)


def test_a_base_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ParameterError, match="does not fit"):
        what_if(scenario("Kimi-K2.6"))


def test_a_measured_curve_is_used_until_the_link_changes() -> None:
    slow = AllReduceCurve.from_points([1024, 1_048_576], [2e-4, 4e-4])
    base = scenario(tp_size=4, curves=((4, slow),))
    found = what_if(base, [("interconnect", "nvlink4"), ("batch_size", "4")])
    shares = {row.label: all_reduce_share(priced(row)) for row in found.rows}
    assert shares["interconnect=nvlink4"] < 0.5 * all_reduce_share(found.base)
    assert shares["batch_size=4"] == pytest.approx(all_reduce_share(found.base), rel=0.2)


def test_a_default_set_suits_the_rig() -> None:
    pcie = {row.label for row in what_if(KIMI).rows}
    assert "interconnect=nvlink4" in pcie
    assert "tp_size=4" not in pcie
    assert "dtype=fp8" not in pcie
    card = {row.label for row in what_if(scenario()).rows}
    assert {"dtype=fp8", "batch_size=8", "context_tokens=32768", "depth=5"} <= card
    assert not any("interconnect" in label for label in card)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("interconnect", "nvlinc 4"),
        ("gpu", "H1000"),
        ("dtype", "fp7"),
        ("tp_size", "2.5"),
        ("depth", "0"),
        ("batch_size", "nan"),
        ("context_tokens", "many"),
        ("topk", "2"),
        ("draft.vocab", "0"),
        ("draft.kind", "oracle"),
        ("draft.tp_size", "3"),
        ("draft.step_ms", "0"),
        ("schedule", "magic"),
        ("kv_dtype", "int3"),
        ("allreduce", "mpi"),
        ("model", "no such model"),
    ],
)
def test_what_cannot_be_set_is_refused_in_one_line(key: str, text: str) -> None:
    with pytest.raises(SpecModelError) as caught:
        changed(KIMI, (key, text))
    assert "\n" not in str(caught.value)


def test_an_unknown_key_names_the_allowed_ones() -> None:
    with pytest.raises(UnknownKeyError) as caught:
        what_if(KIMI, [("batch", "2")])
    assert all(key in str(caught.value) for key in KEYS)


def test_the_text_keeps_to_80_columns_and_says_what_it_is() -> None:
    text = what_if_text(what_if(KIMI, [("interconnect", "pcie_no_peer_access"), ("tp_size", "4")]))
    assert max(map(len, text.splitlines())) <= 80
    flat = " ".join(text.split())
    assert "not fitted to your points yet" in flat
    assert "accept length is held fixed" in flat


@pytest.mark.parametrize(
    ("card", "link"), [("A100", "pcie4"), ("A100", "nvlink3"), ("H100", "nvlink4")]
)
def test_the_gain_of_qwq_32b_falls_as_tensor_parallelism_grows(card: str, link: str) -> None:
    """sglang#6949: 21 -> 30 tokens/s on one GPU, 61 -> 59 on four; its card is not stated."""
    measured = (59 / 61) / (30 / 21)
    row = only(what_if(scenario(gpu=card, interconnect=link), [("tp_size", "4")]))
    assert row.ratio is not None
    sys.stdout.write(
        f"QwQ-32B on {card} over {link}, TP 1 -> 4: speed-up x {row.ratio.median:.2f} "
        f"({row.ratio.low:.2f} to {row.ratio.high:.2f}), measured x {measured:.2f}\n"
    )
    assert measured < 1
    assert row.ratio.median < 1
