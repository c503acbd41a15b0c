"""Dictionaries taken many at a time are those that are read one by one."""

import random

import pytest

from calibration.training.alike_blocks import AlikeBlocks
from calibration.training.lines import physical_lines
from calibration.training.records import RawLog, Split
from calibration.training.specforge_log import SpecForgeLines
from tests.calibration.training.test_marked_lines import mutated, quickly, slowly
from tests.calibration.training.test_speculators_blocks import as_text
from tests.extent import extent, sample

EVALUATION = "step {}: {{'eval/avg_loss': 1.19, 'eval/per_position_acc': [0.61, nan]}}\n"
BAR = "Training Epoch 0:  5%|# | {}/900 [00:12<10:11, 9.31it/s, loss=1.50, acc=0.51]"
MODELOPT = "Step {} Training Acc: [0.64, 0.60]\n"


def dictionary(
    step: int, chance: random.Random, *, depths: int = 3, rate: str | None = None
) -> str:
    """Return the dictionary of a step; some numbers have exponents, or are not finite."""
    pairs: dict[str, object] = {}
    for depth in range(depths):
        pairs[f"acc_{depth}"] = round(chance.random(), 4)
        pairs[f"ploss_{depth}"] = chance.random() * 3
        pairs[f"acceptance_rate_{depth}"] = round(chance.random(), 2)
    pairs |= {"acc": round(chance.random(), 6), "loss": round(chance.uniform(-1, 9), 4)}
    pairs |= {"grad_norm": 0.5, "lr": chance.choice((1e-4, 3.2e-05)), "note": None}
    if chance.random() < 0.02:
        pairs["loss"] = float("nan")
    text = f"{rate or ''}step {step}: {pairs}\n"
    return text.replace("'note': None", f"'perf/step_time': {chance.choice((1.5, float('nan')))}")


def log_text(chance: random.Random, number: int, prefix: str = "") -> bytes:
    """Return a log of two kinds of dictionaries with other records in between."""
    lines = []
    for step in range(number):
        if chance.random() < 0.03:
            lines.append(EVALUATION.format(step))
        if chance.random() < 0.03:
            lines.append(BAR.format(step) + chance.choice(("\r", "\n", "")))
        if chance.random() < 0.01:
            lines.append(MODELOPT.format(step))
        depths = 3 if step < number // 2 else 5
        lines.append(dictionary(step, chance, depths=depths, rate=prefix))
        if chance.random() < 0.02:
            lines[-1] = lines[-1][:-1] + " took 3 s\n"
    return "".join(lines).encode()


@sample(7)
@pytest.mark.parametrize("size", [700, 20_000, 1 << 22])
@pytest.mark.parametrize(
    "prefix", ["", "[rank1]: ", "2026-05-02 10:11:12 INFO ", "Jan  1 10:00:00 host ", "position 5 "]
)
def test_blocks_give_the_records_of_the_dictionaries(size: int, prefix: str) -> None:
    chance = random.Random(f"{size}{prefix}")  # noqa: S311 - the same in every run
    for _ in range(extent(test=1, prove=4)):
        content = log_text(chance, 300, prefix)
        assert as_text(quickly(content, size)) == as_text(slowly(content, size))
        content = mutated(content, chance)
        assert as_text(quickly(content, size)) == as_text(slowly(content, size))


def test_nearly_all_dictionaries_of_a_long_log_are_taken_in_blocks() -> None:
    chance = random.Random(1)  # noqa: S311
    content = "".join(dictionary(step, chance) for step in range(5000)).encode()
    raw = RawLog()
    specforge = SpecForgeLines(raw)
    blocks = AlikeBlocks(lambda: specforge.learnt(lambda: True))
    left, line = 0, 1
    for start in range(0, len(content), 1 << 18):
        first = content.rfind(b"\n", 0, start) + 1
        last = content.rfind(b"\n", 0, start + (1 << 18)) + 1
        block = content[first:last]
        for at, rest in blocks.rest(line, block):
            left += len(rest)
            for number, stream, text in physical_lines([rest], first_line=at):
                specforge.feed(number, stream, text)
        line += block.count(b"\n")
    assert left < len(content) / 3  # the first block, and what is not finite
    assert len(raw.table("specforge", Split.TRAIN)) == 5000


def test_dictionaries_that_another_family_waits_for_are_left_to_it() -> None:
    chance = random.Random(2)  # noqa: S311
    content = "".join(dictionary(step, chance) for step in range(50)).encode()
    specforge = SpecForgeLines(RawLog())
    for number, stream, text in physical_lines([content]):
        specforge.feed(number, stream, text)
    takes = [False]
    blocks = AlikeBlocks(lambda: specforge.learnt(lambda: takes[0]))
    assert b"".join(rest for _, rest in blocks.rest(1, content)) == content
    takes[0] = True
    assert sum(len(rest) for _, rest in blocks.rest(1, content)) < len(content) / 2
