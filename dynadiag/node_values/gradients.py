"""Compares the gradients of a compiled backward call with those of autograd, in float64.

AOTAutograd's backward graph holds the decompositions of backward operators: running that graph shows no fault in them.
So the forward graph runs once more, uncompiled, and autograd differentiates it with the tangents of the call. Where a
gradient that compiled code returned is far from that, the first node of the backward graph is looked for that has the
line of an operator, and not its gradient.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from dynadiag.node_values.summary import ValueInterpreter, distance, is_summarized
from dynadiag.node_values.writes import is_mutating
from dynadiag.trial.float64 import float64_copies, float64_operators
from dynadiag.trial.reference_run import copy_tensors, random_state, set_random_state

_FAR = 1e-3  # of the largest element; a type of 16 bits is off by more
_FAR_NARROW = 5e-2
_FEW = 0.05  # of the elements
_MAX_ELEMENTS = 4  # of a gradient that are shown
_FACTOR = 8.0  # times as far as the uncompiled gradient in its own types
_NARROW = 1e-4  # its machine epsilon is larger


@dataclass(frozen=True, slots=True)
class ForwardCall:
    """A forward call: the graph, its inputs, how often each was written to then, and the state of random numbers."""

    module: GraphModule
    inputs: tuple[Any, ...]
    versions: tuple[int, ...]
    state: Any

    @classmethod
    def of(cls, module: GraphModule, inputs: Sequence[Any], state: Any) -> ForwardCall:
        """Keep a call. Inputs that the graph writes to are copied.

        The others are held as tensors of their own with the same memory: the program's may be freed as without us.
        """
        placeholders = module.graph.find_nodes(op="placeholder")
        written = [any(map(is_mutating, node.users)) for node in placeholders]
        kept = tuple(copy_tensors(each) if own else _alias(each) for each, own in zip(inputs, written, strict=True))
        return cls(module, kept, _versions(kept), state)

    @property
    def is_unchanged(self) -> bool:
        """Whether nobody wrote to the inputs since."""
        return _versions(self.inputs) == self.versions


def _alias(value: Any) -> Any:
    if not is_summarized(value) or value.is_inference():
        return value
    return value.detach().requires_grad_(value.requires_grad)  # it shares the count of writes


@dataclass(frozen=True, slots=True)
class WrongGradient:
    """A gradient that compiled code returned and autograd contradicts, in float64.

    ``node`` is the first of the backward graph that is wrong, ``of`` the input whose gradient shows it. The elements
    are those that differ most.
    """

    node: str
    of: str
    off: float | None
    autograd: tuple[float, ...]
    compiled: tuple[float, ...]


def _versions(inputs: Sequence[Any]) -> tuple[int, ...]:
    return tuple(each._version for each in inputs if isinstance(each, torch.Tensor) and not each.is_inference())


class NotCompared(Exception):  # noqa: N818 - it says why
    """The gradients of a call cannot be compared with autograd's. The message says why."""


def wrong_gradient(
    forward: ForwardCall, backward: GraphModule, given: Sequence[Any], returned: Mapping[str, torch.Tensor]
) -> WrongGradient | None:
    """Return where the backward graph is wrong by autograd. None if all gradients agree.

    ``given`` are the inputs of the backward graph, ``returned`` the gradients of the compiled call by node. None if all
    gradients agree. Raises `NotCompared`.
    """
    if not forward.is_unchanged:
        raise NotCompared("the program has written to the inputs of the forward call since")
    placeholders = [node for node in backward.graph.nodes if node.op == "placeholder"]
    tangents = [value for node, value in zip(placeholders, given, strict=True) if node.name.startswith("tangents_")]
    true = _gradients(forward, tangents, wide=True)
    (output,) = backward.graph.find_nodes(op="output")
    names = output.args[0]
    inputs = forward.module.graph.find_nodes(op="placeholder")
    if len(names) != len(inputs):
        raise NotCompared("the backward graph has another number of gradients than the forward graph has inputs")
    far = [
        (node.name, primal.name)
        for node, primal in zip(names, inputs, strict=True)
        if isinstance(node, Node) and node.name in returned and primal.name in true
        if _is_far(returned[node.name], true[primal.name])
    ]
    uncompiled = _gradients(forward, tangents, wide=False) if far else {}
    for name, primal in far:
        if primal not in uncompiled:
            continue
        rounding, off = distance(uncompiled[primal], true[primal]) or 0.0, distance(returned[name], true[primal])
        if (off or 0.0) > _FACTOR * rounding:
            node = _first_wrong(forward.module, backward, given, true) or name
            return WrongGradient(node, primal, off, *_apart_most(true[primal], returned[name]))
    return None


