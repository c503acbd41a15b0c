"""What-if against measurement: points of one rig are fitted, and another rig was measured as well.

Accept lengths are not published for these runs, so they are held fixed at several values. Where one rig
is the other with one thing changed, they cancel from the ratio of speed-ups but for what they say of the
round cost and of the non-decode share of the base. Intervals are those that `specmodel whatif` states,
without the noise of the measured numbers.
"""

from functools import cache

import numpy as np
import pytest

from calibration.rig.from_points import AskedRig
from tests.calibration.rig.fitted_rigs import Change, Point, change_of, fitted, inside, say, words

# --- another all-reduce on the same link ---

PCIE_27B = {
    "nccl": {1: (96.8, 219.4), 32: (1547.8, 2547.0)},
    "p2p": {1: (110.6, 227.8), 32: (1954.4, 2535.0)},
}
"""Points of source vllm_56128_pcie_allreduce_mtp3 (vLLM issue 56128: 4 x RTX PRO 6000, Qwen3.6-27B-FP8,
TP 4): tokens/s without and with MTP 3, by batch. Its author withdrew the request that the issue makes;
the numbers stand in two tables of ours."""


def without_p2p(accept_length: float, batches: tuple[int, ...]) -> list[Point]:
    return [
        {
            "accept_length": accept_length,
            "output_tokens_per_s": PCIE_27B["nccl"][batch][1],
            "baseline_tokens_per_s": PCIE_27B["nccl"][batch][0],
            "batch_size": batch,
            "num_steps": 3,
            "target_model": "Qwen3.6-27B-FP8",
            "algorithm": "mtp",
            "engine": "vllm",
            "gpu": "RTX PRO 6000 Blackwell",
            "tp_size": 4,
            "interconnect": "PCIe, NCCL all-reduce",
        }
        for batch in batches
    ]


@pytest.mark.parametrize("accept_length", [2.5, 3.0, 3.5])
@pytest.mark.parametrize("batches", [(1,), (1, 32)], ids=["fitted at 1", "fitted at 1 and 32"])
def test_a_faster_all_reduce_lowers_the_speedup_as_measured(
    accept_length: float, batches: tuple[int, ...]
) -> None:
    """vLLM issue 56128: 2.27x falls to 2.06x at batch 1, 1.65x to 1.30x at batch 32."""
    calibration = fitted(without_p2p(accept_length, batches))
    for batch in (1, 32):
        (base, spec), (base_p2p, spec_p2p) = PCIE_27B["nccl"][batch], PCIE_27B["p2p"][batch]
        found = change_of(
            calibration,
            ("allreduce", "engine"),
            depth=3,
            rows=4,
            accept_length=accept_length,
            batch_size=batch,
        )
        measured = (spec_p2p / base_p2p) / (spec / base)
        step = base / base_p2p
        say(
            f"NCCL -> P2P, accept {accept_length}, fitted at {batches}, batch {batch}: speed-up "
            f"{words(measured, found.speedup)}\n    base step {words(step, found.step)}; round "
            f"{words(spec / spec_p2p, found.round)}"
        )
        assert measured < 1
        # At batch 32 both messages are beyond what the packaged one-shot kernels serve; the form then
        # sees no change, and only its interval has the measured fall.
        assert found.speedup.median < (1 if batch == 1 else 1 + 1e-9)
        assert inside(measured, found.speedup)
        assert inside(step, found.step)
        assert inside(spec / spec_p2p, found.round)
    assert change_of(
        calibration, ("allreduce", "engine"), depth=3, rows=4, accept_length=accept_length
    ).base_speedup == pytest.approx(219.4 / 96.8, rel=0.05)


# --- more GPUs ---

CHAIN, TREE = (3, 1, 4), (5, 8, 64)
QWQ = {1: (21.0, 30.0), 4: (61.0, 59.0)}
"""SGLang issue 6949 (source sglang-issue6949-qwq32b), QwQ-32B with EAGLE: tokens/s without and with, by
GPUs. Card, link, depth and accept length are not stated."""


@cache
def qwq(card: str, link: str, shape: tuple[int, int, int], accept_length: float) -> Change:
    depth, topk, rows = shape
    point = {
        "accept_length": accept_length,
        "output_tokens_per_s": QWQ[1][1],
        "baseline_tokens_per_s": QWQ[1][0],
        "batch_size": 1,
        "num_steps": depth,
        "topk": topk,
        "num_draft_tokens": rows,
        "target_model": "QwQ-32B",
        "algorithm": "EAGLE",
        "engine": "sglang",
        "gpu": card,
        "tp_size": 1,
    }
    return change_of(
        fitted([point]),
        ("interconnect", link),
        ("tp_size", "4"),
        depth=depth,
        topk=topk,
        rows=rows,
        accept_length=accept_length,
    )


