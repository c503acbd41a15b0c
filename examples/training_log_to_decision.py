"""A run in training and one benchmark point of an earlier drafter: whether the rest is worth it."""

from calibration import fit
from calibration.points.packaged import EXAMPLES
from calibration.training.assessment import TrainingQuestion, assess
from calibration.training.reading import read_training_log
from specmodel.ask import Ask

LOG, BENCH = EXAMPLES / "train.log", EXAMPLES / "bench.csv"


def main() -> None:
    """Read the log, project it to its end, and decide."""
    log = read_training_log(LOG)
    question = TrainingQuestion(configuration=Ask(), target_speedup=1.2, until=7500.0)
    found = assess(log, fit(BENCH), question)
    decision = found.decision
    if decision is None or decision.end is None:
        raise SystemExit(found.undecided or "the run cannot be projected")
    for name, checkpoint in (("now", decision.now), ("at the end", decision.end)):
        length, speedup = checkpoint.as_logged.accept_length, checkpoint.expected.speedup
        print(
            f"{name} (step {checkpoint.step}): accept length {length.median:.2f} in the log, speed-up "
            f"in serving {speedup.median:.2f} ({speedup.low:.2f} to {speedup.high:.2f})"
        )
    print(
        f"{decision.target_speedup:g} at the end: probability {decision.probability_of_target:.0%}"
    )
    print(f"{decision.code}: {decision.verdict}")


if __name__ == "__main__":
    main()
