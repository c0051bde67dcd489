"""Simplifies a graph without removing operations: fewer outputs and inputs, literal sizes, inlined modules."""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Collection, Iterator
from functools import reduce
from itertools import combinations
from typing import Any

import torch
from torch import fx

from minifier.graph_analysis import interpret
from minifier.graph_problem import Case, copy_case, operation_name
from minifier.simplify.simplifier import all_then_each
from minifier.tensors import leaves, map_leaves, same_metadata
from minifier.torch_private import only_rewraps

# With more inputs than this, trying all pairs costs too many trials for a shorter signature.
_MAX_MERGED_INPUTS = 6
_IN_PLACE = (operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.iand, operator.ior)


def fewer_outputs(case: Case) -> Iterator[Case]:
    """Return only values that nothing else reads; then without one other output, or one in-place result."""
    written = case.module.graph.output_node().args[0]
    returned = list(written) if isinstance(written, (tuple, list)) else []
    if not all(isinstance(node, fx.Node) for node in returned):
        return
    ends = [i for i, node in enumerate(returned) if len(node.users) == 1 and node not in returned[:i]]
    if ends and len(ends) < len(returned):
        yield _returning(case, ends)
    for i, node in enumerate(returned):
        if len(returned) > 1 and (i not in ends or _in_place(node)):
            yield _returning(case, [j for j in range(len(returned)) if j != i])


def _in_place(node: fx.Node) -> bool:
    """Whether an operation works in place, by its name: ``add_``, ``aten.add_.Tensor``, ``iadd``."""
    if getattr(node.target, "__module__", "") == "_operator":
        return node.target in _IN_PLACE
    name = operation_name(node)
    return name.endswith("_") and not name.endswith("__")


def fewer_elements(case: Case) -> Iterator[Case]:
    """A list that an operation takes (`cat`, a foreach operator), without one element, the last first. Where there is a
    result for each element, that result must only be returned, and goes too.
    """
    for node, value in _values(case):
        for length in {
            len(listed) for listed in (*node.args, *node.kwargs.values()) if _is_list_of_nodes(node, listed)
        }:
            results = _results(node) if isinstance(value, (tuple, list)) and len(value) == length else {}
            for place in reversed(range(length)):
                if place not in results or {user.op for user in results[place].users} <= {"output"}:
                    yield _without_element(case, node.name, length, place, renumbered=bool(results))


def _is_list_of_nodes(node: fx.Node, value: Any) -> bool:
    listed = isinstance(value, (tuple, list)) and len(value) > 1 and node.op.startswith("call_")
    return listed and node.target is not operator.getitem and all(isinstance(element, fx.Node) for element in value)


def _results(node: fx.Node) -> dict[int, fx.Node]:
    """The nodes that take one of several results of a node, by its place; none if something else reads the node."""
    found = {user.args[1]: user for user in node.users if user.target is operator.getitem}
    return found if len(found) == len(node.users) else {}


def _without_element(case: Case, name: str, length: int, place: int, *, renumbered: bool) -> Case:
    copied = copy_case(case)
    graph = copied.module.graph
    node = next(node for node in graph.nodes if node.name == name)
    before = set(node.all_input_nodes)

    def cut(value: Any) -> Any:
        long = _is_list_of_nodes(node, value) and len(value) == length
        return type(value)(element for i, element in enumerate(value) if i != place) if long else value

    node.args, node.kwargs = tuple(map(cut, node.args)), {key: cut(value) for key, value in node.kwargs.items()}
    for index, result in sorted(_results(node).items()) if renumbered else ():
        if index == place:
            output = graph.output_node()
            output.args = (tuple(each for each in output.args[0] if each is not result),)
            graph.erase_node(result)
        elif index > place:
            result.args = (node, index - 1)
    _erase_unread(before)
    return without_unread_inputs(_recompiled(copied, case.inputs))


def without_unread_rewraps(case: Case) -> Iterator[Case]:
    """Without the unread values that a grad or jvp only wraps or unwraps. Its other operations stay together."""
    copied = copy_case(case)
    graph = copied.module.graph
    before = len(graph.nodes)
    for node in reversed(graph.nodes):
        if only_rewraps(node) and not node.users:
            graph.erase_node(node)
    if len(graph.nodes) < before:
        yield _recompiled(copied, copied.inputs)


def static_sizes(case: Case) -> Iterator[Case]:
    """Sizes as literals instead of computed values or inputs: all of them, then one at a time."""
    names = [node.name for node, value in _values(case) if _is_size(node, value)]
    yield from (_literal(case, chosen) for chosen in all_then_each(names))


