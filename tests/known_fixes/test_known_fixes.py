"""The collection of known fixes: which changes come first, and that its data is sound."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dynadiag import known_fixes
from dynadiag.fixes.fix_search import entry_of, known_titles, merged
from dynadiag.fixes.problems import FixProblem
from dynadiag.fixes.project import Project
from dynadiag.known_fixes import KnownFix, function_at
from dynadiag.recording.records import Span
from dynadiag.trial.program import Program
from tests.fixes.library import SCALE, install_package


def test_what_was_proved_for_this_text_of_a_function_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = install_package(tmp_path, {"__init__.py": "", "scale.py": SCALE})
    project = Project(Program("p.py"), tmp_path / "program", tmp_path)
    line = SCALE[: SCALE.index(".item()")].count("\n") + 1
    name = project.name(str(place / "fakelib" / "scale.py"))
    problem = FixProblem("break", "b", name, Span(None, line), "Scale.forward", "0/0", "", "GB0124")
    function = function_at(SCALE, line)
    assert function is not None
    assert function[0] == "Scale.forward"
    entry = KnownFix("fakelib", "1.2", "fakelib.scale", *function, "GB0124", "keep it", ("A",), "python x")
    monkeypatch.setattr(known_fixes, "collection", lambda: (entry,))
    assert known_titles(project, problem) == {"keep it"}
    project.sources[str(name)] = SCALE.replace("torch.relu", "torch.tanh")
    assert known_titles(project, problem) == frozenset()
    made = entry_of(project, problem, "t", "M", "c")
    assert made is not None
    assert (made.package, made.version, made.function) == ("fakelib", "1.2", "Scale.forward")
    bare = place / "bare" / "scale.py"  # no metadata lists it
    bare.parent.mkdir()
    bare.write_text(SCALE)
    assert entry_of(project, replace(problem, file=project.name(str(bare))), "t", "M", "c") is None
    other = KnownFix("fakelib", "1.2", "fakelib.scale", *function, "GB0124", "keep it", ("B",), "python y")
    (both,) = merged([entry, other])
    assert both.classes == ("A", "B")


def test_the_collection_is_data_that_names_rewrites() -> None:
    for entry in known_fixes.collection():
        assert len(entry.sha256) == 64
        assert entry.classes
        assert "\n" not in entry.title
        assert entry.proof.startswith("python benchmarks/model_classes.py")