QWQ_RIGS = (
    ("A100", "pcie4"),
    ("A100", "nvlink3"),
    ("H100", "nvlink4"),
    ("RTX PRO 6000 Blackwell Server", "pcie5"),
)
MEASURED_QWQ = (QWQ[4][1] / QWQ[4][0]) / (QWQ[1][1] / QWQ[1][0])

takes_the_share_as_known = pytest.mark.xfail(
    reason="The page states no accept length. At 2.4 the fit takes 36 % of the base as not decoding, and "
    "what-if takes that share as equal at four GPUs, where it would grow; at 2.0 the interval holds."
)


@pytest.mark.parametrize(("card", "link"), QWQ_RIGS)
@pytest.mark.parametrize(("shape", "accept_length"), [(CHAIN, 2.0), (CHAIN, 2.4), (TREE, 3.0)])
def test_a_base_step_of_qwq_32b_on_four_gpus_is_inside_its_interval(
    card: str, link: str, shape: tuple[int, int, int], accept_length: float
) -> None:
    found = qwq(card, link, shape, accept_length)
    step, whole = QWQ[1][0] / QWQ[4][0], QWQ[1][1] / QWQ[4][1]
    say(
        f"TP 1 -> 4 on {card} over {link}, {shape}, accept {accept_length}: speed-up "
        f"{words(MEASURED_QWQ, found.speedup)}\n    base step {words(step, found.step)}; round "
        f"{words(whole, found.round)}"
    )
    assert inside(step, found.step)


@pytest.mark.parametrize(
    ("card", "link", "shape", "accept_length"),
    [
        *((*rig, CHAIN, 2.0) for rig in QWQ_RIGS),
        ("A100", "nvlink3", TREE, 3.0),
        ("A100", "pcie4", TREE, 3.0),
        ("RTX PRO 6000 Blackwell Server", "pcie5", TREE, 3.0),
    ],
)
def test_the_gain_of_qwq_32b_falls_as_tensor_parallelism_grows(
    card: str, link: str, shape: tuple[int, int, int], accept_length: float
) -> None:
    """1.43x on one GPU becomes 0.97x on four."""
    assert MEASURED_QWQ < 1
    assert qwq(card, link, shape, accept_length).speedup.median < 1


@pytest.mark.parametrize(
    ("card", "link", "shape", "accept_length"),
    [
        *((*rig, CHAIN, 2.0) for rig in QWQ_RIGS),
        *((*rig, CHAIN, 2.4) for rig in QWQ_RIGS if rig[0] != "H100"),
        pytest.param("H100", "nvlink4", CHAIN, 2.4, marks=takes_the_share_as_known),
        ("A100", "nvlink3", TREE, 3.0),
        ("A100", "pcie4", TREE, 3.0),
        ("RTX PRO 6000 Blackwell Server", "pcie5", TREE, 3.0),
    ],
)
def test_the_gain_of_qwq_32b_on_four_gpus_is_inside_its_interval(
    card: str, link: str, shape: tuple[int, int, int], accept_length: float
) -> None:
    assert inside(MEASURED_QWQ, qwq(card, link, shape, accept_length).speedup)


