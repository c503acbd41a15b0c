from calibration.training.lines import CutText
from calibration.training.position_blocks import ACCURACY, LOSS, Block, OpenBlocks, position_lines


def put(blocks: OpenBlocks, text: str, line: int = 1, stream: str = "") -> None:
    for found in position_lines(text):
        blocks.put(line, stream, found)


def test_two_lines_that_nothing_separates_are_two() -> None:
    text = "Eval Epoch [1/10], position 0,  Acc: 0.66Eval Epoch [1/10], position 1,  Acc: 0.6\n"
    assert [(found.position, found.value) for found in position_lines(text)] == [
        (0, 0.66),
        (1, 0.6),
    ]


def test_no_drafter_has_a_million_depths() -> None:
    assert not list(position_lines("Train Epoch [1/10], position 1000000,  Acc: 0.66"))


def test_only_the_end_of_the_file_cuts_a_number() -> None:
    text = "Train Epoch [1/10], position 0,  Acc: 0.6"
    assert len(list(position_lines(text))) == 1
    assert not list(position_lines(CutText(text)))
    assert len(list(position_lines(CutText(text + " ")))) == 1


def test_a_block_that_lacks_a_depth_is_dropped_and_the_next_is_read() -> None:
    taken: list[Block] = []
    dropped: list[Block] = []
    blocks = OpenBlocks(taken.append, dropped.append)
    for epoch, positions in ((1, (0, 2)), (2, (0, 1, 2))):
        for position in positions:
            put(blocks, f"Train Epoch [{epoch}/9], position {position},  Acc: 0.5", epoch)
    blocks.close()
    assert [block.key for block in dropped] == [("Train", 1)]
    assert [block.depths(ACCURACY) for block in taken] == [(0.5, 0.5, 0.5)]


def test_a_crash_within_a_block_does_not_mix_it_with_its_repetition() -> None:
    taken: list[Block] = []
    dropped: list[Block] = []
    blocks = OpenBlocks(taken.append, dropped.append)
    whole = [
        f"Train Epoch [1/9], position {position}, {label}: {{}}.{position}"
        for label in (" Acc", "pLoss")
        for position in (0, 1)
    ]
    for line in whole[:3]:
        put(blocks, line.format(0))
    for line in whole:
        put(blocks, line.format(5))
    blocks.close()
    assert len(dropped) == 1
    assert [(block.depths(ACCURACY), block.depths(LOSS)) for block in taken] == [
        ((5.0, 5.1), (5.0, 5.1))
    ]
