"""Tables in the wordings that people paste: read right or asked about, never read wrong.

The tables are drawn from runs that are known, in random wordings and shapes; what must come out is what
went in, to the digits that were printed.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from calibration.readers import Reading, SourceText, points_csv, recognise_file
from calibration.readers.pasted_tables import read, recognise
from specmodel.errors import FormatError
from tests.calibration.mutations import at_most
from tests.extent import extent

NAMES = {
    "k": [
        "k",
        "**k**",
        "`num_speculative_tokens`",
        "Draft depth",
        "Spec tokens",
        "\N{GREEK SMALL LETTER GAMMA}",
        "投机步数",
    ],
    "batch": ["batch", "**Concurrency**", "Batch size", "bs", "并发", "并发数", "Max concurrency"],
    "accept": [
        *("accept length", "**Acceptance length**", "τ", "Mean accept len", "tokens per step"),
        *("emitted per step", "tok/iter", "接受长度", "平均接受长度", "avg. accept length"),
    ],
    "speed": [
        *("tok/s", "**Output tok/s**", "Throughput (tok/s)", "output throughput [tok/s]", "TPS"),
        *("Output token throughput (tok/s) ↑", "吞吐 (tok/s)", "tokens/sec", "MTP tok/s"),
        *("Speculative decoding tok/s", "tok/s (with EAGLE3)", "Throughput, tok/s", "tok/s on"),
        *("throughput (MTP)", "Output throughput (EAGLE-3) [tok/s]", "with MTP: tok/s"),
    ],
    "baseline": [
        *("baseline tok/s", "plain tok/s", "no-spec tok/s", "tok/s (off)", "Baseline (tok/s)"),
        *(
            "vanilla throughput (tok/s)",
            "基线吞吐 (tok/s)",
            "tok/s without speculation",
            "AR tok/s",
        ),
        *("throughput (baseline)", "Output throughput (plain) [tok/s]", "w/o MTP: tok/s"),
    ],
    "speedup": ["Speedup", "speed-up", "加速比", "**Speedup (x)**"],
}
DISTRACTORS = {
    "Total token throughput (tok/s)": lambda c: f"{c.uniform(900, 9000):.1f}",
    "Request throughput (req/s)": lambda c: f"{c.uniform(0.2, 9):.2f}",
    "prefill tok/s": lambda c: f"{c.uniform(900, 9000):.0f}",
    "P99 TPOT (ms)": lambda c: f"{c.uniform(9, 50):.2f}",
    "peak tok/s": lambda c: f"{c.uniform(900, 9000):.0f}",
    "GPU util": lambda c: f"{c.randrange(50, 99)}%",
    "tok/s (prefill)": lambda c: f"{c.uniform(900, 9000):.0f}",
    "E2E (s)": lambda c: f"{c.uniform(1, 20):.2f}",
    "Latency (ms)": lambda c: f"{c.uniform(900, 9000):.0f}",
    "GSM8K score": lambda c: f"{c.uniform(50, 99):.1f}",
}
MISSING = ["", "-", "\N{EN DASH}", "n/a", "N/A", "—"]


@dataclass(frozen=True)
class Run:
    """What a table was drawn from; a baseline has no accept length."""

    k: int
    batch: int
    accept: float | None
    speed: float
    baseline: float | None = None
    speedup: float | None = None


def drawn(chance: random.Random) -> list[Run]:
    """Runs of one system: depths or batches, with their baselines by column, row or ratio."""
    by = chance.choice(["column", "speedup", "row"])
    runs = []
    for place in range(chance.randrange(1, 5)):
        k, batch = 1 + place, 2**place
        accept = round(1 + k * chance.uniform(0.3, 0.95), 2)
        baseline = round(chance.uniform(40, 2500), 1)
        speed = round(baseline * chance.uniform(0.8, 2.4), 1)
        if by == "row":
            runs.append(Run(0, batch, None, baseline))
        runs.append(
            Run(
                k,
                batch,
                accept,
                speed,
                baseline if by == "column" else None,
                round(speed / baseline, 2) if by == "speedup" else None,
            )
        )
    return runs


def dress(chance: random.Random, text: str, units: list[str]) -> str:
    """A number as somebody writes it into a table."""
    unit = chance.choice([*units, "", "", ""])
    remark = chance.choice(["", "", "", "", " (best)"])
    mark = chance.choice(["{}", "{}", "{}", "**{}**", "~{}", "`{}`"])
    return mark.format(text + unit) + (remark if mark == "{}" else "")


def grouped(chance: random.Random, value: float) -> str:
    """A throughput, its thousands grouped or not."""
    return chance.choice([f"{value:.1f}", f"{value:,.1f}"])


def cells_of(chance: random.Random, runs: list[Run]) -> dict[str, list[str]]:
    """The columns of a table by heading, in a random order."""
    heading = {name: chance.choice(names) for name, names in NAMES.items()}
    empty = chance.choice(MISSING)
    columns = {
        heading["k"]: [str(run.k) for run in runs],
        heading["batch"]: [str(run.batch) for run in runs],
        heading["accept"]: [
            empty if run.accept is None else dress(chance, f"{run.accept:.2f}", [" tokens", " tok"])
            for run in runs
        ],
        heading["speed"]: [
            dress(chance, grouped(chance, run.speed), [" tok/s", " t/s", " tokens/s"])
            for run in runs
        ],
    }
    if any(run.baseline for run in runs):
        columns[heading["baseline"]] = [
            dress(chance, grouped(chance, run.baseline or 0), [" tok/s"]) for run in runs
        ]
    if any(run.speedup for run in runs):
        columns[heading["speedup"]] = [said_speedup(chance, run.speedup or 0) for run in runs]
    for name in chance.sample(sorted(DISTRACTORS), chance.randrange(3)):
        columns[name] = [DISTRACTORS[name](chance) for _ in runs]
    names = list(columns)
    chance.shuffle(names)
    return {name: columns[name] for name in names}


def said_speedup(chance: random.Random, speedup: float) -> str:
    """A speed-up as a factor or as a gain."""
    percent = f"{(speedup - 1) * 100:+.0f}%"
    return chance.choice(
        [f"{speedup:.2f}x", f"{speedup:.2f}\N{MULTIPLICATION SIGN}", f"{speedup:.2f}", percent]
    )


def barred(rows: list[list[str]]) -> str:
    rule = ["---"] * len(rows[0])
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]])


def bare(rows: list[list[str]]) -> str:
    rows = [[cell or "-" for cell in row] for row in rows]  # a bar in front would be a border
    rule = ["---"] * len(rows[0])
    return "\n".join(" | ".join(row) for row in [rows[0], rule, *rows[1:]])


def boxed(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["│ " + " │ ".join(map(str.ljust, row, widths)) + " │" for row in rows]
    rule = "├" + "┼".join("─" * (width + 2) for width in widths) + "┤"
    return "\n".join([rule.replace("├", "┌"), lines[0], rule, *lines[1:], rule.replace("├", "└")])


def gridded(rows: list[list[str]]) -> str:
    rule = "+".join(["", *("-" * (len(cell) + 2) for cell in rows[0]), ""])
    return f"\n{rule}\n".join(["", *(f"| {' | '.join(row)} |" for row in rows), ""])


def aligned(rows: list[list[str]]) -> str:
    rows = [[cell or "-" for cell in row] for row in rows]
    widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
    return "\n".join("".join(map(str.ljust, row, widths)).rstrip() for row in rows)


SHAPES: list[Callable[[list[list[str]]], str]] = [barred, bare, boxed, gridded, aligned]


def page(chance: random.Random, columns: dict[str, list[str]]) -> str:
    """A page with the table, upright or on its side, in one of the shapes."""
    rows = [list(columns), *map(list, zip(*columns.values(), strict=True))]
    if chance.random() < 0.3:
        corner = chance.choice(["Metric", "", "指标", "config"])
        labels = [chance.choice(["run {}", "#{}", "v{}"]).format(i) for i in range(len(rows) - 1)]
        turned = list(map(list, zip(*rows, strict=True)))
        rows = [[corner, *labels], *turned]
    before = chance.choice(["", "Results on one card, same prompts:\n\n", "## Bench\n\n"])
    after = chance.choice(["", "\n\nHope that helps | thanks\n", "\n\n- batch 1 is best\n"])
    return before + chance.choice(SHAPES)(rows) + after


def reading(text: str) -> Reading:
    return read(SourceText(path=Path("paste.md"), text=text, encoding="utf-8"))


@pytest.mark.parametrize("seed", range(extent(test=100, prove=1000)))
def test_a_table_in_any_wording_is_read_as_it_was_meant(seed: int) -> None:
    chance = random.Random(f"pasted {seed}")  # noqa: S311 - the same tables in every run
    runs = drawn(chance)
    text = page(chance, cells_of(chance, runs))
    assert recognise(text), text
    found = reading(text)
    assert found.dropped == (), text
    assert len(found.rows) == len(runs), text
    for run, row in zip(runs, found.rows, strict=True):
        expected = {"num_steps": run.k, "batch_size": run.batch, "output_tokens_per_s": run.speed}
        if run.accept is not None:
            expected["accept_length"] = run.accept
        if run.baseline is not None:
            expected["baseline_tokens_per_s"] = run.baseline
        told = {name: row.cells.get(name) for name in expected}
        assert told == pytest.approx(expected, rel=1e-9), text
        if run.speedup is not None:
            baseline = row.cells["baseline_tokens_per_s"]
            assert isinstance(baseline, float)
            assert run.speed / baseline == pytest.approx(run.speedup, abs=0.006), text
        assert set(row.cells) <= {*expected, "baseline_tokens_per_s", "baseline_origin"}, text


FORMULAS: list[Callable[[float, int], float]] = [
    lambda r, k: 1 + k * r,
    lambda r, _: 1 / (1 - r),
    lambda r, k: (k + 1) * r,
    lambda r, k: (1 - r ** (k + 1)) / (1 - r),
]


@pytest.mark.parametrize("seed", range(extent(test=40, prove=400)))
def test_rates_are_read_as_they_were_meant_or_asked_about(seed: int) -> None:
    chance = random.Random(f"rates {seed}")  # noqa: S311 - the same tables in every run
    formula = chance.choice(FORMULAS)
    truth: dict[float, float] = {}
    rows = ["| k | acceptance rate | tokens/step | tok/s |", "|---|---|---|---|"]
    while len(truth) < 3:
        k, rate = chance.randrange(1, 8), round(chance.uniform(0.3, 0.9), 3)
        accept_length = formula(rate, k)
        if not 1.1 < accept_length < k + 1:
            continue
        speed = 100.0 + len(truth)
        truth[speed] = accept_length
        told = f"{accept_length:.2f}" if chance.random() < 0.5 else ""
        rows.append(f"| {k} | {rate * 100:.1f}% | {told} | {speed} |")
    text = "\n".join([*rows, ""])
    try:
        found = reading(text)
    except FormatError as error:
        if "can mean several things" not in str(error):
            raise
        return
    assert {one.code for one in found.dropped} <= {"open_meaning"}, text
    for row in found.rows:
        expected = truth[float(str(row.cells["output_tokens_per_s"]))]
        assert row.cells["accept_length"] == pytest.approx(expected, rel=0.003, abs=0.005), text


def table(*rows: str) -> str:
    first, *others = rows
    return "\n".join([first, "|---" * (first.count("|") - 1) + "|", *others, ""])


def question(text: str) -> str:
    with pytest.raises(FormatError) as raised:
        reading(text)
    assert raised.value.code == "no_points"
    return str(raised.value)


def test_repeats_in_a_cell_are_runs_of_their_own() -> None:
    found = reading(
        table(
            "| **k** | tok/s (run 1 / 2) | emitted per step | plain tok/s |",
            "| 3 | 90 / 92 | 2.4 / 2.4 | 60 |",
        )
    )
    cells = [(row.cells["output_tokens_per_s"], row.cells["accept_length"]) for row in found.rows]
    assert cells == [(90, 2.4), (92, 2.4)]
    assert {row.cells["baseline_tokens_per_s"] for row in found.rows} == {60}


def test_two_numbers_that_are_no_repeats_are_asked_about() -> None:
    text = table("| k | tok/s | accept length |", "| 3 | 90 / 60 | 2.4 |")
    assert "no repeats of one run (tok/s)" in question(text)


def test_an_acceptance_rate_alone_is_asked_about_with_what_each_meaning_gives() -> None:
    text = table("| k | accept rate | tok/s | baseline |", "| 3 | 60% | 90 | 60 |")
    said = question(text)
    for accept_length in (
        1 + 3 * 0.6,  # accepted of drafted tokens
        1 / (1 - 0.6),  # of emitted ones
        4 * 0.6,  # emitted of verified ones
        1 + 0.6 + 0.6**2 + 0.6**3,  # chance of each next draft token
    ):
        assert f"= {accept_length:.2f})" in said
    without_depth = table("| accept rate | tok/s | baseline |", "| 60% | 90 | 60 |")
    assert "1 / (1 - r) = 2.50" in question(without_depth)


@pytest.mark.parametrize(
    ("name", "accept_length"),
    [
        ("accept rate (accepted/drafted)", 2.8),
        ("draft acceptance rate", 2.8),
        ("accepted_per_emitted", 2.5),
        ("emitted per verified", 2.4),
        ("conditional acceptance rate", 2.176),
    ],
)
def test_a_rate_that_says_what_it_counts_is_read(name: str, accept_length: float) -> None:
    found = reading(table(f"| k | {name} | tok/s | baseline |", "| 3 | 60% | 90 | 60 |"))
    assert found.rows[0].cells["accept_length"] == pytest.approx(accept_length)


def test_a_second_column_decides_what_a_rate_means() -> None:
    found = reading(
        table(
            "| k | accept rate | tok/iter | tok/s | baseline |",
            "| 3 | 60% | 2.5 | 90 | 60 |",
            "| 4 | 65% | | 95 | 60 |",
        )
    )
    assert found.rows[1].cells["accept_length"] == pytest.approx(1 / (1 - 0.65))
    assert [note.lines for note in found.warnings if "rate" in note.code] == [(4,)]


@pytest.mark.parametrize(("accepted", "accept_length"), [("0.8", 1.8), ("1.4", None)])
def test_accepted_tokens_may_hold_the_bonus_token(
    accepted: str, accept_length: float | None
) -> None:
    text = table("| k | accepted per step | tok/s | base |", f"| 3 | {accepted} | 90 | 60 |")
    if accept_length is None:
        assert "= 2.40)" in question(text)
        assert "= 1.40)" in question(text)
    else:  # below 1 it does not
        assert reading(text).rows[0].cells["accept_length"] == pytest.approx(accept_length)


def test_runs_as_columns_say_their_depth_or_that_they_draft_nothing() -> None:
    depths = range(1, 8)
    found = reading(
        table(
            "| | off | " + " | ".join(f"k={k}" for k in depths) + " |",
            "| tok/s | 60 | " + " | ".join(f"{60 + 8 * k}" for k in depths) + " |",
            "| acceptance length | | " + " | ".join(f"{1 + 0.5 * k}" for k in depths) + " |",
        )
    )
    cells = [row.cells for row in found.rows]
    assert [cell["num_steps"] for cell in cells] == list(range(8))
    assert [cell["output_tokens_per_s"] for cell in cells] == [60 + 8 * k for k in range(8)]
    assert [cell["accept_length"] for cell in cells[1:]] == [1 + 0.5 * k for k in depths]


def test_columns_of_several_runs_are_rows_of_their_own() -> None:
    found = reading(
        table(
            "| batch | tok/s (k=1) | τ (k=1) | tok/s (k=3) | τ (k=3) | plain tok/s |",
            "| 4 | 110 | 1.7 | 130 | 2.4 | 90 |",
        )
    )
    told = [
        (row.cells["num_steps"], row.cells["output_tokens_per_s"], row.cells["accept_length"])
        for row in found.rows
    ]
    assert told == [(1, 110, 1.7), (3, 130, 2.4)]
    assert {row.cells["baseline_tokens_per_s"] for row in found.rows} == {90}


def test_a_remark_behind_a_throughput_gives_the_baseline() -> None:
    found = reading(table("| k | tok/s | accept len |", "| 3 | 185.2 (1.58x) | 2.4 |"))
    assert found.rows[0].cells["baseline_tokens_per_s"] == pytest.approx(185.2 / 1.58)


def test_percent_without_a_sign_may_be_of_or_above_the_baseline() -> None:
    text = table("| k | tok/s | accept len | speedup |", "| 3 | 90 | 2.4 | 150% |")
    assert "that much of the baseline or that much more" in question(text)


def test_rates_of_one_user_stay_rates_of_one_user() -> None:
    for heading, cell in (("tok/s/user", "90"), ("per-user tok/s", "90"), ("TPS", "90 tok/s/user")):
        found = reading(table(f"| bs | {heading} | τ |", f"| 8 | {cell} | 2.4 |"))
        assert found.rows[0].cells["throughput_scope"] == "per_user"


def test_times_per_token_are_rates_of_decoding_for_one_user() -> None:
    found = reading(
        table("| k | bs | TPOT (ms) | baseline TPOT (ms) | τ |", "| 3 | 8 | 12.5 | 20 | 2.4 |")
    )
    cells = found.rows[0].cells
    assert cells["output_tokens_per_s"] == pytest.approx(80)
    assert cells["baseline_tokens_per_s"] == pytest.approx(50)
    assert (cells["throughput_scope"], cells["throughput_origin"]) == ("per_user", "step_time")


@pytest.mark.parametrize(
    "text",
    [
        table("| size | time (us) | algbw |", "| 8 | 9.1 | 2.3 |"),
        table("| model | score | rank |", "| Wren | 71.2 | 3 |"),
        table("| k | accept length | latency |", "| 3 | 2.4 | 12 |"),
        "words | and more words\nand other | words\n",
        "name      what it is\nk         the depth\ntok/s     a speed\n",
    ],
)
def test_other_tables_are_not_recognised(text: str) -> None:
    assert not recognise(text)


def test_llama_bench_is_a_baseline_of_one_request() -> None:
    found = reading(
        table(
            "| model | params | backend | ngl | test | t/s |",
            "| llama 7B Q4_0 | 6.74 B | CUDA | 99 | pp512 | 2368.10 ± 9.00 |",
            "| llama 7B Q4_0 | 6.74 B | CUDA | 99 | tg128 | 131.42 ± 0.52 |",
            "| llama 7B Q4_0 | 6.74 B | CUDA | 99 | tg128 @ d4096 | 110.02 ± 1.10 |",
        )
    )
    assert [one.code for one in found.dropped] == ["prefill_row"]
    assert [row.cells["output_tokens_per_s"] for row in found.rows] == [131.42, 110.02]
    assert [row.cells.get("context_tokens") for row in found.rows] == [None, 4096]
    assert found.rows[0].cells["spread"] == pytest.approx(0.52 / 131.42)
    for row in found.rows:
        assert (row.cells["num_steps"], row.cells["batch_size"]) == (0, 1)
        assert row.cells["throughput_origin"] == "step_time"


def test_the_name_of_a_run_says_its_depth_or_that_it_drafts_nothing() -> None:
    found = reading(
        table("| mode | tok/s | τ |", "| no spec | 60 | - |", "| EAGLE3 (k=3) | 92 | 2.4 |")
    )
    told = [(row.cells["num_steps"], row.cells["output_tokens_per_s"]) for row in found.rows]
    assert told == [(0, 60), (3, 92)]


def test_columns_by_position_are_joint_or_conditional_as_the_accept_length_says() -> None:
    header = "| k | acc pos 1 | acc pos 2 | acc pos 3 | tok/s | tau | plain tok/s |"
    found = reading(
        table(
            header,
            "| 3 | 0.8 | 0.7 | 0.6 | 97.2 | 2.70 | 60 |",  # joint: 3.10; conditional: 2.696
            "| 3 | 0.9 | 0.5 | 0.4 | 97.9 | | 60 |",
        )
    )
    assert found.rows[1].cells["accept_length"] == pytest.approx(1 + 0.9 + 0.9 * 0.5 * (1 + 0.4))
    said = question(table(header, "| 3 | 0.8 | 0.7 | 0.6 | 97.2 | | 60 |"))
    assert "= 3.10)" in said
    assert "= 2.70)" in said


def test_a_time_per_token_beside_a_throughput_does_not_make_it_one_of_a_user() -> None:
    found = reading(table("| bs | tok/s | TPOT (ms) | tau |", "| 8 | 800 | 9.67 | 2.4 |"))
    assert found.rows[0].cells["output_tokens_per_s"] == 800
    assert "throughput_scope" not in found.rows[0].cells


def test_a_column_that_only_names_its_run_is_of_what_the_other_run_is() -> None:
    found = reading(table("| k | tok/s | base | tau |", "| 3 | 90 | 60 | 2.4 |"))
    assert found.rows[0].cells["baseline_tokens_per_s"] == 60
    text = table("| k | tok/s | base | tau |", "| 3 | 90 | Wren-8B | 2.4 |")
    assert "baseline_tokens_per_s" not in reading(text).rows[0].cells


def test_a_table_of_a_blog_with_its_gain_and_an_acceptance_that_is_not_needed() -> None:
    found = reading(
        table(
            "| Config | Prompt | Tokens/s | Acceptance | Mean accepted len | Δ vs baseline |",
            "| Baseline (no draft) | code | 54.2 | — | — | — |",
            "| EAGLE-3, k=2 | code | 92.3 | 71.2% | 2.42 | +70.3% |",
        )
    )
    plain, drafted = (row.cells for row in found.rows)
    assert (plain["num_steps"], plain["output_tokens_per_s"]) == (0, 54.2)
    assert (drafted["num_steps"], drafted["accept_length"]) == (2, 2.42)
    assert drafted["baseline_tokens_per_s"] == pytest.approx(92.3 / 1.703)


def test_what_is_nearly_a_table_of_points_is_told_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "paste.md"
    path.write_text(table("| tok/s | foo |", "| 90 | 2 |"))
    with pytest.raises(FormatError, match=r"'tok/s' as output_tokens_per_s.* lacks acceptance"):
        recognise_file(path)


def test_columns_that_were_not_understood_are_named_where_no_row_is_left() -> None:
    text = "tau,k,how fast\n2.4,3,90\n"
    with pytest.raises(FormatError, match=r"no throughput.*'how fast' is not known"):
        points_csv.read(SourceText(path=Path("cols.csv"), text=text, encoding="utf-8"))


@pytest.mark.parametrize("title", ["Baseline:", "**Without speculation**", "### MTP off", "无投机"])
def test_the_words_above_a_table_say_which_run_it_is(title: str) -> None:
    plain = table("| concurrency | tok/s |", "| 1 | 60 |", "| 8 | 380 |")
    drafted = table(
        "| concurrency | tok/s | accept len |", "| 1 | 92 | 2.41 |", "| 8 | 521 | 2.39 |"
    )
    rows = reading(f"{title}\n\n{plain}\nWith EAGLE-3 (k=3):\n\n{drafted}").rows
    told = [(row.cells["num_steps"], row.cells["output_tokens_per_s"]) for row in rows]
    assert told == [(0, 60), (0, 380), (3, 92), (3, 521)]


@pytest.mark.parametrize(
    "title", ["No tuning was done:", "Results on one card, no other load", "k = 3 and 5, mixed"]
)
def test_words_that_say_something_else_say_nothing_of_the_runs(title: str) -> None:
    rows = reading(f"{title}\n\n" + table("| bs | tok/s | tau |", "| 1 | 92 | 2.4 |")).rows
    assert "num_steps" not in rows[0].cells


def test_a_table_in_html_is_a_table() -> None:
    cells = [["k", "tok/s", "accept len", "baseline tok/s"], ["3", "92", "<b>2.4</b>", "60"]]
    rows = "\n".join(
        f"<tr align='left'>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in cells
    )
    found = reading(f"<table>\n{rows}\n</table>\n").rows[0].cells
    assert (found["num_steps"], found["accept_length"]) == (3, 2.4)
    assert (found["output_tokens_per_s"], found["baseline_tokens_per_s"]) == (92, 60)


def test_a_printed_data_frame_has_numbers_in_front() -> None:
    rows = reading(
        "    num_steps  accept_length  output_tok_s\n"
        "0           0           1.00          60.1\n"
        "1           3           2.38          93.0\n"
    ).rows
    assert [row.cells["num_steps"] for row in rows] == [0, 3]
    assert [row.cells["output_tokens_per_s"] for row in rows] == [60.1, 93.0]


def test_a_time_per_token_may_stand_in_the_unit() -> None:
    found = reading(
        table(
            "| Batch | AR latency (ms/tok) | Spec latency (ms/tok) | tau |", "| 1 | 20 | 8 | 2.4 |"
        )
    )
    cells = found.rows[0].cells
    assert (cells["output_tokens_per_s"], cells["baseline_tokens_per_s"]) == (125, 50)


def test_decimal_commas_and_grouped_thousands_of_a_page_are_read() -> None:
    found = reading(
        table(
            "| k | tok/s | Akzeptanzlänge | Baseline | Speedup vs AR |",
            "| 2 | 88,5 | 1,92 | 60,1 | 1,47x |",
            "| 4 | 1.031,7 | 2,45 | 601,0 | 1,72x |",
        )
    )
    assert [row.cells["output_tokens_per_s"] for row in found.rows] == [88.5, 1031.7]
    assert [row.cells["accept_length"] for row in found.rows] == [1.92, 2.45]
    assert found.warnings == ()


def test_lines_of_names_and_values_are_rows() -> None:
    found = reading(
        "k=1: tok/s=80.1, accept_len=1.74, baseline=60.0\n"
        "k=3: tok/s=92.0, accept_len=2.40, baseline=60.0\n"
    )
    told = [(row.cells["num_steps"], row.cells["output_tokens_per_s"]) for row in found.rows]
    assert told == [(1, 80.1), (3, 92.0)]
    assert found.rows[1].cells["accept_length"] == 2.4


def test_emitted_and_accepted_tokens_give_the_rounds() -> None:
    """Each round adds one token of the target: 192 emitted and 131 accepted are 61 rounds."""
    found = reading(
        "  code     pred= 192 draft= 186 acc= 131 rate=0.704 tok/s=37.2\n"
        "  explain  pred= 192 draft= 240 acc= 111 rate=0.463 tok/s=28.1\n"
    )
    lengths = [row.cells["accept_length"] for row in found.rows]
    assert lengths == pytest.approx([192 / (192 - 131), 192 / (192 - 111)])
    assert [row.cells["output_tokens_per_s"] for row in found.rows] == [37.2, 28.1]


def test_generated_tokens_are_drafted_or_emitted_ones() -> None:
    text = table("| k | accepted/generated | tok/s |", "| 3 | 50% | 90 |")
    assert "can mean several things" in question(text)


@pytest.mark.parametrize(
    "text",
    [
        "<tr>" * 200_000,
        "a  b\n1  2\n\n" * 40_000,
        "k=1 tok/s=2 x=3\n" * 20_000,
        ",".join(f"column {number} (ms)" for number in range(50_000)),
        "|" * 900_000,
        ("|" + " tok/s |" * 600 + "\n") * 150,
    ],
    ids=["rows of HTML", "tables", "pairs", "columns", "bars", "wide rows"],
)
def test_what_only_looks_like_tables_is_looked_at_in_bounded_time(text: str) -> None:
    with at_most(10):
        assert not points_csv.recognise(text)
        recognise(text)


def test_a_context_in_thousands_is_read() -> None:
    found = reading(table("| ctx | tok/s | tau |", "| 8k | 90 | 2.4 |", "| 100K | 60 | 2.3 |"))
    assert [row.cells["context_tokens"] for row in found.rows] == [8192, 100_000]


def test_two_open_columns_of_which_one_is_decided_are_enough() -> None:
    """Accepted tokens below 1 hold no bonus token: 1.78, and 2.62 at depth 3."""
    found = reading(
        table(
            "| Draft tokens (k) | Mean accepted | Acceptance | TPOT ms | Base TPOT ms |",
            "| 1 | 0.78 | 78% | 8.0 | 12.5 |",
            "| 3 | 1.62 | 54% | 6.25 | 12.5 |",
        )
    )
    assert [row.cells["accept_length"] for row in found.rows] == pytest.approx([1.78, 2.62])
    assert [row.cells["num_steps"] for row in found.rows] == [1, 3]
    assert [row.cells["output_tokens_per_s"] for row in found.rows] == [125, 160]


def test_settings_in_the_name_of_a_run_are_its_own() -> None:
    found = reading(
        table(
            "| Setup | Accept len | Tok/s | vs AR |",
            "| AR | - | 60.2 | 1x |",
            "| EAGLE-3 (steps=5, topk=4) | 2.95 | 104.1 | 1.73x |",
        )
    )
    plain, drafted = (row.cells for row in found.rows)
    assert (plain["num_steps"], plain["output_tokens_per_s"]) == (0, 60.2)
    assert (drafted["num_steps"], drafted["topk"]) == (5, 4)
    assert drafted["baseline_tokens_per_s"] == pytest.approx(104.1 / 1.73)


@pytest.mark.parametrize(
    ("speed", "cells"),
    [("TPOT", ("20 ms", "8 ms")), ("throughput", ("50", "125")), ("decode tok/s", ("50", "125"))],
)
def test_a_run_in_brackets_is_the_run_of_the_column(speed: str, cells: tuple[str, str]) -> None:
    found = reading(
        table(
            f"| bs | {speed} (baseline) | {speed} (k=3) | AL (k=3) |",
            f"| 1 | {cells[0]} | {cells[1]} | 2.4 |",
        )
    )
    assert len(found.rows) == 1
    told = found.rows[0].cells
    assert (told["num_steps"], told["accept_length"]) == (3, 2.4)
    assert (told["output_tokens_per_s"], told["baseline_tokens_per_s"]) == (125, 50)


def test_a_length_of_the_baseline_is_no_accept_length() -> None:
    found = reading(table("| tok/s | tau (baseline) | tau | k |", "| 90 | 1.0 | 2.4 | 3 |"))
    assert found.rows[0].cells["accept_length"] == 2.4


@pytest.mark.parametrize("mark", ["\N{SUPERSCRIPT ONE}", "<sup>1</sup>", "*", "\N{DAGGER}"])
def test_the_mark_of_a_footnote_is_no_digit(mark: str) -> None:
    found = reading(table("| k | tok/s | tau |", f"| 3 | 92{mark} | 2.4{mark} |"))
    assert found.rows[0].cells["output_tokens_per_s"] == 92
    assert found.rows[0].cells["accept_length"] == 2.4


def test_less_time_is_no_speed_up_of_that_much() -> None:
    found = reading(table("| k | bs | TPOT (ms) | tau |", "| 3 | 1 | 10.8 (-35%) | 2.4 |"))
    assert "baseline_tokens_per_s" not in found.rows[0].cells
    found = reading(
        table("| k | tok/s | plain tok/s | tau |", "| 3 | 92 (+53%) | 60 (1.0x) | 2.4 |")
    )
    assert found.rows[0].cells["baseline_tokens_per_s"] == 60
    assert found.warnings == ()


@pytest.mark.parametrize(
    "cell", ["0.71/0.52/0.38", "90-95", "92 vs 60", "2.4/5", "90 or so many", "fast", "1.5x"]
)
def test_a_cell_that_is_no_number_is_not_read_as_one(cell: str) -> None:
    question(table("| k | tok/s | tau |", f"| 3 | {cell} | 2.4 |", f"| 3 | 90 | {cell} |"))


def test_a_rate_above_one_is_asked_about_as_a_length() -> None:
    text = table("| k | accept | tok/s |", "| 3 | 2.31 | 90 |")
    assert "is above 1, so no rate" in question(text)


def test_a_percent_sign_in_the_heading_is_its_unit() -> None:
    found = reading(table("| k | accepted per drafted % | tok/s |", "| 3 | 60 | 90 |"))
    assert found.rows[0].cells["accept_length"] == pytest.approx(1 + 3 * 0.6)
