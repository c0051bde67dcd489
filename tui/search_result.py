"""The result of a bisection or a minification, read from a recording or from the running command.

A recording may come from a stranger. Every value is checked before it is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dynadiag.explanation.source import first_event_data, first_payload
from tui.session import Session

_FLAGS = frozenset({"--accuracy", "--fresh"})
_OPTIONS_WITH_VALUE = {
    "--rtol": re.compile(r"[\d.e+-]+"),
    "--atol": re.compile(r"[\d.e+-]+"),
    "--timeout": re.compile(r"[\d.]+"),
    "--budget": re.compile(r"[\d.]+"),
    "--repeat": re.compile(r"\d+"),
    "--rungs": re.compile(r"[a-z_,]+"),
}


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A search and its result. An option or a value that is not known is empty or ``None``.

    ``kind`` is the command, ``options`` are its options, ``verdict`` is the JSON of its verdict, ``exit_code`` its exit
    code.
    """

    kind: str | None  # "bisect" | "minify"
    options: tuple[str, ...] = ()
    verdict: Mapping[str, Any] = field(default_factory=dict)
    exit_code: int | None = None  # None: it has not ended
    trials: int = 0
    running: bool = False  # in another process

    @property
    def is_finished(self) -> bool:
        """Whether the search cannot be resumed here: it runs, or it has ended without being interrupted."""
        return self.running or self.exit_code not in (None, 130)


def read_search_result(session: Session) -> SearchResult | None:
    """Return the search of a recording, or ``None`` if it records a program. Raises `UnreadableInput`."""
    counts = session.recording.counts()
    if not counts.get("dynadiag_search") and not (counts.get("dynadiag_trial") and not counts.get("dynamo_start")):
        return None
    asked = first_event_data(session.recording, "dynadiag_search")
    kind = asked.get("command") if asked.get("command") in ("bisect", "minify") else None
    document = first_payload(session.recording, "dynadiag_verdict", dict) or {}
    trials = counts.get("dynadiag_trial", 0)
    return SearchResult(
        kind, safe_options(asked.get("options")), document, session.run.exit_code, trials, running=session.live
    )


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
