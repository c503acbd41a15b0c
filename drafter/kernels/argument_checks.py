"""Checks of what a launch function is given, before a kernel reads past an end."""

from collections.abc import Sequence

import torch

from specmodel.errors import ParameterError

STORAGE_TYPES = (torch.bfloat16, torch.float16, torch.float32)
"""Types that weights, activations and the cache may have."""

INDEX_TYPES = (torch.int32, torch.int64)
"""Types that tokens, rows and positions may have."""

MOST_ELEMENTS_PER_VECTOR_BYTES = 16
"""One load of a thread, [B]."""


def check_tensor(
    name: str,
    tensor: torch.Tensor,
    shape: Sequence[int],
    types: Sequence[torch.dtype],
    like: torch.Tensor | None = None,
) -> None:
    """Refuse a tensor that a kernel would misread.

    Parameters
    ----------
    name : str
        The argument, for the message.
    tensor : torch.Tensor
        What was given.
    shape : sequence of int
        What the kernel reads; the tensor must be contiguous.
    types : sequence of torch.dtype
        Types the kernel can read.
    like : torch.Tensor, optional
        Another argument, whose device it must share.

    Raises
    ------
    ParameterError
        If shape, type, device or layout is another.

    Notes
    -----
    Costs microseconds per launch, none of them in a captured graph.

    Examples
    --------
    >>> check_tensor("weight", torch.zeros(2, 3), (2, 3), STORAGE_TYPES)
    >>> check_tensor("weight", torch.zeros(2, 3), (3, 2), STORAGE_TYPES)
    Traceback (most recent call last):
    ...
    specmodel.errors.ParameterError: weight must be of shape (3, 2), got (2, 3)
    """
    if tuple(tensor.shape) != tuple(shape):
        raise ParameterError(name, tuple(tensor.shape), f"of shape {tuple(shape)}")
    if tensor.dtype not in types:
        allowed = ", ".join(str(dtype).removeprefix("torch.") for dtype in types)
        raise ParameterError(name, str(tensor.dtype).removeprefix("torch."), f"one of {allowed}")
    if not tensor.is_contiguous():
        raise ParameterError(name, f"strides {tensor.stride()}", "contiguous")
    if like is not None and tensor.device != like.device:
        raise ParameterError(name, f"on {tensor.device}", f"on {like.device}")


def check_range(name: str, value: int, low: int, high: int, hint: str = "") -> None:
    """Refuse a count that a kernel has no room for.

    Parameters
    ----------
    name : str
        The argument, for the message.
    value, low, high : int
        What was given, and its bounds, both allowed.
    hint : str, optional
        What to do about it.

    Raises
    ------
    ParameterError
        If the count is outside the bounds.

    Notes
    -----
    Bounds come from registers and bit masks, so they are those of one launch.

    Examples
    --------
    >>> check_range("topk", 17, 1, 16)
    Traceback (most recent call last):
    ...
    specmodel.errors.ParameterError: topk must be between 1 and 16, got 17
    """
    if not low <= value <= high:
        raise ParameterError(name, value, f"between {low} and {high}", hint)


def vector_width(tensor: torch.Tensor) -> int:
    """Elements of a tensor in one 128-bit load.

    Parameters
    ----------
    tensor : torch.Tensor
        Weights.

    Returns
    -------
    int
        4 for fp32, 8 for bf16 and fp16, [-].

    Notes
    -----
    128 bits are the widest load of one thread on every target.

    Examples
    --------
    >>> vector_width(torch.zeros(1, dtype=torch.bfloat16))
    8
    """
    return MOST_ELEMENTS_PER_VECTOR_BYTES // tensor.element_size()
