import re

import pytest

from calibration.training.family_facts import OPEN_FAMILY
from calibration.training.records import PRINTED_NAN, Kind, Split
from tests.calibration.training.fed_lines import fed, marginals, values


def epoch_block(word: str, epoch: int, accuracies: list[str], losses: list[str]) -> str:
    lines = [
        f"{word} Epoch [{epoch}/10], position {i},  Acc: {a}" for i, a in enumerate(accuracies)
    ]
    lines += [f"{word} Epoch [{epoch}/10], position {i}, pLoss: {a}" for i, a in enumerate(losses)]
    return "\n".join(lines) + "\n"


def step_block(step: int, accuracies: list[str], rates: list[str], losses: list[str]) -> str:
    start = f"Eval - Step {step} [{step + 1}/6], position"
    lines = [f"{start} {i},  Acc: {a}" for i, a in enumerate(accuracies)]
    lines += [f"{start} {i},  Acceptance Rate: {a}" for i, a in enumerate(rates)]
    lines += [f"{start} {i}, pLoss: {a}" for i, a in enumerate(losses)]
    return "\n".join(lines) + "\n"


def bar(counter: int, shown: str, *, epoch: int = 0, end: str = "]") -> str:
    return (
        f"Training Epoch {epoch}:  12%|█▏   | {counter}/1000 [02:02<15:00,  1.00s/it, {shown}{end}"
    )


# F1


def test_epoch_blocks_with_eval_are_specforge() -> None:
    raw = fed(
        epoch_block("Train", 1, ["0.66", "0.61"], ["1.02", "1.21"])
        + epoch_block("Eval", 1, ["0.64", "0.60"], ["1.04", "1.25"])
        + epoch_block("Train", 2, ["0.70", "0.62"], ["1.00", "1.20"])
    )
    assert raw.num_records == {"specforge": 3}
    assert marginals(raw, "specforge", Split.TRAIN) == [[0.66, 0.61], [0.70, 0.62]]
    assert marginals(raw, "specforge", Split.VAL) == [[0.64, 0.60]]
    train = raw.table("specforge", Split.TRAIN)
    assert values(train, "epoch") == [1.0, 2.0]
    assert train.records().stacked("loss").tolist() == [[1.02, 1.21], [1.0, 1.2]]
    assert (train.labels[int(train.column("format")[0])], train.rounding) == ("F1", 0.005)
    assert train.column("step").tolist() == pytest.approx([float("nan")] * 2, nan_ok=True)


def test_training_blocks_belong_to_the_evaluation_that_follows() -> None:
    raw = fed(
        epoch_block("Train", 1, ["0.1"], ["3.0"])
        + epoch_block("Test", 1, ["0.2"], ["3.1"])
        + epoch_block("Train", 2, ["0.3"], ["2.0"])
        + epoch_block("Eval", 2, ["0.4"], ["2.1"])
    )
    assert raw.num_records == {"eagle3": 2, "specforge": 2}
    assert marginals(raw, "eagle3", Split.TRAIN) == [[0.1]]
    assert marginals(raw, "specforge", Split.TRAIN) == [[0.3]]


def test_training_blocks_alone_leave_the_family_open() -> None:
    raw = fed(epoch_block("Train", 1, ["0.66"], ["1.02"]))
    assert raw.num_records == {"eagle3": 1}
    assert OPEN_FAMILY in raw.table("eagle3", Split.TRAIN).hints


def test_training_blocks_beside_other_records_of_specforge_are_its_own() -> None:
    raw = fed(epoch_block("Train", 1, ["0.66"], ["1.02"]) + bar(3, "loss=1.3, acc=0.6") + "\n")
    assert raw.num_records == {"specforge": 2}
    assert not raw.table("specforge", Split.TRAIN).hints


# F2


