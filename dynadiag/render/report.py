"""The report: an explanation as text, in the manner of rustc, and the object that Python callers get."""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from dynadiag import __version__
from dynadiag.explanation.explanation import Explanation, explain
from dynadiag.explanation.formatting import count, duration
from dynadiag.explanation.rules import Rule
from dynadiag.explanation.source import ExplainedRecording
from dynadiag.explanation.timing import CompileTime, Timing
from dynadiag.kernels.generated_module import KernelCall
from dynadiag.kernels.read_modules import kernel_calls
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import CUT_SHORT, ended_by, signal_note
from dynadiag.recording.torch_text.sources import source_text
from dynadiag.render.clean import clean_line
from dynadiag.render.findings import FindingPrinter
from dynadiag.render.json_document import explanation_json
from dynadiag.render.paths import fit_path, source_location
from dynadiag.render.printer import Printer
from dynadiag.render.runtime_cost import warm_section
from dynadiag.render.wrap import truncate_end, truncate_middle, width

_MAX_REPR = 100  # columns of the target, and of the answer, in a `repr`
_BREAK_ID = re.compile(r"GB\d+")
_MAX_PART = 24  # columns of a version or a device
_MAX_SLOWEST = 5  # compiles that are named
_MAX_FUNCTIONS = 10  # functions with uncompiled operators, without --all
_MAX_CALLS = 5  # calls of kernels, without --all
_MAX_PLACES = 3  # lines of one call
_MORE = " ..."  # after the places that are shown, where there are others
_MAX_CALL = 2000  # characters of a call that are looked at: more than any terminal shows
_MAX_CUDA_GRAPHS = 5  # CUDA graphs that were recorded again, without --all
_PARTS = {
    "dynamo": "Dynamo (tracing)",
    "aot": "AOTAutograd",
    "backend": "backend",
    "inductor": "Inductor",
    "codegen": "code generation",
    "cached": "backend (code from the cache)",
    "other": "other",
}
_AGAIN = (
    "Code is recorded again for each new size, for inputs at new addresses, and for each way through the program that "
    "leads to it; TORCH_LOGS=+cudagraphs prints which it was."
)


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
        counts = f"{count(self.graph_count, 'graph')}, {count(self.split_count, 'graph break')}"
        return f"<{type(self).__name__} of {target}: {answer} {counts}, {count(self.recompile_count, 'recompile')}>"

    def __str__(self) -> str:
        return explanation_text(self, recording=self.path, calls=self.calls)

    def _repr_html_(self) -> str:
        """What a notebook shows: the answer, the counts and the first findings."""
        from dynadiag.render.page.page import summary_html  # it is made of reports

        return summary_html(self)

    def to_json(self) -> str:
        """Return the document that `dynadiag explain --json` writes."""
        return explanation_json(self, self.calls).decode("utf-8")


def report(recording: ExplainedRecording, *, after: int | None = 0) -> Report:
    """Explain a recording. The report has the kernels too if the recording is a file, which holds their code.

    ``after`` is that of `explain`.
    """
    explanation = explain(recording, after=after)
    calls = kernel_calls(recording) if isinstance(recording, Recording) else ()
    return Report(**{field.name: getattr(explanation, field.name) for field in fields(explanation)}, calls=calls)


