"""Which rig points were measured on: what they state, what the user adds, and what is assumed."""

from typing import Any

import pandas as pd
import pytest

from calibration.points.reading import read_points
from calibration.rig.draft import DraftChoice
from calibration.rig.from_points import AskedRig, RigFinding, rig_of_points, with_named_rig
from calibration.rig.scenario import Scenario, edition_of, round_shape
from specmodel.cost.allreduce import AllReduceCurve
from specmodel.errors import SpecModelError, UnknownKeyError

KIMI: dict[str, Any] = {
    "target_model": "Kimi-K2.5",
    "gpu": "RTX PRO 6000 Blackwell Server",
    "tp_size": 8,
    "interconnect": "pcie",
    "algorithm": "EAGLE3",
}


def finding(asked: AskedRig | None = None, **stated: Any) -> RigFinding:
    return rig_of_points(pd.DataFrame([stated, stated]), asked)


def rig(asked: AskedRig | None = None, **stated: Any) -> Scenario:
    found = finding(asked, **stated)
    assert found.scenario is not None, found.reason
    return found.scenario


def kimi(asked: AskedRig | None = None, **other: Any) -> Scenario:
    return rig(asked, **{**KIMI, **other})


@pytest.mark.parametrize(
    ("stated", "options"),
    [
        ({}, "--model and --gpu"),
        ({"target_model": "Qwen3-8B"}, "--gpu"),
        ({"gpu": "H100"}, "--model"),
        ({"target_model": "", "gpu": float("nan")}, "--model and --gpu"),
    ],
)
def test_points_without_model_or_gpu_have_no_rig_and_say_what_to_give(
    stated: dict[str, Any], options: str
) -> None:
    found = finding(**stated)
    assert found.scenario is None
    assert found.reason.endswith(f"give {options}")
    said = AskedRig(model="Qwen3-8B", gpu="H100")
    assert finding(said, **stated).scenario is not None


def test_what_the_user_says_goes_before_the_points() -> None:
    curve = AllReduceCurve.from_points([1024, 65536], [2e-5, 5e-5])
    asked = AskedRig(
        model="Qwen3-8B",
        gpu="H100",
        num_gpus=2,
        interconnect="NVLink 4",
        dtype="fp8",
        draft=DraftChoice(kind="mtp"),
    )
    found = kimi(asked)
    assert (found.model.name, found.gpu, found.tp_size) == ("Qwen3-8B", "H100 SXM", 2)
    assert (found.interconnect, found.dtype, found.draft.kind) == ("nvlink4", "fp8", "mtp")
    measured = kimi(AskedRig(num_gpus=8, curves=((8, curve),)))
    assert (measured.curve, measured.interconnect) == (curve, "")


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"target_model": "Qwen3-8B", "gpu": "H100"}, "one GPU"),
        ({**KIMI, "interconnect": ""}, "all-reduce over pcie5"),
        ({**KIMI, "gpu": "RTX PRO 6000"}, "leaves the edition open"),
        ({**KIMI, "dtype": "fp7"}, "weights as released"),
        (KIMI, "draft model: an EAGLE-3 head"),
    ],
)
def test_what_nobody_stated_is_assumed_and_said(stated: dict[str, Any], said: str) -> None:
    assert any(said in one for one in finding(**stated).assumed)


def test_what_the_points_state_is_not_called_assumed() -> None:
    assert finding(**KIMI, dtype="int4").assumed == (
        "KV cache in bf16",
        "draft model: an EAGLE-3 head of the model's width",
    )
    said = AskedRig(kv_dtype="fp8")
    assert finding(said, **{**KIMI, "algorithm": "ngram"}).assumed == ()
    assert kimi(said).kv_bytes_per_value == 1


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("nvidia/DeepSeek-R1-NVFP4", "nvfp4"),
        ("Qwen/Qwen3-8B-FP8", "fp8"),
        ("Qwen/Qwen3-8B-AWQ", "awq"),
        ("Qwen3-8B", ""),
    ],
)
def test_stored_weights_stand_in_the_ending_of_a_name(name: str, dtype: str) -> None:
    assert rig(target_model=name, gpu="B200", tp_size=8).dtype == dtype


def test_stored_weights_that_are_stated_go_before_the_name() -> None:
    assert rig(target_model="Qwen3-8B-FP8", gpu="H100", dtype="bf16").dtype == "bf16"


@pytest.mark.parametrize(
    ("link", "found", "kernel"),
    [
        ("pcie", "pcie5", ""),
        ("PCIe gen4", "pcie4", ""),
        ("pcie 3.0 x16", "pcie3", ""),
        ("pcie, no P2P", "pcie_no_peer_access", ""),
        ("PCIe 5.0 (P2P custom all-reduce)", "pcie5", "engine"),
        ("pcie, NCCL", "pcie5", "nccl"),
        ("NVLink 5", "nvlink5", ""),
        ("", "pcie5", ""),
        ("some fabric", "pcie5", ""),
    ],
)
def test_links_as_points_spell_them(link: str, found: str, kernel: str) -> None:
    one = kimi(interconnect=link)
    assert (one.interconnect, one.kernel) == (found, kernel)