def test_step_blocks_are_of_unknown_split_and_their_bracket_is_no_epoch() -> None:
    raw = fed(
        step_block(50, ["0.63", "0.58"], ["0.5800", "0.5300"], ["1.051234567890000", "1.24"])
        + step_block(100, ["0.66", "0.61"], ["0.6100", "0.5600"], ["1.02", "1.21"])
    )
    table = raw.table("specforge", Split.UNKNOWN)
    assert values(table, "step") == [50.0, 100.0]
    assert table.records().stacked(Kind.OVERLAP).tolist() == [[0.58, 0.53], [0.61, 0.56]]
    assert values(table, "loss_0") == [1.05123456789, 1.02]
    assert table.rounding == 0.005
    assert table.hints == {"acceptance_rate"}
    assert "epoch" not in table.columns
    assert raw.warnings == {}


def test_step_blocks_without_acceptance_rate_give_no_hint_of_it() -> None:
    raw = fed(step_block(50, ["0.63"], [], ["1.05"]))
    assert raw.table("specforge", Split.UNKNOWN).hints == set()


def test_a_marker_may_stand_behind_what_a_logger_prints() -> None:
    text = step_block(50, ["0.63"], [], ["1.05"])
    text = re.sub("^", "2026-01-02 10:00:00 [INFO] ", text, flags=re.MULTILINE)
    assert marginals(fed(text), "specforge", Split.UNKNOWN) == [[0.63]]


@pytest.mark.parametrize("num_lines", [1, 2, 3, 4, 5])
def test_a_block_that_the_file_ends_in_is_dropped(num_lines: int) -> None:
    first = step_block(50, ["0.63", "0.58"], ["0.58", "0.53"], ["1.05", "1.24"])
    second = step_block(100, ["0.66", "0.61"], ["0.61", "0.56"], ["1.02", "1.21"])
    raw = fed(first + "".join(second.splitlines(keepends=True)[:num_lines]))
    assert values(raw.table("specforge", Split.UNKNOWN), "step") == [50.0]
    assert raw.warnings == {"truncated-record": [7]}


def test_a_number_at_the_end_of_the_file_may_be_cut_and_is_not_used() -> None:
    raw = fed(step_block(50, ["0.63", "0.58"], [], ["1.05", "1.24"]).rstrip("\n"))
    assert raw.num_records == {}
    assert raw.warnings == {"truncated-record": [1]}


def test_lines_of_several_processes_are_blocks_of_their_own() -> None:
    lines = step_block(50, ["0.63", "0.58"], [], ["1.05", "1.24"]).splitlines()
    raw = fed("\n".join(line for line in lines for _ in range(3)) + "\n")
    assert marginals(raw, "specforge", Split.UNKNOWN) == [[0.63, 0.58]] * 3


def test_streams_do_not_mix() -> None:
    one = step_block(50, ["0.6", "0.5"], [], ["1.0", "1.2"]).splitlines()
    other = step_block(60, ["0.4", "0.3"], [], ["2.0", "2.2"]).splitlines()
    text = "\n".join(f"[rank0]: {a}\n[rank1]: {b}" for a, b in zip(one, other, strict=True))
    table = fed(text + "\n").table("specforge", Split.UNKNOWN)
    assert sorted(zip(values(table, "step"), values(table, "marginal_1"), strict=True)) == [
        (50.0, 0.5),
        (60.0, 0.3),
    ]


def test_blocks_of_losses_have_no_accuracy() -> None:
    raw = fed(step_block(50, [], [], ["1.05", "1.24"]))
    assert (raw.num_records, raw.loss_only) == ({}, {"specforge"})


def test_a_printed_nan_is_kept_as_such() -> None:
    raw = fed(step_block(50, ["nan", "0.5"], [], ["inf", "1.2"]))
    table = raw.table("specforge", Split.UNKNOWN)
    assert values(table, "marginal_0") == values(table, "loss_0") == [PRINTED_NAN]


# F3


def test_bars_glued_by_returns_are_records_of_their_counter() -> None:
    text = "\r" + "\r".join(
        bar(n, f"loss=1.3{n}, acc=0.5{n}, acceptance_rate=0.50, time=1.00s") for n in (1, 2)
    )
    table = fed(text + "\n").table("specforge", Split.TRAIN)
    assert values(table, "step") == [1.0, 2.0]
    assert values(table, "mean_marginal") == [0.51, 0.52]
    assert values(table, "total_loss") == [1.31, 1.32]
    assert values(table, "epoch") == [0.0, 0.0]
    assert table.total_steps == 1000
    assert table.hints == {"acceptance_rate"}
    assert table.records().stacked("marginal").shape[1] == 0


