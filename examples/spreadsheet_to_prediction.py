"""A colleague's spreadsheet with decimal commas and its own headings is a benchmark as well."""

import warnings

from calibration import fit, read_points
from calibration.points.packaged import EXAMPLES
from specmodel.errors import ExtrapolationWarning

SHEET = EXAMPLES / "colleague.csv"


def main() -> None:
    """Say how the sheet was understood, fit it, and ask about a depth that was not measured."""
    frame = read_points(SHEET).frame
    names = ["num_steps", "accept_length", "output_tokens_per_s", "baseline_tokens_per_s"]
    print(frame[["batch_size", *names]].to_string(index=False))
    calibration = fit(SHEET)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        answer = calibration.predict(
            2.8, num_steps=6, topk=1, batch_size=1, baseline_tokens_per_s=55.3
        )
    rate = answer.output_tokens_per_s
    if rate is not None:
        print(
            f"depth 6 at accept length 2.8: {rate.median:.0f} tok/s ({rate.low:.0f} to {rate.high:.0f})"
        )
    print(f"faster than no speculation with probability {answer.probability_faster:.2f}")


if __name__ == "__main__":
    main()
