"""Says which values of compiled code are wrong, with float64 as the referee.

Each value that compiled code stored or returned belongs to a node of the graph. The graph runs uncompiled from what
compiled code stored before: at each such node the stored value takes the place of the computed one, once the two are
compared. So a kernel answers for its own error only, and a fault is told where it happens, not where it shows. What is
near to a run that is uncompiled from its start is right: unless the graph draws random numbers or writes to memory,
only what lies between the other stored values and those before them runs.

The graph runs so in its own types; where a stored value is not near to that, in float64; and, where that leaves doubt,
with random rounding in every operator (`dynadiag.trial.fp64_oracle`). A stored value is wrong where it is further from
float64 than all of these explain.
Memory that the program leaves uninitialized is NaN in float64, so that any value is allowed there. Random numbers of
compiled code are not those of eager: what depends on them is not judged.

Inside a kernel that computes several nodes and stores the last, what lies between the stored values that it reads and
the one that it stores is compiled once more, with each of its values returned, and judged as the whole graph was. The
first wrong one is named. Where none is wrong then, because other code was generated, nothing is known beyond the stored
value.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from dynadiag.grouping import reached
from dynadiag.node_values.node_run import NodeRun, is_uninitialized
from dynadiag.node_values.summary import ValueInterpreter, blocks, distance, is_summarized, largest_of, with_operators
from dynadiag.node_values.writes import is_mutating, memory_of, mutates
from dynadiag.torch_private.trial import compile_in_this_process
from dynadiag.trial.float64 import float64_copies, float64_operators, most_precise, to_float64
from dynadiag.trial.fp64_oracle import beyond_rounding
from dynadiag.trial.reference_run import copy_tensors, has_random_state, random_state, set_random_state, tensors_in
from dynadiag.trial.rounding import StochasticRounding

_MAX_SAMPLES = 16  # runs with random rounding
_FILL_OWN, _FILL_WIDE = 0.0, math.nan  # of uninitialized memory: what depends on it is infinitely far from float64


@dataclass(frozen=True, slots=True)
class StoredValue:
    """What compiled code stored or returned for a node.

    ``kernel`` stored it, None where only those show it that read or return it. ``overwritten`` stored another value in
    its place: the memory was written to before the value was read.
    """

    value: torch.Tensor
    kernel: str | None
    overwritten: str | None = None

    def like(self, own: torch.Tensor | None) -> StoredValue:
        """Return it with the shape of the node's uncompiled value, if that has as many elements."""
        if own is None or own.shape == self.value.shape or own.numel() != self.value.numel():
            return self
        return replace(self, value=self.value.reshape(own.shape))


@dataclass(frozen=True, slots=True)
class Judgement:
    """Of one stored value: its distance from float64, and whether it is wrong. None where it is not judged.

    The distance of a value that is near to the uncompiled one is from that one: float64 is not asked.
    """

    off: float | None
    wrong: bool | None


def agrees(own: torch.Tensor, stored: torch.Tensor) -> bool:
    """Whether a stored value is so near to the uncompiled one that there is nothing to judge."""
    if own.shape != stored.shape or own.dtype != stored.dtype:
        return False
    rtol, atol = _tolerance(own, own, _eps(own))
    return _is_near(own, stored, (_NEAR * rtol, _NEAR * atol))


def _is_near(own: torch.Tensor, stored: torch.Tensor, tolerance: tuple[float, float]) -> bool:
    rtol, atol = tolerance
    for mine, theirs in zip(blocks(own), blocks(stored), strict=True):
        if own.is_floating_point() and own.numel() and largest_of(theirs - mine) <= atol:
            continue  # `isclose` takes ten times as long
        if not torch.isclose(theirs, mine, rtol, atol, equal_nan=True).all():
            return False
    return True


@dataclass(frozen=True, slots=True)
class Judgements:
    """Of the stored values, by node.

    ``values`` are those of all nodes, uncompiled from what compiled code stored. There are none if nothing is wrong.
    """

    of: Mapping[str, Judgement]
    values: Mapping[str, Any]


