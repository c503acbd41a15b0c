"""The main job, on real points: fit a public SGLang system and the one-line benchmark, predict both.

Run by ``make demo``. Works in a temporary folder; every line that starts with ``$`` is a command that
you can type yourself.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def say(text: str) -> None:
    """Print a paragraph between commands."""
    print(f"\n# {text}", flush=True)


def specmodel(folder: Path, *arguments: str) -> None:
    """Show a command and run it."""
    shown = " ".join(argument if " " not in argument else f"'{argument}'" for argument in arguments)
    print(f"\n$ specmodel {shown}", flush=True)
    subprocess.run([sys.executable, "-m", "calibration", *arguments], cwd=folder, check=True)


def main() -> None:
    """Fit, predict, and say what it means."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        say(
            "A public SGLang system: Llama-3.1-8B, 70 points, chains and trees of two draft models."
        )
        specmodel(folder, "fit", "--data", "specbundle-llama31-8b", "-o", "llama.json")
        say("A better draft model would reach accept length 3.5 at depth 5 on MT-Bench. What then?")
        specmodel(
            folder,
            *("predict", "--calibration", "llama.json", "--workload", "mtbench"),
            *("--accept", "3.5", "--depth", "5"),
        )
        say("And which depth is best, carrying that accept length to every depth?")
        specmodel(
            folder,
            *("predict", "--calibration", "llama.json", "--workload", "mtbench"),
            *("--accept", "3.5", "--accept-depth", "5", "--depth", "1:10"),
        )
        say("The reference case: one point, accept length 2.1, 82.3 tok/s against 90.0 without.")
        shutil.copy(HERE / "bench.csv", folder / "bench.csv")
        specmodel(folder, "fit", "bench.csv")
        say("The next draft model is expected at 2.75. Speed-up at current performance?")
        specmodel(folder, "predict", "--accept", "2.75")
        say("What accept length would a speed-up of 1.3 need?")
        specmodel(folder, "predict", "--accept", "2.75", "--target-speedup", "1.3")


if __name__ == "__main__":
    main()
