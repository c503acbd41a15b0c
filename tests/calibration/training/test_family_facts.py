import json
from pathlib import Path

import pytest

from calibration.training.family_facts import (
    FAMILIES,
    OPEN_FAMILY,
    Aggregation,
    Bonus,
    accept_length_bonus,
    accept_length_with_bonus,
    family_facts,
)

FIXTURES = Path(__file__).parents[2] / "fixtures" / "training"

HINTS = {  # what the readers see in these files
    "S2": {"global_step"},
    "spec_07_wide.log": {"global_step", "profile"},
    "spec_dflash_wide.log": {"global_step", "profile"},
    "spec_dflash_09_eal_bonus.log": {"global_step", "profile", "profile_late"},
    "bad_08_key_order_and_extra.log": {"global_step", "error_records"},
    "specforge_2026_step_lines.log": {"acceptance_rate"},
    "specforge_cutover_dict.log": {"acceptance_rate"},
    "specforge_tqdm_cr.log": {"acceptance_rate"},
}
EXPECTED = {
    path.name.removesuffix(".expected.json"): json.loads(path.read_text(encoding="utf-8"))
    for path in sorted(FIXTURES.glob("*.expected.json"))
}
WITH_FACTS = [name for name, expected in EXPECTED.items() if "kinds" in expected]


@pytest.mark.parametrize("name", WITH_FACTS)
def test_facts_are_those_of_the_fixture(name: str) -> None:
    expected = EXPECTED[name]
    formats = expected["formats"]
    hints = HINTS.get(name, HINTS["S2"] if "S2" in formats else set())
    facts = family_facts(
        expected["family"], formats=formats, hints=hints, kinds=set(expected["kinds"].values())
    )
    found = (facts.framework, facts.versions, facts.feeding, facts.oov)
    assert found == tuple(expected[key] for key in ("framework", "versions", "feeding", "oov"))
    assert facts.kinds == expected["kinds"]


@pytest.mark.parametrize(
    ("formats", "hints", "versions", "oov"),
    [
        (["F1"], set(), "2025-07", "hit"),
        (["F2"], set(), "2025-11 to 2026-03", "hit"),
        (["F2"], {"acceptance_rate"}, "2026-03 to 2026-07", "miss"),
        (["F3"], set(), "2025-09 to 2026-03", "hit"),
        (["F2", "F3"], {"acceptance_rate"}, "2026-03 to 2026-07", "miss"),
        (["F3", "F4"], set(), ">=2026-07-14", "miss"),
    ],
)
def test_dates_of_specforge_say_what_a_token_outside_the_vocabulary_counts_as(
    formats: list[str], hints: set[str], versions: str, oov: str
) -> None:
    facts = family_facts("specforge", formats=formats, hints=hints, kinds={"marginal"})
    assert (facts.versions, facts.oov, facts.feeding) == (versions, oov, "data")


@pytest.mark.parametrize(
    ("formats", "hints", "versions", "feeding", "aggregation"),
    [
        (["S1"], set(), "0.3-0.4", "own", Aggregation.MACRO),
        (["S2", "S4"], {"global_step"}, "0.5-0.6", "own", Aggregation.UNKNOWN),
        (["S3"], {"global_step", "profile"}, ">=0.7", "data", Aggregation.MICRO),
        (["S3"], {"global_step", "profile", "error_records"}, ">=0.8", "data", Aggregation.MICRO),
        (["S5"], set(), "unknown", "unknown", Aggregation.UNKNOWN),
        (["S6"], set(), "unknown", "unknown", Aggregation.UNKNOWN),
    ],
)
def test_eras_of_speculators_say_which_token_is_fed(
    formats: list[str], hints: set[str], versions: str, feeding: str, aggregation: Aggregation
) -> None:
    facts = family_facts("speculators-eagle3", formats=formats, hints=hints, kinds={"joint"})
    assert (facts.versions, facts.feeding, facts.aggregation) == (versions, feeding, aggregation)
    assert facts.kinds == {"full_acc_k": "joint"}


def test_the_mean_is_named_only_where_nothing_is_known_by_depth() -> None:
    both = family_facts("specforge", formats=["F4"], hints=(), kinds={"marginal", "mean-marginal"})
    mean = family_facts("specforge", formats=["F3"], hints=(), kinds={"mean-marginal"})
    assert (both.kinds, mean.kinds) == ({"acc_k": "marginal"}, {"acc": "mean-marginal"})


def test_an_open_family_names_both_projects() -> None:
    facts = family_facts("eagle3", formats=["E1"], hints={OPEN_FAMILY}, kinds={"marginal"})
    assert facts.framework == "EAGLE-3 or SpecForge"


def test_accuracies_among_the_first_k_are_named_as_such() -> None:
    facts = family_facts("hf-trainer", formats=["H1"], hints={"top_k_acc"}, kinds={"marginal"})
    assert facts.kinds == {"top_k_acc": "marginal"}


@pytest.mark.parametrize("family", FAMILIES)
def test_all_families_have_facts(family: str) -> None:
    assert family_facts(family, formats=[], hints=[], kinds=[]).kinds == {}


@pytest.mark.parametrize(
    ("family", "key", "bonus"),
    [
        ("specforge", "simulated_acc_len", "no"),
        ("specforge", "accept_len", "yes"),
        ("torchspec", "sim_acc_len", "no"),
        ("torchspec", "acc_len", "no"),
        ("modelopt", "estimated_training_ar", "yes"),
        ("modelopt", "AR", "measured"),
        ("automodel", "tau_sim", "yes"),
        ("automodel", "tau_real", "yes"),
        ("deepspec", "tau_greedy", "yes"),
        ("speculators-block", "accept_len", "yes"),
        ("specforge", "something_else", "unknown"),
    ],
)
def test_conventions_of_printed_accept_lengths(family: str, key: str, bonus: str) -> None:
    assert accept_length_bonus(family, key, value=1.5) == bonus


@pytest.mark.parametrize(
    ("versions", "value", "chain", "bonus"),
    [
        (">=0.9", 1.6, 1.5, "yes"),  # the version says it
        ("0.5-0.6", 2.6, 1.5, "no"),
        (">=0.7", 2.41, 1.5, "yes"),  # at least 1 + S - 0.1
        (">=0.7", 2.39, 1.5, "unknown"),
        (">=0.7", 1.84, 1.5, "no"),  # within 0.35 of S
        (">=0.8", 1.16, 1.5, "no"),
        ("unknown", 1.86, 1.5, "unknown"),
        ("unknown", 1.1, 1.5, "unknown"),
        ("unknown", 2.5, None, "unknown"),
    ],
)
def test_the_convention_of_eal_follows_from_the_version_or_the_positions(
    versions: str, value: float, chain: float | None, bonus: str
) -> None:
    found = accept_length_bonus(
        "speculators-block", "eal", versions=versions, value=value, chain=chain
    )
    assert found == bonus


def test_the_bonus_token_is_added_where_it_lacks() -> None:
    added = [accept_length_with_bonus(1.5, bonus) for bonus in Bonus]
    assert added == [1.5, 2.5, 1.5, None]
