"""Make the packaged tables of measured points from the raw collection.

Run as ``python scripts/curate_points.py RAW_POINTS MODEL_SHAPES``. RAW_POINTS is the collected
``points.csv``; MODEL_SHAPES gives each target model's canonical name and expert counts. Rows typed
by hand from public pages, in the raw file's own columns, stand beside this script in
``curate_points_typed.csv``. Each TOML file in ``calibration/data/points`` is written by hand and
says which rows its table takes (``source_keys`` and ``[rows]``); this script writes the CSV beside
it and prints every identity that fails, every change and every row left out.
"""

import argparse
import csv
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TABLES = HERE.parent / "calibration" / "data" / "points"
TYPED = HERE / "curate_points_typed.csv"
COLUMNS = (  # noqa: SIM905 - one name a line would be 36 lines
    "accept_length,output_tokens_per_s,baseline_tokens_per_s,batch_size,num_steps,topk,"
    "num_draft_tokens,context_tokens,output_tokens,ttft_ms,step_time_ms,baseline_step_time_ms,"
    "spread,full_accuracy,temperature,dtype,variant,throughput_scope,num_experts,"
    "experts_per_token,workload,target_model,draft_model,algorithm,engine,engine_version,gpu,"
    "num_gpus,tp_size,interconnect,source_id,source_url,date,notes,how,locator"
).split(",")
COMPLETE = ("accept_length", "baseline_tokens_per_s", "output_tokens_per_s")
COPIED = (  # noqa: SIM905 - as above
    "accept_length,output_tokens_per_s,baseline_tokens_per_s,batch_size,num_steps,topk,"
    "num_draft_tokens,context_tokens,full_accuracy,draft_model,engine,engine_version,gpu,"
    "num_gpus,tp_size,source_id,source_url,date"
).split(",")
BLOCK_DRAFTERS = {"DFLASH", "DFLY"}  # one parallel pass proposes the block: no sequential depth
TOLERANCE = 0.05  # relative, for identities between measured columns
RANGE_TOLERANCE = 0.03  # half width of an accept length that is stated as a range

Row = dict[str, str]
Edit = Callable[[Row, Row], Row | None]  # (raw, row) -> the row to keep, or None to leave it out


def add_note(row: Row, text: str) -> None:
    """Append one remark to the row's notes."""
    row["notes"] = f"{row['notes']}; {text}" if row["notes"] else text


def keep(raw: Row, row: Row) -> Row:  # noqa: ARG001 - an edit sees both
    """Keep the row as it is."""
    return row


def baseline_row(row: Row) -> Row:
    """Turn a row without accept length into the no-speculation measurement it carries."""
    throughput = row["baseline_tokens_per_s"] or row["output_tokens_per_s"]
    blank = ("accept_length", "baseline_tokens_per_s", "topk", "num_draft_tokens", "draft_model")
    return (
        row
        | dict.fromkeys(blank, "")
        | {"output_tokens_per_s": throughput, "num_steps": "0", "algorithm": "none", "how": "table"}
    )


def kimi_profile(raw: Row, row: Row) -> Row:
    """Take the per-position rates of the whole profile out of the raw remark."""
    if found := re.search(r"\(\(([\d., ]+)\)\)", raw["notes"]):
        row["full_accuracy"] = ";".join(part.strip() for part in found[1].split(","))
    return row


def glm_round(raw: Row, row: Row) -> Row:
    """Accept length from round time x throughput / batch; step times only where they agree."""
    if not row["accept_length"]:
        row = baseline_row(row)
    rate = float(row["output_tokens_per_s"]) / float(row["batch_size"])
    if row["num_steps"] == "0":
        busy = float(raw["step_time_ms"]) / 1e3 * rate
        if abs(busy - 1) <= TOLERANCE:
            row["step_time_ms"] = raw["step_time_ms"]
        else:
            add_note(row, f"step {raw['step_time_ms']} ms left out: {busy:.3f} of the batch")
        return row
    chunks, length = float(row["accept_length"]), float(raw["step_time_ms"]) / 1e3 * rate
    row |= {"accept_length": f"{length:.3f}", "step_time_ms": raw["step_time_ms"]}
    if abs(length / chunks - 1) > TOLERANCE:
        add_note(row, f"chunk gaps alone give accept length {chunks:.3f}")
    if found := re.search(r"baseline step ([\d.]+) ms", raw["notes"]):
        rate = float(row["baseline_tokens_per_s"]) / float(row["batch_size"])
        busy = float(found[1]) / 1e3 * rate
        if abs(busy - 1) <= TOLERANCE:
            row["baseline_step_time_ms"] = found[1]
        else:
            add_note(row, f"baseline step {found[1]} ms left out: {busy:.3f} of the batch")
    return row


