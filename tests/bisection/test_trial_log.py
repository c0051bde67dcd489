"""The recording of a search contains the command, the trials and the verdict."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from dynadiag.bisection.trial_log import TrialLog
from dynadiag.commands import bisect, minify
from dynadiag.commands.search_options import SearchOptions
from dynadiag.errors import DynadiagError
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
