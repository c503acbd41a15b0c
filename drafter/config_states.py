"""Which states of the target a draft model fuses, and what the list of their layers means."""

from typing import Final

from drafter.config_fields import DraftFields, agreed_flag, optional_flag

USUAL_NUM_STATES: Final = 3
"""Captured states where a file lists none: those entering layers 2, L/2 and L - 3."""

_IDS: Final = "eagle_aux_hidden_state_layer_ids"
_COUNTS: Final = ("num_aux_hidden_states", "num_aux_layers")

OUTPUT_IDS_NOTE: Final = (
    "the layer ids mean the outputs of these layers in SpecForge and SGLang; vLLM takes a list as the "
    "states entering them, one layer earlier"
)
"""Said of an explicit list in the flat layout."""

ENTERING_IDS_NOTE: Final = "the layer ids mean the states entering these layers"
"""Said of an explicit list in the speculators layout."""


def aux_layer_ids(fields: DraftFields, section: DraftFields) -> tuple[int, ...] | None:
    r"""Layers of the target whose states are captured; None where the file lists none.

    .. math:: \text{config} \mapsto (l_1, \ldots, l_A)

    Parameters
    ----------
    fields, section : DraftFields
        The file, and its ``eagle_config``.

    Returns
    -------
    tuple of int or None

    Raises
    ------
    FormatError
        If both list layers, and other ones.

    Notes
    -----
    What a layer id means differs between writers: see `OUTPUT_IDS_NOTE`. It does not change the time.

    Examples
    --------
    >>> nothing = DraftFields({}, "config.json", "llama")
    >>> inside = DraftFields({"eagle_aux_hidden_state_layer_ids": [1, 46, 90]}, "config.json", "llama")
    >>> aux_layer_ids(nothing, inside)
    (1, 46, 90)
    """
    top, inner = fields.layer_ids(_IDS), section.layer_ids(_IDS)
    if top is not None and inner is not None and top != inner:
        raise fields.refused(
            f"{_IDS} is {list(top)} and in eagle_config {list(inner)}; keep one of them"
        )
    return top if top is not None else inner


def num_aux_states(fields: DraftFields, ids: tuple[int, ...] | None) -> int:
    r"""Number of captured states.

    .. math:: A

    Parameters
    ----------
    fields : DraftFields
        The file.
    ids : tuple of int or None
        Layers that it lists.

    Returns
    -------
    int
        At least 1, [-].

    Raises
    ------
    FormatError
        If the list and a stated number disagree.

    Notes
    -----
    The length of the list, else the stated number, else `USUAL_NUM_STATES`.

    Examples
    --------
    >>> num_aux_states(DraftFields({"num_aux_hidden_states": 5}, "config.json", "llama"), None)
    5
    """
    stated = fields.optional_count(*_COUNTS)
    if ids is not None and stated is not None and stated != len(ids):
        raise fields.refused(
            f"{len(ids)} layer ids, but {stated} captured states; they are one number"
        )
    if ids is not None:
        return len(ids)
    return USUAL_NUM_STATES if stated is None else stated


def use_aux_hidden_state(fields: DraftFields, section: DraftFields) -> bool:
    r"""Whether captured states are fused; else the final state is fed as it is.

    .. math:: \text{config} \mapsto \text{switch}

    Parameters
    ----------
    fields, section : DraftFields
        The file, and its ``eagle_config``.

    Returns
    -------
    bool
        True where the file does not say.

    Raises
    ------
    FormatError
        If both say so, and differ.

    Notes
    -----
    Only heads for short contexts are known to set it to false.

    Examples
    --------
    >>> nothing = DraftFields({}, "config.json", "llama")
    >>> use_aux_hidden_state(nothing, nothing)
    True
    """
    key = "use_aux_hidden_state"
    stated = agreed_flag(
        key,
        (key, optional_flag(fields, key)),
        (f"eagle_config.{key}", optional_flag(section, key)),
        fields=fields,
    )
    return True if stated is None else stated