def judge(module: GraphModule, inputs: tuple[Any, ...], stored: Mapping[str, StoredValue], state: Any) -> Judgements:
    """Judge the stored values of a graph's nodes, from the state of the random number generators ``state``.

    Raises what the graph raises. Where it does not run in float64, only values near to the uncompiled ones are judged.
    """
    run = functools.partial(_run, module, inputs, stored, state)
    own = run(contextlib.nullcontext(), _FILL_OWN)
    eps = _narrowest(module, stored, own.eps)
    near = {
        name: Judgement(distance(stored[name].value, value), wrong=False)
        for name, value in own.computed.items()
        if value.dtype == stored[name].value.dtype
        and _is_near(value, stored[name].value, _tolerance(value, value, eps[name]))
    }
    if len(near) == len(own.computed):
        return Judgements(near, {})
    try:
        wide = run(float64_operators(most_precise(tensors_in(inputs))), _FILL_WIDE, wide=True)
    except Exception:  # noqa: BLE001 - an operator without a kernel for float64
        return Judgements(near, {})
    samples: list[_SyncedRun] = []

    def sampled(name: str) -> Iterator[torch.Tensor]:
        for number in range(_MAX_SAMPLES):
            if number == len(samples):
                rounding = StochasticRounding(number)
                samples.append(_run(module, inputs, _moved(stored, rounding), state, rounding, _FILL_OWN))
            value = samples[number].computed[name]
            yield to_float64(value) if _eps(value) else value

    made = {
        name: _judge(own.computed[name], stored[name].value, wide.computed[name], sampled(name), eps[name])
        for name in own.computed
        if name not in near and name in wide.computed
    }
    is_wrong = any(judgement.wrong for judgement in made.values())
    values = run(contextlib.nullcontext(), _FILL_OWN, keep=True).env if is_wrong else {}
    return Judgements(near | made, {node.name: value for node, value in values.items()})


def judge_apart(
    module: GraphModule,
    inputs: tuple[Any, ...],
    stored: Mapping[str, StoredValue],
    own: Mapping[str, torch.Tensor],
    apart: Container[str],
    state: Any,
) -> Judgements:
    """Judge the stored values that are ``apart`` from ``own``, those of an uncompiled run.

    The graph neither draws random numbers nor writes to memory. It runs from the stored values before these.
    """
    stored = {name: each for name, each in stored.items() if name in own and _is_alike(own[name], each.value)}
    last = [node for node in module.graph.nodes if node.name in stored and node.name in apart]
    given = dict(zip((node.name for node in module.graph.find_nodes(op="placeholder")), inputs, strict=True))
    return judge(*_part(module, _between(last, stored), {**given, **own}), stored, state)


def _continued(stored: Mapping[str, StoredValue]) -> set[str]:
    """The values whose kernel stores others as well: it goes on with them as they were before they were rounded."""
    kernels = Counter(each.kernel for each in stored.values())
    return {name for name, each in stored.items() if kernels[each.kernel] > 1}


def _moved(stored: Mapping[str, StoredValue], rounding: StochasticRounding) -> dict[str, StoredValue]:
    """The stored values, those of 16 bits that their kernel goes on with moved by what rounding may have lost."""
    continued = _continued(stored)
    return {
        name: StoredValue(rounding.moved(each.value), each.kernel)
        if name in continued and _eps(each.value) > _NARROW
        else each
        for name, each in stored.items()
    }


def _eps(value: Any) -> float:
    """The machine epsilon of a value; 0 for what is no floating number."""
    is_floating = isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
    return torch.finfo(value.dtype).eps if is_floating else 0.0


def _narrowest(module: GraphModule, stored: Mapping[str, StoredValue], eps: Mapping[str, float]) -> dict[str, float]:
    """For each node the largest machine epsilon of what its kernel computes it of, and its own, which is in ``eps``.

    A sum in float32 of products in bfloat16 is no more precise than these, whether or not they are rounded.
    """
    continued, before, largest = _continued(stored), dict[Node, float](), dict[str, float]()
    for node in module.graph.nodes:
        own = eps.get(node.name, 0.0)
        read = max((before[each] for each in node.all_input_nodes), default=0.0)
        largest[node.name] = max(own, read)
        before[node] = largest[node.name] if node.name not in stored else own if node.name in continued else 0.0
    return largest


def _judge(
    own: torch.Tensor,
    stored: torch.Tensor,
    wide: torch.Tensor,
    samples: Iterator[torch.Tensor],
    eps: float,
) -> Judgement:
    if own.shape != wide.shape or not own.numel():
        return Judgement(None, None)
    if _eps(own):
        values, truth = (to_float64(own), to_float64(stored)), to_float64(wide)
    else:  # a large integer has no value in float64; the differences have one
        values, truth = (_from(own, own), _from(own, stored)), _from(own, wide)
        samples = (_from(own, each) for each in samples)
    wrong = beyond_rounding(values, truth, samples, _tolerance(own, truth, eps))
    return Judgement(distance(stored, wide), bool(wrong.any()))


