"""Settings that pin acceptance, per engine: costs measured without a trained draft model."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from specmodel.acceptance import FullAccuracy
from specmodel.atomic_file import write_text_atomically
from specmodel.errors import ParameterError

ENGINES: Final = ("atom", "sglang", "tensorrt_llm", "vllm")
"""Engines whose acceptance can be pinned."""

_DIGITS = 10


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticSettings:
    """How an engine is told to accept a given number of tokens per round.

    Parameters
    ----------
    engine : str
        One of `ENGINES`.
    environment : dict of str to str
        Variables of the server's environment.
    arguments : tuple of str
        Arguments of the server's command line.
    speculative_config : dict of str
        Keys to add to vLLM's ``--speculative-config``.

    Notes
    -----
    Points measured so are sound for cost and void for acceptance: keep them apart, and never use
    what the server writes.
    """

    engine: str
    environment: dict[str, str]
    arguments: tuple[str, ...]
    speculative_config: dict[str, Any]


def synthetic_settings(engine: str, accept_length: float, num_steps: int) -> SyntheticSettings:
    r"""Settings that make an engine emit an accept length per round on average.

    .. math:: \text{setting} = \tau \quad\text{or, for TensorRT-LLM,}\quad \tau - 1

    Parameters
    ----------
    engine : str
        One of `ENGINES`.
    accept_length : float
        :math:`\tau`, bonus token included, from 1 to num_steps + 1, [tokens].
    num_steps : int
        Depth of the run; for a block drafter the drafted tokens, at least 1, [tokens].

    Returns
    -------
    SyntheticSettings

    Raises
    ------
    ParameterError
        If the engine is not known or the accept length is impossible.

    Notes
    -----
    All but TensorRT-LLM count the bonus token; TensorRT-LLM counts accepted draft tokens, and its 0
    turns the setting off, so that accept length 1 cannot be pinned there. SGLang's token mode is set
    because its default writes one fixed token, which some clients hold back to the end and then
    cannot time.

    Examples
    --------
    >>> synthetic_settings("tensorrt_llm", 2.3, 3).environment
    {'TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS': '1.3'}
    >>> synthetic_settings("vllm", 2.3, 3).speculative_config
    {'rejection_sample_method': 'synthetic', 'synthetic_acceptance_length': 2.3}
    """
    length = _checked(accept_length, num_steps)
    environment: dict[str, str] = {}
    arguments: tuple[str, ...] = ()
    config: dict[str, Any] = {}
    if engine == "sglang":
        environment = {
            "SGLANG_SIMULATE_ACC_LEN": _decimal(length),
            "SGLANG_SIMULATE_ACC_METHOD": "match-expected",
            "SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token",
        }
    elif engine == "tensorrt_llm":
        if length == 1.0:
            raise ParameterError(
                "accept_length",
                "1",
                "above 1 for tensorrt_llm",
                "its setting counts accepted draft tokens, and 0 of them turns it off",
            )
        environment = {"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": _decimal(length - 1.0)}
    elif engine == "atom":
        arguments = ("--spec-decode-acceptance-length", _decimal(length))
    elif engine == "vllm":
        config = {
            "rejection_sample_method": "synthetic",
            "synthetic_acceptance_length": float(_decimal(length)),
        }
    else:
        raise ParameterError("engine", engine, f"one of {', '.join(ENGINES)}")
    return SyntheticSettings(
        engine=engine, environment=environment, arguments=arguments, speculative_config=config
    )


def vllm_synthetic_rates(full_accuracy: FullAccuracy) -> dict[str, Any]:
    """Return the keys that make vLLM accept with a given full accuracy at each depth.

    Parameters
    ----------
    full_accuracy : FullAccuracy
        One value per drafted token, [-].

    Returns
    -------
    dict
        Keys to add to ``--speculative-config``; vLLM's rates are unconditional, as ours.

    Examples
    --------
    >>> vllm_synthetic_rates(FullAccuracy([0.7, 0.5]))
    {'rejection_sample_method': 'synthetic', 'synthetic_acceptance_rates': [0.7, 0.5]}
    """
    return {
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": full_accuracy.values.tolist(),
    }


def synthetic_text(settings: SyntheticSettings) -> str:
    """Return the settings as lines of a shell file or of an argument list.

    Parameters
    ----------
    settings : SyntheticSettings
        Made by `synthetic_settings`.

    Returns
    -------
    str
        ``export`` lines, the arguments, or the keys as JSON.

    Examples
    --------
    >>> print(synthetic_text(synthetic_settings("atom", 2.3, 3)), end="")
    --spec-decode-acceptance-length 2.3
    """
    lines = [f"export {name}={value}" for name, value in settings.environment.items()]
    if settings.arguments:
        lines.append(" ".join(settings.arguments))
    if settings.speculative_config:
        lines.append(json.dumps(settings.speculative_config))
    return "\n".join(lines) + "\n"


def write_synthetic_settings(path: Path | str, settings: SyntheticSettings) -> None:
    r"""Write `synthetic_text` to a file, atomically.

    Parameters
    ----------
    path : path
        The file.
    settings : SyntheticSettings
        Made by `synthetic_settings`.

    Raises
    ------
    OutputError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "pinned.env"
    ...     write_synthetic_settings(file, synthetic_settings("tensorrt_llm", 2.5, 3))
    ...     file.read_text()
    'export TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS=1.5\n'
    """
    write_text_atomically(path, synthetic_text(settings))


def _checked(accept_length: float, num_steps: int) -> float:
    """An accept length that the depth can give."""
    if num_steps < 1:
        raise ParameterError(
            "num_steps", num_steps, "at least 1", "without drafts there is nothing to accept"
        )
    if not 1.0 <= accept_length <= num_steps + 1.0:
        raise ParameterError(
            "accept_length",
            f"{accept_length:g}",
            f"from 1 to {num_steps + 1}",
            "the bonus token is counted",
        )
    return float(accept_length)


def _decimal(value: float) -> str:
    """A number without the noise of its last binary digits."""
    return f"{value:.{_DIGITS}g}"
