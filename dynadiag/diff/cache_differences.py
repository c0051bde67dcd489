"""Compiles that a cache treats otherwise in the second run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from dynadiag.diff.compile_matching import CompilePair, in_both
from dynadiag.diff.difference import Difference
from dynadiag.explanation.formatting import brief
from dynadiag.recording.reader import Recording

__all__ = ["cache_differences"]

_CACHES = {"fx_graph_cache_": "the FX graph cache", "aotautograd_cache_": "the AOTAutograd cache"}
_OUTCOMES = ("hit", "miss", "bypass")
_MAX_REASON = 100


def cache_differences(before: Recording, after: Recording, pairs: Sequence[CompilePair]) -> Iterator[Difference]:
    """Yield the compiles that are bypassed in one run only, or that missed though the earlier run hit.

    A miss that became a hit is what a cache is for: the first run filled it.
    """
    later = before.run.started is None or after.run.started is None or after.run.started >= before.run.started
    sides = _outcomes(before), _outcomes(after)
    for first, second in in_both(pairs):
        for prefix, name in _CACHES.items():
            old = sides[0].get((first.compile_id, prefix))
            new = sides[1].get((second.compile_id, prefix))
            if old is None or new is None or old[0] == new[0] or not (_tells(old[0], new[0]) and later):
                continue
            why = f": {brief(new[1] or old[1], _MAX_REASON)}" if new[1] or old[1] else ""
            text = _change(old[0], new[0]).format(cache=name, function=second.function) + why
            yield Difference("cache", (first.compile_id, second.compile_id), second.file, second.line, text)


def _change(old: str, new: str) -> str:
    if new == "bypass":
        return "{function} bypasses {cache} now"
    return "{function} no longer bypasses {cache}" if old == "bypass" else "{cache} lacks {function} now, was a hit"


def _tells(old: str, new: str) -> bool:
    return "bypass" in (old, new) or (old, new) == ("hit", "miss")


def _outcomes(recording: Recording) -> dict[tuple[str, str], tuple[str, str | None]]:
    """The last outcome of each cache for each compile, with the reason of a bypass."""
    found: dict[tuple[str, str], tuple[str, str | None]] = {}
    for prefix in _CACHES:
        for outcome in _OUTCOMES:
            for event in recording.events("artifact", prefix + outcome):
                reason = _reason(recording.payload(event.index)) if outcome == "bypass" else None
                found[event.compile_id, prefix] = outcome, reason
    return found


def _reason(payload: str) -> str | None:
    try:
        value = json.loads(payload).get("cache_bypass_reason")
    except (ValueError, AttributeError):
        return None
    return value if isinstance(value, str) else None