def inferred_views(case: Case) -> Iterator[Case]:
    """-1 for the largest size of a view, so that it fits other inputs: in all views, then one at a time."""
    names = [node.name for node in case.module.graph.nodes if _sizes_of_view(node)]
    yield from (_inferred(case, chosen) for chosen in all_then_each(names))


def _sizes_of_view(node: fx.Node) -> list[int]:
    """The size arguments of a view, if all are numbers. The argument before them is the tensor."""
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if str(target).split(".")[0] not in ("view", "reshape", "_unsafe_view") or node.kwargs or len(node.args) < 2:
        return []
    sizes = node.args[1] if isinstance(node.args[1], (tuple, list)) else node.args[1:]
    return list(sizes) if all(type(size) is int and size >= 0 for size in sizes) and sizes else []


def _inferred(case: Case, names: Collection[str]) -> Case:
    copied = copy_case(case)
    for node in copied.module.graph.nodes:
        if node.name not in names:
            continue
        sizes = _sizes_of_view(node)
        sizes[sizes.index(max(sizes))] = -1
        flat = not isinstance(node.args[1], (tuple, list))
        node.args = (node.args[0], *sizes) if flat else (node.args[0], sizes)
    return _recompiled(copied, case.inputs)


def lifted_attributes(case: Case) -> Iterator[Case]:
    """Constants and parameters as inputs, so that they can be simplified too: all, then one at a time."""
    names = [
        node.name
        for node in case.module.graph.find_nodes(op="get_attr")
        if isinstance(_attribute(case.module, node.target), torch.Tensor)
    ]
    yield from (_lifted(case, chosen) for chosen in all_then_each(names))


def folded_constants(case: Case) -> Iterator[Case]:
    """`torch.full` in place of an operation that reads no input and gives one number throughout, the last first."""
    values = _values(case)
    reads_input: set[fx.Node] = set()
    for node, _ in values:
        if node.op in ("placeholder", "get_attr") or reads_input.intersection(node.all_input_nodes):
            reads_input.add(node)
    for node, value in reversed(values):
        if node.op.startswith("call_") and node not in reads_input and node.all_input_nodes and _is_uniform(value):
            yield _folded(case, node.name, value)


