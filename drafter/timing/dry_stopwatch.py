"""A stopwatch without a device: works run once, and the times that it shows are made up."""

from typing import NamedTuple, final

from drafter.timing.stopwatch import Described, Prepared, Work
from specmodel.measurement import Clocks
from specmodel.measurement.draft_record import DRY
from specmodel.units import GIBI, KIBI


class DryWork(NamedTuple):
    """A work that ran once, with its made-up time.

    Parameters
    ----------
    time_s : float
        Made up, [s].

    Examples
    --------
    >>> DryWork(1e-4).num_nodes is None
    True
    """

    time_s: float

    @property
    def num_nodes(self) -> int | None:
        """None: nothing is captured, [-]."""
        return None

    def replay(self) -> None:
        """Do nothing: the work ran when it was prepared."""


@final
class DryStopwatch:
    """Runs each work once and shows its made-up time, so that a whole measurement can be rehearsed.

    Notes
    -----
    Its host clock jumps by a minute with every reading: a warm-up is over at once.

    Examples
    --------
    >>> watch = DryStopwatch()
    >>> watch.sample_s(watch.prepared(Work("nothing", lambda: None, 2e-4)), 20)
    0.0002
    """

    kind = DRY
    """``dry``: a record of it says so, and nothing is predicted from one."""

    cache_bytes: int | None = 32 * KIBI
    """Made up, so that one line of a buffer flushes it, [B]."""

    def __init__(self) -> None:
        self._host_s = 0.0

    def described(self) -> Described:
        """No device.

        Returns
        -------
        Described
        """
        return Described("none: a dry run in Triton's interpreter", None, None, 0, "")

    def free_bytes(self) -> int:
        """Enough for a rehearsal.

        Returns
        -------
        int
            [B].
        """
        return GIBI

    def prepared(self, work: Work) -> Prepared:
        """Run a work once.

        Parameters
        ----------
        work : Work
            The work.

        Returns
        -------
        Prepared
        """
        work.run()
        return DryWork(work.made_up_s)

    def sample_s(self, prepared: Prepared, replays: int) -> float:
        """Made-up time of a work.

        Parameters
        ----------
        prepared : Prepared
            One of this stopwatch.
        replays : int
            Not used, [-].

        Returns
        -------
        float
            [s].
        """
        del replays
        return prepared.time_s if isinstance(prepared, DryWork) else 0.0

    def host_s(self) -> float:
        """A clock that jumps.

        Returns
        -------
        float
            [s].
        """
        self._host_s += 60.0
        return self._host_s

    def clocks(self) -> Clocks | None:
        """No clocks.

        Returns
        -------
        None
        """
        return None

    def compilations(self) -> int:
        """Nothing is compiled.

        Returns
        -------
        int
            Zero, [-].
        """
        return 0
