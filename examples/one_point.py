"""One benchmark point by import: what it says, what it does not, and a prediction from it."""

import warnings

from calibration import fit
from calibration.points.packaged import EXAMPLES
from specmodel.errors import ExtrapolationWarning

BENCH = EXAMPLES / "bench.csv"


def main() -> None:
    """Fit one line and ask about a better draft model."""
    calibration = fit(BENCH)
    observation = calibration.observations[0]
    print(f"round cost by hand: {observation.round_cost[1]:.3f} baseline steps")
    for constant in calibration.constants:
        origin = "prior" if constant.prior_dominated else f"{constant.learned:.0%} learned"
        print(f"{constant.name:20s} {constant.value:6.3f}  {origin}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)  # one point: every other value is
        answer = calibration.predict(2.75)
    rate = answer.output_tokens_per_s
    if rate is not None:  # None where no baseline is known
        print(f"at accept length 2.75: {rate.median:.0f} tok/s ({rate.low:.0f} to {rate.high:.0f})")
    print(f"faster than no speculation with probability {answer.probability_faster:.2f}")
    print(f"break-even accept length: {answer.break_even_accept_length.median:.2f}")


if __name__ == "__main__":
    main()
