"""The keys of --set: the value that is there changes nothing, orders do not matter, the rest is refused."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibration.rig.draft import DraftChoice, measured_draft
from calibration.rig.pricing import Pricing
from calibration.rig.scenario import EAGER_KERNEL_S, LOAD_KEYS, Scenario, scenario_from_record
from calibration.rig.whatif import KEYS, SYNONYMS, changed, default_changes, what_if
from specmodel.architecture import preset
from specmodel.cost.allreduce import AllReduceCurve
from specmodel.errors import ParameterError, SpecModelError, UnknownKeyError
from specmodel.measurement import save_record
from specmodel.physical_fit import PhysicalFit
from tests.calibration.rig.known_rigs import LLAMA_POINTS, LLAMA_RIG, ONE_POINT, of_points, packaged
from tests.extent import sample
from tests.specmodel.measurement.example_record import example_record

LLAMA = Scenario(model=preset("Llama-3.1-8B"), gpu="H100", depth=3, accept_length=2.5)
KIMI = Scenario(
    model=preset("Kimi-K2.6"),
    gpu="RTX PRO 6000 Server",
    tp_size=8,
    interconnect="pcie5",
    depth=3,
    accept_length=2.5,
    context_tokens=1024,
)
TREE = replace(LLAMA, topk=4, num_draft_tokens=16, depth=5)
BLOCK = replace(LLAMA, draft=DraftChoice(kind="parallel"), depth=1, num_draft_tokens=16)

Base = tuple[Scenario, PhysicalFit | None]


def fitted(name: str) -> Base:
    """A fitted rig at one of its loads."""
    calibration = {
        "table": lambda: packaged("rtx6kpro-kimi-k26-dcp4"),
        "point": lambda: of_points(ONE_POINT),
        "dense": lambda: of_points(LLAMA_POINTS, LLAMA_RIG),
    }[name]()
    assert calibration.physical is not None
    rig = scenario_from_record(calibration.physical.rig)
    return replace(rig, depth=3, accept_length=2.2), calibration.physical


def bases() -> dict[str, Base]:
    """Rigs of every kind, from names and fitted."""
    curve = AllReduceCurve.from_points([1024, 65536, 1 << 20], [2e-5, 5e-5, 3e-4])
    timed = DraftChoice(times=measured_draft(example_record()), tp_size=1)
    return {
        "dense": (LLAMA, None),
        "mixture": (KIMI, None),
        "tree": (TREE, None),
        "block": (replace(BLOCK, accept_length=6.0), None),
        "curve": (replace(KIMI, curves=((8, curve), (4, curve)), interconnect=""), None),
        "timed": (replace(KIMI, draft=timed), None),
        "known step": (replace(LLAMA, draft=DraftChoice(step_s=5e-4)), None),
        "quantised": (replace(LLAMA, dtype="fp8", kv_bytes_per_value=1.0), None),
        **{f"fitted {name}": fitted(name) for name in ("table", "point", "dense")},
    }


BASES = bases()


def own_values(base: Scenario, folder: Path) -> dict[str, str]:
    """What a rig has, as --set spells it; keys without a value of their own are left out."""
    file = folder / "drafter.json"
    save_record(example_record(), file)
    known: dict[str, object | None] = {
        "interconnect": base.interconnect or None,
        "allreduce": "nccl" if base.interconnect.startswith("pcie") else None,
        "tp_size": base.tp_size,
        "num_gpus": base.tp_size,
        "gpu": base.gpu,
        "model": base.model.name,
        "dtype": base.dtype or None,
        "kv_dtype": {2.0: "bf16", 1.0: "fp8"}[base.kv_bytes_per_value],
        "batch_size": f"{base.batch_size:g}",
        "context_tokens": f"{base.context_tokens:g}",
        "depth": None if base.num_draft_tokens and base.topk == 1 else base.depth,
        "num_steps": None if base.num_draft_tokens and base.topk == 1 else base.depth,
        "topk": base.topk,
        "num_draft_tokens": base.num_draft_tokens or base.depth + 1,
        "schedule": base.schedule,
        "capture_limit": base.capture_limit,
        "draft.kind": base.draft.kind or "eagle3",
        "draft.vocab": 32000 if base.draft.kind != "lookup" else None,
        "draft.tp_size": base.draft.tp_size or base.tp_size,
        "draft.step_ms": None if base.draft.step_s is None else 1e3 * base.draft.step_s,
        "draft.record": file if base.draft.times is not None else None,
    }
    assert set(known) == set(KEYS)
    return {key: str(value) for key, value in known.items() if value is not None}


@sample(6)
@pytest.mark.parametrize("name", BASES)
def test_setting_what_a_rig_has_changes_nothing(name: str, tmp_path: Path) -> None:
    base, fit = BASES[name]
    pricing = Pricing(base, fit)
    before = pricing.price(base)
    values = own_values(base, tmp_path)
    assert len(values) >= 13
    for key, text in values.items():
        after = changed(base, (key, text))
        ratio = pricing.ratio(base, after)
        assert [ratio.low, ratio.median, ratio.high] == pytest.approx([1, 1, 1], abs=1e-6), key
        price = pricing.price(after)
        for quantity in ("step_s", "round_s", "speedup", "output_tokens_per_s"):
            assert getattr(price, quantity).median == pytest.approx(
                getattr(before, quantity).median, rel=1e-9
            ), (key, quantity)
    together = changed(base, *((key, text) for key, text in values.items() if key not in SYNONYMS))
    assert pricing.ratio(base, together).median == pytest.approx(1, abs=1e-6)


def test_every_key_can_change_something(tmp_path: Path) -> None:
    file = tmp_path / "drafter.json"
    save_record(example_record(), file)
    others = {
        "interconnect": "nvlink4",
        "allreduce": "engine",
        "tp_size": "16",
        "num_gpus": "16",
        "gpu": "B200",
        "model": "DeepSeek-V3",
        "dtype": "nvfp4",
        "kv_dtype": "fp8",
        "batch_size": "8",
        "context_tokens": "65536",
        "depth": "5",
        "num_steps": "5",
        "topk": "8",
        "num_draft_tokens": "32",
        "schedule": "draft",
        "capture_limit": "1",
        "draft.kind": "mtp",
        "draft.vocab": "160000",
        "draft.tp_size": "1",
        "draft.step_ms": "3",
        "draft.record": str(file),
    }
    assert set(others) == set(KEYS)
    base = replace(KIMI, topk=4, num_draft_tokens=16, context_tokens=32768)
    pricing = Pricing(base)
    for key, text in others.items():
        ratio = pricing.ratio(base, changed(base, (key, text)))
        assert abs(ratio.median - 1) > 1e-4, key
        assert ratio.low < ratio.median < ratio.high, key


@pytest.mark.parametrize(
    "changes",
    [
        [("tp_size", "4"), ("interconnect", "nvlink4"), ("gpu", "B200")],
        [("tp_size", "16"), ("draft.tp_size", "16"), ("interconnect", "nvlink5")],
        [("topk", "4"), ("num_draft_tokens", "16"), ("depth", "5")],
        [("model", "DeepSeek-V3"), ("dtype", "nvfp4"), ("tp_size", "16")],
        [("allreduce", "engine"), ("interconnect", "pcie4"), ("tp_size", "16")],
    ],
)
def test_the_order_of_changes_does_not_matter(changes: list[tuple[str, str]]) -> None:
    found = [changed(KIMI, *order) for order in itertools.permutations(changes)]
    assert all(one == found[0] for one in found[1:])


def test_a_key_that_is_named_twice_is_refused_by_any_of_its_names() -> None:
    for pair in ([("depth", "2"), ("num_steps", "3")], [("tp_size", "8"), ("tp_size", "8")]):
        with pytest.raises(ParameterError, match="twice"):
            changed(KIMI, *pair)


def test_another_model_comes_in_its_own_formats() -> None:
    quantised = replace(LLAMA, dtype="fp8")
    assert changed(quantised, ("model", "Qwen3-8B")).dtype == ""
    assert changed(quantised, ("model", "meta-llama/Llama-3.1-8B")).dtype == "fp8"


def test_a_chain_verifies_what_it_drafts_and_one() -> None:
    with pytest.raises(ParameterError, match=r"depth \+ 1 = 4 for a chain"):
        changed(LLAMA, ("num_draft_tokens", "16"))
    with pytest.raises(ParameterError, match="num_draft_tokens"):
        changed(LLAMA, ("topk", "4"))
    tree = changed(LLAMA, ("topk", "4"), ("num_draft_tokens", "16"))
    assert (tree.topk, tree.num_draft_tokens) == (4, 16)
    assert changed(tree, ("topk", "1")).longest == 4
    assert changed(TREE, ("depth", "3")).num_draft_tokens == 16
    assert changed(LLAMA, ("depth", "7")).longest == 8


def test_a_block_is_longer_than_its_depth() -> None:
    assert BLOCK.longest == 16
    assert replace(BLOCK, accept_length=9.5).rig() is not None
    with pytest.raises(ParameterError, match="from 1 to 16"):
        replace(BLOCK, accept_length=16.5).rig()
    with pytest.raises(ParameterError, match=r"from 1 to depth \+ 1 = 4"):
        replace(LLAMA, accept_length=4.5).rig()
    assert not any(key == "depth" for key, _ in default_changes(BLOCK))
    assert any(key == "depth" for key, _ in default_changes(LLAMA))


def test_a_measured_link_stays_one_link_at_other_numbers_of_gpus() -> None:
    base, _ = BASES["curve"]
    fewer = changed(replace(base, model=preset("Qwen3-8B"), gpu="H100"), ("tp_size", "4"))
    assert fewer.curve is not None
    rows = what_if(replace(base, model=preset("Qwen3-8B"), gpu="H100"), [("tp_size", "4")]).rows
    assert rows[0].ratio is not None


def test_changes_that_need_each_other_are_priced_together_only() -> None:
    found = what_if(LLAMA, [("topk", "4"), ("num_draft_tokens", "16"), ("batch_size", "2")])
    reasons = {row.label: row.reason for row in found.rows}
    assert reasons["batch_size=2"] == ""
    assert "not without the other changes" in reasons["topk=4"]
    assert "depth + 1 = 4" in reasons["num_draft_tokens=16"]
    assert found.together is not None
    assert found.together.ratio is not None
    with pytest.raises(ParameterError):
        what_if(LLAMA, [("topk", "4")])
    with pytest.raises(ParameterError):
        what_if(LLAMA, [("topk", "4"), ("batch_size", "many")])


@pytest.mark.parametrize(
    "text", ["", " ", "nan", "inf", "-1", "1e400", "abc", "1,5", "1:5", "0x10", "None", "3.7.1"]
)
@pytest.mark.parametrize("key", KEYS)
def test_what_is_no_value_of_a_key_is_refused_in_one_line(key: str, text: str) -> None:
    with pytest.raises(SpecModelError) as caught:
        changed(KIMI, (key, text))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("key", ["", "DEPTH", "batch", "draft", "x" * 500, "tp_size "])
def test_what_is_no_key_is_refused_with_those_that_are(key: str) -> None:
    with pytest.raises(UnknownKeyError) as caught:
        changed(KIMI, (key, "1"))
    assert all(known in str(caught.value) for known in KEYS)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("key", sorted(LOAD_KEYS))
def test_loads_have_the_bounds_of_options(key: str) -> None:
    with pytest.raises(ParameterError, match=key):
        changed(TREE, (key, "1e10"))


def test_keys_and_their_synonyms_are_known() -> None:
    assert set(SYNONYMS) | set(SYNONYMS.values()) | set(LOAD_KEYS) <= set(KEYS)
    for other, key in SYNONYMS.items():
        assert changed(KIMI, (other, "8")) == changed(KIMI, (key, "8"))


def test_default_changes_of_every_rig_can_be_priced_or_say_why() -> None:
    for base, fit in BASES.values():
        found = what_if(base, fit=fit)
        assert found.rows
        assert all(row.ratio is not None or row.reason for row in found.rows)


def replaced(**given: Any) -> Scenario:
    return replace(KIMI, **given)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "nccl"),
        ({"interconnect": "nvlink4"}, "engine"),
        ({"kernel": "engine"}, "custom"),
        ({"kernel": "engine"}, "p2p"),
    ],
)
def test_the_kernel_that_the_gate_takes_is_no_change(given: dict[str, Any], text: str) -> None:
    base = replaced(**given)
    assert changed(base, ("allreduce", text)) is base


def test_a_pass_beyond_the_captured_graphs_is_launched_kernel_by_kernel() -> None:
    """A step of 8 requests fits a graph of 8 rows; a round that verifies 32 rows does not."""
    base = Scenario(
        model=preset("Llama-3.1-8B"), gpu="H100", depth=3, batch_size=8, accept_length=2.5
    )
    limited = changed(base, ("capture_limit", "8"))
    whole, cut = (Pricing(each).price(each) for each in (base, limited))
    assert cut.step_s.median == pytest.approx(whole.step_s.median)
    launches_s = base.rig().forward_work().num_kernels * EAGER_KERNEL_S
    assert cut.round_s.median > max(whole.round_s.median, launches_s)
    wide = Pricing(base).price(changed(base, ("capture_limit", "32")))
    assert wide.round_s.median == pytest.approx(whole.round_s.median)


def test_a_head_is_not_priced_where_the_passes_were_measured() -> None:
    for measured in (
        DraftChoice(step_s=5e-4),
        DraftChoice(times=measured_draft(example_record()), tp_size=1),
    ):
        with pytest.raises(ParameterError, match=r"draft\.step_ms"):
            changed(replace(LLAMA, draft=measured), ("draft.vocab", "64000"))
    for changes in itertools.permutations([("draft.vocab", "64000"), ("draft.step_ms", "0.5")]):
        with pytest.raises(ParameterError, match=r"draft\.vocab"):
            changed(LLAMA, *changes)


def test_one_time_of_the_draft_passes_is_given(tmp_path: Path) -> None:
    save_record(example_record(), tmp_path / "drafter.json")
    record = ("draft.record", str(tmp_path / "drafter.json"))
    for changes in itertools.permutations([record, ("draft.step_ms", "0.5")]):
        with pytest.raises(ParameterError, match="one of them"):
            changed(LLAMA, *changes)
