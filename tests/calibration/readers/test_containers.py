"""Logs as containers leave them: wrapped in JSON, named in front of each line, several in one log."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from calibration.readers import Reading, recognise_file

ENGINES = Path(__file__).parents[2] / "fixtures" / "engines"
LOGS = (
    ENGINES / "sglang" / "server_log_0.5.6.log",
    ENGINES / "other" / "vllm_v1.log",
    ENGINES / "other" / "llamacpp_server_new.log",
)


def docker(line: str) -> str:
    return json.dumps({"log": f"{line}\n", "stream": "stderr", "time": "2026-01-05T11:00:00.1Z"})


def fluentd(line: str) -> str:
    where = {"pod_name": "serve-0", "container_name": "engine"}
    return json.dumps({"time": "2026-01-05T11:00:00Z", "message": line, "kubernetes": where})


def compose(line: str) -> str:
    return f"engine-1  | {line}"


def swarm(line: str) -> str:
    return f"stack_engine.1.k3j2@node-7    | {line}"


def pods(line: str) -> str:
    return f"[pod/serve-0/engine] {line}"


def cri(line: str) -> str:
    return f"2026-01-14T10:00:55.123456789Z stderr F {line}"


def readings(path: Path) -> tuple[Reading, ...]:
    return recognise_file(path).read()


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.name)
@pytest.mark.parametrize("wrap", [docker, fluentd, compose, swarm, pods, cri])
def test_a_log_says_the_same_however_its_lines_arrive(
    tmp_path: Path, log: Path, wrap: Callable[[str], str]
) -> None:
    path = tmp_path / "arrived.log"
    path.write_text("".join(f"{wrap(line)}\n" for line in log.read_text("utf-8").splitlines()))
    (bare,), (arrived,) = readings(log), readings(path)
    assert arrived.rows == bare.rows
    assert [(one.code, one.count) for one in arrived.dropped] == [
        (one.code, one.count) for one in bare.dropped
    ]


@pytest.mark.parametrize("name", ["{}-1  | {}", "[pod/serve-0/{}] {}"])
def test_the_servers_of_a_log_are_kept_apart(tmp_path: Path, name: str) -> None:
    """A baseline and a server that speculates, line by line in turns."""
    folder = ENGINES / "sglang"
    names = ("server_log_0.5.6.log", "server_log_0.5.6_baseline.log")
    spec, plain = ((folder / one).read_text("utf-8").splitlines() for one in names)
    lines = []
    for place in range(max(len(spec), len(plain))):
        lines += [name.format("spec", line) for line in spec[place : place + 1]]
        lines += [name.format("base", line) for line in plain[place : place + 1]]
        lines.append(name.format("proxy", 'GET /health HTTP/1.1" 200'))
    path = tmp_path / "both.log"
    path.write_text("\n".join([*lines, ""]))
    found = readings(path)
    alone = [readings(folder / one)[0] for one in reversed(names)]
    assert [[row.cells for row in one.rows] for one in found] == [
        [row.cells for row in one.rows] for one in alone
    ]