def _is_uniform(value: Any) -> bool:
    """Whether a tensor holds one number throughout; NaN is one."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or not value.numel():
        return False
    flat = value.detach().reshape(-1)
    return torch.equal(flat.isnan(), flat[:1].isnan().expand_as(flat)) and torch.equal(
        flat.nan_to_num(), flat[:1].nan_to_num().expand_as(flat)
    )


def _folded(case: Case, name: str, value: torch.Tensor) -> Case:
    copied = copy_case(case)
    graph = copied.module.graph
    node = next(node for node in graph.nodes if node.name == name)
    number = value.detach().reshape(-1)[0].item()
    kwargs: dict[str, Any] = {} if torch.tensor(number).dtype is value.dtype else {"dtype": value.dtype}
    kwargs |= {} if value.device.type == "cpu" else {"device": value.device}
    with graph.inserting_before(node):
        constant = graph.call_function(torch.full, (tuple(value.shape), number), kwargs)
    constant.meta = copy.copy(node.meta)
    node.replace_all_uses_with(constant)
    before = set(node.all_input_nodes)
    graph.erase_node(node)
    _erase_unread(before)
    return _recompiled(copied, case.inputs)


def _erase_unread(nodes: Collection[fx.Node]) -> None:
    """Erase those of the nodes that nothing reads, and what they alone read. Inputs stay."""
    left = {node for node in nodes if node.op != "placeholder"}
    while unread := [node for node in left if not node.users]:
        for node in unread:
            left = (left | {read for read in node.all_input_nodes if read.op != "placeholder"}) - {node}
            node.graph.erase_node(node)


def inlined_modules(case: Case) -> Iterator[Case]:
    """The modules that the graph calls, inlined as functions, if they can be traced."""
    if not case.module.graph.find_nodes(op="call_module"):
        return
    try:
        graph = _InliningTracer().trace(case.module)
    except (fx.proxy.TraceError, TypeError, AttributeError, RuntimeError):
        return  # a module with control flow that depends on its input stays as it is
    output = graph.output_node()
    if isinstance(output.args[0], fx.Node):
        output.args = ((output.args[0],),)
    yield Case(fx.GraphModule(case.module, graph), case.inputs)


def merged_inputs(case: Case) -> Iterator[Case]:
    """One input in place of two with the same metadata."""
    places = case.module.graph.find_nodes(op="placeholder")
    if len(places) > _MAX_MERGED_INPUTS:
        return
    for one, two in combinations(range(len(places)), 2):
        same = same_metadata(case.inputs[one], case.inputs[two]) or _same_number(case.inputs[one], case.inputs[two])
        if same and _grad(case.inputs[one]) == _grad(case.inputs[two]):
            yield _without_input(case, two, places[one].name)


def unit_scalars(case: Case) -> Iterator[Case]:
    """1.0 in place of each fraction in the graph, one at a time."""
    for node in case.module.graph.nodes:
        for value in _fractions(node):
            yield _with_unit_scalar(case, node.name, value)


class _InliningTracer(fx.Tracer):
    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002  torch's signature
        return False


def _fractions(node: fx.Node) -> list[float]:
    written = leaves((node.args, node.kwargs))
    return list(dict.fromkeys(leaf for leaf in written if isinstance(leaf, float) and math.isfinite(leaf) and leaf % 1))


def _with_unit_scalar(case: Case, name: str, old: float) -> Case:
    copied = copy_case(case)

    def swap(leaf: Any) -> Any:
        return 1.0 if isinstance(leaf, float) and leaf == old else leaf

    for node in copied.module.graph.nodes:
        if node.name == name:
            node.args, node.kwargs = map_leaves(swap, node.args), map_leaves(swap, node.kwargs)
    return _recompiled(copied, case.inputs)


def _returning(case: Case, places: list[int]) -> Case:
    copied = copy_case(case)
    output = copied.module.graph.output_node()
    output.args = (tuple(output.args[0][i] for i in places),)
    return _recompiled(copied, case.inputs)


def _literal(case: Case, names: Collection[str]) -> Case:
    """The case with the values of some nodes as literals. Inputs that are no longer read are removed."""
    values = {node.name: value for node, value in _values(case)}
    copied = copy_case(case)
    for node in reversed(copied.module.graph.nodes):
        if node.name in names:
            _write(node, values[node.name])
    return without_unread_inputs(_recompiled(copied, case.inputs))


def _write(node: fx.Node, value: Any) -> None:
    def swap(leaf: Any) -> Any:
        return value if leaf is node else leaf

    for user in list(node.users):
        user.args, user.kwargs = map_leaves(swap, user.args), map_leaves(swap, user.kwargs)
    if node.op != "placeholder":
        node.graph.erase_node(node)


def _lifted(case: Case, names: Collection[str]) -> Case:
    copied = copy_case(case)
    graph = copied.module.graph
    values: list[Any] = []
    for node in [n for n in graph.nodes if n.name in names]:
        with graph.inserting_before(next(n for n in graph.nodes if n.op != "placeholder")):
            place = graph.placeholder(node.name)
        place.meta = copy.copy(node.meta)
        values.append(_attribute(case.module, node.target).detach())
        node.replace_all_uses_with(place)
        graph.erase_node(node)
    return _recompiled(copied, (*case.inputs, *values))


def _without_input(case: Case, place: int, instead: str) -> Case:
    copied = copy_case(case)
    graph = copied.module.graph
    places = graph.find_nodes(op="placeholder")
    (other,) = [node for node in places if node.name == instead]
    places[place].replace_all_uses_with(other)
    graph.erase_node(places[place])
    return _recompiled(copied, tuple(v for i, v in enumerate(case.inputs) if i != place))


def without_unread_inputs(case: Case) -> Case:
    """The case without unread inputs. Its graph is changed in place."""
    places = case.module.graph.find_nodes(op="placeholder")
    unread = {node for node in places if not node.users}
    values = tuple(v for node, v in zip(places, case.inputs, strict=True) if node not in unread)
    for node in unread:
        case.module.graph.erase_node(node)
    return _recompiled(case, values)


def _recompiled(case: Case, inputs: tuple[Any, ...]) -> Case:
    case.module.recompile()
    return Case(case.module, inputs)


def _is_size(node: fx.Node, value: Any) -> bool:
    return node.op != "output" and type(value) in (int, torch.Size) and bool(node.users)


def _values(case: Case) -> list[tuple[fx.Node, Any]]:
    values = interpret(case.module, case.inputs).values
    return [(node, values[i]) for i, node in enumerate(case.module.graph.nodes)]


def _attribute(module: torch.nn.Module, target: Any) -> Any:
    return reduce(getattr, str(target).split("."), module)


def _same_number(one: Any, other: Any) -> bool:
    return type(one) is type(other) and not isinstance(one, torch.Tensor) and one == other


def _grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad
