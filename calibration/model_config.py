"""A model that a user names: a packaged one, or the ``config.json`` in a local folder."""

import json
from pathlib import Path
from typing import Any, Final

from specmodel.architecture import ModelShape, has_preset, preset, shape_from_config
from specmodel.architecture.config_json import parsed_config
from specmodel.errors import FormatError
from specmodel.units import MEBI

MOST_BYTES: Final = 16 * MEBI
"""A larger file is no configuration."""

_CONFIG = "config.json"
_MODELOPT = "hf_quant_config.json"


def named_model(text: str) -> ModelShape:
    r"""Shape of a packaged model or of a local configuration.

    .. math:: \text{name or path} \mapsto \text{shape}

    Parameters
    ----------
    text : str
        Name or alias of a packaged model; else a ``config.json`` or a folder that holds one.

    Returns
    -------
    ModelShape

    Raises
    ------
    UnknownKeyError
        If it is neither a packaged model nor a path that exists.
    FormatError
        If the file is not the configuration of a known architecture.

    Notes
    -----
    A path that exists goes before a name.

    Examples
    --------
    >>> named_model("Qwen/Qwen3-8B").num_layers
    36
    """
    path = Path(text)
    written_as_path = text.endswith(".json") or text.startswith((".", "/", "~"))
    if written_as_path or (_exists(path) and not has_preset(text)) or _exists(path / _CONFIG):
        return read_model_config(path)
    return preset(text)


def read_model_config(path: Path | str) -> ModelShape:
    r"""Shape of a model from its local ``config.json``.

    .. math:: \text{file} \mapsto \text{shape}

    Parameters
    ----------
    path : path
        The file, or the folder that holds it. Stored formats in an ``hf_quant_config.json`` beside
        it are read where the configuration names none.

    Returns
    -------
    ModelShape

    Raises
    ------
    FormatError
        If the file cannot be read, or is not the configuration of a known architecture.

    Notes
    -----
    Nothing is fetched. `specmodel.architecture.config_json` says what is read.

    Examples
    --------
    >>> read_model_config("no/such/folder")
    Traceback (most recent call last):
    ...
    specmodel.errors.FormatError: no/such/folder: cannot be read...
    """
    file = Path(path).expanduser()
    file = file / _CONFIG if file.is_dir() else file
    config = dict(parsed_config(_text(file), path=str(file)))
    beside = file.with_name(_MODELOPT)
    stated = config.get("quantization_config") or _inner(config).get("quantization_config")
    if stated is None and beside.is_file():
        config["quantization_config"] = _modelopt(beside)
    folder = file.parent.name if file.name == _CONFIG else file.stem
    return shape_from_config(config, path=str(file), name=folder)


def _modelopt(file: Path) -> dict[str, Any]:
    """Formats that ModelOpt writes beside a configuration."""
    try:
        found = json.loads(_text(file)).get("quantization")
    except (ValueError, RecursionError, AttributeError):
        found = None
    if not isinstance(found, dict):
        raise FormatError(file, "must be a JSON object with quantization")
    return {"quant_method": "modelopt", **found}


def _inner(config: dict[str, Any]) -> dict[str, Any]:
    """Configuration of the language model inside, or an empty one."""
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else {}


def _text(file: Path) -> str:
    """Text of a file of bounded size."""
    try:
        with file.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "no such file"
        raise FormatError(file, f"cannot be read: {reason}") from None
    if len(data) > MOST_BYTES:
        raise FormatError(file, f"larger than {MOST_BYTES} bytes: not a {_CONFIG}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FormatError(file, f"not UTF-8 text: not a {_CONFIG}") from None


def _exists(path: Path) -> bool:
    """Whether a path exists; one that cannot be a path does not."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
