"""Graph breaks of some sixty kinds: each is told with torch's id and the span of source that breaks.

`break_programs.txt` has the programs. A heading is a name and the ids of the root causes in the order in which torch
meets them; the spans stand between « and ». A heading `name@2.14` says what holds from that release of torch on:
"traced" where it breaks no more, "error" where torch fails by a fault of its own; `name@python3.13`, what holds from
that Python on. Without a program of its own it is about the one before it.
"""

from __future__ import annotations

import platform
import re
import runpy
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from packaging.version import Version
from torch._dynamo import bytecode_transformation

import dynadiag
from dynadiag.explanation.explanation import Explanation, explain

_BLOCK = re.compile(
    r"^### (?P<name>\w+)(?:@(?P<python>python)?(?P<since>[\d.]+))? (?P<ids>[^\n]*)\n(?P<source>.*?)(?=^### |\Z)",
    re.MULTILINE | re.DOTALL,
)
_TORCH, _PYTHON = Version(Version(torch.__version__).base_version), Version(platform.python_version())


def _programs() -> dict[str, tuple[list[str], str]]:
    """Each program, and the ids of its breaks on the installed torch and Python."""
    programs: dict[str, tuple[list[str], str]] = {}
    for block in _BLOCK.finditer(Path(__file__).with_name("break_programs.txt").read_text()):
        if Version(block["since"] or "0") <= (_PYTHON if block["python"] else _TORCH):
            source = block["source"] if block["source"].strip() else programs[block["name"]][1]
            programs[block["name"]] = (block["ids"].split(), source)
    return programs


PROGRAMS = _programs()
_CALL = """
if __name__ == "__main__":
    torch.compile(f, **{"backend": "eager", **globals().get("KW", {})})(*globals().get("ARGS", (torch.ones(3),)))
"""


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    torch._dynamo.reset()
    # Codes of two files are equal if nothing but the file differs, and torch keeps the instructions of the first. A
    # function inside would be told as one of an earlier test's file.
    bytecode_transformation._cached_cleaned_instructions.cache_clear()
    with torch._dynamo.config.patch(allow_rnn=False, trace_numpy=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch._dynamo.config.reorderable_logging_functions.clear()
    torch._dynamo.reset()


def run(folder: Path, source: str) -> Explanation:
    program = folder / "program.py"
    program.write_text(f"import torch\n{source.replace('«', '').replace('»', '')}{_CALL}")
    with suppress(Exception), dynadiag.record(folder / "run.dynadiag"):
        runpy.run_path(str(program), run_name="__main__")
    with dynadiag.open(folder / "run.dynadiag") as recording:
        return explain(recording)


def marked_spans(source: str) -> set[tuple[int, int, int, int]]:
    """Line, column, end line and end column between each pair of marks; the first line is the import."""
    spans, line, column = set(), 2, 0
    opened: list[tuple[int, int]] = []
    for character in source:
        if character == "«":
            opened.append((line, column))
        elif character == "»":
            spans.add((*opened.pop(), line, column))
        elif character == "\n":
            line, column = line + 1, 0
        else:
            column += 1
    return spans


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_break_is_told_with_its_id_and_the_span_that_breaks(tmp_path: Path, name: str) -> None:
    ids, source = PROGRAMS[name]
    found = run(tmp_path, source)
    own = [item for item in found.roots if item.span.file == str(tmp_path / "program.py")]
    if ids == ["traced"]:
        assert (found.breaks, found.findings) == ((), ())
        return
    if ids == ["error"]:
        assert (own, [item.rule for item in found.findings]) == ([], ["failed-compile"])
        return
    assert [item.gb_id for item in own] == ids
    spans = {(item.span.line, item.span.column, item.span.end_line, item.span.end_column) for item in own}
    assert spans == marked_spans(source)
    first = next(item for item in found.findings if item.rule != "failed-program")  # some raise uncompiled too
    assert first.rule in ("break", "failed-compile")
    assert first.span.file == str(tmp_path / "program.py")


def test_a_call_into_pythons_library_that_breaks_on_is_one_finding(tmp_path: Path) -> None:
    """Python's own `logging` is looked at function by function after the break at its call."""
    ids, source = PROGRAMS["logging"]
    found = run(tmp_path, source)
    assert len(found.breaks) > len(ids) == found.break_count


@pytest.mark.skipif(PROGRAMS["method"][0] == ["traced"], reason="this torch traces Counter.most_common")
def test_a_value_that_cannot_be_rebuilt_follows_from_the_break_that_it_was_needed_after(tmp_path: Path) -> None:
    _, source = PROGRAMS["method"]
    found = run(tmp_path, source)
    (cause, other) = [item for item in found.findings if item.rule == "break"]
    assert (cause.id, other.id, other.severity) == ("GB0059", "GB0092", "note")
    assert found.break_count == 2
    assert "2 graph breaks" in found.headline.sentence
    assert other.caused_by == 0
    assert [fact.text for fact in cause.evidence if fact.label == "then"] == [other.cause]


def test_an_assertion_that_fails_while_tracing_is_not_told_as_a_branch_on_data(tmp_path: Path) -> None:
    (found,) = (item for item in run(tmp_path, PROGRAMS["constassert"][1]).findings if item.rule == "break")
    assert found.title == "an assertion fails, whatever the tensors hold"
    assert "does not depend on what tensors hold" in (found.cause or "")
    assert not any("torch.cond" in each.text for each in found.advice)
