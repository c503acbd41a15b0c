"""The stopwatch of a CUDA device: graphs replayed between a pair of events."""

import time
from typing import final

import torch
import triton

from drafter.engine.captured_run import CapturedRun, GraphPool
from drafter.kernels.launch_plan import device_sm
from drafter.timing.device_facts import DeviceFacts
from drafter.timing.stopwatch import Described, Prepared, Work
from specmodel.errors import ParameterError
from specmodel.measurement import Clocks
from specmodel.measurement.draft_record import MEASURED
from specmodel.units import MILLI


@final
class CudaStopwatch:
    """Times works on one CUDA device.

    Parameters
    ----------
    device : torch.device
        The device.

    Raises
    ------
    ParameterError
        If it is no CUDA device.

    Notes
    -----
    It counts compilations through Triton's hook, and gives the hook back with `close`.

    Examples
    --------
    >>> CudaStopwatch(torch.device("cpu"))
    Traceback (most recent call last):
    ...
    specmodel.errors.ParameterError: device must be a CUDA device, got cpu; there is nothing to ...
    """

    def __init__(self, device: torch.device) -> None:
        if device.type != "cuda":
            hint = "there is nothing to time without one"
            raise ParameterError("device", device, "a CUDA device", hint)
        self.kind = MEASURED
        self.device = device
        properties = torch.cuda.get_device_properties(device)
        self.cache_bytes: int | None = getattr(properties, "L2_cache_size", None)
        self.facts = DeviceFacts(device)
        self._pool = GraphPool()
        self._compilations = 0
        self._hook_before = triton.knobs.runtime.jit_post_compile_hook
        triton.knobs.runtime.jit_post_compile_hook = self._count

    def _count(self, *arguments: object, **facts: object) -> None:
        """Called by Triton after each compilation."""
        self._compilations += 1
        if self._hook_before is not None:
            self._hook_before(*arguments, **facts)

    def close(self) -> None:
        """Stop counting compilations.

        Examples
        --------
        >>> CudaStopwatch.close.__name__
        'close'
        """
        triton.knobs.runtime.jit_post_compile_hook = self._hook_before

    def described(self) -> Described:
        """The device in words.

        Returns
        -------
        Described

        Examples
        --------
        >>> CudaStopwatch.described.__name__
        'described'
        """
        return Described(
            name=torch.cuda.get_device_name(self.device),
            uuid=self.facts.uuid,
            driver=self.facts.driver(),
            sm=device_sm(self.device),
            state=self.facts.state(),
        )

    def free_bytes(self) -> int:
        """Memory that is free now.

        Returns
        -------
        int
            [B].

        Examples
        --------
        >>> CudaStopwatch.free_bytes.__name__
        'free_bytes'
        """
        torch.cuda.empty_cache()  # what torch keeps for itself is free too
        return int(torch.cuda.mem_get_info(self.device)[0])

    def prepared(self, work: Work) -> Prepared:
        """Compile and capture a work.

        Parameters
        ----------
        work : Work
            The work.

        Returns
        -------
        Prepared
            Its graph.

        Examples
        --------
        >>> CudaStopwatch.prepared.__name__
        'prepared'
        """
        return CapturedRun(work.run, device=self.device, pool=self._pool)

    def sample_s(self, prepared: Prepared, replays: int) -> float:
        """Mean time of one replay over several in a row.

        Parameters
        ----------
        prepared : Prepared
            A graph.
        replays : int
            At least 1, [-].

        Returns
        -------
        float
            [s].

        Examples
        --------
        >>> CudaStopwatch.sample_s.__name__
        'sample_s'
        """
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(replays):
            prepared.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * MILLI / replays

    def host_s(self) -> float:
        """Clock of the host.

        Returns
        -------
        float
            [s].

        Examples
        --------
        >>> CudaStopwatch.host_s.__name__
        'host_s'
        """
        return time.perf_counter()

    def clocks(self) -> Clocks | None:
        """Clocks of the device now.

        Returns
        -------
        Clocks or None

        Examples
        --------
        >>> CudaStopwatch.clocks.__name__
        'clocks'
        """
        return self.facts.clocks()

    def compilations(self) -> int:
        """Kernels that were compiled since this stopwatch was made.

        Returns
        -------
        int
            [-].

        Examples
        --------
        >>> CudaStopwatch.compilations.__name__
        'compilations'
        """
        return self._compilations
