"""Which errors come from the device or from what compiles for it, and not from a defect of our own."""

from typing import Final

_COMPILER: Final = "triton"


def is_compiler_error(error: BaseException) -> bool:
    r"""Whether Triton raised an error of its own kind.

    .. math:: \text{error} \mapsto \{0, 1\}

    Parameters
    ----------
    error : BaseException
        The error.

    Returns
    -------
    bool
        True where registers or shared memory do not suffice, the assembler fails, or a kernel does not
        compile.

    Notes
    -----
    Its kinds stand in several modules and have moved between versions, so they are known by their
    package.

    Examples
    --------
    >>> is_compiler_error(RuntimeError("CUDA error: the device is lost"))
    False
    """
    return any(each.__module__.partition(".")[0] == _COMPILER for each in type(error).__mro__)


def is_device_failure(error: BaseException) -> bool:
    r"""Whether an error may strike at one load after others were measured well.

    .. math:: \text{error} \mapsto \{0, 1\}

    Parameters
    ----------
    error : BaseException
        The error.

    Returns
    -------
    bool
        True for what torch and the driver raise (too little memory, a baseline that fails, a lost
        device), and for kinds of Triton's own.

    Notes
    -----
    torch has ``RuntimeError`` and kinds below it; what Triton raises is not below it.

    Examples
    --------
    >>> is_device_failure(RuntimeError("CUDA out of memory")), is_device_failure(KeyError("load"))
    (True, False)
    """
    return isinstance(error, RuntimeError) or is_compiler_error(error)


def first_line(error: BaseException) -> str:
    r"""What an error says on its first line that is not empty.

    .. math:: \text{error} \mapsto \text{line}

    Parameters
    ----------
    error : BaseException
        The error.

    Returns
    -------
    str
        Its kind where it says nothing.

    Notes
    -----
    Where Triton shows the source of a kernel first, the line is that of the reason below it.

    Examples
    --------
    >>> first_line(RuntimeError("No available kernel.  Aborting execution.\nTrace"))
    'No available kernel. Aborting execution.'
    """
    kind = type(error).__name__
    reason = getattr(error, "error_message", None) if is_compiler_error(error) else None
    lines = (" ".join(line.split()) for line in str(reason or error).splitlines())
    said = next(filter(None, lines), kind)
    return f"{kind}: {said}" if reason else said
