"""Lists of all guards, compiles or nodes of a run, by the user's lines: `explain --guards` and `explain --graphs`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.formatting import count
from dynadiag.recording.records import Compile, Frame, Graph, Guard, Node
from dynadiag.recording.torch_text.sources import source_text
from dynadiag.render.clean import clean_line
from dynadiag.render.paths import fit_path, source_location
from dynadiag.render.printer import Printer, source_lines
from dynadiag.render.wrap import truncate_end

__all__ = ["compile_tree", "graph_listing", "guard_listing"]

_MAX_PER_SOURCE = 3  # guards of one kind on one value that are shown without --all
_MAX_COLUMNS = 10_000  # columns of a guard with --all
_TENSOR = re.compile(
    r"^check_tensor\(.*torch\.(?P<dtype>\w+), device=.*requires_grad=(?P<grad>\w+), size=(?P<size>\[.*?\]), "
    r"stride=(?P<stride>\[.*?\])"
)
_Branch = dict[Frame, "_Branch"]


def guard_listing(explanation: Explanation, printer: Printer) -> str:
    """The guards of each compile by the user's line. Without ``--all``, three of one kind on one value."""
    lines: list[str] = []
    for each in explanation.compiles:
        own = [guard for guard in explanation.guards if guard.compile_id == each.compile_id]
        if own:
            lines += [_compile_line(each, explanation, printer) + f": {count(len(own), 'guard')}"]
            lines += [*_guards_by_line(own, explanation, printer), ""]
    return "\n".join(lines or ["No guard was recorded."]).rstrip("\n") + "\n"


def _guards_by_line(guards: Sequence[Guard], explanation: Explanation, printer: Printer) -> Iterator[str]:
    ordered = sorted(guards, key=lambda guard: (guard.file is not None, guard.file or "", guard.line or 0))
    for (file, line), at in groupby(ordered, key=lambda guard: (guard.file, guard.line)):
        yield _place("    ", file, line, explanation, printer) if file else "    not from a line of yours"
        for _, alike in groupby(at, key=lambda guard: (guard.kind, guard.source)):
            found = list(alike)
            shown = printer.first(found, _MAX_PER_SOURCE)
            for guard in shown:
                text = source_text(guard.expression or guard.source) if printer.all_ else _guard_text(guard)
                yield truncate_end(
                    f"        {guard.kind}: {clean_line(text)}", _MAX_COLUMNS if printer.all_ else printer.columns
                )
            if len(shown) < len(found):
                more = f"{len(found) - len(shown)} more on {clean_line(source_text(found[0].source))}"
                yield printer.paint(f"        ... and {more}; --all shows them", "dim")


def _guard_text(guard: Guard) -> str:
    """What a guard checks, in short."""
    found = _TENSOR.search(guard.expression)
    if found:
        grad = ", requires_grad" if found["grad"] == "True" else ""
        return f"{source_text(guard.source)} is {found['dtype']} {found['size']}, stride {found['stride']}{grad}"
    if guard.kind == "GLOBAL_STATE":
        return "grad mode, autocast, default dtype, deterministic mode, threads are as they were"
    return source_text(guard.expression or guard.source)


def compile_tree(explanation: Explanation, printer: Printer) -> str:
    """The user's calls as a tree, with the compiles that each call led to, and their graphs."""
    tree: _Branch = {}
    leaves: dict[tuple[Frame, ...], list[Compile]] = {}
    for each in explanation.compiles:
        branch, path = tree, _callers(each)
        for frame in path:
            branch = branch.setdefault(frame, {})
        leaves.setdefault(path, []).append(each)
    lines = list(_branch_lines(tree, leaves, (), explanation, printer))
    return "\n".join(lines or ["Nothing was compiled."]) + "\n"


def _callers(compile_: Compile) -> tuple[Frame, ...]:
    """The user's stack to a compile, without the compiled function itself."""
    stack = compile_.user_stack
    inner = stack[-1] if stack else None
    return stack[:-1] if inner and (inner.file, inner.line) == (compile_.file, compile_.line) else stack