DSV4_FLASH = {
    # backend: {(depth, batch): ((base, output) at TP 2, the same at TP 4)}
    "b12x-a16": {
        (2, 1): ((143.5, 232.7), (176.0, 299.2)),
        (2, 16): ((848.4, 1162.3), (1211.8, 1706.6)),
        (2, 32): ((1260.7, 1664.4), (1840.8, 2431.9)),
        (2, 64): ((1887.0, 2518.6), (2689.8, 3576.8)),
        (3, 1): ((143.5, 218.4), (176.0, 280.9)),
        (3, 16): ((848.4, 1056.3), (1211.8, 1541.5)),
        (3, 32): ((1260.7, 1568.4), (1840.8, 2274.2)),
        (3, 64): ((1887.0, 2306.9), (2689.8, 3176.4)),
    },
    "b12x-a8": {
        (2, 1): ((141.4, 219.1), (175.7, 297.2)),
        (2, 16): ((767.0, 1081.4), (1083.9, 1591.4)),
        (2, 32): ((1184.7, 1631.5), (1664.1, 2366.3)),
        (2, 64): ((1828.8, 2545.0), (2541.7, 3628.6)),
        (3, 1): ((141.4, 224.8), (175.7, 276.2)),
        (3, 16): ((767.0, 1024.9), (1083.9, 1441.4)),
        (3, 32): ((1184.7, 1558.6), (1664.1, 2215.3)),
        (3, 64): ((1828.8, 2401.2), (2541.7, 3270.2)),
    },
    "lucifer-default": {
        (2, 1): ((128.0, 213.0), (160.2, 287.8)),
        (2, 16): ((791.8, 1071.5), (1148.6, 1635.2)),
        (2, 32): ((1182.2, 1693.4), (1722.9, 2515.6)),
        (2, 64): ((1793.1, 2581.8), (2637.3, 3847.8)),
        (3, 1): ((128.0, 199.2), (160.2, 277.7)),
        (3, 16): ((791.8, 998.3), (1148.6, 1540.2)),
        (3, 32): ((1182.2, 1600.0), (1722.9, 2364.4)),
        (3, 64): ((1793.1, 2431.0), (2637.3, 3519.5)),
    },
    "lucifer-cutlass": {
        (2, 1): ((129.2, 222.1), (154.9, 290.8)),
        (2, 16): ((866.5, 1200.4), (1237.2, 1818.8)),
        (2, 32): ((1275.2, 1859.7), (1910.3, 2809.4)),
        (2, 64): ((1980.7, 2838.7), (2903.2, 4166.6)),
        (3, 1): ((129.2, 220.9), (154.9, 281.7)),
        (3, 16): ((866.5, 1119.3), (1237.2, 1689.0)),
        (3, 32): ((1275.2, 1742.8), (1910.3, 2608.9)),
        (3, 64): ((1980.7, 2686.3), (2903.2, 3810.5)),
    },
}
"""Sources rtx6kpro-dsv4flash-v10-tp2 and -tp4: DeepSeek-V4-Flash with MTP on RTX PRO 6000 over PCIe,
aggregate decode tokens/s at context 0, by kernel backend (b12x-a8-dglin, which is b12x-a8 within 3 %, is
left out). Accept lengths per cell are not published: 1 + depth x the middle of the draft acceptance that
the sixth version of the page states, 0.65 at depth 2 and 0.47 at depth 3."""

DSV4_ACCEPT = {2: 2.3, 3: 2.4}


@cache
def dsv4_flash(backend: str) -> list[tuple[float, Change]]:
    """Measured and predicted change from two GPUs to four, by cell; fitted to those of two."""
    cells = DSV4_FLASH[backend]
    calibration = fitted(
        [
            {
                "accept_length": DSV4_ACCEPT[depth],
                "output_tokens_per_s": two[1],
                "baseline_tokens_per_s": two[0],
                "batch_size": batch,
                "num_steps": depth,
                "context_tokens": 0,
                "target_model": "DeepSeek-V4-Flash",
                "algorithm": "MTP",
                "engine": "vllm",
                "variant": backend,
                "gpu": "RTX PRO 6000 Blackwell",
                "tp_size": 2,
            }
            for (depth, batch), (two, _) in cells.items()
        ],
        AskedRig(interconnect="pcie5"),
    )
    found = []
    for (depth, batch), (two, four) in cells.items():
        measured = (four[1] / four[0]) / (two[1] / two[0])
        change = change_of(
            calibration,
            ("tp_size", "4"),
            depth=depth,
            rows=depth + 1,
            accept_length=DSV4_ACCEPT[depth],
            batch_size=batch,
            context_tokens=0,
        )
        say(
            f"TP 2 -> 4, {backend}, depth {depth}, batch {batch}: speed-up "
            f"{words(measured, change.speedup)}; base step {words(two[0] / four[0], change.step)}"
        )
        assert inside(two[0] / four[0], change.step)
        found.append((measured, change))
    return found


@pytest.mark.parametrize("backend", list(DSV4_FLASH))
def test_four_gpus_over_pcie_change_the_speedup_of_deepseek_v4_flash_as_measured(
    backend: str,
) -> None:
    found = dsv4_flash(backend)
    errors = [change.speedup.median / measured - 1 for measured, change in found]
    covered = [inside(measured, change.speedup) for measured, change in found]
    say(
        f"{backend}: median error {np.median(np.abs(errors)):.1%}, bias {np.median(errors):+.1%}, "
        f"{np.mean(covered):.0%} covered"
    )
    assert all(covered)
    assert np.median(np.abs(errors)) <= 0.05


def test_more_gpus_help_small_batches_more_than_large_ones() -> None:
    """All four backends: measured x 1.05 to 1.11 at batch 1 against x 0.97 to 1.03 at batch 64."""
    for backend, cells in DSV4_FLASH.items():
        by_cell = dict(zip(cells, dsv4_flash(backend), strict=True))
        for depth in (2, 3):
            small, large = by_cell[depth, 1], by_cell[depth, 64]
            assert small[0] > large[0]
            assert small[1].speedup.median > large[1].speedup.median
