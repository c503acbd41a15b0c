"""The written rules of every kernel, read off its source: what the interpreter would pass in silence."""

import ast
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[3] / "drafter" / "kernels"
FORBIDDEN = {"make_block_ptr", "flip", "libdevice", "inline_asm_elementwise", "advance"}
EXACT = {
    # int32, int64 or fp32 by contract of the launch functions: nothing to widen
    *(
        "tokens",
        "hidden_rows",
        "carry_rows",
        "nodes",
        "positions",
        "slots",
        "lengths",
        "tail_starts",
        "ancestors",
    ),
    *("input_index", "cosine", "sine", "part_out", "part_log", "tile_max", "tile_sum", "tile_keys"),
    *(
        "offsets",
        "starts",
        "scores",
        "drafted",
        "log_probs",
        "guesses",
        "rows",
        "before",
        "accepted",
    ),
    "cache",  # of which kernels load nothing but its angles
    *("root_tokens", "root_rows", "is_best", "last_rows", "logits", "parents", "levels"),
}
STORED = {
    # what may have a storage type; products take it as it is, all else widens it first
    *("inputs", "weight", "gate_weight", "up_weight", "bias", "residual", "norm", "embedding"),
    *(
        "hidden",
        "embed_norm",
        "hidden_norm",
        "fused",
        "query_norm",
        "key_norm",
        "query",
        "key_cache",
    ),
    *("value_cache", "out", "norms"),
}


def kernels() -> list[tuple[str, ast.FunctionDef]]:
    """Every function that Triton compiles, with its module."""
    found = []
    for path in sorted(KERNELS.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                marks = [ast.unparse(mark) for mark in node.decorator_list]
                if any(mark.startswith("triton.jit") for mark in marks):
                    found.append((path.stem, node))
    return found


ALL = kernels()
pytestmark = pytest.mark.parametrize(
    ("module", "kernel"), ALL, ids=[f"{module}.{kernel.name}" for module, kernel in ALL]
)


def calls(node: ast.AST, name: str) -> list[ast.Call]:
    return [
        each
        for each in ast.walk(node)
        if isinstance(each, ast.Call) and ast.unparse(each.func) == name
    ]


def pointers(address: ast.expr, kernel: ast.FunctionDef) -> set[str]:
    """Arguments that an address starts from, through the local names that lead to it."""
    arguments = {argument.arg for argument in kernel.args.args}
    seen: set[str] = set()
    fields: set[str] = set()
    todo = {node.id for node in ast.walk(address) if isinstance(node, ast.Name)}
    fields |= {node.attr for node in ast.walk(address) if isinstance(node, ast.Attribute)}
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in arguments:
            continue
        for node in ast.walk(kernel):
            is_source = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
            # what was loaded is a number, not an address
            if is_source and not calls(node, "tl.load"):
                todo |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
                fields |= {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    # a pointer is an argument, or a field of one
    return ((seen & arguments) | fields) & (EXACT | STORED)


def is_widened(call: ast.Call, kernel: ast.FunctionDef) -> bool:
    """The value is cast where it is loaded, or its name is used for nothing but a cast or a product."""
    parents = {child: node for node in ast.walk(kernel) for child in ast.iter_child_nodes(node)}
    above = parents[call]
    if isinstance(above, ast.Attribute) and above.attr == "to":
        return True
    if not isinstance(above, ast.Assign):
        return False
    name = ast.unparse(above.targets[0])
    for node in ast.walk(kernel):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            user = parents[node]
            is_cast = isinstance(user, ast.Attribute) and user.attr in {"to", "dtype"}
            # to turn a tile over is no arithmetic
            is_product = isinstance(user, ast.Call) and ast.unparse(user.func) in {
                "dot",
                "tl.trans",
            }
            # the name now holds what the cast gave
            if is_cast or is_product or rebound_before(node, name, kernel):
                continue
            return False
    return True


def rebound_before(use: ast.Name, name: str, kernel: ast.FunctionDef) -> bool:
    return any(
        isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == name
        and ast.unparse(node.value) == f"{name}.to(tl.float32)"
        and node.lineno < use.lineno
        for node in ast.walk(kernel)
    )


def test_what_is_loaded_in_a_storage_type_is_widened_before_arithmetic(
    module: str, kernel: ast.FunctionDef
) -> None:
    for call in calls(kernel, "tl.load"):
        starts = pointers(call.args[0], kernel)
        assert starts, f"{module}: {ast.unparse(call)} starts from no known argument"
        if starts & STORED:
            assert is_widened(call, kernel), f"{module}: {ast.unparse(call)}"


def test_what_is_stored_in_a_storage_type_is_rounded(module: str, kernel: ast.FunctionDef) -> None:
    for call in calls(kernel, "tl.store"):
        if pointers(call.args[0], kernel) & {
            "out",
            "query",
            "key_cache",
            "value_cache",
            "cache",
            "residual",
        }:
            value = ast.unparse(call.args[1])
            assigned = [
                ast.unparse(node.value)
                for node in ast.walk(kernel)
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == value
            ]
            assert value.startswith("rounded(") or any(
                each.startswith("rounded(") for each in assigned
            ), f"{module}: {ast.unparse(call)}"


def test_products_go_through_the_helper(module: str, kernel: ast.FunctionDef) -> None:
    assert not calls(kernel, "tl.dot") or (module, kernel.name) == ("numerics", "dot")


def test_nothing_is_used_that_a_release_or_the_interpreter_lacks(
    module: str, kernel: ast.FunctionDef
) -> None:
    used = {node.attr for node in ast.walk(kernel) if isinstance(node, ast.Attribute)}
    assert not used & FORBIDDEN, module


def test_streaming_loads_do_not_bypass_the_first_cache(
    module: str, kernel: ast.FunctionDef
) -> None:
    for call in calls(kernel, "tl.load"):
        named = {keyword.arg for keyword in call.keywords}
        assert not {"cache_modifier", "eviction_policy"} <= named, module


def test_waits_for_the_launch_before_are_asked_for_by_a_constant(
    module: str, kernel: ast.FunctionDef
) -> None:
    parents = {child: node for node in ast.walk(kernel) for child in ast.iter_child_nodes(node)}
    for name in ("tl.extra.cuda.gdc_wait", "tl.extra.cuda.gdc_launch_dependents"):
        for call in calls(kernel, name):
            above: ast.AST = call
            while not isinstance(above, ast.If):
                above = parents[above]
            assert ast.unparse(above.test) in {"PDL", "WAIT"}, module


def test_every_launched_kernel_waits_for_the_launch_before(
    module: str, kernel: ast.FunctionDef
) -> None:
    if kernel.name.endswith("_kernel"):
        text = ast.unparse(kernel)
        hands_on = "CUT, PDL)" in text
        assert "gdc_wait()" in text or hands_on, f"{module}.{kernel.name}"
        assert "gdc_launch_dependents()" in text, f"{module}.{kernel.name}"


def test_nothing_that_a_launch_before_may_have_written_is_read_before_the_wait(
    module: str, kernel: ast.FunctionDef
) -> None:
    if not kernel.name.endswith("_kernel"):
        return
    nodes = [node for node in ast.walk(kernel) if isinstance(node, ast.Call)]
    waits = [
        node.lineno
        for node in nodes
        if ast.unparse(node.func) == "tl.extra.cuda.gdc_wait"
        # products wait themselves, after their first weights
        or (node.args and ast.unparse(node.args[-1]) == "PDL")
    ]
    for call in calls(kernel, "tl.load"):
        if call.lineno < min(waits):
            assert pointers(call.args[0], kernel) <= {"norm"}, module
