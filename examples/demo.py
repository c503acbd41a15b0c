"""The main job, on real points: fit a public SGLang system and the one-line benchmark, predict both.

Run by ``make demo``. Works in a temporary folder; every line that starts with ``$`` is a command that
you can type yourself.
"""

import shlex
import subprocess
import sys
import tempfile

STORY = (
    ("First the files of the README, in a folder of their own.", "examples ."),
    (
        "A public SGLang system: Llama-3.1-8B, 70 points, chains and trees of two draft models.",
        "fit --data specbundle-llama31-8b -o llama.json",
    ),
    (
        "A better draft model would reach accept length 3.5 at depth 5 on MT-Bench. What then?",
        "predict --calibration llama.json --workload mtbench --accept 3.5 --depth 5",
    ),
    (
        "And which depth is best, carrying that accept length to every depth?",
        "predict --calibration llama.json --workload mtbench --accept 3.5 --accept-depth 5 --depth 1:8",
    ),
    (
        "The reference case: one point, accept length 2.1, 82.3 tok/s against 90.0 without.",
        "fit bench.csv",
    ),
    (
        "The next draft model is expected at 2.75. Speed-up at current performance?",
        "predict --accept 2.75",
    ),
    (
        "What accept length would a speed-up of 1.3 need?",
        "predict --accept 2.75 --target-speedup 1.3",
    ),
)


def main() -> None:
    """Fit, predict, and say what it means."""
    with tempfile.TemporaryDirectory() as folder:
        for text, command in STORY:
            print(f"\n# {text}\n\n$ specmodel {command}", flush=True)
            arguments = shlex.split(command)
            subprocess.run([sys.executable, "-m", "specmodel", *arguments], cwd=folder, check=True)


if __name__ == "__main__":
    main()
