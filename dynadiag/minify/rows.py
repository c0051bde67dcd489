"""The trials of a repro, among the rows of the search that it came from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from dynadiag.bisect.rows import Rows
from dynadiag.bisect.search import Search
from dynadiag.trial.outcome import Outcome

__all__ = ["ReproRows", "telling"]


def telling(search: Search) -> Callable[[int, str, str, float], None]:
    """Tells of trials of a repro as such."""
    return lambda number, label, status, seconds: search.tell(number, f"the repro: {label}", status, seconds)


class ReproRows(Rows):
    """What a search asks of its rows, where its candidates are those of one text.

    ``made`` are outcomes that need no trial, each for who asks for it first.
    """

    def __init__(self, rows: Rows, text: str, made: Mapping[str, Outcome] | None = None) -> None:
        digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        self._rows, self._text, self._prefix = rows, text, f"repro {digest} "
        self._made, self._met = dict(made or {}), dict[str, Outcome]()
        self.count = rows.count

    def known(self, candidate: str) -> Outcome | None:
        outcome = self._made.pop(candidate, None) or self._rows.known(self._prefix + candidate)
        if outcome is not None:
            self._met[candidate] = outcome
        return outcome

    def holds(self, candidate: str) -> bool:
        return candidate in self._made or self._rows.holds(self._prefix + candidate)

    def add(self, candidate: str, outcome: Outcome, status: str, label: str = "") -> None:
        self._rows.add(self._prefix + candidate, outcome, status, f"the repro: {label}")
        self.count, self._met[candidate] = self._rows.count, outcome

    def again(self) -> ReproRows:
        """The same for another search on the text: it knows what this one met."""
        return ReproRows(self._rows, self._text, self._met)
