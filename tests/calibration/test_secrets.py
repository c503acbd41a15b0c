"""What engine files hold besides numbers (keys, tokens, environment, paths) stays in them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.calibration.conftest import RunCommand
from tests.calibration.said import said_of

ENGINES = Path(__file__).parents[1] / "fixtures" / "engines"
SECRET = "s3cr3t-Planted-0123456789abcdef"  # noqa: S105 - opens nothing
PRIVATE = "/home/ann.private"
KEYS = ("api_key", "OPENAI_API_KEY", "hf_token", "admin_api_key", "env", "generated_texts", "host")


def poisoned_lines(text: str) -> str:
    """Return a log with planted secrets in launch lines and in its server arguments."""
    planted = f"+ HF_TOKEN={SECRET} python -m serve --api-key {SECRET} --model {PRIVATE}/Tern-8B\n"
    arguments = f"server_args=ServerArgs(api_key='{SECRET}', admin_api_key='{SECRET}', "
    text = text.replace("server_args=ServerArgs(", arguments)
    return planted + text + f"\nAuthorization: Bearer {SECRET}\n"


def poisoned(value: object) -> object:
    """Return a JSON value with planted secrets in every object, and model names made paths."""
    if isinstance(value, dict):
        found = {key: poisoned(one) for key, one in value.items()}
        for key in ("model_path", "model_id", "model", "speculative_draft_model_path"):
            if isinstance(found.get(key), str):
                found[key] = f"{PRIVATE}/{str(found[key]).rsplit('/', maxsplit=1)[-1]}"
        return found | {key: SECRET for key in KEYS if key not in found}
    if isinstance(value, list):
        return [poisoned(one) if isinstance(one, dict) else one for one in value]
    return value


def poisoned_text(text: str) -> str:
    """Return the text of a fixture with secrets planted in it."""
    try:
        return json.dumps(poisoned(json.loads(text)))
    except json.JSONDecodeError:
        pass
    try:
        lines = [json.loads(line) for line in text.splitlines() if line.strip()]
        return "\n".join(json.dumps(poisoned(line)) for line in lines)
    except json.JSONDecodeError:
        return poisoned_lines(text)


def engine_files() -> Iterator[Path]:
    """Yield the engine files of the fixtures."""
    for page in ("sglang", "other"):
        for path in sorted((ENGINES / page).iterdir()):
            if path.suffix != ".md" and not path.name.endswith(".expected.json"):
                yield path


@pytest.mark.parametrize("path", list(engine_files()), ids=lambda path: path.name)
def test_no_output_holds_what_was_planted(tmp_path: Path, path: Path) -> None:
    poisoned_file = tmp_path / "file"
    poisoned_file.write_text(poisoned_text(path.read_text(encoding="utf-8")), encoding="utf-8")
    said = said_of(poisoned_file)
    assert SECRET not in said
    assert PRIVATE not in said


@pytest.mark.parametrize("line", [f"HF_TOKEN={SECRET}", f'api_key: "{SECRET}"', SECRET])
def test_an_unknown_file_is_not_quoted_with_its_keys(specmodel: RunCommand, line: str) -> None:
    Path("unknown.txt").write_text(line + "\n")
    run = specmodel("ingest", "unknown.txt", "--json")
    assert run.exit_code == 1
    assert SECRET not in run.output
