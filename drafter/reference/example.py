"""A draft model small enough for examples and tests."""

from drafter.spec import DraftSpec


def example_spec() -> DraftSpec:
    """Shapes with nothing equal that need not be: H, Ht, NH D, I, V and Vd all differ.

    Returns
    -------
    DraftSpec
        Grouped heads, every switch at its default; vary it with `dataclasses.replace`.

    Examples
    --------
    >>> spec = example_spec()
    >>> spec.num_heads * spec.head_dim, spec.hidden_size, spec.target_hidden_size
    (32, 24, 20)
    """
    return DraftSpec(
        hidden_size=24,
        target_hidden_size=20,
        num_aux_states=3,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        mlp_width=40,
        target_vocab_size=61,
        draft_vocab_size=29,
    )