def deepseek_v4(raw: Row, row: Row) -> Row | None:
    """Variant from the remark; accept length from a narrow range where only that is stated."""
    found = re.search(r"draft sampling \w+|backend (Lucifer (CUTLASS|default)|B12X)", raw["notes"])
    row["variant"] = found[0] if found else ""
    if "outside CUDA-graph coverage" in raw["notes"]:
        add_note(row, "outside the captured CUDA graphs")
    if span := re.search(r"acceptance range ([\d.]+)-([\d.]+)", raw["notes"]):
        steps, low, high = int(row["num_steps"]), float(span[1]), float(span[2])
        length = 1 + steps * (low + high) / 2
        row["accept_length"] = f"{length:.3f}"
        add_note(row, f"draft acceptance {low:.2f} to {high:.2f} over the batches of this depth")
        return row if steps * (high - low) / 2 / length <= RANGE_TOLERANCE else None
    return row if row["accept_length"] else baseline_row(row)


def kimi_dflash(raw: Row, row: Row) -> Row:
    """Set the variant to the DCP size."""
    return row | {"variant": re.findall(r"DCP\d", raw["notes"])[0]}


def hy3(raw: Row, row: Row) -> Row:  # noqa: ARG001 - an edit sees both
    """Set the variant to the drafter, as the three differ in cost."""
    return row | {"variant": row["draft_model"].partition("-")[0]}


def fr_spec(raw: Row, row: Row) -> Row:  # noqa: ARG001 - an edit sees both
    """Set the variant to the reduced draft vocabulary, which makes the head cheaper."""
    return row | {"variant": "FR-Spec" if "FR-SPEC" in row["algorithm"] else ""}


def vision(raw: Row, row: Row) -> Row:  # noqa: ARG001 - an edit sees both
    """Separate the three workloads whose baseline comes from another set-up."""
    return row | {"variant": "vision suite" if row["workload"] in VISION_SUITE else ""}


def glm52(raw: Row, row: Row) -> Row:
    """Quantisation of the label goes to `dtype`, the rest to `variant`."""
    label = raw["target_model"].removeprefix("GLM-5.2 ").removeprefix("Luke ")
    dtype = re.sub(r" (original|online MXFP8)$", "", label)
    return row | {"dtype": dtype.lower(), "variant": label.removeprefix(dtype).strip() or "DCP4"}


def minimax(raw: Row, row: Row) -> Row:  # noqa: ARG001 - an edit sees both
    """Fill prompt and output length where the workload's label states them."""
    if row["workload"] == "random 2k/512":
        row |= {"context_tokens": "2048", "output_tokens": "512"}
    return row


VISION_SUITE = {"math500", "mmmu", "mmstar"}
EDITS: dict[str, Edit] = {
    **{f"rtx6kpro-kimi-k26-dcp{size}": kimi_profile for size in (1, 4, 8)},
    **{f"rtx6kpro-glm51-dcp{size}": glm_round for size in (1, 2, 8)},
    **{f"rtx6kpro-dsv4flash-v{version}": deepseek_v4 for version in (2, 5, 6)},
    "rtx6kpro-kimi-k27-dflash": kimi_dflash,
    "rtx6kpro-glm52": glm52,
    "rtx6kpro-minimax-m27": minimax,
    "angelspec-hy3-295b": hy3,
    "angelslim-h20-qwen3vl-dense": vision,
    "angelslim-h20-qwen3vl-30b-a3b": vision,
    "vllm-29334-frspec": fr_spec,
}


def tidy(text: str) -> str:
    """Return a number without a trailing .0, any other text unchanged."""
    return text.removesuffix(".0") if re.fullmatch(r"-?\d+\.0", text) else text


def workload_name(text: str) -> str:
    """Return one spelling per workload; the context has its own column."""
    name = re.sub(r", ctx .*| \(80 (questions|prompts)\)| \(bench_adaptive.*", "", text).lower()
    return name.replace("mt-bench", "mtbench").replace("math-500", "math500")


def start_row(raw: Row, shapes: dict[str, Row], rules: dict[str, Any]) -> Row:
    """Return the canonical row before the table's own edit."""
    shape = shapes.get(raw["target_model"], {})
    algorithm = raw["algorithm"].upper()
    link = raw["interconnect"].partition(",")[0].lower()
    row = dict.fromkeys(COLUMNS, "") | {key: tidy(raw[key]) for key in COPIED}
    row |= {
        "target_model": shape.get("model", raw["target_model"]),
        "num_experts": shape.get("num_experts", "") or ("0" if shape else ""),
        "experts_per_token": shape.get("experts_per_token", "") or ("0" if shape else ""),
        "workload": workload_name(raw["workload"]),
        "algorithm": algorithm,
        "interconnect": "" if link == "unknown" else link,
        "how": rules.get("how", "table"),
        "throughput_scope": rules.get("throughput_scope", "aggregate"),
    }
    if algorithm in BLOCK_DRAFTERS:
        row["num_steps"] = ""
    return row


