import csv
import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from drafter.reference.rope import latent_score_factor, rotary_frequencies, rotary_magnitude
from drafter.spec import Rope, RopeKind
from specmodel.errors import ParameterError

TABLE = Path(__file__).parents[2] / "golden" / "drafter" / "rope_frequencies.csv"
NAMES = {
    "rope_type": "kind",
    "rope_theta": "theta",
    "original_max_position_embeddings": "original_max_positions",
}


def published() -> list[tuple[str, list[dict[str, str]]]]:
    """Rows of each case of the table that transformers computed."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        cases: dict[str, list[dict[str, str]]] = {}
        for row in csv.DictReader(file):
            cases.setdefault(f"{row['rope']} {row['context_tokens']}", []).append(row)
    return list(cases.items())


def rope_of(stated: dict[str, Any]) -> Rope:
    return Rope(**{NAMES.get(name, name): value for name, value in stated.items()})


@pytest.mark.parametrize(("name", "rows"), published(), ids=lambda value: str(value)[:90])
def test_frequencies_and_magnitude_are_those_of_transformers(
    name: str, rows: list[dict[str, str]]
) -> None:
    first = rows[0]
    rope = rope_of(json.loads(first["rope"]))
    found = rotary_frequencies(
        rope,
        int(first["rotary_dim"]),
        max_positions=int(first["max_positions"]),
        context_tokens=int(first["context_tokens"]) if first["context_tokens"] else None,
    )
    assert len(rows) == len(found) == 8
    # transformers computes in single precision
    expected = [float(row["frequency_rad_per_token"]) for row in rows]
    assert found.tolist() == pytest.approx(expected, rel=2e-6), name
    assert rotary_magnitude(rope) == pytest.approx(float(first["magnitude"]), rel=1e-11)


def test_the_table_has_every_kind_that_scales() -> None:
    kinds = {json.loads(rows[0]["rope"])["rope_type"] for _, rows in published()}
    assert kinds == {"linear", "dynamic", "llama3", "yarn"}


def test_wavelengths_of_the_default_kind_are_a_geometric_series() -> None:
    wavelengths = 2 * math.pi / rotary_frequencies(Rope(theta=1e4), 8, max_positions=1)
    expected = [2 * math.pi * 10**power for power in (0, 1, 2, 3)]
    assert wavelengths.tolist() == pytest.approx(expected, rel=1e-14)


def test_linear_scaling_is_a_slower_count_of_positions() -> None:
    plain = rotary_frequencies(Rope(), 8, max_positions=1)
    scaled = rotary_frequencies(Rope(kind="linear", factor=4.0), 8, max_positions=1)
    assert torch.equal(4.0 * scaled, plain)


def test_the_dynamic_kind_is_the_default_one_within_the_trained_context() -> None:
    rope = Rope(kind="dynamic", factor=2.0)
    plain = rotary_frequencies(Rope(), 8, max_positions=1)
    for context in (None, 1, 2048):
        found = rotary_frequencies(rope, 8, max_positions=2048, context_tokens=context)
        assert torch.equal(found, plain)


def test_the_slowest_pair_of_the_dynamic_kind_is_stretched_as_far_as_the_context() -> None:
    # theta grows so that pair d/2 - 1 slows down by exactly factor n/n0 - (factor - 1)
    rope = Rope(kind="dynamic", factor=3.0, original_max_positions=1000)
    plain = rotary_frequencies(Rope(), 8, max_positions=1)
    found = rotary_frequencies(rope, 8, max_positions=9999, context_tokens=2500)
    assert float(plain[-1] / found[-1]) == pytest.approx(3.0 * 2.5 - 2.0, rel=1e-13)
    assert float(found[0]) == 1.0


@pytest.mark.parametrize(
    "rope",
    [
        Rope(kind="llama3", factor=8.0, original_max_positions=512),
        Rope(kind="yarn", factor=8.0, original_max_positions=512),
    ],
    ids=["llama3", "yarn"],
)
def test_fast_pairs_stay_and_slow_pairs_are_stretched_by_the_factor(rope: Rope) -> None:
    plain = rotary_frequencies(Rope(), 64, max_positions=1)
    stretch = plain / rotary_frequencies(rope, 64, max_positions=1)
    assert float(stretch[0]) == 1.0
    assert float(stretch[-1]) == pytest.approx(8.0, rel=1e-14)
    assert bool((stretch.diff() >= 0).all())
    assert 2 <= int(((stretch > 1.001) & (stretch < 7.999)).sum()) <= 28


def test_llama3_blends_between_the_stated_numbers_of_turns() -> None:
    rope = Rope(kind="llama3", factor=8.0, original_max_positions=512)
    plain = rotary_frequencies(Rope(), 64, max_positions=1)
    turns = 512 * plain / (2 * math.pi)
    found = rotary_frequencies(rope, 64, max_positions=1)
    assert torch.equal(found[turns > 4], plain[turns > 4])
    assert torch.equal(found[turns < 1], plain[turns < 1] / 8)
    middle = (turns > 1) & (turns < 4)
    assert bool(middle.any())
    blend = (turns[middle] - 1) / 3
    torch.testing.assert_close(
        found[middle], blend * plain[middle] + (1 - blend) * plain[middle] / 8
    )


def test_yarn_without_stretch_is_the_default_kind() -> None:
    rope = Rope(kind="yarn", factor=1.0, original_max_positions=512)
    plain = rotary_frequencies(Rope(), 16, max_positions=1)
    torch.testing.assert_close(rotary_frequencies(rope, 16, max_positions=1), plain)
    assert rotary_magnitude(rope) == 1.0


TENFOLD = Rope(kind="yarn", factor=math.e**10, original_max_positions=512)
"""0.1 ln(factor) is one, so that temperatures can be read off."""


@pytest.mark.parametrize("kind", ["default", "linear", "dynamic"])
def test_kinds_without_a_temperature_have_a_magnitude_of_one(kind: RopeKind) -> None:
    assert rotary_magnitude(Rope(kind=kind, factor=8.0)) == 1.0


def test_a_stated_magnitude_of_yarn_wins() -> None:
    assert rotary_magnitude(TENFOLD) == pytest.approx(2.0)
    assert rotary_magnitude(dataclasses.replace(TENFOLD, attention_factor=1.5)) == 1.5


def test_the_latent_scores_carry_the_temperature_that_the_rotation_leaves_out() -> None:
    # mscale = mscale_all_dim: cosine and sine stay, all of it goes onto the scores
    both = dataclasses.replace(TENFOLD, mscale=1.0, mscale_all_dim=1.0)
    assert rotary_magnitude(both) == 1.0
    assert latent_score_factor(both) == pytest.approx(4.0)
    off = dataclasses.replace(TENFOLD, mscale=1.0, mscale_all_dim=0.0)
    assert rotary_magnitude(off) == pytest.approx(2.0)
    assert latent_score_factor(off) == 1.0


def test_nothing_is_sharpened_where_nothing_is_stretched() -> None:
    shorter = dataclasses.replace(TENFOLD, factor=0.5, mscale_all_dim=1.0)
    assert rotary_magnitude(shorter) == 1.0
    assert latent_score_factor(shorter) == 1.0
    assert latent_score_factor(Rope(factor=4.0, mscale_all_dim=1.0)) == 1.0


@pytest.mark.parametrize("rotary_dim", [0, -2, 7])
def test_a_width_that_has_no_pairs_is_refused(rotary_dim: int) -> None:
    with pytest.raises(ParameterError, match="rotary_dim must be even and positive"):
        rotary_frequencies(Rope(), rotary_dim, max_positions=1)


def test_the_dynamic_kind_needs_more_than_one_pair() -> None:
    with pytest.raises(ParameterError, match="above 2 for the dynamic kind, got 2"):
        rotary_frequencies(Rope(kind="dynamic", factor=2.0), 2, max_positions=1)
