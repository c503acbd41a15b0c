"""Header and trailer of an nccl-tests run: settings, devices, and the verdict on the values."""

import re
from dataclasses import dataclass, field

_VERSION = re.compile(r"\b([nr]ccl)-tests version\s+(\d+(?:\.\d+)+)")
_LIBRARY = re.compile(r"\b([nr]ccl)-library=(\d{4,6})\b")
_STARTING = re.compile(r"Collective test starting:\s*(\w+)")
_SETTINGS = re.compile(r"nThreads?\s+(\d+)\s+nGpus\s+(\d+)\s+minBytes\s+(\d+)\s+maxBytes\s+(\d+)")
_NUMBER_AFTER = {
    "warmup_iters": re.compile(r"warmup iters:?\s*(\d+)"),
    "iters": re.compile(r"(?<!warmup )(?<!agg )iters:?\s*(\d+)"),
    "validation": re.compile(r"(?:validation|validate):?\s*(\d+)"),
    "graph": re.compile(r"\bgraph:?\s*(\d+)"),
}
_DEVICE = re.compile(
    r"Rank\s+(\d{1,6})\s+(?:Group\s+\d+\s+)?Pid\s+(\d{1,10})\s+on\s+(\S{1,253})\s+device\s+(\d{1,4})"
    r"\s+\[([^\]]{1,24})\]\s*(.{0,120})",
    re.ASCII,
)
_BOUNDS = re.compile(r"Out of bounds values\s*:\s*(\d{1,18})\s*(OK|FAILED)?")
_REDUCED = re.compile(r"Reducing maxBytes to\s+(\d{1,18})")
# NCCL codes from 2.9 have five digits; those before have four.
_MODERN = 10_000


@dataclass(slots=True)
class Header:
    """What the lines around a table say; filled line by line."""

    facts: dict[str, int] = field(default_factory=dict)  # settings that the header gives
    texts: dict[str, str] = field(default_factory=dict)  # collective, library and versions
    # rank, process, host, bus and name of every device line
    devices: list[tuple[int, int, str, str, str]] = field(default_factory=list)
    trailer: bool = False  # whether the trailer was seen
    failed: bool = False  # whether the trailer says that values were wrong

    @property
    def hosts(self) -> set[str]:
        """Hosts of the devices."""
        return {device[2] for device in self.devices}

    @property
    def gpu(self) -> str | None:
        """Name of the devices, names where they differ; None where none is known."""
        names = sorted({device[4] for device in self.devices if device[4]})
        return ", ".join(names) or None

    @property
    def num_ranks(self) -> int | None:
        """Ranks of the job; None where no device is named."""
        return len({device[0] for device in self.devices}) or None

    @property
    def warnings(self) -> set[str]:
        """What is special about the layout of the ranks."""
        ranks = self.num_ranks
        if ranks is None:
            return set()
        found = set()
        if len({device[1:3] for device in self.devices}) < ranks:
            found.add("single_process")
        if len(self.hosts) > 1:
            found.add("multi_node")
        if len({device[2:4] for device in self.devices}) < ranks:
            found.add("shared_gpu")
        if ranks == 1 and len(self.devices) > 1:
            found.add("independent_ranks")
        return found


def begins_run(text: str) -> str:
    """Return which line of a header this is, of those that begin a run; empty for others."""
    if _VERSION.search(text):
        return "version"
    if _STARTING.search(text):
        return "starting"
    return "settings" if _SETTINGS.search(text) else ""


def read_header_line(text: str, header: Header) -> bool:
    """Take what a line of a header or a trailer says; returns whether it said anything."""
    if "rccl-tests" in text:
        header.texts["library"] = "rccl"
    version = _VERSION.search(text)
    if version:
        header.texts["library"] = version[1]
        header.texts["nccl_tests_version"] = version[2]
        library = _LIBRARY.search(text)
        if library:
            header.texts["library_version"] = version_of_code(int(library[2]))
        return True
    starting = _STARTING.search(text)
    if starting:
        header.texts["collective"] = collective_name(starting[1])
        return True
    settings = _SETTINGS.search(text)
    if settings:
        header.facts["max_bytes"] = int(settings[4])
        for name, pattern in _NUMBER_AFTER.items():
            found = pattern.search(text)
            if found and len(found[1]) <= 9:
                header.facts[name] = int(found[1])
        return True
    return _device(text, header) or _trailer(text, header)


def version_of_code(code: int) -> str:
    """Return the version that a number of NCCL stands for."""
    unit = 100 * 100 if code >= _MODERN else 10 * 100
    return f"{code // unit}.{code % unit // 100}.{code % 100}"


def collective_name(program: str) -> str:
    """Return the collective that a program measures."""
    name = program.strip().replace("\\", "/").rsplit("/", 1)[-1]
    name = name.removesuffix(".exe").removesuffix("_mpi").removesuffix("_perf")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()[:40]


def _device(text: str, header: Header) -> bool:
    """Take a line that names a device."""
    found = _DEVICE.search(text)
    if not found:
        return False
    rank, process, host, device, bus, name = found.groups()
    header.devices.append((int(rank), int(process), host, f"{device} {bus}", name.strip()))
    return True


def _trailer(text: str, header: Header) -> bool:
    """Take a line of the trailer, or one that changes the plan."""
    bounds = _BOUNDS.search(text)
    if bounds:
        header.trailer = True
        header.failed = header.failed or bounds[2] == "FAILED" or int(bounds[1]) > 0
        return True
    reduced = _REDUCED.search(text)
    if reduced:
        header.facts["max_bytes"] = int(reduced[1])
        return True
    return False
