"""Trials as rows of a table, and the details of one trial."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dynadiag.recording.records import Trial
from tui.styled_report import brief_error
from tui.styled_text import Line, line, one_line
from tui.widgets.table import Row

_FRESH = "fresh "  # precedes a candidate that ran in a fresh interpreter
_PROOF = "repro "  # precedes the candidates of a repro
_DECIDES = "◆"
_SHOWN_ABOVE = ("status", "label", "signature", "seconds", "tail", "pid")  # of an outcome
_EMPTY: tuple[Any, ...] = (None, "", [], {})
_MAX_INDENT = 12  # columns; a recording may come from a stranger
_MAX_DEPTH = 6
_STATUS_WORDS = {"same": "same failure", "different": "other failure", "invalid": "cannot run"}
_ROLES = {"pass": "good", "same": "error", "fail": "error", "different": "break", "timeout": "break", "invalid": "dim"}


def deciding_trials(trials: Sequence[Trial], verdict: Mapping[str, Any]) -> list[int]:
    """Return the numbers of the trials that the verdict rests on.

    Of a bisection they are the last ones of the candidates that verify it, in the order of the verdict. Of a
    minification they are those that prove the repro.
    """
    known = {item.candidate.removeprefix(_FRESH): item.index for item in trials}
    told = verdict.get("reproduce")
    named = [known[one] for one in (told if isinstance(told, list) else ()) if isinstance(one, str) and one in known]
    proof = [item.index for item in trials if "repro" in verdict and item.candidate.startswith(_PROOF)]
    return named or proof


def trial_row(item: Trial, deciding: Collection[int] = ()) -> Row:
    """Return the row of a recorded trial, marked if it is one of those that decide."""
    outcome = _json(item.outcome)
    status = _status(outcome)
    mark = _DECIDES if item.index in deciding else ""
    cells = (
        str(item.index + 1),
        mark,
        _words_of(status),
        f"{item.seconds:.1f}",
        str(item.pid or "-"),
        _label(item, outcome),
    )
    return Row(cells, item.index, _ROLES.get(status, ""))


def trial_lines(item: Trial, deciding: Collection[int] = ()) -> list[Line]:
    """Return the details of a trial: failure, output, then all else that is known of candidate and outcome."""
    outcome = _json(item.outcome)
    made = [line((f"trial {item.index + 1}", "title"), f"  {_words_of(_status(outcome))}, {item.seconds:.1f} s")]
    made.append(line(_label(item, outcome)))
    if item.index in deciding:
        made.append(line((f"{_DECIDES} the verdict rests on this trial", "key")))
    if isinstance(outcome, dict):
        made += [*_failure_lines(outcome.get("signature")), *_output_lines(outcome.get("tail"))]
    return [*made, *_section("candidate", _candidate_lines(item.candidate)), *_section("outcome", _outline(outcome))]


def _section(title: str, texts: Iterable[str]) -> list[Line]:
    made = [line(text) for text in texts]
    return [Line(), line((title, "strong")), *made] if made else []


def _candidate_lines(candidate: str) -> Iterator[str]:
    """Yield a candidate: what kind it is or how it was started, then its settings."""
    head, settings = _candidate(candidate)
    if head:
        yield "  in a fresh interpreter" if head == _FRESH.strip() else f"  {head}"
    yield from _outline(settings)


def _outline(found: Any, pad: str = "  ") -> Iterator[str]:
    """Yield nested values as indented lines. What is empty, and what has been told above, is left out."""
    if not isinstance(found, dict):
        yield from (f"{pad}{_words(one)}" for one in (found if isinstance(found, list) else [found]))
        return
    for name, item in found.items():
        if item in _EMPTY or (name in _SHOWN_ABOVE and len(pad) == len("  ")):
            continue
        title = f"{pad}{name.replace('_', ' ')}"
        if isinstance(item, (dict, list)) and not _is_flat(item) and len(pad) < _MAX_INDENT:
            yield title
            yield from _outline(item, f"{pad}  ")
        else:
            yield f"{title}  {_words(item)}"


def _is_flat(found: Any) -> bool:
    return isinstance(found, list) and not any(isinstance(one, (dict, list)) for one in found)


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


def _words_of(status: str) -> str:
    """A status in words: whether a failure is that of the first trial is what a search asks."""
    return _STATUS_WORDS.get(status, status)


def _label(item: Trial, outcome: Any) -> str:
    """Return the search's own label of a trial; if the recording has none, a summary of its candidate."""
    told = outcome.get("label") if isinstance(outcome, dict) else None
    return one_line(told) if isinstance(told, str) else _candidate_summary(item.candidate)


def _candidate(text: str) -> tuple[str, Any]:
    """Split a candidate into the words in front and its settings, ``{}`` where there are none."""
    head, brace, rest = text.partition("{")
    found = _json(brace + rest) if brace else {}
    return (head.strip(), found) if isinstance(found, dict) else (text, {})


def _candidate_summary(candidate: str) -> str:
    """Summarize a candidate: the rung, and the decisions that it switches off."""
    head, found = _candidate(candidate)
    if not isinstance(found, dict):
        return one_line(candidate)
    words = [head, str(found.get("rung") or "as written")]
    words += [_switch_summary(item) for item in found.get("switches") or () if isinstance(item, dict)]
    words += [
        "with accuracy" if found.get("accuracy") else "",
        "without caches" if found.get("caches") is False else "",
    ]
    task = found.get("task")
    words += [task if isinstance(task, str) else json.dumps(task)[:80] if task else ""]
    return one_line(", ".join(word for word in words if word))


def _switch_summary(item: dict[str, Any]) -> str:
    """Summarize a switch: which decisions of a class stay on or are off, by the end of their hashes."""
    suffixes = item.get("suffixes")
    ends = "/".join(str(one) for one in suffixes[:6]) if isinstance(suffixes, list) else ""
    return f"{item.get('group')} {'only' if item.get('keep') else 'without'} {ends or 'all'}"


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
