"""The recording of a search contains the command, the trials and the verdict."""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from dynadiag.bisection import trial_log
from dynadiag.bisection.trial_log import TrialLog
from dynadiag.commands import bisect, minify
from dynadiag.commands.search_options import SearchOptions
from dynadiag.errors import DynadiagError, UnwritableOutput
from dynadiag.recording.fold import fold
from dynadiag.recording.journal import Journal
from dynadiag.recording.opening import open_recording
from dynadiag.recording.reader import Recording
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.typed_json import load

STOPPED = """
import os, sys
from pathlib import Path
from dynadiag.bisection.trial_log import TrialLog
TrialLog(Path(sys.argv[1]), "program.py", ["program.py"])
os._exit(0)
"""


def _document(rows: TrialLog, kind: str) -> dict[str, object]:
    with Recording(rows.output) as found:
        (event,) = found.events(kind)
        return dict(json.loads(found.payload(event.index))) if event.payload_size else found.metadata(event.index)


def test_the_log_keeps_the_command_and_the_verdict(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("x = 1\ny = 2\n")
    culprits = [{"class": "lowering", "name": "relu", "file": str(program), "line": 2}, {"file": "/no/such.py"}, {}]
    asked = {"command": "bisect", "options": ["--accuracy"]}
    rows = TrialLog(tmp_path / "search.dynadiag", "program.py", ["program.py"], asked=asked)
    rows.add("candidate", Outcome(None, 1.0, 7, 0), "pass", "all off: lowering")
    rows.add_verdict(json.dumps({"verdict": "found", "culprits": culprits}))
    rows.finish(0, force=False)
    assert _document(rows, "dynadiag_search")["dynadiag_search"] == asked
    assert _document(rows, "dynadiag_verdict") == {"verdict": "found", "culprits": culprits}
    with Recording(rows.output) as found:
        assert found.source(str(program)) == "x = 1\ny = 2\n"
        (trial,) = found.trials()
    assert json.loads(trial.outcome)["label"] == "all off: lowering"
    assert load(trial.outcome, Outcome).passed


def test_the_journal_of_a_stopped_search_is_removed_only_by_force(tmp_path: Path) -> None:
    output = tmp_path / "search.dynadiag"
    stopped = subprocess.run([sys.executable, "-c", STOPPED, str(output)], check=True)
    journal = Path(f"{output}.journal")
    assert stopped.returncode == 0
    assert journal.exists()
    with pytest.raises(DynadiagError, match=r"--resume .* --force"):
        TrialLog(output, "program.py", ["program.py"])
    rows = TrialLog(output, "program.py", ["program.py"], force=True)
    with pytest.raises(DynadiagError, match="another search"):  # one that is being made is nobody's to replace
        TrialLog(output, "program.py", ["program.py"], force=True)
    rows.discard()
    TrialLog(output, "program.py", ["program.py"], force=True).discard()  # there may be none, too


def _search(output: Path, command: str = "bisect", resume: Path | None = None, *, force: bool = False) -> TrialLog:
    asked = {"command": command, "options": []}
    return TrialLog(output, "program.py", ["program.py"], resume, asked, force)


def _stop_with_a_trial(rows: TrialLog) -> Path:
    """End a search as a kill does: its journal has a trial, and its process is gone. Returns the journal."""
    rows.add("candidate", Outcome(None, 1.0, 7, 0), "pass")
    rows._journal.close()
    journal = Path(f"{rows.output}.journal")
    journal.write_text(journal.read_text().replace(f'"pid": {os.getpid()}', f'"pid": {2**22 + 1}'))
    return journal


def test_only_a_search_of_the_same_command_is_resumed(tmp_path: Path) -> None:
    other, run, bisected = (tmp_path / f"{name}.dynadiag" for name in ("fix", "run", "bisect"))
    TrialLog(other, "program.py", ["program.py"]).finish(0, force=False)
    log = tmp_path / "run.journal"
    journal = Journal.create(log)
    journal.append({"dynadiag_run": {"target": "program.py", "argv": ["program.py"]}})
    journal.close()
    fold(log, run)
    _search(bisected).finish(5, force=False)
    before = [path.read_bytes() for path in (other, run, bisected)]
    for path in (other, run):
        with pytest.raises(DynadiagError, match="not the recording of a search"):
            _search(path, resume=path)
    with pytest.raises(DynadiagError, match="a search of bisect, which minify does not replace"):
        _search(bisected, "minify", bisected)
    assert [path.read_bytes() for path in (other, run, bisected)] == before
    assert not list(tmp_path.glob("*.dynadiag.journal"))
    _search(bisected, resume=bisected).discard()
    _search(tmp_path / "minify.dynadiag", "minify", bisected).discard()  # the trials are the same


def test_a_search_over_releases_is_not_resumed(tmp_path: Path) -> None:
    output = tmp_path / "releases.dynadiag"
    asked = {"command": "bisect", "options": ["--torch", "2.11..2.13"]}
    TrialLog(output, "program.py", ["program.py"], asked=asked).finish(0, force=False)
    with pytest.raises(DynadiagError, match="not the recording of a search that can be resumed"):
        _search(output, resume=output)


def test_the_journal_of_a_search_on_another_machine_is_left_alone(tmp_path: Path) -> None:
    output = tmp_path / "search.dynadiag"
    journal = _stop_with_a_trial(_search(output))
    journal.write_text(journal.read_text().replace(f'"host": "{socket.gethostname()}"', '"host": "elsewhere"'))
    before = journal.read_bytes()
    for resume, force in ((output, False), (None, True)):
        with pytest.raises(DynadiagError, match="another machine: give another name"):
            _search(output, resume=resume, force=force)
    assert journal.read_bytes() == before
    other = _search(tmp_path / "other.dynadiag", resume=output)
    assert other.has_recorded("candidate")
    other.discard()


def test_the_trials_of_a_stopped_search_are_kept_if_its_resumption_fails(tmp_path: Path) -> None:
    output = tmp_path / "search.dynadiag"
    journal = _stop_with_a_trial(_search(output))
    rows = _search(output, resume=output)
    assert rows.has_recorded("candidate")
    rows.discard()
    assert not journal.exists()
    with Recording(output) as found:
        assert [trial.candidate for trial in found.trials()] == ["candidate"]


def test_resuming_one_search_into_another_file_removes_no_stopped_search_there(tmp_path: Path) -> None:
    first, second = tmp_path / "first.dynadiag", tmp_path / "second.dynadiag"
    _search(first).finish(5, force=False)
    journal = _stop_with_a_trial(_search(second))
    before = journal.read_bytes()
    with pytest.raises(DynadiagError, match="was left by a search that was stopped"):
        _search(second, resume=first)
    assert journal.read_bytes() == before
    _search(second, resume=first, force=True).discard()


@pytest.mark.parametrize("trials", [0, 1])
def test_an_interrupted_search_replaces_a_recording_only_by_trials(trials: int, tmp_path: Path) -> None:
    output = tmp_path / "search.dynadiag"
    _search(output).finish(0, force=False)
    before = output.read_bytes()
    rows = _search(output, force=True)
    for _ in range(trials):
        rows.add("candidate", Outcome(None, 1.0, 7, 0), "pass")
    with pytest.raises(KeyboardInterrupt), rows.kept_after_interrupt():
        raise KeyboardInterrupt
    assert (output.read_bytes() == before) == (trials == 0)
    assert [path.name for path in tmp_path.iterdir()] == ["search.dynadiag"]


def test_a_search_says_that_its_trials_could_not_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = _search(tmp_path / "search.dynadiag")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = (tmp_path / "search.dynadiag.journal").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit[1]))
    try:
        rows.add("candidate", Outcome(None, 1.0, 7, 0), "pass")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    rows.finish(0, force=True)
    assert "trials are missing from the recording: " in capsys.readouterr().err


