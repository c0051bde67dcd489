"""`dynadiag triage`: the folder, what is left when a part fails or is interrupted, and its exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import jsonschema
import pytest

from dynadiag.__main__ import main
from dynadiag.bisection.verdict import Verdict
from dynadiag.capture.launch import ProcessEnd
from dynadiag.commands import bisect_releases, triage, triage_run
from dynadiag.commands.bisect_releases import ReleaseOptions
from dynadiag.commands.schema import schema_of
from dynadiag.commands.target_options import LaunchedProgram
from dynadiag.minify.minify_result import Interrupted, MinifyResult
from dynadiag.trial.program import Program, TargetError
from dynadiag.trial.signature import Signature
from tests.commands.build import journal
from tests.commands.test_schema import _closed
from tests.minify.test_command import NO_LOWERING

FAILURE = Signature("exception", "ValueError", "secret-message", "torch/x.py:1 in f", "secret.py:1")
RUNGS = {"uncompiled": "pass", "inductor": "same"}
REPRO = MinifyResult("reduced", "inductor", FAILURE, FAILURE, "import torch\n", nodes_before=9, nodes_after=1)
ALL = ["bisect.dynadiag", "issue.md", "minify.dynadiag", "output.txt", "repro.py", "report.html", "run.dynadiag"]


@pytest.fixture(autouse=True)
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches that end at once, and a program that is never run."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.py").write_text("import torch\n")
    monkeypatch.setattr(triage_run, "run_recorded", _recorded)
    monkeypatch.setattr(triage_run, "find_culprits_of", _found("found"))
    monkeypatch.setattr(triage_run, "reduce_to_repro", _reduced)
    monkeypatch.setattr(triage_run, "describe_environment", lambda redact: "PyTorch version: 2.13.0")


def _recorded(program: object, recording: Path, args: object, **_: object) -> LaunchedProgram:
    journal(recording, file="/somewhere/secret.py")
    return LaunchedProgram(recording, recording, ProcessEnd(1, 0.01, False))


def _found(verdict: str) -> Any:
    def find(program: object, args: object, rows: Any, progress: object, *_: object) -> Verdict:
        rows.finish(0, force=True)
        failure = None if verdict == "passes" else FAILURE
        command = f"{Path.cwd() / 'secret.py'} --lr 1"
        return Verdict(verdict, RUNGS, "inductor", failure, target="secret.py", command=command)

    return find


def _reduced(
    program: object, args: object, rows: Any, progress: object, output: Path, *, follow_up: bool
) -> MinifyResult:
    assert follow_up
    rows.finish(0, force=True)
    output.write_text(REPRO.text)
    return REPRO.__class__(
        **{name: getattr(REPRO, name) for name in REPRO.__dataclass_fields__} | {"proved": True, "repro": str(output)}
    )


def _raises(error: BaseException) -> Any:
    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    return fail


def run(*words: str) -> tuple[int, dict[str, Any]]:
    code = main(["triage", *words, "secret.py"])
    return code, json.loads(Path("out", "triage.json").read_text())


def status(document: dict[str, Any]) -> dict[str, str]:
    return {part["name"]: part["status"] for part in document["parts"]}


def test_the_folder_has_everything_and_the_document_is_what_its_schema_says(capsys: pytest.CaptureFixture[str]) -> None:
    code, document = run("-o", "out", "--json", "-")
    assert code == 0
    assert json.loads(capsys.readouterr().out) == document
    assert sorted(path.name for path in Path("out").iterdir()) == sorted([*ALL, "triage.json"])
    assert document["reproduced"] is True
    assert document["versions"] is None
    assert Path(document["issue"]).read_text().count("```python") == 1
    assert set(status(document).values()) == {"done"}
    jsonschema.Draft202012Validator(_closed(schema_of("triage"))).validate(document)


def test_the_repro_is_tried_with_other_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def search(program: Program, options: ReleaseOptions, output: Path, progress: object) -> Any:
        tried.append((Path(program.target).name, options.torch, options.search.accuracy))
        found = Verdict("found", {}, failure=FAILURE).document()
        return SimpleNamespace(document=lambda: replace(found, versions={"2.12.0": "pass"}, first_bad="2.13.0"))

    monkeypatch.setattr(bisect_releases, "search_releases", search)
    code, document = run("-o", "out", "--accuracy", "--torch", "2.12.0..2.13.0")
    assert code == 0
    assert tried == [("repro.py", "2.12.0..2.13.0", False)]
    assert document["versions"]["first_bad"] == "2.13.0"
    text = Path("out", "issue.md").read_text()
    assert "| `2.12.0` | passes |" in text
    assert "first bad: `2.13.0`" in text


def test_what_is_not_there_to_be_minified_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triage_run, "reduce_to_repro", _raises(AssertionError("not to be called")))
    for number, (verdict, expected) in enumerate((("passes", 3), ("fails_uncompiled", 4), ("flaky", 5))):
        monkeypatch.setattr(triage_run, "find_culprits_of", _found(verdict))
        code, document = run("-o", "out", *["--force"] * (number > 0))
        assert code == expected
        assert document["minify"] is None
        assert status(document)["minify"] == "skipped"
        assert document["reproduced"] is (verdict != "passes")
        issue = Path("out", "issue.md").read_text()
        assert ("python secret.py --lr 1\n" in issue) is (verdict != "passes"), "without the folder"


@pytest.mark.parametrize("part", ["run_recorded", "find_culprits_of", "reduce_to_repro", "write_report"])
def test_each_part_can_fail_and_the_rest_is_there(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triage_run, part, _raises(RuntimeError("of ours")))
    code, document = run("-o", "out")
    assert code == (5 if part == "find_culprits_of" else 0)
    found = status(document)
    assert sorted(found.values()).count("failed") == 1
    (failed,) = (each for each in document["parts"] if each["status"] == "failed")
    assert failed["reason"] == "RuntimeError: of ours"
    assert "RuntimeError: of ours" in Path("out", "issue.md").read_text()


def test_after_an_interrupt_there_is_what_there_was(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(triage_run, "reduce_to_repro", _raises(Interrupted(REPRO)))
    code, document = run("-o", "out")
    assert code == 130
    assert status(document)["minify"] == "interrupted"
    assert document["minify"]["proved"] is False
    assert Path("out", "repro.py").read_text() == REPRO.text
    monkeypatch.setattr(triage_run, "find_culprits_of", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    code, document = run("-o", "out", "--force")
    assert (code, document["bisect"], document["reproduced"]) == (130, None, False)
    assert status(document) | {"bisect": "interrupted", "minify": "skipped", "report": "done"} == status(document)
    assert not Path("out", "repro.py").exists()


def test_a_budget_that_is_used_up_is_told() -> None:
    code, document = run("-o", "out", "--budget", "0.5")
    assert code == 5
    assert status(document)["bisect"] == "skipped"
    assert status(document)["environment"] == "done"
    assert "--budget" in Path("out", "issue.md").read_text()


@pytest.mark.parametrize("part", ["find_culprits_of", "reduce_to_repro"])
def test_a_part_that_does_not_end_is_interrupted_and_the_rest_is_written(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never_ends(*_: object, **__: object) -> NoReturn:
        try:
            while True:
                signal.pause()
        except KeyboardInterrupt:
            raise Interrupted(replace(REPRO, trials=7)) from None

    monkeypatch.setattr(triage_run, "_MIN_SECONDS", 0.01)
    monkeypatch.setattr(triage_run, part, never_ends)
    code, document = run("-o", "out", "--budget", "0.8")
    name = "minify" if part == "reduce_to_repro" else "bisect"
    assert code == (0 if name == "minify" else 5)
    reasons = {each["name"]: each["reason"] for each in document["parts"] if each["status"] == "failed"}
    assert reasons[name] == "the time of --budget was used up"
    assert document["minify"] is None or document["minify"]["trials"] == (7 if name == "minify" else 0)
    assert {"environment": "done", "report": "done", "issue": "done"}.items() <= status(document).items()


@pytest.mark.usefixtures("capsys")
def test_redacted_the_folder_has_nothing_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    code, document = run("-o", "out", "--redact")
    assert code == 0
    assert sorted(path.name for path in Path("out").iterdir()) == ["issue.md", "report.html", "triage.json"]
    for path in Path("out").iterdir():
        assert "secret" not in path.read_text(), path
    assert (document["issue"], document["explain"], document["redacted"]) == ("issue.md", None, True)
    kept = [line for line in capsys.readouterr().err.splitlines() if "-kept" in line][-1].partition(": ")[2]
    assert Path(kept, "repro.py").exists()


def test_what_is_there_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("out").mkdir()
    Path("out", "mine.txt").write_text("mine")
    assert main(["triage", "-o", "out", "secret.py"]) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["triage", "-o", "out", "--force", "secret.py"]) == 0
    assert main(["triage", "-o", "out", "--force", "secret.py"]) == 0
    assert Path("out", "mine.txt").read_text() == "mine"
    Path("file").write_text("mine")
    assert main(["triage", "-o", "file", "--force", "secret.py"]) == 2
    assert main(["triage", "-o", "no/such/out", "secret.py"]) == 2
    assert Path("file").read_text() == "mine"


@pytest.mark.parametrize("name", ["repro.py", "output.txt", "triage.json", "versions-torch-2.11.0.dynadiag"])
@pytest.mark.parametrize("after_a_triage", [False, True])
def test_a_file_that_no_triage_wrote_is_never_replaced(
    name: str, after_a_triage: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither one that was there before, nor one that somebody has changed since."""
    Path("out").mkdir()
    if after_a_triage:
        assert main(["triage", "-o", "out", "--force", "secret.py"]) == 0
    before = {path.name: path.read_bytes() for path in Path("out").iterdir()} | {name: b"mine"}
    Path("out", name).write_bytes(b"mine")
    assert main(["triage", "-o", "out", "--force", "secret.py"]) == 2
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before
    assert f"out/{name}" in capsys.readouterr().err


