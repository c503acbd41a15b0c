"""The packaged table of all-reduces, and how well curve, laws and priors describe it.

The numbers are printed with ``-s``.
"""
# ruff: noqa: T201 - the numbers are what these tests are read for

import math
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from calibration.allreduce.fitting import AllReduceFit, fit_all_reduce
from specmodel.cost.allreduce import AllReduceCurve, allreduce_prior, prior_classes
from specmodel.sources import sources
from tests.calibration.allreduce.curated_table import (
    FOLDER,
    MeasuredGroup,
    measured_group,
    measured_groups,
    table_facts,
)

FEWEST_SIZES = 8
"""Groups below it have grids too wide to leave a size out."""

GROUPS = [group for group in measured_groups() if group.size_bytes.size >= FEWEST_SIZES]


@pytest.fixture(scope="module", name="fits")
def fits_of_the_table() -> dict[str, AllReduceFit]:
    return {
        group.name: fit_all_reduce(group.size_bytes, group.time_s, group.num_ranks)
        for group in GROUPS
    }


# --- the table ---


@pytest.mark.parametrize(  # typed from the sources
    ("group", "size_bytes", "time_us"),
    [
        ("aic-rtx_pro_6000_server-nccl-2.29.2-n2", 1024, 6.22),
        ("v100-plx-4-oneshot-n4", 4096, 4.0),
        ("v100-plx-4-nccl-n4", 393216, 83.5),
        ("b12x139-16gpu-nccl-n16", 14336, 36.07),
    ],
)
def test_a_value_is_that_of_its_source(group: str, size_bytes: int, time_us: float) -> None:
    found = measured_group(group)
    place = int(np.flatnonzero(found.size_bytes == size_bytes)[0])
    assert found.time_s[place] * 1e6 == pytest.approx(time_us, rel=5e-4)


def test_every_source_of_the_table_is_registered_and_listed() -> None:
    used = {group.source_key for group in measured_groups()}
    assert used == set(table_facts()["source_keys"])
    assert used <= set(sources())


def test_every_group_has_a_class_and_a_kernel_with_a_prior_or_a_reason() -> None:
    for group in measured_groups():
        if group.kernel != "nccl_and_add":
            assert group.kernel in prior_classes()[group.interconnect_class], group.name
        assert (np.diff(group.size_bytes) > 0).all()
        assert (group.time_s > 0).all()


def test_the_table_is_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 300_000


# --- curve and laws ---


def test_curve_with_a_size_left_out(fits: dict[str, AllReduceFit]) -> None:
    medians = {name: fit.left_out_median_error for name, fit in fits.items()}
    pooled = np.concatenate([np.abs(fit.curve.left_out_errors()) for fit in fits.values()])
    worse = {name: value for name, value in medians.items() if value > 0.03}
    print(
        f"\nleave one size out, {len(medians)} groups: median of all sizes "
        f"{np.median(pooled):.1%}, median group {np.median(list(medians.values())):.1%}, "
        f"{1 - len(worse) / len(medians):.0%} of the groups within 3 %; beyond it:"
    )
    for name, value in sorted(worse.items(), key=lambda item: -item[1]):
        print(f"  {value:6.1%}  {name}")
    assert np.median(pooled) <= 0.03
    assert np.median(list(medians.values())) <= 0.03
    assert len(worse) <= 0.3 * len(medians)


def test_linear_between_sizes_is_better_than_log_log() -> None:
    linear, logarithmic = [], []
    for group in GROUPS:
        curve = AllReduceCurve.from_points(group.size_bytes, group.time_s)
        linear.append(np.median(np.abs(curve.left_out_errors())))
        logarithmic.append(np.median(_log_log_errors(group)))
    print(f"\nmedian group: linear {np.median(linear):.1%}, log-log {np.median(logarithmic):.1%}")
    assert np.median(linear) < 0.75 * np.median(logarithmic)


def test_two_protocols_within_five_per_cent_on_a_group(fits: dict[str, AllReduceFit]) -> None:
    medians = {name: fit.library_median_error for name, fit in fits.items()}
    worse = {name: value for name, value in medians.items() if value > 0.05}
    print(
        f"\ntwo protocols, {len(medians)} groups: median group "
        f"{np.median(list(medians.values())):.1%}, worst {max(medians.values()):.1%}; beyond 5 %: "
        f"{ {name: f'{value:.1%}' for name, value in worse.items()} }"
    )
    assert np.median(list(medians.values())) <= 0.05
    assert len(worse) <= 0.05 * len(medians)


def test_the_law_is_found_again_from_its_own_times_and_noise() -> None:
    chance = np.random.default_rng(7)
    sizes = 1024.0 * 2.0 ** np.arange(15)
    small = 24e-6 + 1.75 * sizes / 9e9
    large = 24e-6 + 71e-6 + 1.75 * sizes / 27e9
    times = np.where(sizes <= 600e3, small, large) * np.exp(0.01 * chance.standard_normal(15))
    law = fit_all_reduce(sizes, times, 8).library_law
    assert law.floor_s == pytest.approx(24e-6, rel=0.02)
    assert law.small_bytes_per_s == pytest.approx(9e9, rel=0.05)
    assert law.large_bytes_per_s == pytest.approx(27e9, rel=0.05)
    assert 524288 < law.switch_bytes < 1048576


@pytest.mark.parametrize(
    "machine", ["aic-rtx_pro_6000_server", "aic-h100_sxm", "aic-h200_sxm", "aic-b200_sxm"]
)
def test_floors_of_one_machine_lie_on_a_line_in_its_hops(
    machine: str, fits: dict[str, AllReduceFit]
) -> None:
    floors = [fits[f"{machine}-nccl-2.29.2-n{ranks}"].library_law.floor_s for ranks in (2, 4, 8)]
    hop, base = np.polyfit([2, 6, 14], floors, 1, w=1 / np.array(floors))
    for ranks, floor in zip((2, 4, 8), floors, strict=True):
        assert base + 2 * (ranks - 1) * hop == pytest.approx(floor, rel=0.03)


def test_a_one_shot_kernel_helps_one_token_more_than_eight() -> None:
    one_shot, library = (
        AllReduceCurve.from_points(group.size_bytes, group.time_s)
        for group in map(measured_group, ("v100-plx-4-oneshot-n4", "v100-plx-4-nccl-n4"))
    )
    sizes = 8192.0 * np.array([1, 4, 8])
    gains = (library.at(sizes) - one_shot.at(sizes)).tolist()
    assert gains == sorted(gains, reverse=True)


# --- priors ---


def test_a_prior_covers_the_measured_times_of_its_class() -> None:
    inside: dict[str, list[bool]] = defaultdict(list)
    widths: dict[str, set[float]] = defaultdict(set)
    unlike: list[bool] = []  # machines that are not of the collection behind the centres
    for group in measured_groups():
        if group.kernel == "nccl_and_add":  # another kernel is in the time
            continue
        used = (group.size_bytes >= 4096) & (group.size_bytes <= 2**20)
        prior = allreduce_prior(group.interconnect_class, group.num_ranks, kernel=group.kernel)
        bound = math.exp(1.6448536 * prior.log_sd)
        ratio = group.time_s[used] / prior.at(group.size_bytes[used])
        covered = (1 / bound <= ratio) & (ratio <= bound)
        inside[group.interconnect_class] += covered.tolist()
        widths[group.interconnect_class].add(bound)
        if group.source_key != "aiconfigurator":
            unlike += covered.tolist()
    print("\nclass                 covered   latencies   interval x/÷")
    for name, values in inside.items():
        width = f"{min(widths[name]):.2f} to {max(widths[name]):.2f}"
        print(f"{name:20s}  {np.mean(values):7.1%}   {len(values):9d}   {width}")
    print(f"all but aiconfigurator  {np.mean(unlike):.1%} of {len(unlike)}")
    assert {name: np.mean(values) for name, values in inside.items() if np.mean(values) < 0.9} == {}


# --- how the table is made ---


def test_the_script_writes_the_packaged_files_from_rows_of_their_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    path = Path(__file__).resolve().parents[3] / "scripts" / "curate_allreduce.py"
    spec = importlib.util.spec_from_file_location("curate_allreduce", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    raw = tmp_path / "raw.csv"
    columns = (
        "source_id,source_url,library,library_version,gpu,num_gpus,nodes,interconnect,p2p,"
        "size_bytes,time_us,notes\n"
    )
    row = "x,https://github.com/local-inference-lab/b12x/pull/139,{},1,GPU,4,1,PCIe Gen5,yes,{},{},{}\n"
    raw.write_text(
        columns
        + row.format("nccl", 2048, 8.00049, "")
        + row.format("nccl", 1024, 7.0, "")
        + row.format("nccl (eager)", 1024, 70.0, "")
        + row.format("nccl", 4096, 90.0, "outlier")
        + row.format("nccl", 4096, 9.0, "time derived from algbw"),
        encoding="utf-8",
    )
    monkeypatch.setattr(script, "FOLDER", tmp_path / "made")
    monkeypatch.setattr("sys.argv", ["curate_allreduce.py", str(raw)])
    script.main()
    points = (tmp_path / "made" / "points.csv").read_text(encoding="utf-8")
    assert points == "group,size_bytes,time_us\nx-n4,1024,7\nx-n4,2048,8\n"
    assert {path.name for path in (tmp_path / "made").iterdir()} == {
        path.name for path in FOLDER.iterdir()
    }
    shutil.rmtree(tmp_path / "made")


def _log_log_errors(group: MeasuredGroup) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Relative errors with a size left out, interpolated in log-log."""
    sizes, times = np.log(group.size_bytes), np.log(group.time_s)
    places = np.arange(sizes.size)
    errors = [
        abs(math.exp(np.interp(sizes[i], sizes[places != i], times[places != i]) - times[i]) - 1)
        for i in places[1:-1]
    ]
    return np.array(errors)
