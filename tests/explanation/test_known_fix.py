"""`explain` names the known change that ends a break of a library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import dynadiag
from dynadiag import known_fixes
from dynadiag.known_fixes import KnownFix, function_at
from dynadiag.render.report import report
from tests.fixes.library import SCALE, install_package

pytestmark = pytest.mark.usefixtures("forked_interpreters")

PROGRAM = """import sys
sys.path.insert(0, "site-packages")
import torch
from fakelib.scale import Scale

torch.compile(Scale(), backend="eager")(torch.ones(2, 4))
"""


def test_a_known_change_of_the_function_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_package(tmp_path, {"__init__.py": "", "scale.py": SCALE})
    (tmp_path / "p.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "dynadiag", "record", "-o", "p.dynadiag", "p.py"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    function = function_at(SCALE, SCALE[: SCALE.index(".item()")].count("\n") + 1)
    assert function is not None
    entry = KnownFix("fakelib", "1.2", "fakelib.scale", *function, "GB0124", "keep it", ("A", "B"), "python x")
    other = KnownFix("fakelib", "1.2", "fakelib.scale", function[0], "0" * 64, "GB0124", "keep it", ("C",), "python x")
    said = "A change of `Scale.forward` ends this break, proved on fakelib 1.2 (A, B)"
    for known, is_said in (((entry,), True), ((other,), False), ((), False)):
        monkeypatch.setattr(known_fixes, "collection", lambda known=known: known)
        with dynadiag.open(tmp_path / "p.dynadiag") as recording:
            text = " ".join(str(report(recording)).split())
        assert (said in text) == is_said
