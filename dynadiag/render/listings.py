"""Lists of all guards, compiles or nodes of a run, by the user's lines: `explain --guards` and `explain --graphs`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from dynadiag import __version__
from dynadiag.explanation.break_remedies import REMEDIES
from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.formatting import count
from dynadiag.explanation.registry import BreakEntry, installed_torch
from dynadiag.recording.records import FAILED_TRACE, Compile, Frame, Graph, Guard, Node
from dynadiag.recording.torch_text.guards import tensor_check
from dynadiag.recording.torch_text.sources import source_text
from dynadiag.render.clean import clean_line
from dynadiag.render.json_document import SCHEMA, encode
from dynadiag.render.paths import fit_path, source_location
from dynadiag.render.printer import Printer, source_lines
from dynadiag.render.wrap import truncate_end, wrap_indented

_MAX_PER_SOURCE = 3  # guards of one kind on one value that are shown without --all
_MAX_COLUMNS = 10_000  # columns of a guard with --all
_Branch = dict[Frame, "_Branch"]


class ListingPrinter:
    """Prints lists of what an explanation has, by the user's lines."""

    def __init__(self, explanation: Explanation, printer: Printer) -> None:
        self._explanation, self._printer = explanation, printer

    def guards(self) -> str:
        """The guards of each compile. Without ``--all``, three of one kind on one value."""
        lines: list[str] = []
        for compile_ in self._explanation.compiles:
            own = [guard for guard in self._explanation.guards if guard.compile_id == compile_.compile_id]
            if own:
                lines += [f"{self._compile_line(compile_)}: {count(len(own), 'guard')}", *self._guard_lines(own), ""]
        return "\n".join(lines or ["No guard was recorded."]).rstrip("\n") + "\n"

    def _guard_lines(self, guards: Sequence[Guard]) -> Iterator[str]:
        printer = self._printer
        ordered = sorted(guards, key=lambda guard: (guard.file is not None, guard.file or "", guard.line or 0))
        for (file, line), at in groupby(ordered, key=lambda guard: (guard.file, guard.line)):
            yield self._place("    ", file, line) if file else "    not from a line of yours"
            for _, group in groupby(at, key=lambda guard: (guard.kind, guard.source)):
                alike = list(group)
                for guard in printer.first(alike, _MAX_PER_SOURCE):
                    text = source_text(guard.expression or guard.source) if printer.all_ else _guard_text(guard)
                    columns = _MAX_COLUMNS if printer.all_ else printer.columns
                    yield truncate_end(f"        {guard.kind}: {clean_line(text)}", columns)
                if len(alike) > _MAX_PER_SOURCE and not printer.all_:
                    more = f"{len(alike) - _MAX_PER_SOURCE} more on {clean_line(source_text(alike[0].source))}"
                    yield printer.paint(f"        ... and {more}; --all shows them", "dim")

    def tree(self) -> str:
        """The user's calls as a tree, with the compiles that each call led to, and their graphs."""
        tree: _Branch = {}
        leaves: dict[tuple[Frame, ...], list[Compile]] = {}
        for compile_ in self._explanation.compiles:
            branch, path = tree, compile_.callers
            for frame in path:
                branch = branch.setdefault(frame, {})
            leaves.setdefault(path, []).append(compile_)
        return "\n".join(list(self._branch(tree, leaves, ())) or ["Nothing was compiled."]) + "\n"

    def _branch(
        self, tree: _Branch, leaves: Mapping[tuple[Frame, ...], Sequence[Compile]], path: tuple[Frame, ...]
    ) -> Iterator[str]:
        indent = "    " * len(path)
        for compile_ in leaves.get(path, ()):
            yield f"{indent}{self._compile_line(compile_)}: {self._outcome(compile_)}"
        for frame, branch in tree.items():
            yield self._place(indent, frame.file, frame.line)
            yield from self._branch(branch, leaves, (*path, frame))

    def graphs(self, compile_id: str, nodes: Callable[[int], Sequence[Node]]) -> str:
        """Dynamo's graphs of one compile, each node below the user's line that it comes from.

        `compile_id` is that of a compile of the explanation. `nodes` returns the nodes of a graph by its index.
        """
        compile_ = next(item for item in self._explanation.compiles if item.compile_id == compile_id)
        lines = [f"{self._compile_line(compile_)}: {self._outcome(compile_)}"]
        for graph in self._graphs_of(compile_):
            lines += self._node_lines(nodes(graph.index))
        return "\n".join(lines) + "\n"

    def _node_lines(self, nodes: Sequence[Node]) -> Iterator[str]:
        shown = [node for node in nodes if self._printer.all_ or node.op != "placeholder"]
        for (file, line), at in groupby(shown, key=lambda node: (node.span.file, node.span.line)):
            yield self._place("    ", file, line) if file else "    not from a line of yours"
            for node in at:
                value = " ".join(part for part in (node.dtype, node.shape) if part)
                reads = f" of {', '.join(map(clean_line, node.inputs))}" if node.inputs else ""
                text = f"        {clean_line(node.name)}: {clean_line(node.target)}{reads}"
                yield truncate_end(text + (f" -> {clean_line(value)}" if value else ""), self._printer.columns)

    def _graphs_of(self, compile_: Compile) -> list[Graph]:
        graphs = (graph for graph in self._explanation.graphs if graph.is_of_dynamo)
        return [graph for graph in graphs if graph.compile_id == compile_.compile_id]

    def _outcome(self, compile_: Compile) -> str:
        graphs = self._graphs_of(compile_)
        sizes = ((graph.stage == FAILED_TRACE, count(graph.ops, "operator")) for graph in graphs)
        texts = ", ".join(f"{size} until it failed" if failed else f"a graph of {size}" for failed, size in sizes)
        ended = [item for item in self._explanation.breaks if item.compile_id == compile_.compile_id]
        why = f", ended by {ended[-1].gb_id or 'a break'} at line {ended[-1].span.line}" if ended else ""
        return (
            (texts or "no graph") + {"skipped": ", left to Python", "error": ", failed"}.get(compile_.outcome, "") + why
        )

    def _compile_line(self, compile_: Compile) -> str:
        at = fit_path(source_location(compile_.file, compile_.line, None, self._explanation.run.cwd), 60)
        return (
            f"{self._printer.paint(clean_line(compile_.compile_id), 'strong')} {clean_line(compile_.function)} ({at})"
        )

    def _place(self, indent: str, file: str | None, line: int | None) -> str:
        columns = self._printer.columns
        at = source_location(file, line, None, self._explanation.run.cwd)
        lines = source_lines(self._explanation.sources.get(file or "", ""))
        code = clean_line(lines[(line or 0) - 1]).strip() if 1 <= (line or 0) <= len(lines) else ""
        lead = f"{indent}{fit_path(at, max(columns - len(indent) - 20, 20))}"
        return self._printer.paint(truncate_end(f"{lead}: {code}" if code else lead, columns), "dim")


