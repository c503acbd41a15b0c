"""Objects of a JSON file, however they were written together."""

from pathlib import Path

import pytest

from calibration.readers.findings import Findings
from calibration.readers.json_text import JsonRecord, json_objects
from calibration.readers.reading import Row, SourceText
from specmodel.errors import FormatError


def found(text: str, findings: Findings | None = None) -> tuple[JsonRecord, ...]:
    source = SourceText(path=Path("a.json"), text=text, encoding="utf-8")
    return json_objects(source, findings or Findings(source.path, {}))


@pytest.mark.parametrize(
    "text",
    [
        '[{"a": 1}, {"a": 2}]',
        '{"a": 1}\n{"a": 2}\n',
        '[{"a": 1}]\n[{"a": 2}]\n',
        '{"a": 1}{"a": 2}',
        '\n\n{"a": 1}\r\n\r\n3\r\n{"a": 2}',
    ],
)
def test_objects_are_found_in_every_layout(text: str) -> None:
    assert [record.value["a"] for record in found(text)] == [1, 2]


def test_a_half_written_last_line_leaves_the_others() -> None:
    findings = Findings(Path("a.json"), {})
    assert len(found('{"a": 1}\n{"a": 2}\n{"a": ', findings)) == 2
    findings.keep(1, Row(line=1, cells={}))
    (dropped,) = findings.reading("a_format").dropped
    assert (dropped.code, dropped.line, dropped.count) == ("malformed", 3, 1)


@pytest.mark.parametrize(
    "text", ['{"a": 1', '[{"a": 1},\n{"a": 2},\n{"a"', '[{"a": 1}, {"a": 2}', "{]"]
)
def test_a_cut_object_or_list_is_refused_as_a_whole(text: str) -> None:
    with pytest.raises(FormatError) as error:
        found(text)
    assert error.value.code == "malformed_json"
