"""The search of a recording: a bisection or a minification, how it was asked for, and its verdict.

A recording may come from a stranger. Every value is checked before it is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from dynadiag.explanation.source import ExplainedRecording, first_event_data, first_payload

_FLAGS = frozenset({"--accuracy", "--fresh"})
_OPTIONS_WITH_VALUE = {
    "--rtol": re.compile(r"[\d.e+-]+"),
    "--atol": re.compile(r"[\d.e+-]+"),
    "--timeout": re.compile(r"[\d.]+"),
    "--budget": re.compile(r"[\d.]+"),
    "--repeat": re.compile(r"\d+"),
    "--rungs": re.compile(r"[a-z_,]+"),
}
_INTERRUPTED = 130  # exit code


class SearchCulprit(msgspec.Struct, frozen=True):
    """What a bisection found to be at fault."""

    kind: str = msgspec.field(name="class", default="?")
    name: str = "?"
    compile_id: str | None = None
    file: str | None = None
    line: int | None = None


class SearchFailure(msgspec.Struct, frozen=True):
    """The failure that was searched for."""

    type: str | None = None
    message: str | None = None


class SearchVerdict(msgspec.Struct, frozen=True):
    """The fields that the documents of both searches share, and those that only one of them has."""

    verdict: str = ""
    rung: str | None = None
    rungs: Mapping[str, str] = {}
    failure: SearchFailure | None = None
    culprits: Sequence[SearchCulprit] = ()
    confirmed: Sequence[str] = ()
    reproduce: Sequence[str] = ()
    notes: Sequence[str] = ()
    trials: int | None = None
    seconds: float | None = None
    versions: Any = None  # of `minify --torch` a document of its own
    last_good: str | None = None
    first_bad: str | None = None
    last_bad: str | None = None
    first_good: str | None = None
    # of a minification
    level: str = ""
    proved: bool = False
    repro: str | None = None
    nodes_before: int | None = None
    nodes_after: int | None = None
    lines_before: int | None = None
    lines_after: int | None = None

    @property
    def releases(self) -> Mapping[str, str]:
        """How the program ended with each release of torch; empty where only one was tried."""
        found = self.versions.get("versions", self.versions) if isinstance(self.versions, dict) else {}
        return {str(name): str(status) for name, status in found.items()} if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class RecordedSearch:
    """A search. ``command`` is ``None`` where the recording does not name it, ``exit_code`` until it has ended."""

    command: str | None  # "bisect" | "minify"
    options: tuple[str, ...]  # those that are safe to use again
    verdict: SearchVerdict
    has_verdict: bool
    exit_code: int | None
    trials: int
    running: bool  # in another process

    @property
    def is_finished(self) -> bool:
        """Whether the search cannot be resumed here: it runs, or it has ended without being interrupted."""
        return self.running or self.exit_code not in (None, _INTERRUPTED)


def read_search(recording: ExplainedRecording, *, running: bool = False) -> RecordedSearch | None:
    """Return the search of a recording, ``None`` if it records a program. Raises `UnreadableInput`."""
    counts = recording.counts()
    trials = counts.get("dynadiag_trial", 0)
    if not counts.get("dynadiag_search") and not (trials and not counts.get("dynamo_start")):
        return None
    asked = first_event_data(recording, "dynadiag_search")
    command = asked.get("command") if asked.get("command") in ("bisect", "minify") else None
    document = first_payload(recording, "dynadiag_verdict", dict)
    try:
        verdict = msgspec.convert(document or {}, SearchVerdict)
    except msgspec.ValidationError:
        verdict = SearchVerdict()
    options, code = safe_options(asked.get("options")), recording.run.exit_code
    return RecordedSearch(command, options, verdict, bool(document), code, trials, running)


def safe_options(options: Any) -> tuple[str, ...]:
    """Return the options that are safe to use again. Options that write files and unknown words are dropped."""
    words: Iterator[Any] = iter(options if isinstance(options, list) else ())
    found: list[str] = []
    for word in words:
        if word in _FLAGS:
            found.append(word)
        elif isinstance(word, str) and word in _OPTIONS_WITH_VALUE:
            value = next(words, None)
            if isinstance(value, str) and _OPTIONS_WITH_VALUE[word].fullmatch(value):
                found += [word, value]
    return tuple(found)
