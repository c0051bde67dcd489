"""The trials of a search: what was tried, and how it ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

from dynadiag.recording.records import Trial
from tui.roles import Line, line, one_line
from tui.views.listing import ListingView
from tui.widgets.table import Column, Row

__all__ = ["TrialsView"]

_ROLES = {"pass": "good", "same": "error", "different": "break", "timeout": "break", "invalid": "dim"}


class TrialsView(ListingView):
    """In the order in which they ended; more come while the search runs."""

    NAME: ClassVar[str] = "trials"
    TITLE: ClassVar[str] = "Trials"
    NOTHING: ClassVar[str] = "no search was recorded here: `dynadiag bisect` and `dynadiag minify` make trials"
    COLUMNS: ClassVar[Sequence[Column]] = (
        Column("#", number=True),
        Column("ended", widest=12),
        Column("seconds", number=True),
        Column("process", number=True),
        Column("candidate", widest=200),
    )

    def rows(self) -> Sequence[Row]:
        return [_row(item) for item in self.session.trials()]

    def detail(self, key: int | str) -> Sequence[Line]:
        trial = self.session.trials()[int(key)]
        return [
            line((f"trial {trial.index + 1}", "title"), f"  {_status(trial)}, {trial.seconds:.1f} s"),
            Line(),
            line(("candidate", "strong")),
            *_pretty(trial.candidate),
            Line(),
            line(("outcome", "strong")),
            *_pretty(trial.outcome),
        ]


def _row(item: Trial) -> Row:
    status = _status(item)
    cells = (str(item.index + 1), status, f"{item.seconds:.1f}", str(item.pid or "-"), _short(item.candidate))
    return Row(cells, item.index, _ROLES.get(status, ""))


def _status(item: Trial) -> str:
    found = _json(item.outcome)
    if isinstance(found, dict):
        for name in ("status", "outcome", "verdict", "kind"):
            if isinstance(found.get(name), str):
                return one_line(found[name])
    return one_line(str(found))[:40] or "?"


def _short(candidate: str) -> str:
    found = _json(candidate)
    if isinstance(found, dict):
        return one_line(
            ", ".join(f"{name} {_brief(value)}" for name, value in found.items() if value not in (None, [], {}))
        )
    return one_line(str(found))


def _brief(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _pretty(text: str) -> list[Line]:
    found = _json(text)
    shown = found if isinstance(found, str) else json.dumps(found, indent=2, ensure_ascii=False)
    return [line(f"  {part}") for part in shown.split("\n")]


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
