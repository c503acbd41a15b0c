"""What vLLM reads: the speculative configuration, and the schedule of depths in it or in a file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from calibration.writers.schedule import DepthSchedule
from calibration.writers.synthetic import synthetic_settings, vllm_synthetic_rates
from specmodel.acceptance import FullAccuracy
from specmodel.atomic_file import write_text_atomically
from specmodel.errors import ParameterError

SCHEDULE_KEY: Final = "num_speculative_tokens_per_batch_size"
"""Key of a schedule inside ``--speculative-config``."""

METHODS: Final = (
    "ngram",
    "ngram_gpu",
    "medusa",
    "mlp_speculator",
    "draft_model",
    "suffix",
    "eagle",
    "eagle3",
    "mtp",
    "dflash",
    "dspark",
    "extract_hidden_states",
    "custom_class",
)
"""Methods that vLLM names in ``vllm/config/speculative.py`` at 002e77c; it also has aliases that end
in ``_mtp``."""

KNOWN_KEYS: Final = frozenset(
    {
        *("method", "model", "num_speculative_tokens", "draft_tensor_parallel_size"),
        *("quantization", "max_model_len", "revision", "enforce_eager", "attention_backend"),
        *("moe_backend", "kv_cache_dtype", "prompt_lookup_min", "prompt_lookup_max"),
        *("suffix_decoding_max_tree_depth", "suffix_decoding_max_cached_requests"),
        *("suffix_decoding_max_spec_factor", "suffix_decoding_min_token_prob"),
        *(SCHEDULE_KEY, "enable_adaptive_verification", "parallel_drafting"),
        *("disable_padded_drafter_batch", "rejection_sample_method", "draft_sample_method"),
        *("synthetic_acceptance_rates", "synthetic_acceptance_length"),
        *("use_local_argmax_reduction", "use_heterogeneous_vocab", "dspark_draft_topk"),
        *("index_share_for_mtp_iteration", "disable_eagle_block_drop"),
    }
)
"""Keys of ``--speculative-config`` at the same commit; others are refused there and here."""

_OWN_KEYS = frozenset(
    {
        *("method", "model", "num_speculative_tokens", SCHEDULE_KEY),
        *("rejection_sample_method", "synthetic_acceptance_rates", "synthetic_acceptance_length"),
    }
)


def vllm_schedule(schedule: DepthSchedule, *, hold_down_to_one: bool = False) -> list[list[int]]:
    """Return a schedule as vLLM reads it: ``[[start, end, K], ...]``, ends included.

    Parameters
    ----------
    schedule : DepthSchedule
        Made by `depth_schedule`; vLLM's K is its number of steps.
    hold_down_to_one : bool
        Let the first range begin at batch 1 although the points begin later.

    Returns
    -------
    list of list of int
        Contiguous, ending with the points.

    Raises
    ------
    ParameterError
        If the points do not reach batch 1, where vLLM demands that a schedule begins.

    Notes
    -----
    vLLM goes on with the last K above the last range: limit ``--max-num-seqs`` to its end. There is no
    context in it: make one schedule per context and say which.

    Examples
    --------
    >>> from calibration.writers.schedule import DepthRange
    >>> schedule = DepthSchedule(
    ...     ranges=(
    ...         DepthRange(first_batch_size=1, last_batch_size=4, num_steps=5),
    ...         DepthRange(first_batch_size=5, last_batch_size=64, num_steps=1),
    ...     ),
    ...     choices=(), accept_lengths=(), context_tokens=None, notes=(),
    ... )
    >>> vllm_schedule(schedule)
    [[1, 4, 5], [5, 64, 1]]
    """
    ranges = schedule.as_lists()
    if ranges[0][0] > 1:
        if not hold_down_to_one:
            raise ParameterError(
                "schedule",
                f"one that begins at batch {ranges[0][0]}",
                "one from batch 1, as vLLM demands",
                "measure batch 1 and fit again, or hold the first depth down to 1, where nothing "
                "was measured",
            )
        ranges[0][0] = 1
    return ranges


def vllm_speculative_config(
    method: str,
    num_speculative_tokens: int | None = None,
    *,
    model: str | None = None,
    schedule: DepthSchedule | None = None,
    accept_length: float | None = None,
    full_accuracy: FullAccuracy | None = None,
    options: Mapping[str, Any] | None = None,
    hold_down_to_one: bool = False,
) -> dict[str, Any]:
    """Return the object of ``--speculative-config``.

    Parameters
    ----------
    method : str
        One of `METHODS`, or an alias that ends in ``_mtp``.
    num_speculative_tokens : int, optional
        K, drafted tokens, root not counted; that of the schedule where there is one, [tokens].
    model : str, optional
        The draft model; methods whose weights are in the target model have none.
    schedule : DepthSchedule, optional
        Depth by batch size.
    accept_length : float, optional
        Pins acceptance for a run that measures cost: accept length, bonus token included, [tokens].
    full_accuracy : FullAccuracy, optional
        Pins acceptance depth by depth instead; one value per drafted token, [-].
    options : mapping from str, optional
        Further keys, from `KNOWN_KEYS`.
    hold_down_to_one : bool
        As in `vllm_schedule`.

    Returns
    -------
    dict
        For ``json.dumps``.

    Raises
    ------
    ParameterError
        If vLLM would refuse it, or nothing would be drafted.

    Notes
    -----
    No speculation is no ``--speculative-config`` at all. ``num_speculative_tokens`` is the largest K of a
    schedule: vLLM cuts the others to it.

    Examples
    --------
    >>> vllm_speculative_config("eagle3", 3, model="DRAFT_MODEL")
    {'method': 'eagle3', 'model': 'DRAFT_MODEL', 'num_speculative_tokens': 3}
    >>> vllm_speculative_config("mtp", 3, accept_length=2.5)["synthetic_acceptance_length"]
    2.5
    """
    if method not in METHODS and not method.endswith("_mtp"):
        raise ParameterError("method", method, f"one of {', '.join(METHODS)}")
    config: dict[str, Any] = {"method": method}
    if model is not None:
        config["model"] = model
    tokens = _drafted(num_speculative_tokens, schedule)
    config["num_speculative_tokens"] = tokens
    if schedule is not None:
        config[SCHEDULE_KEY] = vllm_schedule(schedule, hold_down_to_one=hold_down_to_one)
    config |= _pinned(tokens, schedule, accept_length, full_accuracy)
    for key, value in (options or {}).items():
        if key not in KNOWN_KEYS or key in _OWN_KEYS:
            raise ParameterError(
                "options",
                key,
                f"keys of vLLM's speculative configuration: {', '.join(sorted(KNOWN_KEYS - _OWN_KEYS))}",
                "give an argument of this function" if key in _OWN_KEYS else "",
            )
        config[key] = value
    return config


def vllm_config_text(value: dict[str, Any] | list[list[int]]) -> str:
    """Return a configuration or a schedule as JSON, on one line.

    Parameters
    ----------
    value : dict or list
        Made by `vllm_speculative_config` or `vllm_schedule`.

    Returns
    -------
    str
        Quote it for a shell.

    Examples
    --------
    >>> print(vllm_config_text([[1, 4, 5], [5, 64, 1]]), end="")
    [[1, 4, 5], [5, 64, 1]]
    """
    return json.dumps(value) + "\n"


def write_vllm_config(path: Path | str, value: dict[str, Any] | list[list[int]]) -> None:
    """Write a configuration, or a schedule as ``speculative_k_schedule.json``, atomically.

    Parameters
    ----------
    path : path
        The file.
    value : dict or list
        Made by `vllm_speculative_config` or `vllm_schedule`.

    Raises
    ------
    OutputError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "speculative_k_schedule.json"
    ...     write_vllm_config(file, [[1, 4, 5], [5, 64, 1]])
    ...     json.loads(file.read_text())
    [[1, 4, 5], [5, 64, 1]]
    """
    write_text_atomically(path, vllm_config_text(value))


def _drafted(num_speculative_tokens: int | None, schedule: DepthSchedule | None) -> int:
    """The largest number of drafted tokens."""
    nothing = "no speculation is no --speculative-config at all; leave it out"
    if schedule is None:
        if num_speculative_tokens is None or num_speculative_tokens < 1:
            got = "nothing" if num_speculative_tokens is None else num_speculative_tokens
            raise ParameterError("num_speculative_tokens", got, "at least 1", nothing)
        return num_speculative_tokens
    deepest = schedule.max_num_steps
    if deepest == 0:
        raise ParameterError(
            "schedule", "depth 0 at every batch", "one that drafts somewhere", nothing
        )
    if num_speculative_tokens not in {None, deepest}:
        raise ParameterError(
            "num_speculative_tokens",
            num_speculative_tokens,
            f"{deepest}, the largest of the schedule",
            "leave it out",
        )
    return deepest


def _pinned(
    tokens: int,
    schedule: DepthSchedule | None,
    accept_length: float | None,
    full_accuracy: FullAccuracy | None,
) -> dict[str, Any]:
    """Keys of synthetic acceptance."""
    if accept_length is None and full_accuracy is None:
        return {}
    if schedule is not None:
        raise ParameterError(
            "schedule",
            "one with pinned acceptance",
            "left out where acceptance is pinned",
            "measure the cost of one depth at a time",
        )
    if full_accuracy is None:
        assert accept_length is not None  # noqa: S101 - one of the two is given
        return synthetic_settings("vllm", accept_length, tokens).speculative_config
    if accept_length is not None or full_accuracy.num_steps != tokens:
        raise ParameterError(
            "full_accuracy",
            f"{full_accuracy.num_steps} values"
            + (" beside accept_length" if accept_length is not None else ""),
            f"{tokens} values, without accept_length",
        )
    return vllm_synthetic_rates(full_accuracy)
