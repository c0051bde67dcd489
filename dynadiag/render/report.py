"""The explanation that Python callers get: `str()` of it is the report, `to_json()` the document."""

from __future__ import annotations

from dataclasses import dataclass, fields

from dynadiag.explain.explanation import Explanation, explain
from dynadiag.explain.source import Readable
from dynadiag.render.json import explanation_json
from dynadiag.render.text import explanation_text

__all__ = ["Report", "report"]


@dataclass(frozen=True, slots=True)
class Report(Explanation):
    """An `Explanation` that can show itself. It stands here because explaining knows nothing of rendering."""

    def __str__(self) -> str:
        return explanation_text(self)

    def to_json(self) -> str:
        """The contract's document."""
        return explanation_json(self).decode("utf-8")


def report(recording: Readable) -> Report:
    """Explain a recording for a Python caller."""
    made = explain(recording)
    return Report(**{field.name: getattr(made, field.name) for field in fields(made)})
