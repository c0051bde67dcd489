"""One recording in which every name, source, message and path is hostile, through every output: it stays text."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dynadiag.__main__ import main
from tests.commands.build import recording
from tests.hostile import HOSTILE, assert_no_control, assert_no_workflow_command


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "in.dynadiag"
    return recording(path, HOSTILE, f"/home/{HOSTILE}/program.py", wrong=True)


def targets(command: str, hostile: Path) -> list[str]:
    if command != "diff":
        return [str(hostile)]
    return [str(recording(Path("other.dynadiag"), HOSTILE[::-1], wrong=True)), str(hostile)]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("COLUMNS", "60")  # lines are broken often
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "words",
    [["explain", "--all"], ["check"], ["kernels"], ["diff", "--all"], ["caches"], ["values"]],
    ids=" ".join,
)
def test_text_on_a_terminal_and_in_a_log_stays_text(
    words: list[str], hostile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([*words, *targets(words[0], hostile)])
    printed = capsys.readouterr()
    assert printed.out
    for text in (printed.out, printed.err):
        assert_no_control(text)
        assert_no_workflow_command(text)


@pytest.mark.parametrize("command", ["explain", "check", "kernels", "diff", "caches", "values"])
def test_a_document_on_stdout_is_data(command: str, hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([command, "--json", "-", *targets(command, hostile)])
    text = capsys.readouterr().out
    assert_no_control(text)
    assert_no_workflow_command(text)
    json.loads(text)


def test_what_check_writes_for_ci_stays_text(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--github", "--sarif", "out.sarif", str(hostile)]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::")]
    assert lines
    assert all(line.startswith(("::error title=dynadiag ", "::warning title=dynadiag ")) for line in lines)
    sarif, summary = Path("out.sarif").read_text(), Path("summary.md").read_text()
    for text in (sarif, summary):
        assert_no_control(text)
        assert_no_workflow_command(text)
    (run,) = json.loads(sarif)["runs"]
    assert {result["ruleId"] for result in run["results"]} <= {rule["id"] for rule in run["tool"]["driver"]["rules"]}


class _Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.handlers: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


def test_the_page_has_no_markup_of_it(hostile: Path) -> None:
    assert main(["report", "-o", "out.html", str(hostile)]) == 0
    text = Path("out.html").read_text()
    assert_no_control(text)
    parsed = _Tags(text)
    assert not parsed.found & {"img", "iframe", "object"}
    assert parsed.handlers == []
