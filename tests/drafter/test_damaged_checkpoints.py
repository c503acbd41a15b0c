"""Whatever is damaged in a checkpoint, it is read or refused in one line; nothing else escapes."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drafter.checkpoint_files import checkpoint_contents, draft_to_target
from drafter.config_json import draft_config
from specmodel.errors import FormatError

Config = Callable[..., dict[str, Any]]

JUNK: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    0.5,
    10**12,
    10**400,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x" * 500,
    [],
    [1],
    ["a"],
    [None],
    {},
    {"a": 1},
    {"rope_type": [], "factor": {}},
)
OTHER_KEYS = (
    *(
        "rope_scaling",
        "rope_parameters",
        "eagle_config",
        "target_hidden_size",
        "num_aux_layers",
        "fc_norm",
    ),
    *(
        "norm_before_fc",
        "bias",
        "attention_bias",
        "sliding_window",
        "layer_types",
        "kv_lora_rank",
        "dtype",
    ),
    *("eagle_aux_hidden_state_layer_ids", "hidden_act", "first_k_dense_replace", "norm_output"),
    *("max_window_layers", "use_sliding_window", "q_lora_rank", "speculators_model_type"),
)


def refusal(read: Callable[[], object]) -> str:
    """The message of a refusal; empty where it was read."""
    try:
        read()
    except FormatError as error:
        return str(error)
    return ""


def one_line(message: str) -> bool:
    return "\n" not in message and len(message) < 1000


@pytest.mark.parametrize("layout", [0, 1], ids=["flat", "speculators"])
def test_junk_in_any_key_is_read_or_refused(configs: tuple[Config, Config], layout: int) -> None:
    sound = configs[layout]()
    for key in (*sound, *OTHER_KEYS):
        for junk in JUNK:
            assert one_line(refusal(partial(draft_config, sound | {key: junk})))
            inner = sound.get("transformer_layer_config")
            if inner is not None:
                changed = sound | {"transformer_layer_config": inner | {key: junk}}
                assert one_line(refusal(partial(draft_config, changed)))


def test_flipped_bytes_anywhere_in_the_files_are_read_or_refused(flat: Callable[..., Path]) -> None:
    folder = flat()
    path = folder / "model.safetensors"
    sound = path.read_bytes()
    header = 8 + int.from_bytes(sound[:8], "little")
    generator = np.random.default_rng(0)
    refused = 0
    for _ in range(400):
        damaged = bytearray(sound)
        damaged[int(generator.integers(0, header))] = int(generator.integers(0, 256))
        path.write_bytes(damaged)
        message = refusal(lambda: draft_to_target(checkpoint_contents(folder)))
        assert one_line(message)
        refused += bool(message)
    assert refused > 200


@pytest.mark.parametrize("junk", JUNK, ids=lambda value: repr(value)[:20])
def test_junk_for_an_entry_of_the_header_is_refused(flat: Callable[..., Path], junk: Any) -> None:
    path = flat() / "model.safetensors"
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    for field in ("dtype", "shape", "data_offsets"):
        changed = header | {"fc.weight": header["fc.weight"] | {field: junk}}
        text = json.dumps(changed).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
        with pytest.raises(FormatError):
            checkpoint_contents(path.parent)
