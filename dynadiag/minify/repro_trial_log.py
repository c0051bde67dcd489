"""Logs the trials of a repro in the trial log of the search that it came from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from dynadiag.bisection.trial_log import TrialLog
from dynadiag.bisection.trial_search import TrialSearch
from dynadiag.trial.outcome import Outcome

__all__ = ["ReproTrialLog", "repro_reporter"]


def repro_reporter(search: TrialSearch) -> Callable[[int, str, str, float], None]:
    """A callback that reports trials as trials of the repro."""
    return lambda number, label, status, seconds: search.on_trial(number, f"the repro: {label}", status, seconds)


class ReproTrialLog(TrialLog):
    """The trial log of one text: a view of the log of the whole search, in which keys have a prefix for the text.

    ``made`` are known outcomes that need no trial; each is used once.
    """

    def __init__(self, rows: TrialLog, text: str, made: Mapping[str, Outcome] | None = None) -> None:
        digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        self._log, self._text, self._prefix = rows, text, f"repro {digest} "
        self._made, self._seen = dict(made or {}), dict[str, Outcome]()
        self.count = rows.count

    def next_recorded(self, candidate: str) -> Outcome | None:
        outcome = self._made.pop(candidate, None) or self._log.next_recorded(self._prefix + candidate)
        if outcome is not None:
            self._seen[candidate] = outcome
        return outcome

    def has_recorded(self, candidate: str) -> bool:
        return candidate in self._made or self._log.has_recorded(self._prefix + candidate)

    def add(self, candidate: str, outcome: Outcome, status: str, label: str = "") -> None:
        self._log.add(self._prefix + candidate, outcome, status, f"the repro: {label}")
        self.count, self._seen[candidate] = self._log.count, outcome

    def for_next_search(self) -> ReproTrialLog:
        """A log for the next search on the same text: it knows the outcomes of this one."""
        return ReproTrialLog(self._log, self._text, self._seen)
