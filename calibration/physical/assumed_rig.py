"""What is assumed of a rig that a user does not describe: its draft model, a card's usual link."""

from typing import Final

from specmodel.architecture import DenseMlp, GroupedAttention, LatentAttention, ModelShape
from specmodel.hardware import gpu, gpus
from specmodel.rig import DraftPasses, eagle3_passes, mtp_passes
from specmodel.rig.link_prior import link_prior

DRAFT_VOCABULARY: Final = 32_000
"""Reduced vocabulary of an EAGLE-3 head that is not described (judgement). [tokens]"""

DRAFT_WIDTH: Final = 3
"""Width of the feed-forward block of such a head for a mixture of experts, over the hidden size:
MiniMax's is 3, Kimi's 2.6 (judgement). [-]"""


def usual_draft(model: ModelShape, *, eagle3: bool = False) -> tuple[str, DraftPasses]:
    r"""Draft model that is assumed where none is described.

    .. math:: \text{model} \mapsto \text{passes}

    Parameters
    ----------
    model : ModelShape
        The target.
    eagle3 : bool
        Whether it is an EAGLE-3 head even where the model has an MTP layer.

    Returns
    -------
    name : str
        In words.
    passes : DraftPasses

    Raises
    ------
    ParameterError
        If the target has no layer with full attention.

    Notes
    -----
    A judgement: the model's own MTP layer where its release has one; else an EAGLE-3 head with the
    heads of its last layer, or an MTP layer where such a head is not known.

    Examples
    --------
    >>> from specmodel.architecture import preset
    >>> usual_draft(preset("DeepSeek-V3"))[0]
    "the model's own MTP layer"
    """
    if model.mtp_layers and not eagle3:
        return "the model's own MTP layer", mtp_passes(model)
    last = model.layers[-1]
    if not isinstance(last.attention, GroupedAttention | LatentAttention):
        return "an MTP layer like the model's own", mtp_passes(model)
    dense = isinstance(last.mlp, DenseMlp)
    width = last.mlp.width if dense else DRAFT_WIDTH * model.hidden_size
    vocabulary = min(DRAFT_VOCABULARY, model.vocab_size)
    name = "an EAGLE-3 head of the model's width"
    if isinstance(last.attention, LatentAttention):
        return name, eagle3_passes(model, mlp_width=width, vocab_size=vocabulary)
    return name, eagle3_passes(
        model,
        mlp_width=width,
        vocab_size=vocabulary,
        num_heads=last.attention.num_heads,
        num_kv_heads=last.attention.num_kv_heads,
        head_dim=last.attention.head_dim,
    )


def link_class(name: str) -> str:
    r"""Class of the all-reduce prior of a link.

    .. math:: \text{name} \mapsto \text{class}

    Parameters
    ----------
    name : str
        Of the catalogue, or a class.

    Returns
    -------
    str

    Raises
    ------
    UnknownKeyError
        If the name is not known, or its link has no prior.

    Notes
    -----
    As `specmodel.rig.link_prior`.

    Examples
    --------
    >>> link_class("NVLink 4"), link_class("pcie5")
    ('nvlink4', 'pcie5')
    """
    return link_prior(name, 2).interconnect


def card_link(name: str) -> str:
    r"""Link that servers of a card usually have.

    .. math:: \text{card} \mapsto \text{class}

    Parameters
    ----------
    name : str
        GPU of the catalogue.

    Returns
    -------
    str

    Raises
    ------
    UnknownKeyError
        If the GPU is not known.

    Notes
    -----
    A judgement: NVLink with switches from 900 GB/s, and on SXM cards from 600 GB/s; else PCIe.

    Examples
    --------
    >>> card_link("H100"), card_link("RTX 5090"), card_link("B200")
    ('nvlink4', 'pcie5', 'nvlink5')
    """
    card = gpu(name)
    rate = card.nvlink_bytes_per_s or 0.0
    generation = card.pcie_generation or 4
    for least, link in ((1.8e12, "nvlink5"), (9e11, "nvlink4")):
        if rate >= least:
            return link
    if rate >= 6e11 and "SXM" in card.name:
        return "nvlink3"
    return f"pcie{min(max(generation, 3), 5)}"


def edition_of(name: str) -> tuple[str, str]:
    r"""Card of the catalogue; where a name leaves the edition open, the fastest one.

    .. math:: \text{name} \mapsto \text{card}

    Parameters
    ----------
    name : str
        GPU of the catalogue.

    Returns
    -------
    card : str
        A GPU whose bandwidth is known, where any edition's is.
    assumed : str
        What that assumes, in words; empty where the name says it all.

    Raises
    ------
    UnknownKeyError
        If the GPU is not known.

    Notes
    -----
    A judgement: editions differ in bandwidth by little.

    Examples
    --------
    >>> edition_of("RTX PRO 6000")[0], edition_of("H100")
    ('RTX PRO 6000 Blackwell Workstation', ('H100 SXM', ''))
    """
    found = gpu(name)
    if found.memory_bandwidth_bytes_per_s is not None:
        return found.name, ""
    editions = [
        one
        for one in gpus().values()
        if one.name.startswith(found.name) and one.memory_bandwidth_bytes_per_s is not None
    ]
    if not editions:
        return found.name, ""
    fastest = max(editions, key=lambda one: one.bandwidth_bytes_per_s())
    return fastest.name, f"{fastest.name}, since {found.name} leaves the edition open"
