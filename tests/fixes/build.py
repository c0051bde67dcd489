"""Problems and changed texts for tests of rewrites: what the catalogue makes of a piece of source."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dynadiag.fixes.candidate import Candidate, Refusal, Sources
from dynadiag.fixes.edits import apply_edits
from dynadiag.fixes.problems import FixProblem
from dynadiag.fixes.project import Project
from dynadiag.fixes.rewrites import CATALOGUE
from dynadiag.recording.records import Frame, Span
from dynadiag.trial.program import Program

HEAD = "import torch\nfrom torch import nn\n\n\n"


def problem_at(text: str, marked: str, **fields: Any) -> FixProblem:
    """A break at the only place where ``marked`` stands in the text."""
    assert text.count(marked) == 1
    start = text.index(marked)
    line, column = text.count("\n", 0, start) + 1, start - (text.rfind("\n", 0, start) + 1)
    end = start + len(marked)
    end_line, end_column = text.count("\n", 0, end) + 1, end - (text.rfind("\n", 0, end) + 1)
    span = Span("f.py", line, column, end_line, end_column)
    return FixProblem(
        **{
            "kind": "break",
            "identity": "b",
            "file": "f.py",
            "span": span,
            "function": "f",
            "compile_id": "0/0",
            "title": "",
            **fields,
        }
    )


def recompile_of(
    text: str, function: str, source: str, line: int, call_line: int, values: tuple[str, str], folder: Path
) -> FixProblem:
    """A recompile of a function on ``line``, called on ``call_line``, whose guard on ``source`` failed."""
    stack = (
        Frame("f.py", call_line, "main"),
        Frame("f.py", line, function.rpartition(".")[2]),
    )
    return FixProblem(
        "recompile",
        "r",
        "f.py",
        Span(str(folder / "f.py"), line),
        function,
        "0/1",
        "",
        source=source,
        was=values[:1],
        now=values[1],
        stack=stack,
    )


def candidates(text: str, problem: FixProblem, folder: Path) -> list[Candidate]:
    """All candidates of the catalogue."""
    return [found for found in considered(text, problem, folder) if isinstance(found, Candidate)]


def considered(text: str, problem: FixProblem, folder: Path) -> list[Candidate | Refusal]:
    """All that the catalogue says: candidates and refusals."""
    sources = Sources(project_of(text, folder))
    return [found for rewrite in CATALOGUE for found in rewrite.made(problem, sources)]


def changed(text: str, found: Iterable[Candidate]) -> list[str]:
    """The text with each candidate's edits. Each has to be Python."""
    texts = [apply_edits({"f.py": text}, each.edits)["f.py"] for each in found]
    for each in texts:
        compile(each, "f.py", "exec")
    return texts


def project_of(text: str, folder: Path) -> Project:
    """The project of one file with this text."""
    (folder / "f.py").write_text(text)
    return Project(Program(str(folder / "f.py")), folder, folder)
