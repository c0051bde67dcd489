"""The state and the result of a search, as lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dynadiag.explanation.formatting import count, duration
from dynadiag.render.paths import source_location
from tui.location import FILE_VIEW, Location
from tui.search_result import SearchResult
from tui.styled_report import brief_error
from tui.styled_text import Fragment, Line, line, one_line

ReadSource = Callable[[str], str | None]  # the recorded text of a source file

_EXIT_SENTENCES = {
    0: ("found", "good"),
    3: ("it does not fail", "break"),
    4: ("it fails uncompiled too", "break"),
    5: ("it fails, but not every time: no culprit can be named", "break"),
    6: ("the repro was written, and its proof failed", "break"),
    7: ("it fails in a way that cannot be reduced", "break"),
    130: ("stopped: its trials are kept, c resumes it", "break"),
}
_NO_RESULT = ("the trials of a command that keeps no result in its recording", "dim")
_NO_EXIT = ("it did not end: its trials are kept, c resumes it", "break")
_RUNNING = ("● running", "good")
_RUNG_MARKS = {"pass": ("✓", "good"), "same": ("✗", "error"), "fail": ("✗", "error"), "different": ("≠", "break")}
_DOES_NOT_FAIL = 3  # exit code of a search whose program does not fail


def search_lines(
    finding: SearchResult | None, cwd: str | None, source: ReadSource, deciding: Sequence[int]
) -> Iterator[Line]:
    """Yield the recorded search and its result; without one, how to start one.

    ``deciding`` are the trials that the verdict rests on.
    """
    if finding is None:
        yield line(("this recording has no search", "strong"))
        yield line(("B", "key"), " bisects the program: finds the part of the compiler at fault")
        yield line(("M", "key"), " minifies it: writes a small program with the same failure")
        return
    yield from result_lines(finding, cwd, source, deciding)
    yield line(("command  ", "key"), (" ".join((finding.kind or "a search", *finding.options)), "dim"))


def search_words(kind: str | None, exit_code: int | None) -> tuple[str, str]:
    """How a search ended, and the role of these words."""
    if exit_code is None:
        return _NO_EXIT if kind else _NO_RESULT
    if kind == "minify" and exit_code == 0:
        return "written and proved", "good"
    return _EXIT_SENTENCES.get(exit_code, (f"ended with exit code {exit_code}", "error"))


def result_lines(
    finding: SearchResult,
    cwd: str | None,
    source: ReadSource,
    deciding: Sequence[int] = (),
) -> Iterator[Line]:
    """Yield the result of a search: verdict, culprits with their source or repro, what proves it, rungs, failure.

    What proves it goes to the trial that does.
    """
    words, role = _RUNNING if finding.running else search_words(finding.kind, finding.exit_code)
    seconds = finding.verdict.get("seconds")
    time = f" in {duration(seconds)}" if isinstance(seconds, (int, float)) else ""
    told = finding.verdict.get("trials")
    trials = told if isinstance(told, int) else finding.trials
    yield line((words, role), (f"  {count(trials, 'trial')}{time}", "dim"))
    found = finding.verdict.get("culprits")
    for culprit in (one for one in (found if isinstance(found, list) else ()) if isinstance(one, dict)):
        yield from _culprit_lines(culprit, cwd, source)
    proofs = list(_strings(finding.verdict.get("confirmed")))
    shown = deciding if len(deciding) == len(proofs) else [None] * len(proofs)
    for text, trial in zip(proofs, shown, strict=True):
        target = Location("trials", item=trial) if trial is not None else None
        yield line(("proved   ", "key"), one_line(text), to=target)
    yield from _repro_lines(finding.verdict)
    yield from _version_lines(finding.verdict)
    if isinstance(rungs := finding.verdict.get("rungs"), dict) and rungs:
        yield line(("rungs    ", "key"), *_status_fragments(rungs))
    if isinstance(failure := finding.verdict.get("failure"), dict):
        what = ": ".join(str(failure[name]) for name in ("type", "message") if failure.get(name))
        yield line(("failure  ", "key"), (brief_error(what), ""))
    yield from (line(("note     ", "key"), (one_line(text), "dim")) for text in _strings(finding.verdict.get("notes")))
    if finding.kind == "bisect" and finding.exit_code == _DOES_NOT_FAIL and "--accuracy" not in finding.options:
        yield line(("B, then a: ", "key"), ("compares each compiled call with its uncompiled self", "dim"))


def _repro_lines(document: Mapping[str, Any]) -> Iterator[Line]:
    repro, before, after = (document.get(name) for name in ("repro", "nodes_before", "nodes_after"))
    if isinstance(repro, str):
        left = f"{before} → {count(after, 'operation')}, " if isinstance(before, int) and isinstance(after, int) else ""
        words = (f"{left}enter opens it in $EDITOR  ", (one_line(repro), "dim"))
        yield line(("repro    ", "key"), *words, to=Location(FILE_VIEW, document=repro))


def _version_lines(document: Mapping[str, Any]) -> Iterator[Line]:
    """Between which releases the failure came and went, and how each release ended."""
    for what, before, after in (("came", "last_good", "first_bad"), ("went", "last_bad", "first_good")):
        pair = [document.get(name) for name in (before, after)]
        if all(isinstance(version, str) for version in pair):
            said = f"the failure {what} between torch {pair[0]} and {pair[1]}"
            yield line(("found    " if what == "came" else "         ", "key"), (one_line(said), "strong"))
    if isinstance(versions := document.get("versions"), dict) and versions:
        yield line(("versions ", "key"), *_status_fragments(versions))


def _status_fragments(statuses: Mapping[str, Any]) -> Iterator[Fragment]:
    """The names of rungs or releases, each with how it ended."""
    for name, status in statuses.items():
        if status != "not_run":
            mark, role = _RUNG_MARKS.get(str(status), ("?", "break"))
            yield f"{one_line(str(name))}{mark}  ", role


def _culprit_lines(data: Mapping[str, Any], cwd: str | None, source: ReadSource) -> Iterator[Line]:
    found = _culprit_line(data, cwd)
    yield found
    if found.target is not None and found.target.line is not None:
        texts = (source(str(data.get("file"))) or "").split("\n")
        if 0 < found.target.line <= len(texts) and (text := texts[found.target.line - 1].strip()):
            yield replace(line(("         ", ""), text, to=found.target), continues=True)


def _culprit_line(data: Mapping[str, Any], cwd: str | None) -> Line:
    file, number = data.get("file"), data.get("line")
    name = (f"{one_line(str(data.get('class')))} {one_line(str(data.get('name')))}", "error")
    compile_id = found if isinstance(found := data.get("compile_id"), str) else None
    if not isinstance(file, str) or not isinstance(number, int):
        of = f" of compile {one_line(compile_id)}" if compile_id else ""
        return line(("culprit  ", "key"), name, (f"{of}  source line not known", "dim"))
    target = Location("code", compile_id, document=f"source:{file}", line=number)
    return line(("culprit  ", "key"), name, (f"  {source_location(file, number, None, cwd)}", "dim"), to=target)


def _strings(found: Any) -> Iterator[str]:
    return (one for one in (found if isinstance(found, (list, tuple)) else ()) if isinstance(one, str))
