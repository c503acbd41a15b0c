"""The prior of an all-reduce by the name of a link."""

from typing import Final

from specmodel.cost.allreduce_peer_access import vllm_kernel
from specmodel.cost.allreduce_prior import AllReducePrior, allreduce_prior, prior_classes
from specmodel.errors import ParameterError, UnknownKeyError
from specmodel.hardware import interconnect

SMALL_MESSAGE_BYTES: Final = 4096
"""Message at which the gate is asked for the kernel. [B]"""

LINK_CLASSES: Final = (
    ("InfiniBand", "nodes_infiniband"),
    ("RoCE", "roce"),
    ("PCIe 3", "pcie3"),
    ("PCIe 4", "pcie4"),
    ("PCIe 5", "pcie5"),
    ("NVLink 3 + NVSwitch", "nvlink3"),
    ("NVLink 4 + NVSwitch", "nvlink4"),
    ("NVLink 5 + NVSwitch", "nvlink5"),
)
"""Class of the all-reduce prior by how a name of the catalogue begins."""


def link_prior(name: str, num_ranks: int, *, kernel: str = "") -> AllReducePrior:
    r"""Prior of the all-reduce over a link of the catalogue.

    .. math:: \text{link} \mapsto \ln T(S) \sim \mathcal{N}

    Parameters
    ----------
    name : str
        Link as `specmodel.hardware.interconnect` finds it, or a class of `prior_classes`.
    num_ranks : int
        At least 2, [-].
    kernel : str
        ``nccl`` or ``engine``; without it what vLLM's gate chooses for a small message.

    Returns
    -------
    AllReducePrior

    Raises
    ------
    ParameterError
        If no link is named.
    UnknownKeyError
        If the link, its class or the kernel is not known.

    Notes
    -----
    The gate takes the engine's kernel on NVLink and on a pair with peer access; patched engines
    have one-shot kernels on more PCIe cards, which must be asked for. allreduce.md 6.

    Examples
    --------
    >>> link_prior("NVLink-4", 8).kernel, link_prior("PCIe 5.0 x16", 8).kernel
    ('engine', 'nccl')
    """
    if not name:
        allowed = "named for several GPUs without a measured all-reduce"
        raise ParameterError(
            "interconnect", "none", allowed, f"one of {', '.join(prior_classes())}"
        )
    link = _class(name)
    gate = vllm_kernel(
        num_ranks,
        SMALL_MESSAGE_BYTES,
        fully_nvlinked=link.startswith("nvlink"),
        compute_capability=90,
    )
    engine = gate != "library" and "engine" in prior_classes().get(link, ())
    return allreduce_prior(link, num_ranks, kernel=kernel or ("engine" if engine else "nccl"))


def _class(name: str) -> str:
    """Class of the all-reduce prior of a link."""
    if name in prior_classes():
        return name
    try:
        link = interconnect(name).name
    except UnknownKeyError:  # what can be priced helps more than the whole catalogue
        raise UnknownKeyError("interconnect", name, [*prior_classes()]) from None
    if link.endswith("without peer access"):
        return "pcie_no_peer_access"
    found = next((each for begin, each in LINK_CLASSES if link.startswith(begin)), None)
    if found is None:
        what = "class of all-reduces for the interconnect"
        raise UnknownKeyError(what, link, [*prior_classes()])
    return found
