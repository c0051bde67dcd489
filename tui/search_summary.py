"""A search and its trials as lines: its state, its result, a row of the table for each trial and its details."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dynadiag.explanation.formatting import STATUS_WORDS, count, duration
from dynadiag.explanation.search import RecordedSearch, SearchCulprit, SearchVerdict
from dynadiag.recording.records import Trial
from dynadiag.render.paths import source_location
from tui.location import FILE_VIEW, Location, source_place
from tui.styled_report import brief_error
from tui.styled_text import Fragment, Line, line, one_line
from tui.widgets.table import Row

_FRESH = "fresh "  # precedes a candidate that ran in a fresh interpreter
_PROOF = "repro "  # precedes the candidates of a repro
_DECIDES = "◆"
_SHOWN_ABOVE = ("status", "label", "signature", "seconds", "tail", "pid")  # of an outcome
_EMPTY: tuple[Any, ...] = (None, "", [], {})
_MAX_DEPTH = 6  # a recording may come from a stranger
_ROLES = {"pass": "good", "same": "error", "fail": "error", "different": "break", "timeout": "break", "invalid": "dim"}

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
    search: RecordedSearch | None, cwd: str | None, source: ReadSource, deciding: Sequence[int]
) -> Iterator[Line]:
    """Yield the recorded search and its result; without one, how to start one.

    ``deciding`` are the trials that the verdict rests on.
    """
    if search is None:
        yield line(("this recording has no search", "strong"))
        yield line(("B", "key"), " bisects the program: finds the part of the compiler at fault")
        yield line(("M", "key"), " minifies it: writes a small program with the same failure")
        return
    yield from result_lines(search, cwd, source, deciding)
    yield line(("command  ", "key"), (" ".join((search.command or "a search", *search.options)), "dim"))


def search_words(command: str | None, exit_code: int | None) -> tuple[str, str]:
    """How a search ended, and the role of these words."""
    if exit_code is None:
        return _NO_EXIT if command else _NO_RESULT
    if command == "minify" and exit_code == 0:
        return "written and proved", "good"
    return _EXIT_SENTENCES.get(exit_code, (f"ended with exit code {exit_code}", "error"))


def result_lines(
    search: RecordedSearch, cwd: str | None, source: ReadSource, deciding: Sequence[int] = ()
) -> Iterator[Line]:
    """Yield the result of a search: verdict, culprits with their source or repro, what proves it, rungs, failure.

    What proves it goes to the trial that does.
    """
    verdict = search.verdict
    words, role = _RUNNING if search.running else search_words(search.command, search.exit_code)
    time = f" in {duration(verdict.seconds)}" if verdict.seconds is not None else ""
    trials = search.trials if verdict.trials is None else verdict.trials
    yield line((words, role), (f"  {count(trials, 'trial')}{time}", "dim"))
    for culprit in verdict.culprits:
        yield from _culprit_lines(culprit, cwd, source)
    proofs = verdict.confirmed
    shown = deciding if len(deciding) == len(proofs) else [None] * len(proofs)
    for text, trial in zip(proofs, shown, strict=True):
        target = Location("trials", item=trial) if trial is not None else None
        yield line(("proved   ", "key"), one_line(text), to=target)
    if verdict.repro is not None:
        before, after = verdict.nodes_before, verdict.nodes_after
        left = f"{before} → {count(after, 'operation')}, " if before is not None and after is not None else ""
        parts = f"{left}enter opens it in $EDITOR  ", (one_line(verdict.repro), "dim")
        yield line(("repro    ", "key"), *parts, to=Location(FILE_VIEW, document=verdict.repro))
    yield from _version_lines(verdict)
    if verdict.rungs:
        yield line(("rungs    ", "key"), *_status_fragments(verdict.rungs))
    if (failure := verdict.failure) is not None:
        yield line(("failure  ", "key"), brief_error(": ".join(filter(None, (failure.type, failure.message)))))
    yield from (line(("note     ", "key"), (one_line(text), "dim")) for text in verdict.notes)
    if search.command == "bisect" and search.exit_code == _DOES_NOT_FAIL and "--accuracy" not in search.options:
        yield line(("B, then a: ", "key"), ("compares each compiled call with its uncompiled self", "dim"))


def _version_lines(verdict: SearchVerdict) -> Iterator[Line]:
    """Between which releases the failure came and went, and how each release ended."""
    came, went = (verdict.last_good, verdict.first_bad), (verdict.last_bad, verdict.first_good)
    for label, what, (before, after) in (("found    ", "came", came), ("         ", "went", went)):
        if before is not None and after is not None:
            said = f"the failure {what} between torch {before} and {after}"
            yield line((label, "key"), (one_line(said), "strong"))
    if verdict.releases:
        yield line(("versions ", "key"), *_status_fragments(verdict.releases))


def _status_fragments(statuses: Mapping[str, str]) -> Iterator[Fragment]:
    """The names of rungs or releases, each with how it ended."""
    for name, status in statuses.items():
        if status != "not_run":
            mark, role = _RUNG_MARKS.get(status, ("?", "break"))
            yield f"{one_line(name)}{mark}  ", role


def _culprit_lines(culprit: SearchCulprit, cwd: str | None, source: ReadSource) -> Iterator[Line]:
    head = ("culprit  ", "key"), (f"{one_line(culprit.kind)} {one_line(culprit.name)}", "error")
    file, number = culprit.file, culprit.line
    if file is None or number is None:
        of = f" of compile {one_line(culprit.compile_id)}" if culprit.compile_id else ""
        yield line(*head, (f"{of}  source line not known", "dim"))
        return
    target = source_place(file, number, culprit.compile_id)
    yield line(*head, (f"  {source_location(file, number, None, cwd)}", "dim"), to=target)
    texts = (source(file) or "").split("\n")
    if 0 < number <= len(texts) and (text := texts[number - 1].strip()):
        yield replace(line("         ", text, to=target), continues=True)


def deciding_trials(trials: Sequence[Trial], verdict: SearchVerdict) -> list[int]:
    """Return the numbers of the trials that the verdict rests on.

    Of a bisection they are the last ones of the candidates that verify it, in the order of the verdict. Of a
    minification they are those that prove the repro.
    """
    known = {item.candidate.removeprefix(_FRESH): item.index for item in trials}
    named = [known[one] for one in verdict.reproduce if one in known]
    return named or [item.index for item in trials if verdict.repro and item.candidate.startswith(_PROOF)]


def trial_row(item: Trial, deciding: Collection[int] = ()) -> Row:
    """Return the row of a recorded trial, marked if it is one of those that decide."""
    outcome = _json(item.outcome)
    status = _status(outcome)
    mark = _DECIDES if item.index in deciding else ""
    cells = (
        str(item.index + 1),
        mark,
        STATUS_WORDS.get(status, status),
        f"{item.seconds:.1f}",
        str(item.pid or "-"),
        _label(item, outcome),
    )
    return Row(cells, item.index, _ROLES.get(status, ""))


def trial_lines(item: Trial, deciding: Collection[int] = ()) -> list[Line]:
    """Return the details of a trial: failure, output, then all else that is known of candidate and outcome."""
    outcome = _json(item.outcome)
    status = _status(outcome)
    made = [line((f"trial {item.index + 1}", "title"), f"  {STATUS_WORDS.get(status, status)}, {item.seconds:.1f} s")]
    made.append(line(_label(item, outcome)))
    if item.index in deciding:
        made.append(line((f"{_DECIDES} the verdict rests on this trial", "key")))
    if isinstance(outcome, dict):
        made += [*_failure_lines(outcome.get("signature")), *_output_lines(outcome.get("tail"))]
    return [*made, *_titled("candidate", _candidate_lines(item.candidate)), *_titled("outcome", _outline(outcome))]


def _titled(title: str, texts: Iterable[str]) -> list[Line]:
    made = [line(text) for text in texts]
    return [Line(), line((title, "strong")), *made] if made else []


def _candidate_lines(candidate: str) -> Iterator[str]:
    """Yield a candidate: what kind it is or how it was started, then its settings."""
    head, settings = _candidate(candidate)
    if head:
        yield "  in a fresh interpreter" if head == _FRESH.strip() else f"  {head}"
    yield from _outline(settings)


def _outline(found: Any) -> Iterator[str]:
    """Yield values as lines. What is empty, and what has been told above, is left out."""
    if not isinstance(found, dict):
        yield from (f"  {_words(one)}" for one in (found if isinstance(found, list) else [found]))
        return
    for name, item in found.items():
        if item not in _EMPTY and name not in _SHOWN_ABOVE:
            several = isinstance(item, list) and any(isinstance(one, (dict, list)) for one in item)
            yield from (f"  {name.replace('_', ' ')}  {_words(one)}" for one in (item if several else [item]))


def _words(found: Any, depth: int = 0) -> str:
    """A value in one line, without quotes and braces."""
    if isinstance(found, bool):
        return "yes" if found else "no"
    if depth > _MAX_DEPTH:
        return "…"
    if isinstance(found, dict):
        known = ((name, item) for name, item in found.items() if item not in _EMPTY)
        return ", ".join(f"{name.replace('_', ' ')} {_words(item, depth + 1)}" for name, item in known)
    return ", ".join(_words(one, depth + 1) for one in found) if isinstance(found, list) else str(found)


def _failure_lines(signature: Any) -> list[Line]:
    if not isinstance(signature, dict):
        return []
    words = [str(signature[name]) for name in ("type", "message") if signature.get(name)]
    where = [str(signature[name]) for name in ("user", "where") if signature.get(name)]
    return [
        line((brief_error(": ".join(words)), "error")),
        *([line((f"at {one_line(', '.join(where))}", "dim"))] if where else []),
    ]


def _output_lines(tail: Any) -> list[Line]:
    if not isinstance(tail, str) or not tail.strip():
        return []
    return [Line(), line(("output", "strong")), *(line(f"  {text}") for text in tail.rstrip().split("\n"))]


def _status(outcome: Any) -> str:
    found = outcome.get("status") if isinstance(outcome, dict) else outcome
    return one_line(str(found))[:40] or "?"


def _label(item: Trial, outcome: Any) -> str:
    """Return the search's own label of a trial; if the recording has none, its candidate."""
    told = outcome.get("label") if isinstance(outcome, dict) else None
    return one_line(told if isinstance(told, str) else item.candidate)


def _candidate(text: str) -> tuple[str, Any]:
    """Split a candidate into the words in front and its settings, ``{}`` where there are none."""
    head, brace, rest = text.partition("{")
    found = _json(brace + rest) if brace else {}
    return (head.strip(), found) if isinstance(found, dict) else (text, {})


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