def test_a_target_that_is_none_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["triage", "-o", "out", "missing.py"]) == 2
    monkeypatch.setattr(triage_run, "find_culprits_of", _raises(TargetError("no such module")))
    assert main(["triage", "-o", "out", "secret.py"]) == 2
    assert not Path("out").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("forked_interpreters")
def test_a_real_failure_becomes_an_issue_whose_commands_run(tmp_path: Path) -> None:
    Path("train.py").write_text(NO_LOWERING)
    words = [sys.executable, "-m", "dynadiag", "triage", "-o", "real", "train.py"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in Path("real").iterdir()) == sorted([*ALL, "triage.json"])
    text = Path("real", "issue.md").read_text()
    first, second = text.partition("```sh\n")[2].splitlines()[:2]
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))  # the commands say `python`
    codes = [
        subprocess.run(
            command, shell=True, cwd="real", capture_output=True, env={**os.environ, "PATH": path}
        ).returncode
        for command in (first, second)
    ]
    assert codes == [1, 0]


def test_an_issue_without_a_program_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    issue = tmp_path / "issue.md"
    issue.write_text("### Bug\n```sh\npip install torch\n```\n")
    assert main(["triage", "-o", "out", str(issue)]) == 3
    assert "holds no program" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_issue_that_cannot_be_read_or_has_no_sandbox_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    issue = tmp_path / "issue.md"
    assert main(["triage", "-o", "out", str(issue)]) == 2
    assert f"cannot read {issue}" in capsys.readouterr().err
    issue.write_text("```python\nimport torch\ntorch.compile(torch.sin)\n```\n")
    monkeypatch.setattr(triage, "why_not_isolated", lambda: "bubblewrap is not installed")
    for arguments in (
        ["-o", "out", str(issue)],
        [str(issue), "-o", "out"],  # its program has no arguments
        ["--budget", "60", str(issue), "-o", "out"],
    ):
        assert main(["triage", *arguments]) == 2
        refused = capsys.readouterr().err
        assert "bubblewrap is not installed" in refused
        assert "--no-sandbox" in refused
    assert not (tmp_path / "out").exists()


def test_the_arguments_of_a_program_stay_behind_it_whatever_their_names() -> None:
    words = ["-o", "a.md", "train.py", "notes.md", "--lr", "1"]
    assert triage.arrange_arguments(words) == words


def test_the_triage_of_an_issue_reports_on_stdout_as_that_of_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the folder of the sandbox, which is gone by then, is not told."""
    inner = tmp_path / "python"  # stands for the triage in the sandbox, which is called with the words of a triage
    inner.write_text(
        '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\nmkdir "$2"; echo "{}" > "$2/triage.json"\n'
        'echo "trial 1: as written: fail" >&2; printf "found: lowering sin\\033[2J\\n"; echo "$2" >&2\n'
    )
    inner.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(inner))
    issue = tmp_path / "issue.md"
    issue.write_text("```python\nimport torch\ntorch.compile(torch.sin)\n```\n")
    assert main(["triage", "-o", "out", "--no-sandbox", str(issue)]) == 0
    said = capsys.readouterr()
    assert said.out == "found: lowering sin\\x1b[2J\n"
    assert said.err.splitlines() == ["trial 1: as written: fail", str(tmp_path / "out")]