def test_bars_that_nothing_separates_are_told_apart() -> None:
    text = bar(1, "loss=1.3, acc=0.50") + bar(2, "loss=1.2, acc=0.60")
    assert values(fed(text + "\n").table("specforge", Split.TRAIN), "step") == [1.0, 2.0]


def test_of_the_states_of_one_counter_the_last_is_kept() -> None:
    text = "\r".join(bar(7, f"loss=1.3, acc={accuracy}") for accuracy in ("0.50", "0.55"))
    assert values(fed(text + "\n").table("specforge", Split.TRAIN), "mean_marginal") == [0.55]


def test_a_bar_without_accuracy_is_no_record() -> None:
    assert fed(bar(7, "loss=1.3") + "\n").num_records == {}


def test_a_bar_that_the_file_ends_in_is_dropped() -> None:
    raw = fed(bar(1, "loss=1.3, acc=0.50") + "\r" + bar(2, "loss=1.2, acc=0.5, tim", end=""))
    assert values(raw.table("specforge", Split.TRAIN), "step") == [1.0]
    assert raw.warnings == {"truncated-record": [1]}


# F4


def test_dictionaries_of_a_step() -> None:
    raw = fed(
        "step 50: {'acc_0': 0.58, 'ploss_0': 1.4, 'acceptance_rate_0': 0.53, 'acc_1': 0.5, "
        "'ploss_1': 1.5, 'acceptance_rate_1': 0.48, 'acc': 0.54, 'loss': 3.7, "
        "'acceptance_rate': 0.41, 'grad_norm': 0.85, 'lr': 0.0001, 'perf/step_time': 1.04}\n"
        "step 50: {'eval/avg_loss': 1.19, 'eval/avg_acc': 0.61, 'eval/per_position_acc': "
        "[0.61, 0.57], 'eval/simulated_acc_len': 0.9577}\n"
    )
    train, val = (raw.table("specforge", split) for split in (Split.TRAIN, Split.VAL))
    assert train.records().stacked(Kind.MARGINAL).tolist() == [[0.58, 0.5]]
    assert train.records().stacked(Kind.OVERLAP).tolist() == [[0.53, 0.48]]
    assert train.records().stacked("loss").tolist() == [[1.4, 1.5]]
    scalars = ("total_loss", "mean_marginal", "learning_rate", "step")
    assert [values(train, name) for name in scalars] == [[3.7], [0.54], [1e-4], [50.0]]
    assert val.records().stacked(Kind.MARGINAL).tolist() == [[0.61, 0.57]]
    assert values(val, "reported:simulated_acc_len") == [0.9577]
    assert values(val, "total_loss") == [1.19]


def test_many_dictionaries_of_one_layout_read_as_each_does() -> None:
    def line(step: int) -> str:
        accuracy, loss = step / 1000, "nan" if step == 70 else f"{9 - step / 100}"
        return (
            f"step {step}: {{'acc_0': {accuracy}, 'acc_1': {accuracy / 2}, 'ploss_0': {loss}, "
            f"'ploss_1': 2.5e-01, 'acc': {accuracy}, 'loss': {loss}, 'lr': 1e-05}}\n"
        )

    steps = list(range(1, 101))
    together = fed("".join(line(step) for step in steps)).table("specforge", Split.TRAIN)
    assert values(together, "step") == [float(step) for step in steps]
    for step in steps:
        alone = fed(line(step)).table("specforge", Split.TRAIN)
        for name in ("marginal_0", "marginal_1", "loss_0", "loss_1", "total_loss", "mean_marginal"):
            assert together.column(name)[step - 1] == alone.column(name)[0], (step, name)


