"""A rank whose compiled code differs from that of most others in a size, a number or a guard.

Such details differ between shards by design, so they count only if most of at least three ranks agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from dynadiag.explanation.formatting import brief
from dynadiag.job.divergence import Divergence
from dynadiag.job.processes import Process
from dynadiag.job.ranks import rank_list
from dynadiag.job.trace import CompileStep

__all__ = ["find_outlier"]

_MIN_RANKS = 3
_TEXT = 80  # characters of a guard or a type


def find_outlier(ranks: Sequence[Process], restart: int) -> Divergence | None:
    """Return the first detail in which a minority of these ranks, which are alike else, differs from the majority."""
    if len(ranks) < _MIN_RANKS or len({id(each.trace.steps) for each in ranks if each.trace}) < 2:
        return None
    for position in range(len(ranks[0].trace.steps) if ranks[0].trace else 0):
        steps = [each.trace.steps[position] for each in ranks if each.trace]
        compiles = [step for step in steps if isinstance(step, CompileStep)]
        if len(compiles) == len(ranks) and len({id(step) for step in compiles}) > 1:
            found = _of_compiles(ranks, compiles, restart)
            if found is not None:
                return found
    return None


def _of_compiles(ranks: Sequence[Process], steps: Sequence[CompileStep], restart: int) -> Divergence | None:
    details = {id(step): dict(_details(step)) for step in steps}
    names = dict.fromkeys(name for found in details.values() for name in found)
    for name in names:
        values = Counter(details[id(step)].get(name) for step in steps)
        usual, times = values.most_common(1)[0]
        if len(values) > 1 and times * 2 > len(steps):
            odd = [index for index, step in enumerate(steps) if details[id(step)].get(name) != usual]
            return _outlier_divergence(name, usual, details[id(steps[odd[0]])].get(name), odd, ranks, steps, restart)
    return None


def _details(step: CompileStep) -> Iterator[tuple[tuple[str, Hashable, int], Hashable]]:
    """Each detail of a compile by a name that it has on every rank."""
    for index, graph in enumerate(step.graphs):
        for place, (node, type_) in enumerate(zip(graph.graph.nodes, graph.types, strict=True)):
            yield ("graph", index, place), (node.call, type_)
    seen: Counter[str] = Counter()
    for guard in step.guards:
        yield ("guard", guard.source, seen[guard.source]), guard.expression
        seen[guard.source] += 1


def _outlier_divergence(
    name: tuple[str, Hashable, int],
    usual: Hashable,
    value: Hashable,
    odd: Sequence[int],
    ranks: Sequence[Process],
    steps: Sequence[CompileStep],
    restart: int,
) -> Divergence:
    numbers = tuple(ranks[index].rank or 0 for index in odd)
    others = tuple(each.rank or 0 for index, each in enumerate(ranks) if index not in set(odd))
    step, is_guard = steps[odd[0]], name[0] == "guard"
    is_input = isinstance(value, tuple) and value[0] == "placeholder"
    what = f"guards `{brief(str(value), _TEXT)}`" if is_guard else f"computes `{_node(value)}`"
    if is_input:
        node = step.graphs[int(str(name[1]))].graph.nodes[name[2]]
        what = f"takes {step.input_name(node)}, {_node(value)},"
    other = f"`{brief(str(usual), _TEXT)}`" if is_guard else _node(usual) if is_input else f"`{_node(usual)}`"
    return Divergence(
        kind="recompile" if is_guard else "graph",
        ranks=numbers,
        restart=restart,
        compile_id=step.compile.compile_id,
        file=step.compile.file,
        line=step.compile.line,
        function=step.compile.function,
        text=f"{rank_list(numbers)} {what} in {step.compile.function}, {rank_list(others)} {other}",
        cause=f"{name[1]} differs" if is_guard else None,
    )


def _node(value: Hashable) -> str:
    call, type_ = value if isinstance(value, tuple) else ("no such node", "")
    if call == "placeholder":
        return f"`{brief(str(type_), _TEXT)}`"
    return brief(f"{call}: {type_}" if type_ else str(call), _TEXT)
