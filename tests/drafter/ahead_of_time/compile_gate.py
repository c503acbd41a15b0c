"""Builds kernel variants for targets without a GPU and prints what their machine code needs.

A program of its own: `python compile_gate.py SM ...` prints one JSON line per variant for each of the
targets. The launch functions run on tensors without data, as they would on that target; each launch is
built instead of made. Sizes of a model are run-time arguments of a kernel, so few variants serve every
public shape at every load. Of variants that differ in nothing but what they are given (bias, residual,
norm, index, alignment) the one that is given most is built; with `--few` the first and the last of these of
each kernel, with `--all` every variant, and those of fp32 weights. What is printed is kept in build/, and
printed again until a module of `drafter` that is loaded here, its data or the compiler changes.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()  # nothing is taken from another program's run

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import JITFunction, create_function_from_signature

from drafter.checkpoint_files import expected_shapes
from drafter.engine.draft_engine import BATCH_BUCKETS
from drafter.kernels.draft_steps import DraftShape, DraftSteps
from drafter.kernels.launch_plan import planned_for
from drafter.public_models import public_shape, public_shapes
from drafter.spec import DraftSpec

ROOT = Path(__file__).resolve().parents[3]
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
LOADS = (  # batch, topk and newly accepted tokens
    *((batch, topk, 4) for batch in BATCH_BUCKETS for topk in (1, 4)),
    *((1, 1, accepted) for accepted in (1, 2, 8)),  # fewer tokens, and more of a request
    (1, 8, 4),
)
TILED = ("BLOCK", "CUT", "TILE", "HEAD_DIM")


class Configuration(NamedTuple):
    """A draft that is planned."""

    public: str
    counts: dict[str, Any]
    dtype: torch.dtype = torch.bfloat16
    switches: Mapping[str, Any] = MappingProxyType({})


OF_EVERY_WIDTH = ("Llama-3.1-8B", "gpt-oss", "Qwen3-Next-80B", "Kimi-K2.7-Code-MLA")  # of a head

# what no public shape asks for
SWITCHED = (
    # biases; logits that are kept for checks
    Configuration(
        "Llama-3.1-8B",
        {"batch_size": 1, "most_accepted": 4, "keeps_logits": True},
        switches={"attention_bias": True},
    ),
    Configuration("Llama-3.1-8B", {"batch_size": 16, "keeps_logits": True}),
    Configuration("Llama-3.1-8B", {"batch_size": 16}, switches={"attention_bias": True}),
    # fp16, norms in launches of their own, norms of the captured states
    Configuration(
        "gpt-oss",
        {"batch_size": 8, "topk": 8, "is_fused": False},
        torch.float16,
        {"norm_before_fc": True},
    ),
    Configuration("gpt-oss", {"batch_size": 2}, torch.float16, {"fc_norm": True}),
    # norms per head, a window, the norm fed back
    Configuration(
        "Qwen3-8B",
        {"batch_size": 2, "topk": 4, "most_accepted": 4, "is_fused": False},
        switches={"qk_norm": True, "sliding_window": 512, "norm_output": True},
    ),
    # latent heads in fp16, with a window
    Configuration(
        "Kimi-K2.7-Code-MLA",
        {"batch_size": 4, "topk": 8, "is_fused": False},
        torch.float16,
        {"sliding_window": 512},
    ),
)

# checks of small models alone store fp32
EXACT = (
    Configuration("Llama-3.1-8B", {"batch_size": 1}, torch.float32),
    Configuration("Llama-3.1-8B", {"batch_size": 16, "topk": 4}, torch.float32),
    Configuration("Kimi-K2.7-Code-MLA", {"batch_size": 2, "topk": 4}, torch.float32),
)


def configurations() -> Iterator[Configuration]:
    """Public shapes at every bucket of batches, as chains and trees; numbers of parts; switches."""
    for name in public_shapes():
        for batch, topk, accepted in LOADS:
            counts = {"batch_size": batch, "topk": topk, "most_accepted": accepted}
            yield Configuration(name, counts)
    for name, num_splits in product(OF_EVERY_WIDTH, (1, 4, 64, 128)):
        yield Configuration(name, {"batch_size": 1, "num_splits": num_splits})
    yield from SWITCHED


class Launch(NamedTuple):
    """A launch that was asked for."""

    kernel: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]


class Variant(NamedTuple):
    """What Triton compiles a launch as: equal names for launches that share machine code."""

    kernel: str
    signature: Mapping[str, Any]
    constants: Mapping[tuple[int, ...], Any]
    attributes: Mapping[tuple[int, ...], Any]
    options: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What tells it from others."""
        return repr(self)


def main(sm: int, extent: str) -> None:
    """Print one line per variant of a target, built now or when the same sources were built before."""
    kept = kept_for(sm, extent)
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        unfinished = kept.with_suffix(f".{os.getpid()}")
        unfinished.write_text("".join(built_for(sm, extent)), encoding="utf-8")
        assert kept == kept_for(sm, extent), "a module that was loaded late is not in the name"
        unfinished.replace(kept)
    sys.stdout.write(kept.read_text(encoding="utf-8"))


def kept_for(sm: int, extent: str) -> Path:
    """Where the lines of a target are kept: named by everything that decides about them."""
    loaded = [module.__file__ for name, module in sys.modules.items() if name[:7] == "drafter"]
    sources = {Path(file) for file in (*loaded, __file__) if file}
    sources |= {*(ROOT / "drafter" / "data").iterdir()}
    digest = hashlib.sha256(f"{triton.__version__} {torch.__version__} {sm} {extent}".encode())
    for path in sorted(sources):
        digest.update(
            f"{path.relative_to(ROOT)} {path.stat().st_size} ".encode() + path.read_bytes()
        )
    return ROOT / "build" / "ahead_of_time" / f"{digest.hexdigest()[:32]}.jsonl"


