"""Make calibration/data/models.csv from a table of model shapes: names and expert counts only.

Run as ``python scripts/catalogue_models.py MODEL_SHAPES``.
"""

import csv
import sys
from pathlib import Path

TARGET = Path(__file__).parents[1] / "calibration" / "data" / "models.csv"
COLUMNS = ("model", "aliases", "num_experts", "experts_per_token", "source")


def main(path: str) -> None:
    """Write the catalogue: dense models have zero experts."""
    with Path(path).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with TARGET.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in sorted(rows, key=lambda one: one["model"].lower()):
            writer.writerow(
                (
                    row["model"],
                    ";".join(dict.fromkeys([*row["aliases"].split(";"), row["hf_id"]])),
                    row["num_experts"] or 0,
                    row["experts_per_token"] or 0,
                    row["source"],
                )
            )


if __name__ == "__main__":
    main(sys.argv[1])