@pytest.mark.parametrize(
    "body",
    [
        "'acc_0':1.25, 'acc_1': 0.5, 'loss': 2.0",  # no blank
        "'acc_0': 1.25,  'acc_1': 0.5, 'loss': 2.0",
        "'acc_0': np.float64(1.25), 'acc_1': 0.5, 'loss': 2.0",
        "'acc_0': 1.25, 'acc_1': 0.5, 'loss': tensor(2.0, device='cuda:0')",
        '"acc_0": 1.25, "acc_1": 0.5, "loss": 2.0',
        "'acc_0': '1.25', 'acc_1': 0.5, 'loss': 2",
    ],
)
def test_spelling_of_a_dictionary_does_not_matter(body: str) -> None:
    usual = "".join(f"step {n}: {{'acc_0': 0.6, 'acc_1': 0.5, 'loss': 2.5}}\n" for n in range(30))
    table = fed(f"{usual}step 30: {{{body}}}\n").table("specforge", Split.TRAIN)
    assert [values(table, n)[-1] for n in ("marginal_0", "marginal_1", "total_loss")] == [
        1.25,
        0.5,
        2.0,
    ]


def test_bare_nan_and_infinity_are_kept_as_such() -> None:
    raw = fed("step 12: {'acc_0': 0.0, 'ploss_0': nan, 'loss': -inf, 'grad_norm': nan}\n")
    table = raw.table("specforge", Split.TRAIN)
    assert values(table, "loss_0") == values(table, "total_loss") == [PRINTED_NAN]


def test_a_list_with_nan_is_kept() -> None:
    raw = fed("step 12: {'eval/per_position_acc': [0.5, nan], 'eval/avg_loss': inf}\n")
    assert marginals(raw, "specforge", Split.VAL) == [[0.5, PRINTED_NAN]]


@pytest.mark.parametrize("length", [12, 40, 80, 95])
def test_a_dictionary_without_its_end_is_dropped(length: int) -> None:
    whole = "step 50: {'acc_0': 0.58, 'ploss_0': 1.4, 'acc_1': 0.53, 'ploss_1': 1.5, 'loss': 3.7, 'lr': 1e-4}"
    raw = fed(whole + "\n" + whole.replace("50", "60")[:length])
    assert values(raw.table("specforge", Split.TRAIN), "step") == [50.0]
    assert raw.warnings == {"truncated-record": [2]}


def test_a_dictionary_that_another_one_interrupts_is_dropped() -> None:
    raw = fed("step 40: {'acc_0': 0.1, 'plostep 50: {'acc_0': 0.58, 'loss': 3.7}\n")
    assert values(raw.table("specforge", Split.TRAIN), "step") == [50.0]
    assert raw.warnings == {"truncated-record": [1]}


def test_block_drafters_print_a_mean_and_an_accept_length() -> None:
    raw = fed("step 5: {'loss': 2.0, 'accuracy': 0.4, 'accept_len': 2.1, 'lr': 1e-4}\n")
    table = raw.table("specforge", Split.TRAIN)
    assert (values(table, "mean_marginal"), values(table, "reported:accept_len")) == ([0.4], [2.1])


def test_dictionaries_of_losses_have_no_accuracy() -> None:
    raw = fed("step 5: {'loss': 2.0, 'lr': 1e-4}\n")
    assert (raw.num_records, raw.loss_only) == ({}, {"specforge"})


def test_dictionaries_of_others_are_not_taken() -> None:
    assert (
        fed("step 5: {'full_acc_0': 0.6}\nstep 6: {'foo': 1}\n{'acc_0': 0.5}\n").num_records == {}
    )


def test_bars_and_lines_stand_in_the_order_of_the_file() -> None:
    text = "".join(
        "\r" + bar(n, f"loss=1.{n}, acc=0.{n}") + f"\rstep {n}: {{'acc_0': 0.5, 'loss': 1.0}}\n"
        for n in range(10, 60)
    )
    table = fed(text).table("specforge", Split.TRAIN)
    assert values(table, "step") == [float(n) for n in range(10, 60) for _ in range(2)]
    assert [table.labels[int(n)] for n in values(table, "format")] == ["F3", "F4"] * 50
