"""The explanation that Python callers get: `str()` of it is the report, `to_json()` the document."""

from __future__ import annotations

from dataclasses import dataclass, fields

from dynadiag.explanation.explanation import Explanation, explain
from dynadiag.explanation.formatting import count
from dynadiag.explanation.source import ExplainedRecording
from dynadiag.kernels import KernelCall, kernel_calls
from dynadiag.recording.reader import Recording
from dynadiag.render.clean import clean_line
from dynadiag.render.json_document import explanation_json
from dynadiag.render.text import explanation_text
from dynadiag.render.wrap import truncate_middle

__all__ = ["Report", "report"]

_PART = 100  # columns of the target and of the answer in a `repr`


@dataclass(frozen=True, slots=True, repr=False)
class Report(Explanation):
    """An `Explanation` that can show itself, with the calls of its kernels. It stands here because explaining knows
    nothing of rendering, nor of kernels."""

    calls: tuple[KernelCall, ...] = ()

    def __repr__(self) -> str:
        """The target and the answer: the records of a run are thousands of lines."""
        target, answer = (
            truncate_middle(clean_line(text), _PART) for text in (self.run.target, self.headline.sentence)
        )
        counts = f"{count(self.graph_count, 'graph')}, {count(self.break_count, 'graph break')}"
        return f"<{type(self).__name__} of {target}: {answer} {counts}, {count(self.recompile_count, 'recompile')}>"

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
