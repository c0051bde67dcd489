"""The report: an explanation as text, in the manner of rustc, and the object that Python callers get."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields

from dynadiag.explanation.explanation import Explanation, explain
from dynadiag.explanation.formatting import count
from dynadiag.explanation.source import ExplainedRecording
from dynadiag.kernels.generated_module import KernelCall
from dynadiag.kernels.read_modules import kernel_calls
from dynadiag.recording.reader import Recording
from dynadiag.render.clean import clean_line
from dynadiag.render.coverage import coverage_section
from dynadiag.render.findings import findings_section
from dynadiag.render.json_document import explanation_json
from dynadiag.render.launches import cuda_graphs_section, launches_section
from dynadiag.render.runtime_cost import warm_section
from dynadiag.render.style import Style
from dynadiag.render.summary import summary_section, time_section
from dynadiag.render.wrap import truncate_middle

__all__ = ["Report", "explanation_text", "report"]

_MAX_REPR = 100  # columns of the target, and of the answer, in a `repr`
_BREAK_ID = re.compile(r"GB\d+")
_MAX_TARGET = 1000  # columns of a target in a command: more than anybody types


@dataclass(frozen=True, slots=True, repr=False)
class Report(Explanation):
    """An `Explanation` that can show itself, with the calls of its kernels.

    The package `explanation` imports neither rendering nor kernels, so this class is here.
    """

    calls: tuple[KernelCall, ...] = ()
    path: str | None = None  # of the recording, where there is a file to open again

    def __repr__(self) -> str:
        """The target and the answer: the records of a run are thousands of lines."""
        target, answer = (
            truncate_middle(clean_line(text), _MAX_REPR) for text in (self.run.target, self.headline.sentence)
        )
        counts = f"{count(self.graph_count, 'graph')}, {count(self.break_count, 'graph break')}"
        return f"<{type(self).__name__} of {target}: {answer} {counts}, {count(self.recompile_count, 'recompile')}>"

    def __str__(self) -> str:
        return explanation_text(self, recording=self.path, calls=self.calls)

    def _repr_html_(self) -> str:
        """What a notebook shows: the answer, the counts and the first findings."""
        from dynadiag.render.page import summary_html  # it is made of reports

        return summary_html(self)

    def to_json(self) -> str:
        """Return the document that `dynadiag explain --json` writes."""
        return explanation_json(self, self.calls).decode("utf-8")


def report(recording: ExplainedRecording) -> Report:
    """Explain a recording. The report has the kernels too if the recording is a file, which holds their code."""
    explanation = explain(recording)
    calls = kernel_calls(recording) if isinstance(recording, Recording) else ()
    return Report(**{field.name: getattr(explanation, field.name) for field in fields(explanation)}, calls=calls)


def explanation_text(
    explanation: Explanation,
    style: Style | None = None,
    *,
    all_: bool = False,
    recording: str | None = None,
    calls: Sequence[KernelCall] = (),
) -> str:
    """Return the report, with a line end.

    `recording` is the path that the last line, the command to type next, names. `calls` are the calls of the kernels
    (`dynadiag.kernels.read_modules`). All text of the recording is cleaned: the only escape codes are those of `style`.
    """
    style = style or Style()
    lines = [
        *summary_section(explanation, style),
        "",
        *findings_section(explanation, style, all_),
        *coverage_section(explanation.coverage, explanation.run.cwd, style, all_),
        *time_section(explanation, style),
        *launches_section(explanation, calls, style, all_),
        *cuda_graphs_section(explanation, style, all_),
        *warm_section(explanation, style),
        *_next_command(explanation, recording, style),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _next_command(explanation: Explanation, recording: str | None, style: Style) -> list[str]:
    """The command to type next: browse the recording, or explain the first break, or compare the target."""
    if recording is not None:
        command = f"dynadiag browse {shlex.quote(recording)}"
    elif explanation.findings and _BREAK_ID.fullmatch(explanation.findings[0].id or ""):
        command = f"dynadiag explain {explanation.findings[0].id}"
    else:
        command = f"dynadiag compare {shlex.quote(truncate_middle(clean_line(explanation.run.target), _MAX_TARGET))}"
    return [f"{style.paint('next:', 'help')} {clean_line(command)}"]
