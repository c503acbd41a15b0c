"""What the benchmarks share: a large made-up system."""

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="session")
def large_bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 rows of one system: 8 depths, 5 batches, 50 workloads."""
    generator = np.random.default_rng(7)
    lines = ["workload,batch_size,num_steps,topk,accept_length,throughput,baseline,num_experts"]
    for workload in range(50):
        speed = 1.0 - 0.3 * generator.random()
        for batch in (1, 2, 4, 8, 16):
            baseline = 90.0 * batch**0.8 * speed
            for steps in range(1, 9):
                accept = 1.0 + steps * (0.3 + 0.4 * generator.random())
                cost = 1.1 + 0.06 * steps
                rate = baseline * accept / cost * np.exp(0.02 * generator.standard_normal())
                lines.append(
                    f"w{workload},{batch},{steps},1,{accept:.4f},{rate:.3f},{baseline:.3f},0"
                )
    path = tmp_path_factory.mktemp("bench") / "large.csv"
    path.write_text("\n".join(lines) + "\n")
    return path
