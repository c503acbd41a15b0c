"""Machine code of every kernel, without a GPU: two variants for sm_90, in `make prove` all of five targets.

`compile_gate.py` builds in processes of its own and keeps what it found in build/ until a source of the
kernels changes. SPECMODEL_TRITON36_PYTHON names the interpreter of a second environment (torch, triton
3.6, numpy below 2.4) for the older compiler; SPECMODEL_WHOLE_GATE=1 builds every variant, not the fullest
of each, in about ten minutes.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.extent import PROVES

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
KERNELS = ROOT / "drafter" / "kernels"
TARGETS = (90, 80, 89, 100, 120) if PROVES else (90,)
SHARED_BYTES = {80: 166_912, 89: 101_376, 90: 232_448, 100: 232_448, 120: 101_376}
OLDER = "SPECMODEL_TRITON36_PYTHON"
WHOLE = "SPECMODEL_WHOLE_GATE"
Variant = Mapping[str, Any]

pytestmark = pytest.mark.slow


def built_by(python: str) -> list[Variant]:
    """Variants for every target, in a process each, two at a time."""
    own = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    own |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    extent = "--all" if os.environ.get(WHOLE) else "--fullest" if PROVES else "--few"

    def build(sm: int) -> list[Variant]:
        run = subprocess.run(
            [python, HERE / "compile_gate.py", str(sm), extent],
            cwd=ROOT,
            env=own,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, f"sm_{sm}: {run.stderr[-3000:]}"
        return [json.loads(line) for line in run.stdout.splitlines()]

    with ThreadPoolExecutor(max_workers=2) as pool:
        return [variant for found in pool.map(build, TARGETS) for variant in found]


@pytest.fixture(scope="module", params=["this", "3.6"])
def variants(request: pytest.FixtureRequest) -> list[Variant]:
    if request.param == "this":
        return built_by(sys.executable)
    python = os.environ.get(OLDER)
    if python is None:
        pytest.skip(f"{OLDER} names no interpreter with triton 3.6")
    found = built_by(python)
    assert {variant["triton"][:3] for variant in found} == {"3.6"}
    return found


def told(variant: Variant) -> str:
    """What a failure shows."""
    return json.dumps({key: variant[key] for key in ("kernel", "sm", "constants", "options")})


def test_every_kernel_is_built_for_every_target(variants: list[Variant]) -> None:
    written = {
        line.split("(")[0].removeprefix("def ")
        for path in KERNELS.glob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if line.startswith("def ") and line.split("(")[0].endswith("_kernel")
    }
    assert len(written) == 17
    for sm in TARGETS:
        assert {variant["kernel"] for variant in variants if variant["sm"] == sm} == written


def test_nothing_spills_and_nothing_lives_on_the_stack(variants: list[Variant]) -> None:
    for variant in variants:
        assert (variant["stack"], variant["local"]) == (0, 0), told(variant)
        assert variant["spills"] in {0, None}, told(variant)
        assert 0 < variant["registers"] <= 255


def test_shared_memory_fits_the_target(variants: list[Variant]) -> None:
    for variant in variants:
        assert variant["shared"] <= SHARED_BYTES[variant["sm"]], told(variant)
    assert max(variant["shared"] for variant in variants) > 2**15, "the tiles of products are in it"


def test_weights_stream_in_loads_of_128_bits(variants: list[Variant]) -> None:
    products = [variant for variant in variants if "CUT" in variant["constants"]]
    matvecs = [variant for variant in products if variant["constants"]["CUT"]["vector"]]
    tokens = {variant["constants"]["CUT"]["tokens"] for variant in matvecs}
    assert tokens == {1, 2, 4, 8} if PROVES else tokens <= {1, 2, 4, 8} and len(tokens) > 1
    for variant in matvecs:
        assert set(variant["streamed_loads"]) == {"v4.b32"}, told(variant)
        assert variant["wide_loads"] is None or variant["wide_loads"] >= 4, told(variant)
    # the machine code of some was looked at, and holds them too
    assert any(variant["wide_loads"] for variant in matvecs)


def test_products_of_many_tokens_use_the_tensor_cores_of_the_target(
    variants: list[Variant],
) -> None:
    # fp32 is multiplied exactly, which tensor cores cannot
    dots = [
        variant
        for variant in variants
        if "CUT" in variant["constants"]
        and not variant["constants"]["CUT"]["vector"]
        and variant["weights"] != "*fp32"
    ]
    wide = {90: "wgmma.mma", 100: "tcgen05.mma"}
    for variant in dots:
        assert variant["tensor_core"], told(variant)
        if variant["constants"]["CUT"]["block_n"] >= 64:
            assert wide.get(variant["sm"], "mma.sync") in variant["tensor_core"], told(variant)
    assert {variant["constants"]["CUT"]["block_n"] >= 64 for variant in dots} == {True, False}


def test_launches_overlap_where_asked_and_nowhere_else(variants: list[Variant]) -> None:
    for variant in variants:
        asked = variant["options"].get("launch_pdl", False)
        assert variant["constants"]["PDL"] == asked
        # one wait and one release
        assert variant["dependent_launch"] == (2 if asked else 0), told(variant)
    asking = {variant["sm"] for variant in variants if variant["constants"]["PDL"]}
    assert asking == {90, 100, 120} & {*TARGETS}
