"""Proved changes in SARIF: what they replace, and that nothing stale or foreign is offered."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dynadiag.__main__ import main
from dynadiag.check.configuration import parse_budgets
from dynadiag.check.proved_fixes import read_fixes
from dynadiag.check.result import check
from dynadiag.errors import UnreadableInput
from dynadiag.fixes.edits import unified_diff
from dynadiag.render.sarif import sarif_json
from tests.check.build import PROGRAM, a_measurement
from tests.hostile import HOSTILE, assert_no_control

CHANGED = PROGRAM.replace("    print(y)\n", "").replace("return y.item()", "return y").replace("def f", "# new\ndef f")


def a_document(folder: Path, new: str = CHANGED, old: str = PROGRAM, **changes: Any) -> Path:
    """A document of `fix` with one proved change of ``prog.py``, and the file."""
    (folder / "prog.py").write_bytes(old.encode())
    place = {"kind": "break", "gb_id": "GB0059", "compile_id": "0/0", "file": str(folder / "prog.py"), "line": 3}
    diff = unified_diff({"prog.py": old}, {"prog.py": new})
    entry = {"for": place, "verdict": "proved", "title": "print after the graph", "diff": diff, **changes}
    path = folder / "fixes.json"
    path.write_text(json.dumps({"schema": 1, "folder": str(folder), "fixes": [entry]}))
    return path


def results(folder: Path, fixes: Path) -> list[dict[str, Any]]:
    """The results of a check of ``prog.py`` that has a break on line 3."""
    run = a_measurement((3,))
    moved = tuple(replace(each, file=str(folder / "prog.py")) for each in run.occurrences)
    result = check([replace(run, occurrences=moved)], None, lambda _: parse_budgets({}, "test"), folder)
    (made,) = json.loads(sarif_json(result, read_fixes([fixes])))["runs"]
    found: list[dict[str, Any]] = made["results"]
    return found


def applied(text: str, replacements: list[dict[str, Any]]) -> str:
    """The text with the replacements made, as a reader of SARIF makes them."""
    lines = text.splitlines(keepends=True)
    for each in reversed(replacements):
        region = each["deletedRegion"]
        assert (region["startColumn"], region["endColumn"]) == (1, 1)
        lines[region["startLine"] - 1 : region["endLine"] - 1] = [each.get("insertedContent", {"text": ""})["text"]]
    return "".join(lines)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (PROGRAM, CHANGED),
        (PROGRAM, "# first\n" + PROGRAM + "# last\n"),
        ("a = 1\n-- b\n", "a = 1\n-- c\n"),
        ("a = 1\nb = 2", "a = 1\nb = 3"),
        ("a = 1\nb = 2", "c = 1\nb = 2"),
        ("a = 1\r\nb\r\n", "a = 2\r\nb\r\n"),
    ],
)
def test_a_proved_change_stands_at_its_problem_to_the_character(old: str, new: str, tmp_path: Path) -> None:
    (found,) = results(tmp_path, a_document(tmp_path, new, old))
    (fix,) = found["fixes"]
    (change,) = fix["artifactChanges"]
    assert change["artifactLocation"] == {"uri": "prog.py", "uriBaseId": "SRCROOT"}
    assert fix["description"]["text"] == "print after the graph (proved by dynadiag fix)"
    assert applied(old, change["replacements"]) == new


def test_a_change_of_a_file_that_is_another_one_by_now_is_left_out(tmp_path: Path) -> None:
    path = a_document(tmp_path)
    (tmp_path / "prog.py").write_text(PROGRAM.replace("print(y)", "print(y, x)"))
    assert "fixes" not in results(tmp_path, path)[0]
    (note,) = read_fixes([path]).notes
    assert note.endswith("prog.py:3 is left out: the file was changed since `dynadiag fix`")


@pytest.mark.parametrize("changes", [{"verdict": "rejected"}, {"diff": ""}, {"for": {"kind": "recompile"}}])
def test_nothing_else_is_offered(changes: dict[str, Any], tmp_path: Path) -> None:
    place = {"gb_id": None, "file": str(tmp_path / "prog.py"), "line": 3}
    changes = {name: value if isinstance(value, str) else {**place, **value} for name, value in changes.items()}
    assert "fixes" not in results(tmp_path, a_document(tmp_path, **changes))[0]


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    (found,) = results(tmp_path, a_document(tmp_path, title=HOSTILE))
    assert_no_control(found["fixes"][0]["description"]["text"])


def test_what_is_no_document_of_fix_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    for words in (["--sarif", str(tmp_path / "s"), "--fixes", str(other)], ["--fixes", str(other)]):
        assert main(["check", *words, "prog.py"]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_document_that_is_not_there_is_named_once(tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    with pytest.raises(UnreadableInput) as refused:
        read_fixes([path])
    assert str(refused.value) == f"{path}: No such file or directory"
    path.write_text("[]")
    with pytest.raises(UnreadableInput, match=r"not a document of `dynadiag fix --json FILE`"):
        read_fixes([path])
