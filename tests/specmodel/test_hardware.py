"""The catalogue of GPUs and interconnects."""

import csv
from pathlib import Path

import pytest

from specmodel.errors import ParameterError, UnknownKeyError
from specmodel.hardware import gpu, gpus, interconnect, interconnects, rows
from specmodel.sources import sources

POINTS = Path(__file__).parents[2] / "calibration" / "data" / "points"

USUAL = (  # noqa: SIM905 - one name a line would be long
    "V100;T4;A100;A100-40GB;A800;A6000;RTX 3090;RTX 4090;RTX 5090;L4;L40S;H100;H100 PCIe;H200;H20;GH200;"
    "B200;B300;GB200;GB300;RTX PRO 6000 Server;RTX PRO 6000 Blackwell Max-Q;MI300X;MI355X"
).split(";")


@pytest.mark.parametrize("name", USUAL)
def test_the_usual_gpus_have_memory_and_bandwidth(name: str) -> None:
    card = gpu(name)
    assert card.memory_bytes is not None
    assert card.bandwidth_bytes_per_s() > 1e11
    assert card.flop_per_s("fp16") > 1e13


def test_every_gpu_of_the_packaged_points_is_in_the_catalogue() -> None:
    named = set()
    for path in POINTS.glob("*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            named |= {row["gpu"] for row in csv.DictReader(file) if row["gpu"]}
    assert len(named) > 8
    for name in named:
        assert gpu(name)


@pytest.mark.parametrize(
    ("name", "bandwidth_gb_per_s", "bf16_tflop_per_s", "memory_gib"),
    [  # datasheets, dense
        ("A100 SXM 80GB", 2039, 312, 80),
        ("H100 SXM", 3350, 989.5, 80),
        ("L40S", 864, 362, 45),
        ("RTX 4090", 1008, 165.2, 24),
        ("MI300X", 5300, 1307.4, 192),
        ("B300", 8000, 2250, 268.6),
    ],
)
def test_rates_are_those_of_the_datasheet_without_sparsity(
    name: str, bandwidth_gb_per_s: float, bf16_tflop_per_s: float, memory_gib: float
) -> None:
    card = gpu(name)
    assert card.bandwidth_bytes_per_s() == pytest.approx(bandwidth_gb_per_s * 1e9)
    assert card.flop_per_s("bf16") == pytest.approx(bf16_tflop_per_s * 1e12)
    assert card.memory_bytes == pytest.approx(memory_gib * 2**30)


def test_the_server_edition_is_slower_than_the_workstation_edition() -> None:
    server, workstation = gpu("RTX PRO 6000 Server"), gpu("RTX PRO 6000 WS")
    assert server.bandwidth_bytes_per_s() == pytest.approx(1597e9)
    assert workstation.bandwidth_bytes_per_s() == pytest.approx(1792e9)


def test_a_name_that_leaves_the_edition_open_has_no_bandwidth_and_says_why() -> None:
    with pytest.raises(ParameterError, match=r"(?s)bandwidth.*[Ee]dition"):
        gpu("RTX PRO 6000 Blackwell").bandwidth_bytes_per_s()


def test_no_measured_bandwidth_exceeds_the_datasheet() -> None:
    seen = 0
    for row in rows("gpus.csv"):
        for column in ("measured_read_bandwidth_gb_per_s", "measured_read_write_gb_per_s"):
            if row[column] and row["memory_bandwidth_gb_per_s"]:
                seen += 1
                assert float(row[column]) <= float(row["memory_bandwidth_gb_per_s"]), row["gpu"]
    assert seen > 30


def test_read_kernels_reach_the_stated_part_of_the_datasheet() -> None:
    shares = {
        card.name: round(
            card.measured_read_bandwidth_bytes_per_s / card.memory_bandwidth_bytes_per_s, 2
        )
        for card in gpus().values()
        if card.measured_read_bandwidth_bytes_per_s and card.memory_bandwidth_bytes_per_s
    }
    assert len(shares) > 12
    assert shares.pop("MI355X") == 0.61
    assert (min(shares.values()), max(shares.values())) == (0.79, 0.98)


def test_lower_precision_is_not_slower() -> None:
    for card in gpus().values():
        rates = [
            card.dense_flop_per_s[each]
            for each in ("bf16", "fp8", "fp4")
            if each in card.dense_flop_per_s
        ]
        assert rates == sorted(rates), card.name


@pytest.mark.parametrize("spelling", ["h100 sxm", "H100_SXM", "nvidia H100-SXM5", " H100 "])
def test_case_maker_and_marks_do_not_matter(spelling: str) -> None:
    assert gpu(spelling).name == "H100 SXM"


@pytest.mark.parametrize(
    ("short", "name"),
    [
        ("PCIE5", "PCIe 5.0 x16"),
        ("pcie 4.0", "PCIe 4.0 x16"),
        ("NVLink4", "NVLink 4 + NVSwitch, H100/H200/H20"),
        ("xgmi", "xGMI, MI300X/MI325X, 8-GPU mesh"),
        ("ndr", "InfiniBand NDR"),
    ],
)
def test_an_interconnect_is_found_by_its_short_name(short: str, name: str) -> None:
    assert interconnect(short).name == name


def test_an_unknown_name_is_refused_with_the_closest() -> None:
    with pytest.raises(UnknownKeyError, match="unknown GPU") as caught:
        gpu("H1000")
    assert "H100 SXM" in caught.value.known
    with pytest.raises(UnknownKeyError) as link:
        interconnect("nvlink44")
    assert "NVLink 4 + NVSwitch, H100/H200/H20" in link.value.known


@pytest.mark.parametrize("name", ["", " ", "\n", "é", "h" * 10**6, "H100" + " " * 300, "'; --"])
def test_a_name_that_is_none_is_refused_with_one_short_line(name: str) -> None:
    with pytest.raises(UnknownKeyError) as caught:
        gpu(name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 2500


def test_no_name_or_alias_means_two_devices() -> None:
    for records in (gpus(), interconnects()):
        owners: dict[str, str] = {}
        for each in records.values():
            for name in (each.name, *each.aliases):
                assert owners.setdefault(name.casefold(), each.name) == each.name, name


def test_every_row_cites_registered_documents_or_says_it_has_none() -> None:
    for row in (*rows("gpus.csv"), *rows("interconnects.csv")):
        keys = set(filter(None, row["source_keys"].split(";")))
        assert row["confidence"] in {"confirmed", "secondary", "memory"}
        assert keys <= set(sources())
        assert keys or row["confidence"] == "memory", row


def test_a_precision_without_a_rate_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(ParameterError, match="known: fp16"):
        gpu("A100").flop_per_s("fp8")
    with pytest.raises(ParameterError, match="one of"):
        gpu("A100").flop_per_s("fp7")


def test_four_bit_weights_compute_at_sixteen_bits() -> None:
    assert gpu("H100").flop_per_s("AWQ") == gpu("H100").flop_per_s("fp16")


def test_an_all_reduce_takes_longer_over_more_gpus_of_one_link() -> None:
    table = {row["name"]: row for row in rows("interconnects.csv")}
    for name in ("pcie4", "pcie5", "nvlink3", "nvlink4", "nvlink5"):
        row = table[interconnect(name).name]
        texts = [row[f"allreduce_latency_us_{count}_gpus"] for count in (2, 4, 8, 16)]
        floors = [float(text) for text in texts if text]
        assert len(floors) > 1
        assert floors == sorted(floors)