@pytest.mark.parametrize(
    ("variant", "size"),
    [("", 1), ("DCP4", 4), ("dcp=8, B12X", 8), ("DCP16", 1), ("DCP0", 1), ("DCPx", 1)],
)
def test_ranks_that_share_a_request_stand_in_the_variant(variant: str, size: int) -> None:
    assert kimi(variant=variant).context_parallel == size


@pytest.mark.parametrize(
    ("cells", "ranks"),
    [
        ({"tp_size": 2, "num_gpus": 8}, 2),
        ({"num_gpus": 4}, 4),
        ({"tp_size": float("nan"), "num_gpus": 2.0}, 2),
        ({"tp_size": "two", "num_gpus": ""}, 1),
        ({"tp_size": 0}, 1),
        ({"tp_size": 2.5}, 1),
    ],
)
def test_gpus_that_share_a_model_are_the_ranks_of_tensor_parallelism(
    cells: dict[str, Any], ranks: int
) -> None:
    assert rig(target_model="Qwen3-8B", gpu="H100", **cells).tp_size == ranks


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        ({"target_model": "MyModel-7B", "gpu": "H100"}, "unknown model 'MyModel-7B'"),
        ({"target_model": "Qwen3-8B", "gpu": "GTX 970"}, "unknown GPU 'GTX 970'"),
        ({**KIMI, "tp_size": 4}, "does not fit 4 x 103 GB"),
    ],
)
def test_points_whose_rig_cannot_be_say_why_and_a_user_who_says_so_is_refused(
    stated: dict[str, Any], reason: str
) -> None:
    found = finding(**stated)
    assert found.scenario is None
    assert reason in found.reason
    assert "give --model, --gpu" in found.reason
    assert len(found.reason) < 300
    with pytest.raises(SpecModelError):
        finding(AskedRig(interconnect="nvlink4"), **stated)


@pytest.mark.parametrize(
    "asked",
    [
        AskedRig(model="no such model"),
        AskedRig(gpu="H10O"),
        AskedRig(interconnect="zigbee"),
        AskedRig(dtype="fp7"),
        AskedRig(num_gpus=2),
        AskedRig(model="no/such/config.json"),
    ],
)
def test_what_a_user_says_that_cannot_be_is_refused(asked: AskedRig) -> None:
    with pytest.raises(SpecModelError):
        kimi(asked)


def test_the_most_frequent_value_of_a_column_is_that_of_the_rig() -> None:
    frame = pd.DataFrame(
        {"target_model": ["Qwen3-8B", "", "Qwen3-8B", "Qwen3-4B"], "gpu": ["H100"] * 4}
    )
    found = rig_of_points(frame).scenario
    assert found is not None
    assert found.model.name == "Qwen3-8B"


def test_only_empty_cells_take_what_the_user_says(tmp_path: Any) -> None:
    file = tmp_path / "bench.csv"
    file.write_text("accept_length,throughput,baseline,gpu\n2.1,82,90,B200\n2.2,83,90,\n")
    points = read_points(file)
    assert with_named_rig(points, None) is points
    assert with_named_rig(points, AskedRig()) is points
    named = with_named_rig(points, AskedRig(model="./config.json", gpu="H100", num_gpus=2)).frame
    assert named["gpu"].tolist() == ["B200", "H100"]
    assert named["tp_size"].tolist() == [2, 2]
    assert set(named["target_model"]) == {""}


def test_a_card_whose_edition_is_open_is_its_fastest_one() -> None:
    card, assumed = edition_of("RTX PRO 6000")
    assert card.startswith("RTX PRO 6000 Blackwell ")
    assert "leaves the edition open" in assumed
    assert edition_of("h100")[1] == ""
    with pytest.raises(UnknownKeyError):
        edition_of("RTX 9999")


@pytest.mark.parametrize(
    ("stated", "found"),
    [
        ((3, 1, 4), (3, 1, 4, False)),
        ((3, None, None), (3, 1, 4, False)),
        ((None, None, 8), (7, 1, 8, False)),
        ((None, 1, 8), (7, 1, 8, False)),
        ((None, 4, 16), (4, 4, 16, True)),
        ((None, None, None), (4, 1, 5, True)),
        ((None, None, 1), (4, 1, 5, True)),
        ((1, 1, 16), (1, 1, 16, False)),
        ((float("nan"), float("nan"), float("nan")), (4, 1, 5, True)),
        ((5, 4, 32), (5, 4, 32, False)),
    ],
)
def test_a_round_is_completed_from_what_is_stated(
    stated: tuple[float | None, ...], found: tuple[float, ...]
) -> None:
    assert [each.item() for each in round_shape(*stated)] == [*found]


def test_the_variant_goes_before_the_source_for_ranks_that_share_a_request() -> None:
    assert kimi(source_id="rtx6kpro-kimik26-v4-dcp4").context_parallel == 4
    assert kimi(source_id="rtx6kpro-dcp4", variant="DCP2").context_parallel == 2
    assert kimi(source_id="rtx6kpro-dcp4", variant="B12X").context_parallel == 4
