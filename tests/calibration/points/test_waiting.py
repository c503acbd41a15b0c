"""Requests that wait are not part of the batch that decodes."""

import json
from pathlib import Path

import numpy as np
import pytest

from calibration import Points, read_points


def points_of(folder: Path, text: str, name: str = "bench.csv") -> Points:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return read_points(file)


HEAD = "num_steps,batch_size,accept_length,throughput,ttft_ms,tpot_ms,output_tokens\n"


def test_the_decoding_batch_is_throughput_times_the_time_per_token(tmp_path: Path) -> None:
    """40 requests at once: 10 fit without speculation, 5 with it."""
    points = points_of(tmp_path, f"{HEAD}0,40,1,500,15050,20,500\n3,40,2.5,416.7,21050,12,500\n")
    assert points.frame["batch_size"].tolist() == pytest.approx([10.0, 5.0], rel=1e-3)
    assert points.frame["step_time_ms"].tolist() == pytest.approx([20.0, 30.0])
    assert np.isnan(points.frame["baseline_tokens_per_s"]).all()  # not the same batch: no pair
    said = [note.message for note in points.warnings if note.code == "waiting"]
    assert len(said) == 2
    assert "only 5 of 40 requests decode at once" in said[1]
    assert "KV memory" in said[1]


def test_the_same_results_as_json_are_no_pair_either(tmp_path: Path) -> None:
    runs = ((False, 20.0, 20.0, 15050.0, 40.0, 500.0), (True, 12.0, 30.0, 21050.0, 48.0, 416.7))
    lines = []
    for speculates, tpot, itl, ttft, seconds, rate in runs:
        result: dict[str, object] = {
            "model_id": "m",
            "backend": "vllm",
            "num_prompts": 40,
            "completed": 40,
            "duration": seconds,
            "total_input_tokens": 4000,
            "total_output_tokens": 20000,
            "output_throughput": rate,
            "mean_ttft_ms": ttft,
            "mean_tpot_ms": tpot,
            "mean_itl_ms": itl,
            "mean_e2el_ms": ttft + 499 * tpot,
        }
        if speculates:
            result |= {
                "spec_decode_num_drafts": 8000,
                "spec_decode_draft_tokens": 24000,
                "spec_decode_accepted_tokens": 12000,
                "spec_decode_acceptance_length": 2.5,
            }
        lines.append(json.dumps(result))
    points = points_of(tmp_path, "\n".join(lines) + "\n", "results.jsonl")
    assert points.frame["batch_size"].tolist() == pytest.approx([10.0, 5.0], rel=0.01)
    assert np.isnan(points.frame["baseline_tokens_per_s"]).all()


def test_a_long_prefill_is_no_queue(tmp_path: Path) -> None:
    """One request at a time, 200 ms of 500 ms of which are prefill: finding 1.1."""
    points = points_of(tmp_path, f"{HEAD}0,1,1,100,200,6,50\n3,1,3.0,142.857,200,3,50\n")
    assert points.frame["batch_size"].tolist() == [1.0, 1.0]
    assert points.frame["baseline_tokens_per_s"].tolist()[1] == 100.0
    assert not [note for note in points.warnings if note.code == "waiting"]


@pytest.mark.parametrize("seed", range(10))
def test_equal_decoding_batches_are_still_compared(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    slots, sent, tokens = int(rng.integers(4, 20)), 80, 400
    lines = HEAD
    for steps, accept, step_ms in ((0, 1.0, 20.0), (3, 2.5, 30.0)):
        per_token = step_ms / accept
        rate = slots / per_token * 1000 * np.exp(0.02 * rng.standard_normal())
        waits = tokens * per_token * (sent / slots - 1) / 2
        lines += f"{steps},{sent},{accept},{rate:.2f},{waits:.1f},{per_token:.3f},{tokens}\n"
    frame = points_of(tmp_path, lines).frame
    assert frame["batch_size"].tolist() == pytest.approx([slots] * 2, rel=0.1)
    assert np.isfinite(frame["baseline_tokens_per_s"].iloc[1])
