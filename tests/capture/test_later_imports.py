"""The seconds that torch takes to import parts of itself later are known, and its loaders are left as they were."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dynadiag.explanation.source import first_event_data
from dynadiag.recording.opening import open_recording

PROGRAM = """
import sys
import torch

assert "torch._inductor.compile_fx" not in sys.modules
torch.compile(torch.nn.Linear(2, 2), backend="eager")(torch.ones(2))
assert "exec_module" not in vars(sys.modules["torch._inductor"].__spec__.loader)
"""
START = "from dynadiag.capture.later_imports import LaterImports\nLaterImports().start()\n"
MISSING = "import torch\n{}import torch.no_such_module\n"


def test_the_compiler_is_imported_when_something_is_compiled(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "dynadiag", "caches", "--no-try", "-o", "run.dynadiag", "program.py"]
    told = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert "the program itself" in told
    with open_recording(tmp_path / "run.dynadiag") as recording:
        imports, seconds = first_event_data(recording, "dynadiag_end")["imports"], recording.run.seconds
    assert seconds is not None
    assert 0 < sum(ended - began for began, ended in imports) < seconds


def test_a_missing_module_of_torch_is_told_as_without_it() -> None:
    commands = [[sys.executable, "-c", MISSING.format(started)] for started in ("", START)]
    told = [subprocess.run(each, capture_output=True, text=True, check=False).stderr for each in commands]
    assert "No module named 'torch.no_such_module'" in told[0]
    assert told[1].replace("line 4", "line 2") == told[0]
