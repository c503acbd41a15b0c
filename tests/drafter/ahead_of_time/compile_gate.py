"""Builds every kernel variant for one target without a GPU and prints what the machine code needs.

A program of its own: `python compile_gate.py SM [CONFIGURATION ...]` prints one JSON line per variant. The launch functions
run on tensors without data, as they would on that target; each launch is built instead of made.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()  # nothing is taken from an earlier run

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from drafter.kernels.draft_shape import DraftShape
from drafter.kernels.draft_steps import DraftSteps
from drafter.kernels.launch_plan import planned_for
from drafter.public_shapes import public_shape
from drafter.spec import DraftSpec
from drafter.tensor_shapes import expected_shapes

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
POINTERS = {
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float32: "*fp32",
    torch.int32: "*i32",
    torch.int64: "*i64",
}
CONFIGURATIONS: dict[str, tuple[str, torch.dtype, dict[str, Any], dict[str, Any]]] = {
    # one request, its context in as many parts as there may be, norms in the products, launches that
    # overlap where the target can
    "chain": (
        "llama-3.1-8b",
        torch.bfloat16,
        {"attention_bias": True},
        {"batch_size": 1, "most_accepted": 4, "num_splits": 128},
    ),
    # every row past eight tokens, a width that is no power of two
    "batch": (
        "gpt-oss",
        torch.float16,
        {"norm_before_fc": True},
        {"batch_size": 8, "topk": 8, "num_draft_tokens": 32, "is_fused": False},
    ),
    # eight tokens in fp32 sums, norms per head, a window
    "tree": (
        "qwen3-8b",
        torch.bfloat16,
        {"qk_norm": True, "sliding_window": 512, "norm_output": True},
        {"batch_size": 2, "topk": 4, "num_draft_tokens": 16, "most_accepted": 4, "is_fused": False},
    ),
    # latent heads: one request with launches that overlap where the target can, and a tree
    "latent": (
        "kimi-k2.7-code-mla",
        torch.bfloat16,
        {},
        {"batch_size": 1, "most_accepted": 4, "num_splits": 64},
    ),
    "latent tree": (
        "kimi-k2.7-code-mla",
        torch.float16,
        {"sliding_window": 512},
        {"batch_size": 4, "topk": 8, "num_draft_tokens": 32, "is_fused": False},
    ),
}


class Launch(NamedTuple):
    """A launch that was asked for."""

    kernel: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]


def main(sm: int, names: list[str]) -> None:
    """Print one line per variant of the named configurations."""
    built: set[str] = set()
    for name in names or CONFIGURATIONS:
        for launch in launches(name, sm):
            source, key = as_source(launch)
            if key not in built:
                built.add(key)
                line = {"configuration": name, **build(launch, source, sm)}
                sys.stdout.write(json.dumps(line) + "\n")


def launches(name: str, sm: int) -> list[Launch]:
    """What a draft of a configuration launches on a target."""
    recorded: list[Launch] = []

    def record(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
        del grid, warmup
        recorded.append(Launch(kernel, arguments, options))

    public, dtype, switches, counts = CONFIGURATIONS[name]
    spec: DraftSpec = replace(public_shape(public).spec, **switches)
    weights = {
        tensor: torch.empty(shape, dtype=dtype, device="meta")
        for tensor, shape in expected_shapes(spec).items()
    }
    weights["d2t"] = torch.empty(spec.draft_vocab_size, dtype=torch.int64, device="meta")
    shape = DraftShape(
        num_steps=3, is_programmatic=sm >= 90 and name in {"chain", "latent"}, **counts
    )
    JITFunction.run = record
    with planned_for(sm):
        DraftSteps(spec, weights, shape, dtype=dtype, device="meta").run()
    return recorded


def as_source(launch: Launch) -> tuple[ASTSource, str]:
    """The kernel with the types of one launch, and what tells variants apart."""
    signature, constants, hints = {}, {}, {}
    for index, (parameter, value) in enumerate(
        zip(launch.kernel.params, launch.arguments, strict=True)
    ):
        is_fixed = type(value) is int and not parameter.do_not_specialize
        if parameter.is_constexpr or value is None or (is_fixed and value == 1):
            signature[parameter.name], constants[(index,)] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[parameter.name] = POINTERS[value.dtype]
            hints[(index,)] = [["tt.divisibility", 16]]
        else:
            signature[parameter.name] = "fp32" if isinstance(value, float) else "i32"
            if is_fixed and value % 16 == 0:
                hints[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(launch.kernel, signature, constants, hints)
    named = {launch.kernel.params[index].name: value for (index,), value in constants.items()}
    if "BLOCK_K" in named:  # products differ by tile, and by whether the last tile is a whole one
        named["WIDTH"] %= named["BLOCK_K"]
        for rows in ("NUM_ROWS", "NUM_IDS"):
            named.pop(rows, None)
        return source, repr((launch.kernel.__name__, signature, named, launch.options))
    # the others by what is left out, and by the constants that choose a branch or unroll a loop
    chosen = {
        name: value
        for name, value in named.items()
        if value is None or name in {"PDL", "TOPK", "WINDOW", "BLOCK_M", "NORMED_RESIDUAL"}
    }
    return source, repr((launch.kernel.__name__, chosen))


def build(launch: Launch, source: ASTSource, sm: int) -> dict[str, Any]:
    """What the machine code of one variant needs."""
    # disassembling takes as long as compiling: one product shows that ptx says as much
    is_looked_at = launch.kernel.__name__ == "gate_up_matvec_kernel"
    begun = time.perf_counter()
    compiled = triton.compile(source, target=GPUTarget("cuda", sm, 32), options=launch.options)
    compile_s = time.perf_counter() - begun
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(compiled.asm["cubin"])
        usage = output_of("cuobjdump", "--dump-resource-usage", file.name)
        code = output_of("nvdisasm", "-c", file.name) if is_looked_at else None
    found = dict(re.findall(r"\b(REG|STACK|LOCAL):(\d+)", usage))
    constants = {
        launch.kernel.params[index].name: value for (index,), value in source.constants.items()
    }
    return {
        "kernel": launch.kernel.__name__,
        "sm": sm,
        "triton": triton.__version__,
        "seconds": [round(compile_s, 2), round(time.perf_counter() - begun - compile_s, 2)],
        "constants": {name: value for name, value in constants.items() if value is not None},
        "options": launch.options,
        "registers": int(found["REG"]),
        "stack": int(found["STACK"]),
        "local": int(found["LOCAL"]),
        "shared": compiled.metadata.shared,
        "spills": None if code is None else len(re.findall(r"\b(?:LDL|STL)\b", code)),
        "wide_loads": None if code is None else len(re.findall(r"\bLDG\.E\.[\w.]*128\b", code)),
        "streamed_loads": re.findall(
            r"ld\.global\.L1::evict_first[\w.:]*?\.(v\d\.b\d+|b\d+)", compiled.asm["ptx"]
        ),
        "dependent_launch": compiled.asm["ptx"].count("griddepcontrol"),
        "tensor_core": sorted(
            set(re.findall(r"\b(wgmma\.mma|tcgen05\.mma|mma\.sync)", compiled.asm["ptx"]))
        ),
    }


def output_of(tool: str, *arguments: str) -> str:
    """What a tool of the compiler's own says."""
    return subprocess.run(
        [TOOLS / tool, *arguments], check=True, capture_output=True, text=True
    ).stdout


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