def explanation_text(
    explanation: Explanation,
    printer: Printer | None = None,
    *,
    recording: str | None = None,
    calls: Sequence[KernelCall] = (),
) -> str:
    """Return the report, with a line end.

    `recording` is the path that the last line, the command to type next, names. `calls` are the calls of the kernels
    (`dynadiag.kernels.read_modules`). All text of the recording is cleaned: the only escape codes are the printer's.
    """
    printer = printer or Printer()
    sections = _Sections(explanation, calls, printer)
    lines = [
        *sections.summary(),
        "",
        *FindingPrinter(explanation, printer).section(),
        *sections.coverage(),
        *(sections.time(explanation.timing) if explanation.timing is not None else ()),
        *(sections.launches() if calls else ()),
        *(sections.cuda_graphs() if explanation.cuda_graphs else ()),
        *warm_section(explanation, printer),
        *(f"{printer.paint('next:', 'help')} {clean_line(each)}" for each in _next_command(explanation, recording)),
    ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _next_command(explanation: Explanation, recording: str | None) -> Iterator[str]:
    """The command to type next: browse the recording, or without one explain the first break."""
    if recording is not None:
        yield f"dynadiag browse {shlex.quote(recording)}"
    elif explanation.findings and _BREAK_ID.fullmatch(explanation.findings[0].id or ""):
        yield f"dynadiag explain {explanation.findings[0].id}"


class _Sections:
    """The sections of a report around its findings. Each is a list of lines that ends with a blank one, or empty."""

    def __init__(self, explanation: Explanation, calls: Sequence[KernelCall], printer: Printer) -> None:
        self._explanation, self._calls, self._printer = explanation, calls, printer
        self._run = explanation.run

    def summary(self) -> list[str]:
        """The answer first, then what was run, the counts, how the program ended, and notes."""
        explanation, printer = self._explanation, self._printer
        headline = explanation.headline
        role = headline.severity if headline.severity in ("good", "error") else "break"
        lines = [printer.paint(line, role) for line in printer.wrap(headline.sentence)]
        for why in headline.why:
            lines += printer.labelled("why", why)
        lines += [self._head(), *printer.wrap(self._counts())]
        if not headline.tells_end and (note := self._exit_note()) is not None:
            lines += printer.labelled("note", note)
        told = signal_note(self._run.exit_code or 0) if headline.tells_end else None
        for note in explanation.notes:
            lines += [] if note == told else printer.labelled("note", note)
        return lines

    def _head(self) -> str:
        run, columns = self._run, self._printer.columns
        parts = [f"dynadiag {__version__}", f"torch {run.torch}" if run.torch else "torch unknown", run.device or ""]
        if run.rank is not None:
            parts.append(f"rank {run.rank}")
        joined = ", ".join(truncate_middle(clean_line(part), _MAX_PART) for part in parts if part)
        lead = truncate_middle(joined, columns * 3 // 4)
        target = truncate_middle(clean_line(run.target), columns - width(lead) - 2)
        return f"{lead}: {self._printer.paint(target, 'strong')}"

    def _counts(self) -> str:
        explanation = self._explanation
        reports = sum(not item.fatal for item in explanation.breaks)  # an exception is no break
        split = explanation.split_count
        breaks = count(split, "graph break")
        free = sum(len(item.places) for item in explanation.findings if item.rule == Rule.BREAK and item.is_free)
        aside = [f"met {count(reports, 'time')}"] if reports > split else []
        aside += ["at no cost" if free == split else f"{free} at no cost"] if free else []
        breaks += f" ({', '.join(aside)})" if aside else ""
        exports = f", {count(explanation.export_count, 'export')}" if explanation.export_count else ""
        return (
            f"{count(explanation.graph_count, 'graph')}, {breaks}, {count(explanation.recompile_count, 'recompile')}, "
            f"{count(len(explanation.compiles), 'compile')}, {count(len(explanation.kernels), 'kernel')}{exports}"
        )

    def _exit_note(self) -> str | None:
        """How the program ended, if it failed and no other note says so."""
        run = self._run
        if run.exit_code == 0 or run.is_foreign or (run.exit_code is None and run.complete):
            return None
        if run.exit_code is None:
            return None if CUT_SHORT in run.notes else "the run was cut short; this is what was recorded until then"
        if run.exit_code >= 0:
            return f"the program ended with exit code {run.exit_code}"
        return None if signal_note(run.exit_code) in run.notes else f"the program was {ended_by(-run.exit_code)}"

    def coverage(self) -> list[str]:
        """The counts, and a line for each function that called operators uncompiled; empty if none were counted."""
        coverage, printer = self._explanation.coverage, self._printer
        if coverage is None:
            return []
        note = printer.labelled("note", f"--coverage: {coverage.note}") if coverage.note else []
        if not coverage.compiled + coverage.uncompiled + coverage.outside:
            return [*note, ""] if note else []
        calls = coverage.compiled + coverage.uncompiled
        share = f", {coverage.compiled / calls:.0%}" if calls else ""
        text = f"{coverage.compiled} of {count(calls, 'operator call')} in compiled calls ran in graphs{share}"
        lines = printer.labelled("coverage", text)
        indent = " " * len("coverage: ")
        if coverage.outside:
            text = f"not counted: {coverage.outside} outside of every compiled call"
            lines += printer.wrap(f"{text} (such as backward passes and optimizer steps)", indent)
        uncompiled = [item for item in coverage.by_function if item.uncompiled]
        for item in printer.first(uncompiled, _MAX_FUNCTIONS):
            lead = f"{indent}{item.uncompiled:>7} uncompiled, {item.compiled} in graphs: "
            at = f"{source_location(item.file, item.line, None, self._run.cwd)} in {clean_line(item.function)}"
            lines.append(lead + fit_path(at, max(printer.columns - len(lead), 16)))
        if len(uncompiled) > _MAX_FUNCTIONS and not printer.all_:
            more = count(len(uncompiled) - _MAX_FUNCTIONS, "more function")
            lines.append(printer.paint(f"{indent}... and {more}; --all shows them", "dim"))
        return [*lines, *note, ""]

    def time(self, timing: Timing) -> list[str]:
        """How long the parts of the compiler took, the largest first, and the slowest compiles."""
        printer, indent = self._printer, "      "
        ranked = sorted(timing.shares, key=lambda share: -share.seconds)
        parts = [  # without those that round to 0%
            f"{_PARTS[share.part]} {share.seconds / timing.total:.0%}"
            for share in ranked
            if share.seconds >= timing.total / 200
        ]
        shares = ", ".join(parts) or "no parts were recorded"
        lines = printer.labelled("time", f"{duration(timing.total)} compiling: {shares}")
        if timing.recompiles:
            again = f"{duration(timing.first_compiles)} in first compiles, {duration(timing.recompiles)} in recompiles"
            lines += printer.wrap(again, indent)
        if timing.hits:
            lines += printer.wrap(f"the code of {count(timing.hits, 'compile')} came from the FX graph cache", indent)
        slowest, rest = timing.spent[:_MAX_SLOWEST], timing.spent[_MAX_SLOWEST:]
        if len(timing.spent) > 1:
            lines += [self._slow_compile(item) for item in slowest]
        if rest:
            lines.append(f"{indent}and {count(len(rest), 'more compile')}, {duration(sum(r.seconds for r in rest))}")
        for each in timing.alike[:1]:
            listed = clean_line(source_text(each.source))
            text = f"the {each.number} {clean_line(each.kind)} in `{listed}` are alike; {each.compile_id} compiled each"
            instead = f"with `for layer in {listed}: layer.compile()` instead, all run the code of the first"
            lines += printer.wrap(f"{text}: {instead}", indent)
        return [*lines, ""]

    def _slow_compile(self, item: CompileTime) -> str:
        """A slow compile on one line: its seconds, id, function and reason, and if there is room the slowest part."""
        columns = self._printer.columns
        most = max(item.shares, key=lambda share: share.seconds, default=None)
        part = f" ({_PARTS[most.part]})" if most and most.seconds > item.seconds / 2 else ""
        id_ = truncate_middle(clean_line(item.compile.compile_id), _MAX_PART)
        lead = f"      {duration(item.seconds):>8}  {id_:<6} "
        kind = f"recompile: {truncate_middle(clean_line(item.because), _MAX_PART)}" if item.because else "recompile"
        function = clean_line(item.compile.function)
        tail = f"  {kind if item.again else 'first compile'}"
        room = columns - width(lead) - width(tail)
        if room - width(part) < min(width(function), _MAX_PART):
            part = ""
        return truncate_middle(lead + truncate_middle(function, max(room - width(part), 10)) + tail + part, columns)

    def launches(self) -> list[str]:
        """The calls with their nodes and source lines, those that move the most bytes first. Those of one kernel at the
        same lines are told once.
        """
        printer = self._printer
        ranked = sorted(self._calls, key=lambda call: -(call.cost.bytes_moved or 0))
        alike = defaultdict[tuple[object, ...], list[KernelCall]](list)
        for call in ranked:
            alike[call.compile_id, call.stage, call.name, call.source_lines, call.view_lines].append(call)
        shown = printer.first(list(alike.values()), _MAX_CALLS)
        lines = printer.labelled("kernels", self._launch_counts())
        for first, *others in shown:
            what = ", ".join(node for call in (first, *others) for node in call.nodes) or "no mapping to nodes"
            times = f" ({count(1 + len(others), 'call')})" if others else ""
            head = f"{first.compile_id} {first.stage or 'graph unknown'} {first.name}{times}: {what}"
            lines.append(f"    {truncate_end(clean_line(head[:_MAX_CALL]), printer.columns - 4)}")
            lines += self._places(first)
        if rest := len(ranked) - sum(map(len, shown)):
            more = count(rest, "more call")
            lines.append(printer.paint(f"    ... and {more}; `dynadiag kernels` lists them", "dim"))
        return [*lines, ""]

    def _launch_counts(self) -> str:
        """How many kernels and calls there are, and how many operators of the program the calls stand for.

        Calls of a backward are counted apart: its operators are autograd's, not the program's.
        """
        forward = [call for call in self._calls if call.stage != "backward"]
        backward = len(self._calls) - len(forward)
        total = f"{count(len(self._explanation.kernels), 'kernel')}, {count(len(self._calls), 'call')}"
        compiles = {call.compile_id for call in forward}
        graphs = (graph for graph in self._explanation.graphs if graph.stage == "dynamo")
        operators = sum(graph.ops for graph in graphs if graph.compile_id in compiles)
        more = f"; {count(backward, 'call')} in the backward" if backward else ""
        ran = count(len(forward), "call")
        became = f": {count(operators, 'operator')} run as {ran} (uncompiled: about a launch each)" if operators else ""
        return f"{total}{became}{more}"

    def _places(self, call: KernelCall) -> list[str]:
        """The first lines of a call, as many as fit."""
        lines = call.source_lines or call.view_lines
        if not lines:
            return []
        end = ", inferred from the code" if call.evidence == "dataflow" else ""
        room = self._printer.columns - 11 - len(end) - len(_MORE)
        places = [source_location(line.file, line.line, None, self._run.cwd) for line in lines[:_MAX_PLACES]]
        shown = [fit_path(place, room) for place in places]
        while len(shown) > 1 and width(", ".join(shown)) > room:
            del shown[-1]
        return [f"        at {', '.join(shown)}{_MORE if len(shown) < len(lines) else ''}{end}"]

    def cuda_graphs(self) -> list[str]:
        """``3 recorded in 0.41 s, 1 of them again; 2 skipped``, then a line for each that was made again.

        An operator around which code is split is left out.
        """
        printer, graphs = self._printer, self._explanation.cuda_graphs
        recorded = [item for item in graphs if item.reason is None]
        skipped = sum(item.what == "skipped" for item in graphs)
        again = Counter((item.compile_id, item.backward) for item in recorded if item.what == "re-recorded")
        seconds = sum(item.seconds or 0.0 for item in recorded)
        times = f", {again.total()} of them again" if again else ""
        parts = [f"{len(recorded)} recorded in {seconds:.2f} s{times}"] if recorded else []
        parts += [f"{skipped} skipped"] if skipped else []
        left_out = sum(item.what == "split" for item in graphs)
        parts += [f"{count(left_out, 'operator')} left out"] if left_out else []
        lines = printer.labelled("cuda graphs", "; ".join(parts))
        texts = [f"{_code_name(*code)} recorded {count(number + 1, 'time')}" for code, number in again.items()]
        for text in printer.first(texts, _MAX_CUDA_GRAPHS):
            lines += printer.wrap(text, "    ")
        if len(texts) > _MAX_CUDA_GRAPHS and not printer.all_:
            lines.append(printer.paint(f"    ... and {len(texts) - _MAX_CUDA_GRAPHS} more; --all shows them", "dim"))
        return [*lines, *(printer.help(_AGAIN) if again else ()), ""]


def _code_name(compile_id: str, backward: bool | None) -> str:
    named = "code of a compile that torch did not name" if compile_id == "-" else clean_line(compile_id)
    return f"{named} backward" if backward else named