def _guard_text(guard: Guard) -> str:
    """What a guard checks, in short."""
    if (check := tensor_check(guard.expression)) is not None:
        size, stride = (f"[{', '.join(values)}]" for values in (check.size, check.stride))
        grad = ", requires_grad" if check.requires_grad == "True" else ""
        return f"{source_text(guard.source)} is {check.dtype.removeprefix('torch.')} {size}, stride {stride}{grad}"
    if guard.kind == "GLOBAL_STATE":
        return "grad mode, autocast, default dtype, deterministic mode, threads are as they were"
    return source_text(guard.expression or guard.source)


def entry_text(entry: BreakEntry, printer: Printer | None = None) -> str:
    """Return what the break means, what torch says about it, and what to do about it. It ends in a line end."""
    printer = printer or Printer()
    first, *rest = wrap_indented(f"{entry.gb_id}: ", entry.gb_type, printer.columns)
    head = printer.paint(first[: len(entry.gb_id)], "break") + printer.paint(first[len(entry.gb_id) :], "strong")
    lines = [head, *(printer.paint(line, "strong") for line in rest), ""]
    lines += _block("What it means", [entry.family.meaning], printer)
    lines += _block("torch says", [entry.explanation] if entry.explanation else [], printer)
    lines += _block("torch's hints, unchecked", entry.hints, printer)
    lines += _block("What to do", _remedies(entry), printer)
    lines += _block("Reported with", [entry.context] if entry.context else [], printer)
    return "\n".join(lines).rstrip("\n") + "\n"


def entry_json(entry: BreakEntry) -> bytes:
    """Return the same as JSON."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "dynadiag": __version__,
        "torch": installed_torch(),
        "gb_id": entry.gb_id,
        "gb_type": entry.gb_type,
        "meaning": entry.family.meaning,
        "explanation": entry.explanation,
        "hints": list(entry.hints),
        "remedies": [REMEDIES[key].text for key in entry.family.remedies],
        "context": entry.context,
    }
    return encode(document)


def _remedies(entry: BreakEntry) -> list[str]:
    """What usually removes such a break. Advice that was tried on one says so."""
    remedies = [REMEDIES[key] for key in entry.family.remedies]
    tried = [any(trial.case == entry.gb_id for trial in remedy.trials) for remedy in remedies]
    return [f"{remedy.text} (tried)" if at else remedy.text for remedy, at in zip(remedies, tried, strict=True)]


def _block(title: str, texts: Sequence[str], printer: Printer) -> list[str]:
    if not texts:
        return []
    mark = "- " if len(texts) > 1 else ""
    lines = [line for text in texts for line in wrap_indented(f"  {mark}", text, printer.columns)]
    return [printer.paint(f"{title}:", "help"), *lines, ""]
