"""The explanation that Python callers get: `str()` of it is the report, `to_json()` the document."""

from __future__ import annotations

from dataclasses import dataclass, fields

from dynadiag.explain.explanation import Explanation, explain
from dynadiag.explain.source import ExplainedRecording
from dynadiag.kernels import KernelCall, kernel_calls
from dynadiag.recording.reader import Recording
from dynadiag.render.json_document import explanation_json
from dynadiag.render.text import explanation_text

__all__ = ["Report", "report"]


@dataclass(frozen=True, slots=True)
class Report(Explanation):
    """An `Explanation` that can show itself, with the calls of its kernels. It stands here because explaining knows
    nothing of rendering, nor of kernels."""

    calls: tuple[KernelCall, ...] = ()

    def __str__(self) -> str:
        return explanation_text(self, calls=self.calls)

    def to_json(self) -> str:
        """The contract's document."""
        return explanation_json(self, self.calls).decode("utf-8")


def report(recording: ExplainedRecording) -> Report:
    """Explain a recording, its kernels too where it is a file that holds their code."""
    made = explain(recording)
    calls = kernel_calls(recording) if isinstance(recording, Recording) else ()
    return Report(**{field.name: getattr(made, field.name) for field in fields(made)}, calls=calls)
