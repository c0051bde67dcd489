"""Documents match the schemas that `dynadiag schema` prints, today's and those of earlier releases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dynadiag.__main__ import main
from dynadiag.commands.schema import DOCUMENTS, schema_of
from tests.commands.build import recording

# Documents as earlier states of dynadiag wrote them: NAME-SCHEMA.json. A new version adds a file and keeps these.
OLD = sorted(Path(__file__).with_name("documents").glob("*.json"))
WRITTEN = {
    "explain": ["explain", "--json", "out.json", "in.dynadiag"],
    "check": ["check", "--json", "out.json", "in.dynadiag"],
}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", DOCUMENTS)
def test_a_schema_is_a_schema_and_has_the_version(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", command]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    document = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    assert {"schema", "dynadiag", "torch"} <= set(document["properties"])


@pytest.mark.parametrize("command", WRITTEN)
@pytest.mark.parametrize("text", ["f", "\x1b[31m</script>\u202e"])
def test_a_document_is_what_its_schema_says(command: str, text: str, tmp_path: Path) -> None:
    recording(tmp_path / "in.dynadiag", text)
    assert main(WRITTEN[command]) in (0, 1)
    document = json.loads((tmp_path / "out.json").read_text())
    jsonschema.Draft202012Validator(_closed(schema_of(command))).validate(document)


def _closed(schema: Any) -> Any:
    """The schema with keys that it does not name forbidden."""
    if isinstance(schema, dict):
        closed = {key: _closed(value) for key, value in schema.items()}
        return {"additionalProperties": False, **closed} if "properties" in closed else closed
    return [_closed(each) for each in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize("path", OLD, ids=[path.stem for path in OLD])
def test_who_reads_an_old_document_can_read_one_of_today(path: Path) -> None:
    """Each field of the old one is there and of its type; fields that came since do not matter."""
    command = path.stem.rpartition("-")[0]
    jsonschema.Draft202012Validator(_without_required(_closed(schema_of(command)))).validate(
        json.loads(path.read_text())
    )


def _without_required(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: _without_required(value) for key, value in schema.items() if key != "required"}
    return [_without_required(each) for each in schema] if isinstance(schema, list) else schema


def test_there_are_old_documents_of_each_command() -> None:
    assert {path.stem.rpartition("-")[0] for path in OLD} >= {"explain", "check"}


def test_a_command_without_a_document_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "browse"]) == 2
    assert "explain" in capsys.readouterr().err
