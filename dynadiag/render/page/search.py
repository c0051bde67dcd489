"""A search (bisect, minify) on a page: its answer in a sentence, and its trials as rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dynadiag.recording.json_values import json_object
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Trial
from dynadiag.render.page.redaction import Redaction
from dynadiag.render.wrap import truncate_end

__all__ = ["PageSearch", "TrialView", "search_of", "trial_views"]

_MAX_TRIALS = 1000
_MAX_CELL = 300  # characters of what was tried, and of a failure
_TIME_LEFT = re.compile(r", \d+ s left$")  # of the time limit, in the label of a trial
_STATUSES = {
    "same": "fails",
    "fail": "fails",
    "pass": "passes",
    "different": "fails differently",
    "invalid": "cannot run",
}
_VERDICTS = {
    "passes": "it does not fail",
    "fails_uncompiled": "it fails without torch.compile too",
    "flaky": "it fails, but not every time",
    "stopped": "it was stopped before it found the culprit",
}


@dataclass(frozen=True, slots=True)
class PageSearch:
    """A search: the command, and its answer."""

    command: str
    sentence: str
    severity: str


@dataclass(frozen=True, slots=True)
class TrialView:
    """A trial: what was tried, how it ended, and its failure, or the number of the first trial with that failure."""

    number: int
    tried: str
    result: str
    failure: str
    seconds: str
    same_as: int | None = None


def search_of(recording: Recording, redaction: Redaction) -> PageSearch | None:
    """The search of a recording; ``None`` for that of a program."""
    counts = recording.counts()
    if not counts.get("dynadiag_search") and not (counts.get("dynadiag_trial") and not counts.get("dynamo_start")):
        return None
    search = _first(recording, "dynadiag_search", payload=False).get("dynadiag_search")
    command = str(search.get("command")) if isinstance(search, dict) else "search"
    command = command if command in ("bisect", "minify") else "search"
    verdict = _first(recording, "dynadiag_verdict", payload=True)
    if not verdict:
        return PageSearch(command, f"{command} was interrupted: it has no verdict", "warning")
    severity = "good" if verdict.get("verdict") == "passes" or verdict.get("proved") else "error"
    return PageSearch(command, f"{command}: {_sentence(verdict, redaction)}", severity)


def trial_views(trials: Sequence[Trial], redaction: Redaction) -> tuple[TrialView, ...]:
    """The trials, in the order in which they ran. Only the first trial with a failure has its text."""
    found, known = [], dict[str, int]()
    for number, each in enumerate(trials[:_MAX_TRIALS], 1):
        view = _trial(number, each, redaction)
        first = known.setdefault(view.failure, number) if view.failure else number
        found.append(view if first == number else replace(view, failure="", same_as=first))
    return tuple(found)


def _first(recording: Recording, kind: str, *, payload: bool) -> dict[str, Any]:
    for event in recording.events(kind, limit=1):
        return json_object(recording.payload(event.index)) if payload else recording.metadata(event.index)
    return {}


def _sentence(verdict: Mapping[str, Any], redaction: Redaction) -> str:
    name = str(verdict.get("verdict"))
    if name in _VERDICTS:
        return _VERDICTS[name]
    if "nodes_before" in verdict:
        unit = "operations" if verdict.get("level") == "graph" else "lines"
        kind = "nodes" if unit == "operations" else "lines"
        size = f"{verdict.get(f'{kind}_before')} {unit} to {verdict.get(f'{kind}_after')}"
        return f"reduced from {size}, {'proved' if verdict.get('proved') else 'not proved'}"
    if verdict.get("versions"):
        return f"last good release {verdict.get('last_good')}, first bad release {verdict.get('first_bad')}"
    culprits = [each for each in verdict.get("culprits") or () if isinstance(each, dict)]
    named = ", ".join(f"{each.get('class')} {redaction.text(str(each.get('name')))}" for each in culprits)
    return f"fails first at rung {verdict.get('rung')}; at fault: {named or 'nothing smaller than the rung'}"


def _trial(number: int, item: Trial, redaction: Redaction) -> TrialView:
    outcome = json_object(item.outcome)
    status = str(outcome.get("status", ""))
    found = outcome.get("signature")
    failure = f"{found.get('type')}: {found.get('message')}" if isinstance(found, dict) else ""
    return TrialView(
        number,
        redaction.text(truncate_end(_TIME_LEFT.sub("", str(outcome.get("label") or item.candidate)), _MAX_CELL)),
        _STATUSES.get(status, redaction.text(status)),
        redaction.text(truncate_end(failure, _MAX_CELL)),
        f"{item.seconds:.1f}",
    )
