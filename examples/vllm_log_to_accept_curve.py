"""A vLLM log gives acceptance by position; the curve says what another depth would accept."""

from calibration import ingest
from calibration.points.packaged import EXAMPLES
from calibration.readers.acceptance_intervals import conditional_intervals
from specmodel import FullAccuracy
from specmodel.acceptance import tail_spread

LOG = EXAMPLES / "vllm_server.log"


def main() -> None:
    """Pool the windows of the log by counts, and carry the curve to twice its depth."""
    row = ingest(LOG).groups[0].rows[0]
    accuracy, rounds = row["full_accuracy"], row["verify_rounds"]
    if not isinstance(accuracy, tuple) or not isinstance(rounds, float):
        raise SystemExit("the log has no acceptance by position")
    print(
        f"accept length {row['accept_length']:.3f} at depth {row['num_steps']:g}, {rounds:.0f} rounds"
    )
    conditional = conditional_intervals(accuracy, rounds)
    for depth, (full, (value, (low, high))) in enumerate(
        zip(accuracy, conditional, strict=True), start=1
    ):
        print(f"depth {depth}: full {full:.3f}, conditional {value:.3f} ({low:.3f} to {high:.3f})")
    spread = tail_spread(FullAccuracy(list(accuracy)), 8)
    carried = [float(column[-1]) for column in (spread.value, spread.low, spread.high)]
    print("carried to depth 8: accept length {:.2f} ({:.2f} to {:.2f})".format(*carried))


if __name__ == "__main__":
    main()