def built_for(sm: int, extent: str) -> Iterator[str]:
    """One line per variant of a target."""
    builds_all = extent == "--all"
    found: dict[str, tuple[Variant, Launch, str]] = {}
    for configuration in (*configurations(), *(EXACT if builds_all else ())):
        for launch in launches(configuration, sm):
            variant = variant_of(launch, sm)
            found.setdefault(variant.name, (variant, launch, configuration.public))
    every = [variant for variant, _, _ in found.values()]
    wanted = every if builds_all else fullest(every)
    for variant in spread(wanted) if extent == "--few" else wanted:
        _, launch, public = found[variant.name]
        line = {"first_asked_for_by": public, **build(launch, variant, sm)}
        yield json.dumps(line) + "\n"


def constants_of(variant: Variant) -> dict[str, Any]:
    """Constants by the name of the argument; of an argument that is absent None."""
    names = list(variant.signature)
    return {names[path[0]]: value for path, value in variant.constants.items() if len(path) == 1}


def fullest(variants: Iterable[Variant]) -> list[Variant]:
    """Of the variants with the same tiles the one that is given most."""
    best: dict[str, Variant] = {}
    for variant in variants:
        own = constants_of(variant)
        tiles = [(name, own[name]) for name in own if name.startswith(TILED)]
        key = repr((variant.kernel, tiles, variant.options))
        if key not in best or given(variant) > given(best[key]):
            best[key] = variant
    return list(best.values())


def spread(variants: Iterable[Variant]) -> list[Variant]:
    """Of each kernel the first that is asked for and the last; of products, of each kind of path."""
    of: dict[tuple[str, bool], list[Variant]] = {}
    for variant in variants:
        cut = constants_of(variant).get("CUT")
        of.setdefault((variant.kernel, bool(cut and cut.vector)), []).append(variant)
    return [each[at] for each in of.values() for at in ((0, -1) if len(each) > 1 else (0,))]


def given(variant: Variant) -> tuple[int, int]:
    """How many pointers and numbers a variant has, then how many of them it knows nothing of."""
    absent = sum(value is None for value in variant.constants.values())
    aligned = sum(bool(each) for each in variant.attributes.values())
    return len(repr(variant.signature).split("*")) - absent, -aligned


def launches(configuration: Configuration, sm: int) -> list[Launch]:
    """What a draft of a configuration launches on a target."""
    recorded: list[Launch] = []

    def record(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
        del grid, warmup
        recorded.append(Launch(kernel, arguments, options))

    dtype = configuration.dtype
    spec: DraftSpec = replace(public_shape(configuration.public).spec, **configuration.switches)
    weights = {
        tensor: torch.empty(shape, dtype=dtype, device="meta")
        for tensor, shape in expected_shapes(spec).items()
    }
    weights["d2t"] = torch.empty(spec.draft_vocab_size, dtype=torch.int64, device="meta")
    counts = {"num_splits": 16, "num_steps": 2, **configuration.counts}
    if counts.get("topk", 1) > 1:
        counts |= {"num_draft_tokens": 16, "num_steps": 3}  # a level between two others
    shape = DraftShape(is_programmatic=sm >= 90, **counts)
    JITFunction.run = record
    with planned_for(sm):
        DraftSteps.alone(spec, weights, shape, dtype=dtype, device="meta").run()
    return recorded


def variant_of(launch: Launch, sm: int) -> Variant:
    """How Triton itself tells this launch from others."""
    backend = make_backend(GPUTarget("cuda", sm, 32))
    kernel, options = launch.kernel, dict(launch.options)
    binder = create_function_from_signature(kernel.signature, kernel.params, backend)
    bound, specialization, own = binder(*launch.arguments, **options)
    _, signature, constants, attributes = kernel._pack_args(
        backend, options, bound, specialization, own
    )
    ordered = dict(sorted(launch.options.items()))
    return Variant(kernel.__name__, signature, constants, attributes, ordered)


def build(launch: Launch, variant: Variant, sm: int) -> dict[str, Any]:
    """What the machine code of one variant needs."""
    # disassembling takes as long as compiling: one product shows that ptx says as much
    constants = constants_of(variant)
    cut = constants.get("CUT")
    is_looked_at = variant.kernel == "gate_up_kernel" and cut is not None and cut.vector > 0
    source = ASTSource(launch.kernel, variant.signature, variant.constants, variant.attributes)
    begun = time.perf_counter()
    compiled = triton.compile(source, target=GPUTarget("cuda", sm, 32), options=launch.options)
    compile_s = time.perf_counter() - begun
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(compiled.asm["cubin"])
        usage = output_of("cuobjdump", "--dump-resource-usage", file.name)
        code = output_of("nvdisasm", "-c", file.name) if is_looked_at else None
    found = dict(re.findall(r"\b(REG|STACK|LOCAL):(\d+)", usage))
    types = {name: kind for name, kind in variant.signature.items() if isinstance(kind, str)}
    shown = constants if cut is None else {**constants, "CUT": cut._asdict()}
    return {
        "kernel": variant.kernel,
        "weights": next((kind for name, kind in types.items() if "weight" in name), None),
        "sm": sm,
        "triton": triton.__version__,
        "seconds": [round(compile_s, 2), round(time.perf_counter() - begun - compile_s, 2)],
        "constants": {name: value for name, value in shown.items() if value is not None},
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
    targets = [each for each in sys.argv[1:] if not each.startswith("--")]
    (asked,) = {*sys.argv[1:]} - {*targets} or {"--fullest"}
    for target in targets:
        main(int(target), asked)
