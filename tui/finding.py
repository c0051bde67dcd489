"""What a search came to: of one that was started here, and of one that the recording holds.

A recording may be a stranger's, so each part of it is looked at before it is believed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dynadiag.recording.records import Event
from tui.session import Session

__all__ = ["Finding", "finding_of", "sound_options"]

_FLAGS = frozenset({"--accuracy", "--fresh"})
_VALUED = {
    "--rtol": re.compile(r"[\d.e+-]+"),
    "--atol": re.compile(r"[\d.e+-]+"),
    "--timeout": re.compile(r"[\d.]+"),
    "--budget": re.compile(r"[\d.]+"),
    "--repeat": re.compile(r"\d+"),
    "--rungs": re.compile(r"[a-z_,]+"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A search: ``kind`` where it is known, the options that it was asked with, the JSON of its verdict, its exit."""

    kind: str | None  # "bisect" | "minify"
    options: tuple[str, ...] = ()
    document: Mapping[str, Any] = field(default_factory=dict)
    code: int | None = None  # None: it did not end
    trials: int = 0
    running: bool = False  # elsewhere, just now

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to go on with here."""
        return self.running or self.code not in (None, 130)


def finding_of(session: Session) -> Finding | None:
    """The search that a recording holds; ``None`` where it is that of a program. Raises `UnreadableInput`."""
    counts = session.recording.counts()
    if not counts.get("dynadiag_search") and not (counts.get("dynadiag_trial") and not counts.get("dynamo_start")):
        return None
    asked = _first(session, "dynadiag_search").get("dynadiag_search")
    asked = asked if isinstance(asked, dict) else {}
    kind = asked.get("command") if asked.get("command") in ("bisect", "minify") else None
    document = _payload(session, "dynadiag_verdict")
    trials = counts.get("dynadiag_trial", 0)
    return Finding(
        kind, sound_options(asked.get("options")), document, session.run.exit_code, trials, running=session.live
    )


def sound_options(options: Any) -> tuple[str, ...]:
    """The options of a search among these words: one that writes somewhere, or is none, is not taken over."""
    words: Iterator[Any] = iter(options if isinstance(options, list) else ())
    found: list[str] = []
    for word in words:
        if word in _FLAGS:
            found.append(word)
        elif isinstance(word, str) and word in _VALUED:
            value = next(words, None)
            if isinstance(value, str) and _VALUED[word].fullmatch(value):
                found += [word, value]
    return tuple(found)


def _event(session: Session, kind: str) -> Event | None:
    return next(iter(session.recording.events(kind, limit=1)), None)


def _first(session: Session, kind: str) -> dict[str, Any]:
    event = _event(session, kind)
    return session.recording.metadata(event.index) if event is not None else {}


def _payload(session: Session, kind: str) -> dict[str, Any]:
    event = _event(session, kind)
    if event is None:
        return {}
    try:
        found = json.loads(session.payload(event.index))
    except (ValueError, RecursionError):  # a stranger's: the trials are shown all the same
        return {}
    return found if isinstance(found, dict) else {}
