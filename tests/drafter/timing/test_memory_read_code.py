"""The reading kernel, built without a GPU: wide loads, nothing spilled."""

import subprocess
import sys

import pytest

from tests.extent import sample

PROGRAM = """
import sys
from triton import compile as build
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from drafter.timing.device import BLOCK, PARTS, memory_read_kernel

source = ASTSource(
    fn=memory_read_kernel,
    signature={"source": "*fp32", "sums": "*fp32", "block": "constexpr", "parts": "constexpr"},
    constexprs={(2,): BLOCK, (3,): PARTS},
    attrs={(0,): [["tt.divisibility", 16]], (1,): [["tt.divisibility", 16]]},
)
options = {"num_warps": 8, "enable_fp_fusion": True}
made = build(source, target=GPUTarget("cuda", int(sys.argv[1]), 32), options=options)
text = made.asm["ptx"]
wide = text.count("ld.global.v4") + text.count("ld.global.nc.v4")
print(wide, text.count("ld.global"), text.count("ld.local") + text.count("st.local"))
"""


@sample(1)
@pytest.mark.parametrize("sm", [90, 80, 120])
def test_every_load_is_128_bits_wide_and_nothing_is_spilled(sm: int) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(sm)], check=False, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    wide, loads, spilled = map(int, run.stdout.split())
    # 8 parts of 4096 numbers in 256 threads: 4 loads of 4 numbers each, 32 in all
    assert wide == loads == 32
    assert spilled == 0
