#!/usr/bin/env bash
# Everything that only a GPU can show, in at most eight minutes: kernels against fp64, of small models and
# of a real one, graphs against launches in turn, floors, and the times of a draft step beside floor and
# torch, as records.
#
#   drafter/gpu_check.sh [--dry] [-o FOLDER] [CHECKPOINT|SHAPE ...]
#
# The first model is checked, and timed over the quick grid; the others are timed at batches 1 and 8 while
# there is time. --dry goes the same way on a CPU in Triton's interpreter; its record says that it is dry.
# PYTHON names the interpreter, by default python3; it needs torch 2.11, triton 3.6 or newer, click and
# numpy; the tree need not be installed. `timeout` is that of coreutils. MOST_S is the time for all of it.
# A check that fails, or does not end in its time, is said and the times are taken all the same: the exit
# code is 1 at the end. Of a model that cannot be timed to its end the loads before the error are kept.
#
# Where 480 s go. Nobody has run this on a GPU yet, so the parts that compile are estimates, at 0.2 to 0.7 s a
# kernel, some 330 of them for the small models:
#   checks of small models    60 - 150 s   ended after 150 s
#   check of the first model  20 -  80 s   8 GB of fp64 weights stay on the GPU; ended after 80 s
#   imports and floors             15 s
#   left for times           200 - 350 s   less 35 s kept back for a load that takes longer and for the
#                                          trace: three fifths to the first model, the rest in equal parts.
#                                          A model that is not done 30 s after its part is ended
# Another MOST_S changes all of these alike. A second run finds its kernels in Triton's cache.
set -euo pipefail

python=${PYTHON:-python3}
folder=gpu_check
dry=
models=()
most_s=${MOST_S:-480}
least_s=40 # what a model needs to be compiled and timed at one load

usage() { sed -n 's/^#   //p' "$0" | head -1; }
# part SECONDS: as many of MOST_S as of 480 s, at least one
part() { echo $(($1 * most_s / 480 > 1 ? $1 * most_s / 480 : 1)); }

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
# the tree that this script stands in, wherever it is called from
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1

failed=0
left() { echo $((most_s - $(part 35) - SECONDS)); }
title() { printf '\n=== %s (%d s)\n' "$1" "$SECONDS"; }
# drafter SECONDS WHAT ARGUMENTS: end it after so many seconds, 0: never; what fails is said and remembered
drafter() {
  local limit_s=$1 what=$2 status=0
  shift 2
  # in the foreground, so that an interruption reaches both
  timeout --foreground -k 5 "$limit_s" "$python" -m drafter.cli "$@" || status=$?
  if ((status >= 124)); then echo "out of time: $what did not end within $limit_s s" >&2; fi
  if ((status != 0)); then
    echo "FAILED: $what" >&2
    failed=1
  fi
}

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
if [[ -n $dry ]]; then
  drafter 0 "the check of small models" check # the interpreter takes as long as the CPU needs
else
  drafter "$(part 150)" "the check of small models" check
  title "the same of ${models[0]}"
  drafter "$(part 80)" "the check of ${models[0]}" check "${models[0]}"
fi

title "floors"
drafter 60 "floors" floor

if [[ -n $dry ]]; then
  title "a measurement, rehearsed"
  drafter 0 "the rehearsal" time --dry -o "$folder/dry.json"
  title "done: a dry run, no device was measured"
  exit "$failed"
fi

records=0
count=${#models[@]}
for ((number = 0; number < count; number++)); do
  model=${models[number]}
  # numbered, since two folders may have one name
  record=$folder/$((number + 1))-$(basename "$model" | tr -c 'A-Za-z0-9.\n-' '_').json
  rest=$(left)
  if ((number == 0)); then
    grid=(--grid quick)
    share=$((rest * (count > 1 ? 3 : 5) / 5))
    share=$((share > least_s ? share : least_s))
    share=$((share < rest ? share : rest))
    share=$((share > 0 ? share : 0)) # one load is begun in any case
  else
    grid=(--batch-size 1 --batch-size 8 --context-tokens 2048 --topk 1)
    share=$((rest / (count - number)))
    if ((share < least_s)); then
      echo "left out for time: $model"
      continue
    fi
  fi
  title "$model, for $share s"
  rm -f "$record"
  drafter $((share + 30)) "the times of $model" \
    time "$model" "${grid[@]}" --most-s "$share" -o "$record"
  if [[ -s $record ]]; then records=$((records + 1)); fi # also of a run that an error ended
done

if ((records == 0)); then
  echo "nothing could be timed" >&2
  exit 1
fi
title "done: $records records in $folder"
exit "$failed"
