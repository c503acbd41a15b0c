"""Accept lengths against a simulated accept/reject process that shares no code with them."""

import numpy as np
import pytest

from specmodel.acceptance import ConditionalAccuracy

ROUNDS = 60_000


def mean_emitted(conditional: list[float], seed: int) -> float:
    """Tokens per round of a chain: flip until the first rejection, then one bonus token."""
    generator = np.random.default_rng(seed)
    emitted = 0
    for flips in generator.random((ROUNDS, len(conditional))):
        for flip, chance in zip(flips, conditional, strict=True):
            if flip >= chance:
                break
            emitted += 1
        emitted += 1
    return emitted / ROUNDS


@pytest.mark.parametrize(
    "conditional", [[0.742, 0.633, 0.617, 0.517, 0.647], [0.5] * 4, [0.9, 0.95, 0.99], [0.0, 1.0]]
)
def test_chain(conditional: list[float]) -> None:
    expected = ConditionalAccuracy(conditional).accept_length()
    assert mean_emitted(conditional, seed=11) == pytest.approx(expected, abs=0.02)
