"""What compiled training graphs hold in memory, as text: `explain --memory`."""

from __future__ import annotations

from collections.abc import Iterator

from dynadiag.explanation.formatting import count, si_number
from dynadiag.kernels.memory import GraphMemory, Memory, SavedTensors
from dynadiag.recording.code_origin import original_name
from dynadiag.render.clean import clean_line
from dynadiag.render.paths import fit_path, source_location
from dynadiag.render.printer import Printer
from dynadiag.render.table import fitted_table
from dynadiag.render.wrap import truncate_middle

_MAX_ROWS = 10  # lines of the program for each graph, without --all
_MAX_CELL = 200  # characters of a cell that are looked at
_BUDGET = "`torch._functorch.config.activation_memory_budget"
_SAVINGS = {
    "no_grad": f"all of them under `torch.no_grad()`, where no backward is wanted; {_BUDGET} = 0` saves inputs "
    "alone, and computes the whole forward again in the backward (`import torch._functorch.config`)",
    "recompute": f"pointwise results that follow from what else is kept; {_BUDGET} = 0.99` lets torch compute such "
    "values again, and it decides which: it may free less, or more",
    "half": "float32 activations in bfloat16, by `torch.autocast`; at most so much, for it leaves some operators in "
    "float32",
}


def memory_text(memory: Memory, printer: Printer, cwd: str | None = None) -> str:
    """The graphs that hold the most first, each with a table of its saved activations and what would free some."""
    graphs = sorted(memory.graphs, key=lambda graph: -graph.activations)
    lines = printer.wrap(_answer(memory, graphs))
    for graph in graphs:
        lines += ["", *_graph_lines(graph, printer, cwd)]
    if graphs:
        lines += ["", *printer.labelled("note", _bound(graphs))]
    if memory.unlowered:
        text = f"{count(memory.unlowered, 'compile')} left no graph of AOTAutograd: what they save is not known"
        lines += printer.labelled("note", text)
    return "\n".join(lines) + "\n"


def _answer(memory: Memory, graphs: list[GraphMemory]) -> str:
    parameters = f"parameters and buffers: {_amount(memory.parameters)}"
    if not graphs:
        if memory.unlowered and not memory.inference:
            return "What is saved for a backward is not known: no graph of AOTAutograd was recorded"
        return f"Nothing is saved for a backward: no compiled graph has one; {parameters}"
    most = graphs[0]
    name = clean_line(original_name(most.function)) or most.compile_id
    of_call = {  # the largest of each frame's variants: a graph break makes several frames of one function
        graph.compile_id.partition("/")[0]: graph
        for graph in reversed(graphs)
        if (graph.file, original_name(graph.function)) == (most.file, original_name(most.function))
    }
    saved = _amount(sum(graph.activations for graph in of_call.values()))
    if len(of_call) == 1:
        return f"A call of {name} saves {saved} of activations for its backward; {parameters}"
    inputs = _amount(sum(graph.inputs for graph in of_call.values()))
    return (
        f"The {len(of_call)} graphs of {name} save {saved} of activations and {inputs} of their inputs for the "
        f"backward; {parameters}"
    )


def _bound(graphs: list[GraphMemory]) -> str:
    most = max(graphs, key=lambda graph: graph.activations + graph.inputs + graph.parameters)
    least = most.activations + most.inputs + most.parameters
    return (
        "what is saved is read from the graphs, and is held once for each call whose backward is still to come. The "
        f"peak of a step is not known: it is at least {_amount(least)} (parameters, saved inputs and activations of "
        f"{most.compile_id}). The buffers of kernels, earlier gradients and the state of an optimizer come on top: "
        "`dynadiag compare --train FILE.py:NAME` has torch's allocator count what the tensors of a step hold at once"
    )


def _graph_lines(graph: GraphMemory, printer: Printer, cwd: str | None) -> Iterator[str]:
    head = clean_line(f"{graph.compile_id} {original_name(graph.function)}")
    at = fit_path(source_location(graph.file, graph.line, None, cwd), printer.columns - len(head) - 3)
    yield printer.paint(f"{head} ({at})" if graph.file else head, "strong")
    parts = [
        f"{_amount(graph.activations)} of activations saved",
        f"{_amount(graph.inputs)} of inputs saved",
        f"parameters and buffers {_amount(graph.parameters)}",
        f"gradients {_amount(graph.gradients)}",
        f"tangents {_amount(graph.tangents)}",
    ]
    yield from printer.wrap("; ".join(parts), "    ")
    if graph.unknown:
        text = f"{count(graph.unknown, 'tensor')} of a size that was not recorded: not in the sums"
        yield from printer.labelled("    note", text)
    yield from _table(graph, printer, cwd)
    for saving in graph.savings:
        yield from printer.help(f"{_amount(saving.bytes)}: {_SAVINGS[saving.how]}")


def _table(graph: GraphMemory, printer: Printer, cwd: str | None) -> Iterator[str]:
    shown = printer.first(graph.saved, _MAX_ROWS)
    if not shown:
        return
    heads = ("bytes", "share", "tensors", "operator", "line", "module")
    rows = [_cells(row, graph, cwd) for row in shown]
    lines = fitted_table(
        heads,
        rows,
        printer.columns - 4,
        numeric={"bytes", "share"},
        shorten={"operator": truncate_middle, "line": fit_path, "module": truncate_middle},
    )
    yield printer.paint(f"    {lines[0]}", "dim")
    yield from (f"    {line}" for line in lines[1:] if line.strip())
    if rest := graph.saved[len(shown) :]:
        total = _amount(sum(row.bytes or 0 for row in rest))
        yield printer.paint(f"    ... and {count(len(rest), 'more row')} of {total}; --all shows them", "dim")


def _cells(row: SavedTensors, graph: GraphMemory, cwd: str | None) -> tuple[str, ...]:
    known = row.bytes is not None
    return tuple(
        clean_line(cell[:_MAX_CELL])
        for cell in (
            _amount(row.bytes) if known else "?",
            f"{row.bytes / graph.activations:.0%}" if row.bytes is not None and graph.activations else "",
            f"{len(row.nodes)} x {row.dtype}{row.shape}" if len(row.nodes) > 1 else f"{row.dtype}{row.shape}",
            row.operator.lstrip("_"),
            source_location(row.file, row.line, None, cwd) if row.file else "",
            row.module or "",
        )
    )


def _amount(number: int | None) -> str:
    """``7.65 MB``: bytes, in three digits."""
    text = si_number(number)
    return f"{text[:-1]} {text[-1]}B" if text[-1:].isalpha() else f"{text} bytes"
