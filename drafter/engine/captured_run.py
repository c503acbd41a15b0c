"""A sequence of launches as one CUDA graph: proved free of synchronisation, captured, counted, replayed."""

import ctypes
import warnings
from collections.abc import Callable
from typing import Any, Final

import torch

from specmodel.errors import ParameterError

_WARM_RUNS: Final = 2


class CapturedRun:
    """A captured sequence of launches.

    The work runs before capture, since Triton compiles at a first launch and a compilation inside a
    capture fails; then once more in the mode in which torch raises at a synchronisation. drafter.md 14.

    `pool` is the memory of `torch.cuda.graph_pool_handle` that several graphs share for what they allocate
    inside; they must not run at once. Drafts allocate nothing; what torch's own products need for a moment does.
    """

    def __init__(self, run: Callable[[], None], *, device: torch.device, pool: Any = None) -> None:
        if device.type != "cuda":
            raise ParameterError("device", device, "a CUDA device", "run eagerly instead")
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(_WARM_RUNS):
                run()
            stream.synchronize()
            check_no_synchronisation(run)
        torch.cuda.current_stream(device).wait_stream(stream)
        torch.cuda.synchronize(device)
        self._graph, keeps_graph = _empty_graph()
        with torch.cuda.graph(self._graph, pool=pool, stream=stream):
            run()
        self.num_nodes = count_nodes(self._graph) if keeps_graph else None
        if keeps_graph:
            self._graph.instantiate()
        torch.cuda.synchronize(device)

    def replay(self) -> None:
        """Launch the graph on the current stream; buffers hold the results when it has run."""
        self._graph.replay()


def check_no_synchronisation(run: Callable[[], None]) -> None:
    """Run once in the mode in which torch raises where host and device wait for each other.

    torch sees its own calls only, not those of Triton's launcher, which makes none once compiled.
    """
    if not torch.cuda.is_available():
        run()
        return
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls the mode a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        run()
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _empty_graph() -> tuple[torch.cuda.CUDAGraph, bool]:
    """A graph to capture into, and whether its nodes can be counted: older releases drop them."""
    try:
        return torch.cuda.CUDAGraph(keep_graph=True), True
    except TypeError:
        return torch.cuda.CUDAGraph(), False


def count_nodes(graph: torch.cuda.CUDAGraph) -> int | None:
    """Nodes of a captured graph, asked of the driver.

    `cuGraphGetNodes` with no place for the nodes returns their number.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        handle = graph.raw_cuda_graph()
    except (OSError, AttributeError, RuntimeError):
        return None
    count = ctypes.c_size_t(0)
    status: int = driver.cuGraphGetNodes(ctypes.c_void_p(handle), None, ctypes.byref(count))
    return count.value if status == 0 and count.value > 0 else None
