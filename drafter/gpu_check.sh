#!/usr/bin/env bash
# Everything that only a GPU can show, in at most twelve minutes: kernels against fp64, of small models and
# of a real one, graphs against launches in turn, floors, the times of a draft step beside floor and torch,
# as records, and a verdict on each.
#
#   drafter/gpu_check.sh [--dry] [-o FOLDER] [CHECKPOINT|SHAPE ...]
#
# The first model is checked, and timed over the quick grid; the others are timed at batches 1 and 8 while
# there is time. --dry goes the same way on a CPU in Triton's interpreter; its record says that it is dry.
# PYTHON names the interpreter, by default python3; it needs specmodel with its extra `drafter`, torch 2.11
# and triton 3.6 or newer; `timeout` is that of coreutils. MOST_S is the time for all of it, 720 s by default.
# A bar of latency that is missed is said and leaves the exit code at 0. A check that fails, or does not end
# in its time, ends the script; of a model that cannot be timed to its end the loads before the error are
# kept, and the exit code is 1.
#
# Where 720 s go. Nobody has run this on a GPU yet, so the parts that compile are estimates, at 0.2 to 0.7 s a
# kernel:
#   checks of small models    60 - 240 s   about 330 kernels, the half of them with overlapping launches;
#                                          ended after 240 s
#   check of the first model  20 -  60 s   about 50 kernels more; 8 GB of fp64 weights stay on the GPU, where
#                                          each of seven passes over them takes milliseconds (a CPU: a
#                                          second); ended after 120 s
#   imports and floors             15 s
#   left for times           345 - 625 s   less 60 s kept back: three fifths to the first model, the rest in
#                                          equal parts. No load is begun that is not likely to end in its
#                                          part; the 60 s are for one that takes longer, and for the trace
# A smaller MOST_S shortens the 240 s and the 120 s by as much. Without an entry in Triton's cache everything
# is compiled; a second run has about three minutes more.
set -euo pipefail

python=${PYTHON:-python3}
folder=gpu_check
dry=
models=()
most_s=${MOST_S:-720}
spare_s=60 # for a load that takes longer than was expected, and for the trace
least_s=45 # what a model needs to be compiled and timed at one load

usage() { sed -n 's/^#   //p' "$0" | head -1; }
left() { echo $((most_s - spare_s - SECONDS)); }

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
# Part of the time that a check may take: so many of 720 s, not more if there is more, and at least one.
bound() {
  local bound_s=$(($1 * most_s / 720))
  bound_s=$((bound_s < $1 ? bound_s : $1))
  echo $((bound_s > 1 ? bound_s : 1))
}
# check SECONDS WHAT [CHECKPOINT|SHAPE]: end it, and the script, after so many seconds; 0: never.
check() {
  local limit_s=$1 what=$2 begun_s=$SECONDS status=0
  shift 2
  # in the foreground, so that an interruption reaches both
  timeout --foreground -k 5 "$limit_s" "$python" -m calibration drafter check "$@" || status=$?
  if ((status != 0 && limit_s > 0 && SECONDS - begun_s >= limit_s)); then
    echo "out of time: the check of $what did not end within $limit_s s" >&2
    exit 1
  fi
  if ((status != 0)); then exit "$status"; fi
}
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
if [[ -n $dry ]]; then
  check 0 "small models" # the interpreter takes as long as the CPU needs
else
  check "$(bound 240)" "small models"
  title "the same of ${models[0]}"
  check "$(bound 120)" "${models[0]}" "${models[0]}"
fi

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

records=()
failed=0
count=${#models[@]}
for ((number = 0; number < count; number++)); do
  model=${models[number]}
  # numbered, since two folders may have one name
  record=$folder/$((number + 1))-$(basename "$model" | tr -c 'A-Za-z0-9.\n-' '_').json
  if ((number == 0)); then
    grid=(--grid quick)
    part=$(($(left) * (count > 1 ? 3 : 5) / 5))
    part=$((part > least_s ? part : least_s))
    rest=$(left)
    part=$((part < rest ? part : rest))
    part=$((part > 0 ? part : 0)) # one load is begun in any case
  else
    grid=(--batch-size 1 --batch-size 8 --context-tokens 2048 --topk 1)
    part=$(($(left) / (count - number)))
    if ((part < least_s)); then
      echo "left out for time: $model"
      continue
    fi
  fi
  title "$model, for $part s"
  rm -f "$record"
  specmodel drafter time "$model" "${grid[@]}" --most-s "$part" -o "$record" || failed=1
  if [[ -s $record ]]; then # also of a run that an error ended
    records+=("$record")
  fi
done

if ((${#records[@]} == 0)); then
  echo "nothing could be timed" >&2
  exit 1
fi
title "verdicts; a bar that is missed does not change the exit code"
"$python" - "${records[@]}" <<'PYTHON'
import sys

from drafter.report.record_text import verdicts
from specmodel.measurement import load_record

for path in sys.argv[1:]:
    record = load_record(path)
    for verdict in verdicts(record):
        print(f"{record.draft_model} on {record.device}: {verdict}")
PYTHON

title "done: records in $folder"
exit "$failed"
