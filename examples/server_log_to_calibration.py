"""Two server logs, with and without speculation, are a calibration: no benchmark was run."""

import warnings
from dataclasses import asdict

from calibration import fit, ingest
from calibration.points.packaged import EXAMPLES
from specmodel.errors import ExtrapolationWarning

SERVED, BASELINE = EXAMPLES / "sglang_eagle3.log", EXAMPLES / "sglang_baseline.log"


def main() -> None:
    """Pair the logs by batch size, fit, and ask what a better draft model would bring."""
    group = ingest([SERVED, BASELINE]).groups[0]
    print(
        f"{group.group.format}, layout of {', '.join(group.era)}; left out: {dict(group.dropped)}"
    )
    for pair in group.pairs:
        print(
            f"batch {pair['batch_size']:3g}: accept length {pair['accept_length']:.2f}, "
            f"round {pair['step_time_ms']:.1f} ms, step {pair['baseline_step_time_ms']:.1f} ms, "
            f"round cost {pair['round_cost']:.2f}, speed-up {pair['speedup']:.2f}"
        )
    calibration = fit([SERVED, BASELINE])
    for configuration in calibration.configurations:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExtrapolationWarning)  # better than any measured one
            answer = calibration.predict(2.9, **asdict(configuration))
        print(
            f"at accept length 2.9 and batch {configuration.batch_size:3g}: speed-up "
            f"{answer.speedup.median:.2f} ({answer.speedup.low:.2f} to {answer.speedup.high:.2f}), "
            f"break-even {answer.break_even_accept_length.median:.2f}"
        )


if __name__ == "__main__":
    main()
