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
torch.compile(torch.nn.Linear(2, 2))
spec = sys.modules["torch._inductor"].__spec__
assert "exec_module" not in vars(spec.loader), vars(spec.loader)
if len(sys.argv) > 1:
    import torch.no_such_module
"""


def test_the_compiler_is_imported_when_something_is_compiled(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "dynadiag", "record", "-o", "run.dynadiag", "program.py"]
    subprocess.run(command, cwd=tmp_path, check=True)
    with open_recording(tmp_path / "run.dynadiag") as recording:
        imports, seconds = first_event_data(recording, "dynadiag_end")["imports"], recording.run.seconds
    assert imports
    assert seconds is not None
    assert 0 < sum(ended - began for began, ended in imports) < seconds


def test_a_missing_module_is_told_as_without_the_recorder(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    bare = [sys.executable, "program.py", "missing"]
    recorded = [sys.executable, "-m", "dynadiag", "record", "-o", "run.dynadiag", "program.py", "missing"]
    told = [subprocess.run(each, cwd=tmp_path, capture_output=True, text=True).stderr for each in (bare, recorded)]
    assert told[0].startswith("Traceback")
    assert told[1].startswith(told[0])
