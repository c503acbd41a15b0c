"""What vLLM reads, and the settings by which engines accept a stated number of tokens."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from calibration.tune.depth_by_batch import DepthSchedule
from specmodel.acceptance import FullAccuracy
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

    vLLM goes on with the last K above the last range: limit ``--max-num-seqs`` to its end. There is no
    context in it: make one schedule per context and say which.
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

    No speculation is no ``--speculative-config`` at all. ``num_speculative_tokens`` is the largest K of a
    schedule: vLLM cuts the others to it.
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
    """Return a configuration or a schedule as JSON, on one line."""
    return json.dumps(value) + "\n"


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


ENGINES: Final = ("atom", "sglang", "tensorrt_llm", "vllm")
"""Engines whose acceptance can be pinned."""

_DIGITS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticSettings:
    """How an engine is told to accept a given number of tokens per round.

    Points measured so are sound for cost and void for acceptance: keep them apart, and never use
    what the server writes.
    """

    engine: str
    environment: dict[str, str]
    arguments: tuple[str, ...]
    speculative_config: dict[str, Any]


def synthetic_settings(engine: str, accept_length: float, num_steps: int) -> SyntheticSettings:
    """Settings that make an engine emit an accept length per round on average.

    All but TensorRT-LLM count the bonus token; TensorRT-LLM counts accepted draft tokens, and its 0
    turns the setting off, so that accept length 1 cannot be pinned there. SGLang's token mode is set
    because its default writes one fixed token, which some clients hold back to the end and then
    cannot time.
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
    """Return the keys that make vLLM accept with a given full accuracy at each depth."""
    return {
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": full_accuracy.values.tolist(),
    }


def synthetic_text(settings: SyntheticSettings) -> str:
    """Return the settings as lines of a shell file or of an argument list."""
    lines = [f"export {name}={value}" for name, value in settings.environment.items()]
    if settings.arguments:
        lines.append(" ".join(settings.arguments))
    if settings.speculative_config:
        lines.append(json.dumps(settings.speculative_config))
    return "\n".join(lines) + "\n"


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
