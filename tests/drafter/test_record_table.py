"""A record as text: what stands in it, and what is said of the bar."""

from dataclasses import replace

import pytest

from drafter.report.record_text import bar_verdict, baseline_verdict, record_json, record_text
from specmodel.measurement import DraftRecord, StepTiming
from tests.specmodel.measurement.example_record import example_record

RECORD = example_record()


def with_step(**changes: float | None) -> DraftRecord:
    step: StepTiming = replace(RECORD.steps[0], **changes)  # type: ignore[arg-type]
    return replace(RECORD, steps=(step,))


def test_every_time_stands_beside_its_floor_in_80_columns() -> None:
    text = record_text(RECORD)
    assert max(map(len, text.splitlines())) <= 80
    line = next(each for each in text.splitlines() if each.split()[:3] == ["1", "8192", "1"])
    assert line.split()[3:6] == ["220", "180", "1.22"]
    assert "4.3 TB/s" in text
    assert "1.98, memory 3.20 GHz" in text
    assert "embed_tokens.weight: random" in text
    assert "linear_matvec_kernel" in text


def test_a_dry_record_says_so_first_and_says_nothing_of_the_bar() -> None:
    text = record_text(replace(RECORD, kind="dry"))
    assert text.splitlines()[0].startswith("DRY RUN")
    assert "a dry run says nothing of the bar" in text
    assert "a dry run says nothing of torch" in text
    assert "Against torch" not in text


@pytest.mark.parametrize(
    ("megabytes", "ratio", "bar", "verdict"),
    [
        (749, 1.35, "1.35", "passed"),
        (749, 1.36, "1.35", "MISSED"),
        (501, 1.5, "1.35", "MISSED"),
        (499, 1.5, "1.6", "passed"),
        (341, 1.61, "1.6", "MISSED"),
    ],
)
def test_large_heads_have_the_stricter_bar(
    megabytes: float, ratio: float, bar: str, verdict: str
) -> None:
    """drafter.md 22: 1.35 from 500 MB on, 1.6 below; weights without the cache of 2048 x 4096 bytes."""
    floor_s = (megabytes * 1e6 + 2048 * 2 * 8 * 128 * 2) / RECORD.read_bandwidth_bytes_per_s
    said = bar_verdict(with_step(floor_s=floor_s, time_s=ratio * floor_s * (1 - 1e-9)))
    assert f"heads of {megabytes} MB is {bar}: {verdict}" in said


def test_heads_that_a_latent_serves_are_not_counted_as_cached() -> None:
    """Kimi heads would be 2048 x 49 kB of keys and values; the latent is 2048 x 1.2 kB."""
    shapes = replace(RECORD.shapes, num_heads=64, num_kv_heads=64, head_dim=192, attention="latent")
    floor_s = (1200e6 + 2048 * 576 * 2) / RECORD.read_bandwidth_bytes_per_s
    record = replace(with_step(floor_s=floor_s, time_s=1.2 * floor_s), shapes=shapes)
    assert "heads of 1202 MB is 1.35: passed" in bar_verdict(record)


def test_the_worst_context_of_batch_1_decides() -> None:
    worse = replace(RECORD.steps[1], time_s=2.0 * RECORD.steps[1].floor_s)
    assert "1.25 to 2.00 times" in bar_verdict(replace(RECORD, steps=(RECORD.steps[0], worse)))


def test_without_a_chain_at_batch_1_nothing_is_said_of_the_bar() -> None:
    assert "no chain at batch 1" in bar_verdict(with_step(batch_size=2))


def test_the_json_is_the_record_with_its_schema() -> None:
    answer = record_json(RECORD)
    assert answer["schema_version"] == 1
    assert answer["steps"][0]["time_s"] == 2.0e-4
    assert "times the floor" in answer["bar"]
    assert answer["against_baseline"] == baseline_verdict(RECORD)
    (first, second) = answer["comparisons"]
    assert first["step_us"] == pytest.approx(200.0)
    assert first["baseline_us"] == pytest.approx(230.0)
    assert (first["verdict"], second["verdict"]) == ("faster", "not separable")


def test_the_baseline_stands_beside_the_step_with_ratio_range_and_verdict() -> None:
    text = record_text(RECORD)
    lines = [each.split() for each in text.splitlines()]
    # 230 over 200; the spreads are 1.2 % and 1 %: 1.15 / 1.022 to 1.15 * 1.022
    assert ["1", "2048", "1", "200", "230", "1.15", "1.13-1.18", "faster"] in lines
    assert ["1", "8192", "1", "220", "221", "1.00", "0.98-1.03", "not", "separable"] in lines
    # what the bars come to stands at the end
    assert text.splitlines()[-1].endswith("1.35: passed")


def test_faster_at_every_load_passes() -> None:
    said = baseline_verdict(with_step(baseline_s=3e-4, baseline_spread=0.0))
    assert said.endswith("chains: passed: at the one load, 1.50 to 1.50 times")


@pytest.mark.parametrize(
    ("baseline_s", "words"),
    [
        (1.9e-4, "MISSED: faster at 0 of 1 loads; slower at batch 1, context 2048 (0.95 times"),
        (2.02e-4, "MISSED: faster at 0 of 1 loads; not separable at batch 1, context 2048 (1.01"),
    ],
)
def test_a_step_that_is_not_faster_misses_in_plain_words(baseline_s: float, words: str) -> None:
    assert words in baseline_verdict(with_step(baseline_s=baseline_s, baseline_spread=0.01))


def test_trees_and_large_batches_are_no_part_of_the_claim() -> None:
    slow = replace(RECORD.steps[0], batch_size=16, baseline_s=1e-4)
    tree = replace(RECORD.steps[0], topk=4, baseline_s=1e-4)
    fast = replace(RECORD.steps[0], batch_size=8)
    said = baseline_verdict(replace(RECORD, steps=(slow, tree, fast)))
    assert "passed: at the one load" in said
    assert "UNKNOWN" in baseline_verdict(replace(RECORD, steps=(slow, tree)))


def test_a_record_without_a_baseline_says_that_nothing_is_known() -> None:
    record = with_step(baseline_s=None, baseline_spread=None)
    assert "UNKNOWN: no such load has a baseline" in baseline_verdict(record)
    assert "Against torch" not in record_text(record)