def _from(own: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """How far integers are from others."""
    return (value.to(torch.int64) - own.to(torch.int64)).double()


def _tolerance(own: torch.Tensor, truth: torch.Tensor, eps: float) -> tuple[float, float]:
    """(rtol, atol): some units in the last place of an element, and of a typical element."""
    if not _eps(own):
        return 0.0, 0.0
    rtol = (_UNITS_NARROW if eps > _NARROW else _UNITS) * eps
    typical = _typical(truth)
    if not math.isfinite(typical):
        typical = _typical(truth[truth.isfinite()])
    return rtol, rtol * typical


def _typical(values: torch.Tensor) -> float:
    """The root of the mean of the squares."""
    values = with_operators(values)
    norm = float(torch.linalg.vector_norm(values, dtype=None if _eps(values) < _NARROW else torch.float32))
    if not math.isfinite(norm) or not norm:  # the squares of float32 overflow long before its elements
        norm = float(torch.linalg.vector_norm(values.to(torch.complex128 if values.is_complex() else torch.float64)))
    return norm / math.sqrt(max(1, values.numel()))


_NARROW = 1e-4  # the machine epsilon of float16 and bfloat16 is larger
_UNITS_NARROW, _UNITS = 4.0, 16.0
_NEAR = 2.0  # times the tolerance of one kernel: a graph has many


def _run(
    module: GraphModule,
    inputs: tuple[Any, ...],
    stored: Mapping[str, StoredValue],
    state: Any,
    under: contextlib.AbstractContextManager[Any],
    fill: float,
    *,
    wide: bool = False,
    keep: bool = False,
) -> _SyncedRun:
    """Run the graph in a mode, on copies of the inputs that it may write to. ``keep`` keeps the values of all nodes."""
    given = copy_tensors(inputs) if mutates(module) else inputs
    given = float64_copies(given) if wide else given  # not under the mode, where memory is not shared as it was
    run = _SyncedRun(module, stored, fill, float64_copies if wide else copy_tensors, keep=keep)
    set_random_state(state)
    with under:
        run.run(*given)
    return run


class _SyncedRun(ValueInterpreter):
    """A run in which stored values replace computed ones.

    ``computed`` has what was computed there before, ``eps`` the machine epsilon of each node that computes.
    """

    def __init__(
        self,
        module: GraphModule,
        stored: Mapping[str, StoredValue],
        fill: float,
        copied: Callable[[Any], Any],
        *,
        keep: bool,
    ) -> None:
        super().__init__(module, garbage_collect_values=not keep)
        self.computed: dict[str, torch.Tensor] = {}
        self.eps: dict[str, float] = {}
        self._stored, self._fill, self._copied, self._mutates = stored, fill, copied, mutates(module)
        self._inputs = set[int]()  # by storage
        self._random = dict[int, torch.Tensor]()  # by storage, which it keeps: values that depend on random numbers

    def run_node(self, n: Node) -> Any:
        if not n.op.startswith("call_"):
            value = super().run_node(n)
            if (stored := self._stored.get(n.name)) is not None:
                self.eps[n.name] = _eps(value)
                value = torch.empty_like(value).copy_(stored.value)
            self._inputs |= {memory_of(each) for each in tensors_in(value)} if n.op == "placeholder" else set()
            return self._copied(value) if n.op == "get_attr" and isinstance(value, torch.Tensor) else value
        read = self.tensors_read(n)
        before = random_state()
        value = super().run_node(n)
        self.eps[n.name] = _eps(value)
        if is_uninitialized(n) and isinstance(value, torch.Tensor):
            return value.fill_(self._fill if value.is_floating_point() else 0)
        depends = not has_random_state(before) or any(memory_of(each) in self._random for each in read)
        if depends:
            written = [*tensors_in(value), *(read[:1] if is_mutating(n) else ())]
            self._random |= {memory_of(each): each for each in written}
        if (stored := self._stored.get(n.name)) is not None and _is_alike(value, stored.value):
            return self._replaced(n, value, stored.value, is_judged=not depends)
        return value

    def _replaced(self, n: Node, value: torch.Tensor, stored: torch.Tensor, *, is_judged: bool) -> torch.Tensor:
        """The stored value in place of the computed one, in its memory if that is read or written by another name.

        Inputs that the graph does not write to are not copied: a view of them stays as it is.
        """
        is_shared = self._mutates or memory_of(value) in map(memory_of, self.tensors_read(n))
        if is_judged:
            self.computed[n.name] = value.detach().clone() if is_shared else value.detach()
        if not is_shared:
            return torch.empty_like(value).copy_(stored)
        if not _overlaps(value) and (self._mutates or memory_of(value) not in self._inputs):
            value.copy_(stored)
            self._random.pop(memory_of(value), None)
        return value


def _is_alike(value: Any, stored: torch.Tensor) -> bool:
    """Whether a stored value may be the node's: its shape and its type are the same, but for the precision."""
    return (
        is_summarized(value)
        and value.shape == stored.shape
        and value.is_floating_point() == stored.is_floating_point()
        and value.is_complex() == stored.is_complex()
    )


def _overlaps(value: torch.Tensor) -> bool:
    """Whether elements of a tensor share memory, as after `expand`."""
    return any(step == 0 and size > 1 for step, size in zip(value.stride(), value.shape, strict=True))


_MAX_NODES = 64  # that are compiled once more


def wrong_within(
    module: GraphModule,
    wrong: str,
    stored: Mapping[str, StoredValue],
    values: Mapping[str, Any],
    run: NodeRun,
    state: Any,
) -> tuple[str, torch.Tensor] | None:
    """Return the first wrong node between stored values and the node ``wrong``, with its compiled value.

    ``values`` are those of all nodes, from what compiled code stored; inputs as the graph got them. ``run`` is the
    uncompiled run, which knows what was written to. None if nothing lies between, or if none is wrong once compiled so.
    Raises what the compiler raises.
    """
    last = next(node for node in module.graph.nodes if node.name == wrong)
    memory = {name: memory_of(value) for name, value in values.items() if isinstance(value, torch.Tensor)}
    written = {memory.get(node.name) for node in run.writes.of}
    outside = {node.name for node in module.graph.nodes if node.name not in values}
    inside = _between([last], outside | {name for name in stored if memory.get(name) not in written}, run.reads)
    if len(inside) < 2 or len(inside) > _MAX_NODES:
        return None
    part, inputs = _part(module, inside, values)
    compile_in_this_process()
    with torch.no_grad():
        returned = torch.compile(part, fullgraph=True)(*copy_tensors(inputs))
    names = [node.name for node in inside if is_summarized(values.get(node.name))]
    compiled = {
        name: StoredValue(value, None) for name, value in zip(names, returned, strict=True) if is_summarized(value)
    }
    judged = judge(part, inputs, compiled, state).of
    first = next((name for name in names if (one := judged.get(name)) is not None and one.wrong), None)
    return None if first is None else (first, compiled[first].value)


def _between(
    last: Sequence[Node], known: Container[str], reads: Mapping[str, Sequence[str]] | None = None
) -> list[Node]:
    """The nodes that ``last`` are computed of since those that are ``known``, and these, in the order of the graph.

    ``reads`` has the names of further nodes that a node depends on.
    """
    named = {node.name: node for node in last[0].graph.nodes} if last else {}

    def sources(node: Node) -> Iterator[Node]:
        for source in (*node.all_input_nodes, *(named[name] for name in (reads or {}).get(node.name, ()))):
            if source.op.startswith("call_") and source.name not in known:
                yield source

    return sorted(reached(last, sources))


def _part(module: GraphModule, inside: list[Node], values: Mapping[str, Any]) -> tuple[GraphModule, tuple[Any, ...]]:
    """A graph of these nodes that returns each of their tensors, and its inputs.

    If a node writes to what it reads, it returns copies of them, as they are then.
    """
    graph, copies, inputs = Graph(), dict[Node, Node](), list[Any]()
    outside = dict.fromkeys(node for each in inside for node in each.all_input_nodes if node not in inside)
    for node in outside:
        if node.op == "get_attr":
            copies[node] = graph.get_attr(str(node.target))
        else:
            copies[node] = graph.placeholder(node.name)
            value = values[node.name]
            inputs.append(value.detach() if isinstance(value, torch.Tensor) else value)
    is_written, returned = any(map(is_mutating, inside)), list[Node]()
    for node in inside:
        copies[node] = graph.node_copy(node, lambda each: copies[each])
        copies[node].name = node.name
        if is_summarized(values.get(node.name)):
            own = copies[node.args[0]] if node.target is operator.setitem else copies[node]
            kept = f"kept_{node.name}"
            returned.append(graph.create_node("call_function", torch.clone, (own,), name=kept) if is_written else own)
    graph.output(tuple(returned))
    return GraphModule(module, graph), tuple(inputs)
