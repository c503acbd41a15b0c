"""A sweep of SGLang's bench_speculative: which depth is best at each batch, and by how much."""

import warnings

from calibration import fit, ingest
from calibration.points.packaged import EXAMPLES
from specmodel.errors import ExtrapolationWarning

SWEEP = EXAMPLES / "sweep.jsonl"


def main() -> None:
    """Predict every measured depth at every batch from one fit, and compare with the sweep."""
    calibration = fit(SWEEP)
    measured: dict[float, dict[float, float]] = {}
    predicted: dict[float, dict[float, float]] = {}
    for pair in ingest(SWEEP).groups[0].pairs:
        names = ("batch_size", "num_steps", "accept_length", "speedup")
        batch_size, num_steps, accept_length, speedup = (float(str(pair[name])) for name in names)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExtrapolationWarning)
            answer = calibration.predict(
                accept_length, num_steps=num_steps, topk=1, batch_size=batch_size
            )
        measured.setdefault(batch_size, {})[num_steps] = speedup
        predicted.setdefault(batch_size, {})[num_steps] = answer.speedup.median
    for batch_size, speedups in predicted.items():
        depth = max(speedups, key=lambda one: speedups[one])
        best = max(measured[batch_size], key=lambda one: measured[batch_size][one])
        print(
            f"batch {batch_size:2g}: best depth {depth:g}, speed-up {speedups[depth]:.2f}; "
            f"measured best depth {best:g}, {measured[batch_size][best]:.2f}"
        )


if __name__ == "__main__":
    main()