def _apart_most(one: torch.Tensor, other: torch.Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    one, other = one.detach().double().reshape(-1), other.detach().double().reshape(-1)
    at = (one - other).abs().topk(min(_MAX_ELEMENTS, one.numel())).indices
    return tuple(one[at].tolist()), tuple(other[at].tolist())


def _gradients(forward: ForwardCall, tangents: Sequence[torch.Tensor], *, wide: bool) -> dict[str, torch.Tensor]:
    """The gradient of each value of the forward graph by node, in float64 or in its own types. Raises `NotCompared`."""
    given = copy_tensors(forward.inputs)
    if wide:
        given = float64_copies(given)
    set_random_state(forward.state)
    run = _Differentiated(forward.module)
    with torch.enable_grad(), float64_operators(torch.float32) if wide else contextlib.nullcontext():
        result = run.run(*given)
        state = random_state()
        if not torch.equal(state[0], forward.state[0]):
            raise NotCompared("the forward graph draws random numbers")
        roots = [
            each
            for each in (result if isinstance(result, (tuple, list)) else (result,))
            if isinstance(each, torch.Tensor) and each.requires_grad
        ]
        if [root.shape for root in roots] != [tangent.shape for tangent in tangents]:
            raise NotCompared("the forward graph returns a value and a view of it, or has other tangents than results")
        torch.autograd.backward(roots, [tangent.double() if wide else tangent.clone() for tangent in tangents])
    inputs = zip(forward.module.graph.find_nodes(op="placeholder"), given, strict=True)
    leaves = {node.name: value.grad for node, value in inputs if isinstance(value, torch.Tensor) and value.is_leaf}
    return run.gradients | {name: value for name, value in leaves.items() if value is not None}


class _Differentiated(ValueInterpreter):
    """Runs a graph and keeps the gradient of each value that autograd computes."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.gradients: dict[str, torch.Tensor] = {}

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, torch.Tensor) and value.requires_grad and not value.is_leaf:
            value.register_hook(lambda gradient: self.gradients.update({n.name: gradient.detach().clone()}))
        return value


def _is_far(own: torch.Tensor, wide: torch.Tensor) -> bool:
    if not is_summarized(own) or not own.is_floating_point() or own.shape != wide.shape:
        return False
    off = distance(own, wide)
    return off is not None and off > (_FAR_NARROW if torch.finfo(own.dtype).eps > _NARROW else _FAR)


def _is_another(value: torch.Tensor, wide: torch.Tensor) -> bool:
    """Whether a value is not a gradient: more elements differ than a few that fall on the other side of a threshold."""
    apart = (value - wide).abs() > _FAR * wide.abs().max()
    return float(apart.double().mean()) > _FEW


def _first_wrong(
    module: GraphModule, backward: GraphModule, given: Sequence[Any], true: Mapping[str, torch.Tensor]
) -> str | None:
    """The last node of the backward graph with the line of the first operator whose gradients the graph has nowhere.

    Only what is computed from tangents is a gradient: the other nodes compute values of the forward graph once more.
    An operator that passes a gradient on unchanged has no node of its own: the node of another line holds it.
    """
    run = ValueInterpreter(backward, garbage_collect_values=False)
    copies = float64_copies(copy_tensors(list(given)))
    with torch.no_grad(), float64_operators(torch.float32):
        run.run(*copies)
    from_tangents = set[Node]()
    values: list[tuple[Node, torch.Tensor]] = []
    for node in backward.graph.nodes:
        if node.name.startswith("tangents_") or not from_tangents.isdisjoint(node.all_input_nodes):
            from_tangents.add(node)
            value = run.env.get(node)
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                values.append((node, value))
    for node in reversed(list(module.graph.nodes)):
        for source in node.all_input_nodes:
            gradient = true.get(source.name)
            if gradient is None or len(source.users) != 1 or not node.op.startswith("call_"):
                continue
            alike = [(made, value) for made, value in values if value.shape == gradient.shape]
            of_line = [made.name for made, _ in alike if made.op.startswith("call_") and _is_of_line(made, node)]
            if of_line and all(_is_another(value, gradient) for _, value in alike):
                return of_line[-1]
    return None


def _is_of_line(made: Node, node: Node) -> bool:
    return (made.stack_trace or "") == (node.stack_trace or "")