def _branch_lines(
    tree: _Branch,
    leaves: Mapping[tuple[Frame, ...], Sequence[Compile]],
    path: tuple[Frame, ...],
    explanation: Explanation,
    printer: Printer,
) -> Iterator[str]:
    indent = "    " * len(path)
    for each in leaves.get(path, ()):
        yield f"{indent}{_compile_line(each, explanation, printer)}: {_outcome(each, explanation)}"
    for frame, branch in tree.items():
        yield _place(indent, frame.file, frame.line, explanation, printer)
        yield from _branch_lines(branch, leaves, (*path, frame), explanation, printer)


def _outcome(compile_: Compile, explanation: Explanation) -> str:
    graphs = [graph for graph in explanation.graphs if _is_dynamos(graph, compile_)]
    graph_texts = ", ".join(f"a graph of {count(graph.ops, 'operator')}" for graph in graphs) or "no graph"
    ended = [item for item in explanation.breaks if item.compile_id == compile_.compile_id]
    why = f", ended by {ended[-1].gb_id or 'a break'} at line {ended[-1].span.line}" if ended else ""
    return graph_texts + {"skipped": ", left to Python", "error": ", failed"}.get(compile_.outcome, "") + why


def graph_listing(
    explanation: Explanation, compile_id: str, nodes: Callable[[int], Sequence[Node]], printer: Printer
) -> str:
    """Dynamo's graphs of one compile, each node below the user's line that it comes from.

    `compile_id` is that of a compile of the explanation. `nodes` returns the nodes of a graph by its index.
    """
    compile_ = next(each for each in explanation.compiles if each.compile_id == compile_id)
    lines = [f"{_compile_line(compile_, explanation, printer)}: {_outcome(compile_, explanation)}"]
    for graph in explanation.graphs:
        if _is_dynamos(graph, compile_):
            lines += list(_nodes_by_line(nodes(graph.index), explanation, printer))
    return "\n".join(lines) + "\n"


def _nodes_by_line(nodes: Sequence[Node], explanation: Explanation, printer: Printer) -> Iterator[str]:
    shown = [node for node in nodes if printer.all_ or node.op != "placeholder"]
    for (file, line), at in groupby(shown, key=lambda node: (node.span.file, node.span.line)):
        yield _place("    ", file, line, explanation, printer) if file else "    not from a line of yours"
        for node in at:
            value = " ".join(part for part in (node.dtype, node.shape) if part)
            reads = f" of {', '.join(map(clean_line, node.inputs))}" if node.inputs else ""
            text = f"        {clean_line(node.name)}: {clean_line(node.target)}{reads}"
            yield truncate_end(text + (f" -> {clean_line(value)}" if value else ""), printer.columns)


def _is_dynamos(graph: Graph, compile_: Compile) -> bool:
    return graph.stage == "dynamo" and graph.compile_id == compile_.compile_id


def _compile_line(each: Compile, explanation: Explanation, printer: Printer) -> str:
    at = source_location(each.file, each.line, None, explanation.run.cwd)
    return f"{printer.paint(clean_line(each.compile_id), 'strong')} {clean_line(each.function)} ({fit_path(at, 60)})"


def _place(indent: str, file: str | None, line: int | None, explanation: Explanation, printer: Printer) -> str:
    """A place and its line of source."""
    at = source_location(file, line, None, explanation.run.cwd)
    lines = source_lines(explanation.sources.get(file or "", ""))
    code = clean_line(lines[(line or 0) - 1]).strip() if 1 <= (line or 0) <= len(lines) else ""
    lead = f"{indent}{fit_path(at, max(printer.columns - len(indent) - 20, 20))}"
    return printer.paint(truncate_end(f"{lead}: {code}" if code else lead, printer.columns), "dim")
