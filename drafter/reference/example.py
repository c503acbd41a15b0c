"""A draft model small enough for examples and tests."""

from drafter.spec import DraftSpec


def example_spec() -> DraftSpec:
    """Shapes with nothing equal that need not be: H, Ht, NH D, I, V and Vd all differ."""
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