def test_a_search_whose_recording_cannot_be_written_keeps_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = _search(tmp_path / "search.dynadiag")
    rows.add("candidate", Outcome(None, 1.0, 7, 0), "pass")

    def full(*_: object, **__: object) -> None:
        raise UnwritableOutput("cannot write search.dynadiag: No space left on device")

    monkeypatch.setattr(trial_log, "fold", full)
    assert rows.finish(0, force=True) == rows.kept == tmp_path / "search.dynadiag.journal"
    assert "No space left" in capsys.readouterr().err
    monkeypatch.undo()
    with open_recording(rows.kept) as found:
        assert len(found.trials()) == 1


def _parsed(command: ModuleType, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.prepare_parser(parser)
    return parser.parse_args([*words, "program.py"])


def test_the_logged_command_repeats_the_search() -> None:
    words = ["--accuracy", "--fresh", "--rtol", "0.5", "--timeout", "9.0", "--repeat", "3", "--rungs", "eager,inductor"]
    assert SearchOptions.of(_parsed(bisect, *words, "--force")).words("bisect") == {
        "command": "bisect",
        "options": words,
    }
    plain = _parsed(minify, "--budget", "60", "-o", "repro.py")
    assert SearchOptions.of(plain).words("minify") == {"command": "minify", "options": ["--budget", "60.0"]}