def select(raw: Row, row: Row, table: dict[str, Any]) -> bool:
    """Tell whether the table takes this row at all."""
    rules = table["rows"]
    return (
        raw["source_id"] in table["source_keys"]
        and row["target_model"] in rules.get("targets", [row["target_model"]])
        and row["algorithm"] in rules.get("algorithms", [row["algorithm"]])
    )


def failures(raw: Row, row: Row) -> list[str]:
    """Return the identities that a finished row does not hold."""
    if row["num_steps"] == "0":
        return []
    length, baseline, output = (float(row[key]) for key in COMPLETE)
    longest = float(row["num_draft_tokens"] or 99)
    if row["num_steps"]:
        longest = min(longest, float(row["num_steps"]) + 1)
    found = []
    if not 1 <= length <= longest:
        found.append(f"accept_length {length} outside [1, {longest:g}]")
    if length * baseline / output < 1:
        found.append(f"round cost {length * baseline / output:.3f} below 1")
    if raw["speedup"] and abs(float(raw["speedup"]) * baseline / output - 1) > 0.006:
        found.append(f"stated speed-up {raw['speedup']}, computed {output / baseline:.3f}")
    if row["full_accuracy"]:
        total = 1 + sum(float(part) for part in row["full_accuracy"].split(";"))
        if abs(total / length - 1) > 0.015:
            found.append(f"1 + sum of full_accuracy is {total:.3f}, accept_length {length}")
    return found


def make_table(
    name: str, table: dict[str, Any], raws: list[Row], shapes: dict[str, Row]
) -> list[Row]:
    """Return the rows of one table and print what happened to the others."""
    rows, dropped, failed = [], [], Counter[str]()
    for raw in raws:
        row = start_row(raw, shapes, table["rows"])
        if not select(raw, row, table):
            continue
        edited = EDITS.get(name, keep)(raw, row)
        if edited is not None and edited["num_steps"] != "0":
            edited = edited if all(edited[key] for key in COMPLETE) else None
        if edited is None:
            dropped.append(f"{row['workload']} batch {row['batch_size']} steps {row['num_steps']}")
            continue
        edited |= table["rows"].get("columns", {})
        edited["locator"] = table["rows"]["locator"].format(
            raw_target=raw["target_model"], **edited
        )
        failed.update(failures(raw, edited))
        rows.append(edited)
    speculative = sum(row["num_steps"] != "0" for row in rows)
    print(f"{name}: {speculative} speculative, {len(rows) - speculative} baseline rows")
    for text in dropped:
        print(f"  left out: {text}")
    for text, count in failed.items():
        print(f"  {text}" + (f" ({count} rows)" if count > 1 else ""))
    for row in rows:
        if row["notes"]:
            print(f"  batch {row['batch_size']}, context {row['context_tokens']}: {row['notes']}")
    counts = (table["num_speculative_rows"], table["num_baseline_rows"])
    if counts != (speculative, len(rows) - speculative):
        print(f"  THE TOML SAYS {counts}", file=sys.stderr)
    return rows


def print_twins(raws: list[Row], shapes: dict[str, Row]) -> None:
    """Print the source pairs that carry the same measured values."""
    seen: dict[tuple[str, ...], str] = {}
    pairs: Counter[tuple[str, str]] = Counter()
    for raw in raws:
        target = shapes.get(raw["target_model"], {}).get("model", raw["target_model"])
        values = tuple(tidy(raw[key]) for key in ("batch_size", "num_steps", *COMPLETE))
        first = seen.setdefault((target, *values), raw["source_id"])
        if first != raw["source_id"] and sum(map(bool, values)) > 3:
            pairs[first, raw["source_id"]] += 1
    for (first, second), count in pairs.items():
        print(f"same values in {first} and {second}: {count} rows")


def main() -> None:
    """Write every table and print the account of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("raw_points", type=Path)
    parser.add_argument("model_shapes", type=Path)
    arguments = parser.parse_args()
    raws: list[Row] = []
    for path in (arguments.raw_points, TYPED):
        with path.open(encoding="utf-8", newline="") as file:
            raws += csv.DictReader(file)
    shapes: dict[str, Row] = {}
    with arguments.model_shapes.open(encoding="utf-8", newline="") as file:
        for shape in csv.DictReader(file):
            shapes |= dict.fromkeys((shape["model"], *shape["aliases"].split(";")), shape)
    print_twins(raws, shapes)
    for path in sorted(TABLES.glob("*.toml")):
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        rows = make_table(table["name"], table, raws, shapes)
        with path.with_suffix(".csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
