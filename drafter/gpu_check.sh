#!/usr/bin/env bash
# Everything that only a GPU can show, in at most twelve minutes: kernels against fp64, graphs against
# launches in turn, floors, and the times of a draft step beside floor and baseline, as records.
#
#   drafter/gpu_check.sh [--dry] [-o FOLDER] [CHECKPOINT|SHAPE ...]
#
# The first model is timed over the quick grid, the others at batches 1 and 8 while there is time. --dry
# goes the same way on a CPU in Triton's interpreter; its record says that it is dry. PYTHON names the
# interpreter, by default python3; it needs specmodel with its extra `drafter`, torch 2.11 and
# triton 3.6 or newer.
set -euo pipefail

python=${PYTHON:-python3}
folder=gpu_check
dry=
models=()
most_s=${MOST_S:-720}
spare_s=180 # what the last model may take

usage() { sed -n 's/^#   //p' "$0" | head -1; }

while (($#)); do
  case $1 in
    --dry) dry=1 ;;
    -o)
      if (($# < 2)); then usage >&2; exit 2; fi
      folder=$2
      shift
      ;;
    -h | --help) usage; exit 0 ;;
    -*) usage >&2; exit 2 ;;
    *) models+=("$1") ;;
  esac
  shift
done
if ((${#models[@]} == 0)); then
  models=(Llama-3.1-8B Qwen3-30B-A3B gpt-oss)
fi

specmodel() { "$python" -m calibration "$@"; }
title() { printf '\n=== %s (%d s)\n' "$1" "$SECONDS"; }

SECONDS=0
mkdir -p "$folder"

title "software and device"
"$python" - "$dry" <<'PYTHON'
import sys

try:
    import torch
    import triton
except ImportError as error:
    sys.exit(f"{error.name} is missing: pip install 'specmodel[drafter]', or name an interpreter with PYTHON")

print(f"python {sys.version.split()[0]}, torch {torch.__version__}, triton {triton.__version__}")
if torch.cuda.is_available():
    device = torch.cuda.get_device_properties(0)
    print(f"{device.name}, {device.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}")
elif sys.argv[1]:
    print("no CUDA device")
else:
    sys.exit("no CUDA device, so there is nothing to check; --dry rehearses on the CPU")
PYTHON

title "kernels against the reference; graphs and overlapping launches against launches in turn"
specmodel drafter check

title "floors"
specmodel drafter floor

if [[ -n $dry ]]; then
  title "a measurement, rehearsed"
  specmodel drafter time --dry -o "$folder/dry.json"
  "$python" - "$folder/dry.json" <<'PYTHON'
import sys

from specmodel.errors import FormatError
from specmodel.measurement import load_record

try:
    load_record(sys.argv[1])
except FormatError as error:
    assert error.code == "not_usable", error
    print(f"refused for predictions, as it must be: {error}")
else:
    sys.exit("the record of a dry run was taken for a measurement")
PYTHON
  title "done: a dry run, nothing was measured"
  exit 0
fi

first=1
for model in "${models[@]}"; do
  name=$(basename "$model" | tr -c 'A-Za-z0-9.\n-' '_')
  if [[ -n $first ]]; then
    grid=(--grid quick)
    first=
  elif ((SECONDS > most_s - spare_s)); then
    echo "left out for time: $model"
    continue
  else
    grid=(--batch-size 1 --batch-size 8 --context-tokens 2048 --topk 1)
  fi
  title "$model"
  specmodel drafter time "$model" "${grid[@]}" -o "$folder/$name.json"
done

title "done: records in $folder"
