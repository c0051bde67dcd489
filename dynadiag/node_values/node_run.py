"""Runs a graph node by node, uncompiled, and describes the value of each node.

Each node also runs in float64 on its own inputs, widened: ``off_float64`` is the error of this one node, not what was
lost before it.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from dynadiag.capture.graphs import target_name
from dynadiag.node_values.not_finite import NotFiniteFlow, finite, kinds_of
from dynadiag.node_values.product_sample import COLUMNS, ROWS, ProductSample, product_sample
from dynadiag.node_values.summary import ValueInterpreter, distance, have_same_bits, is_summarized, summary_of, twin_of
from dynadiag.node_values.writes import Writes, is_mutating, memory_of, mutates
from dynadiag.recording.torch_text.sources import attribute_name
from dynadiag.torch_private.graph_calls import is_custom_operator
from dynadiag.trial.float64 import float64_copies, float64_operators, most_precise
from dynadiag.trial.reference_run import copy_tensors, random_state, set_random_state, tensors_in

_SUSPECT = 4.0  # units in the last place: no operator that rounds its exact result is as far off
_MAX_NAMES = 5  # nodes of one note
_UNINITIALIZED = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted")
_WIDENED = (torch.float16, torch.bfloat16, torch.float32, torch.complex64)


class NodeRun(ValueInterpreter):
    """One run of a graph. ``nodes`` has a JSON object for each node that ran, in order.

    ``values`` has the values of the nodes that are ``wanted``, as they were when they were computed. ``whole`` is
    called with each node and its value. ``notes`` say what could not be described. ``reads`` has for each node those
    that it reads, and those that wrote to what it reads.
    """

    def __init__(
        self,
        module: GraphModule,
        *,
        named: Callable[[str], bool],
        wanted: frozenset[str],
        whole: Callable[[str, torch.Tensor], None],
    ) -> None:
        super().__init__(module)
        self.nodes: list[dict[str, Any]] = []
        self.values: dict[str, torch.Tensor] = {}
        self.notes: dict[str, None] = {}
        self.reads: dict[str, list[str]] = {}
        self._named, self._wanted, self._whole = named, wanted, whole
        self._mutates = mutates(module)
        self._stacks: dict[str, int] = {}
        self._wide: dict[Node, tuple[Any, Any]] = {}
        self.writes = Writes()
        self.left_out = 0  # nodes that are not named
        self._undeclared: dict[Node, str] = {}
        self._flow = NotFiniteFlow()
        self._causes: dict[Node, str] = {}  # of NaN or infinities in values of several tensors

    def add_flow(self) -> None:
        """Say of each node that is not finite, or returned, whether it comes to what the graph returns.

        A run that failed knows it of none.
        """
        reaches = self._flow.reaches()
        if reaches is None:
            return
        lost, returned = list[str](), {name for names in self._flow.returned or () for name in names}
        for node in self.nodes:
            if node["node"] in returned:
                node["reaches"] = True
            if node["nan"] or node["inf"]:
                node["reaches"] = reaches.get(node["node"], True)
                is_input = node["op"] == "placeholder"
                if node["nan"] and ("cause" in node or is_input) and not node["reaches"]:
                    lost.append(f"{'the input ' if is_input else ''}{attribute_name(node['node'])}")
        if lost:
            more = f" and {len(lost) - _MAX_NAMES} more" if len(lost) > _MAX_NAMES else ""
            self.notes[f"the NaN of {', '.join(lost[:_MAX_NAMES])}{more} come to nothing that the graph returns"] = None

    @property
    def stacks(self) -> list[str]:
        return list(self._stacks)

    def run_node(self, n: Node) -> Any:
        self.reads[n.name] = list(
            dict.fromkeys(name for each in n.all_input_nodes for name in self.writes.read_as(each))
        )
        is_write = is_mutating(n)
        before = self.writes.versions(self.env, self.tensors_read(n)) if is_write else {}
        try:
            value = self._described(n)
            if is_write:
                self.writes.note(n, value, before)
            elif n.op == "placeholder" and self._mutates:
                self.writes.hold(n, value)
            elif n.op == "output":
                self._flow.returned = [*map(self.writes.read_as, n.all_input_nodes), *self.writes.left_in_inputs()]
            return value
        finally:
            for source in self.user_to_last_uses.get(n, ()):
                self._wide.pop(source, None)

    def _described(self, n: Node) -> Any:
        if not n.op.startswith("call_"):
            return self._keep(n, super().run_node(n))
        inputs = self.tensors_read(n)
        memory = {memory_of(tensor) for tensor in inputs}
        writes = is_mutating(n)
        before = copy_tensors(self.fetch_args_kwargs_from_env(n)) if writes else None
        state = random_state()
        with self._undeclared_writes_noted(n):
            value = super().run_node(n)
        if is_uninitialized(n) and is_summarized(value):
            value.zero_()
            self.notes[f"{n.name} is uninitialized memory: zeros stand for it"] = None
            return self._keep(n, value)
        is_view = isinstance(value, torch.Tensor) and memory_of(value) in memory and not writes
        if not is_summarized(value) or is_view or not any(tensor.dtype in _WIDENED for tensor in inputs):
            return self._keep(n, value, before)
        return self._keep(n, value, before, state)

    @contextlib.contextmanager
    def _undeclared_writes_noted(self, n: Node) -> Iterator[None]:
        """Note which input an operator of the program changes, though its schema says that it changes none.

        Below autograd an operator changes no version of a tensor: the elements are compared.
        """
        if not is_custom_operator(n.target) or is_mutating(n):
            yield
            return
        read = {each: self.env[each] for each in n.all_input_nodes if is_summarized(self.env[each])}
        before = {source: value.clone() for source, value in read.items()}
        yield
        changed = next((each for each, value in read.items() if not have_same_bits(value, before[each])), None)
        if changed is not None:
            self._undeclared[n] = changed.name

    def _in_float64(
        self, n: Node, before: Any, state: Any, sample: ProductSample | None, *, moved: bool = False
    ) -> torch.Tensor | None:
        """The node's value in float64, on its inputs as they were, or its sample. None if it does not run so.

        With ``moved`` each input is moved by up to a unit in the last place.
        """

        def widened(source: Node) -> Any:
            if sample is None and not moved:
                return self._widened(source)
            value = self.env[source] if sample is None else sample.of_operand(source, self.env[source])
            return pytree.tree_map(_moved if moved else _in_float64, value)

        after = random_state()
        set_random_state(state)
        try:
            if before:
                given = pytree.tree_map(_moved, copy_tensors(before)) if moved else float64_copies(before)
            else:
                given = map_arg((n.args, n.kwargs), widened)
            with float64_operators(most_precise(tensors_in(before) if before else self.tensors_read(n))):
                value = getattr(self, n.op)(n.target, *given)
        except Exception:  # noqa: BLE001 - an operator without a kernel for float64: the node has no distance
            return None
        finally:
            set_random_state(after)
        return value if isinstance(value, torch.Tensor) else None

    def _widened(self, source: Node) -> Any:
        """A value in float64. It is kept until its last reader, because parameters and residuals have several."""
        value = self.env[source]
        tensors = [value] if isinstance(value, torch.Tensor) else tensors_in(value)
        state = self.writes.of.get(source), [0 if each.is_inference() else each._version for each in tensors]
        kept = self._wide.get(source)
        if kept is None or kept[0] != state:
            self._wide[source] = kept = state, pytree.tree_map(_in_float64, value)
        return kept[1]

    def _keep(self, n: Node, value: Any, before: Any = None, state: Any = None) -> Any:
        """Describe a value, and return it. One that cannot be described is a note: the run goes on.

        With a ``state`` of the random numbers it is compared with float64.
        """
        if n.op == "output":
            return value
        try:
            return self._summarized(n, value, before, state)
        except Exception as error:  # noqa: BLE001 - an operator that torch lacks for a type, a value of `vmap`
            self.notes[f"{n.name} is not summarized: {type(error).__name__}: {error}"] = None
            return value

    def _summarized(self, n: Node, value: Any, before: Any, state: Any) -> Any:
        makes_nan = self._note_flow(n, value, before)
        if not is_summarized(value):
            if isinstance(value, torch.Tensor):
                self.notes[f"{n.name} is not summarized: {_kind_of(value)}"] = None
            elif n.op == "call_function" and isinstance(n.target, torch._ops.HigherOrderOperator):
                kind = n.target.name()
                own = (
                    "; its backward is the program's own: torch.autograd.gradcheck checks it"
                    if "autograd" in kind
                    else ""
                )
                self.notes[f"{n.name} is one node: the graphs inside {kind} are not followed{own}"] = None
            bad = next((each for each in tensors_in(value) if kinds_of(each)), None)
            if bad is not None and not makes_nan and (cause := self._cause(n, bad, before, None)):
                self._causes[n] = cause
            return value
        if n.name in self._wanted:
            self.values[n.name] = value.detach().clone() if self._mutates else value.detach()
        self._whole(n.name, value)
        if not self._named(n.name):
            self.left_out += 1
            return value
        self._describe(n, value, before, state, makes_nan=makes_nan)
        return value

    def _describe(self, n: Node, value: torch.Tensor, before: Any, state: Any, *, makes_nan: bool) -> None:
        described = summary_of(value)
        is_finite = not (described["nan"] or described["inf"])
        is_sampled = state is not None and before is None and is_finite
        sample = product_sample(n, _name_of(n), value, self.env) if is_sampled else None
        wide = self._in_float64(n, before, state, sample) if state is not None else None
        off = distance(value if sample is None else sample.of(value), wide) if wide is not None else None
        # In place of a value of several tensors, which has no summary, what that is computed of.
        parts = {each.name for each in n.all_input_nodes if not isinstance(self.env[each], torch.Tensor)}
        named = (self.reads[name] if name in parts else [name] for name in self.reads[n.name])
        inputs = list(dict.fromkeys(name for names in named for name in names))
        node = {"node": n.name, "op": _operator_of(n), "inputs": inputs, **described, "off_float64": off}
        if off is not None and wide is not None and off > _SUSPECT * torch.finfo(value.dtype).eps:
            moved = self._in_float64(n, before, state, sample, moved=True)
            node["moved"] = distance(moved, wide) if moved is not None else None
        if sample is not None:
            self.notes[f"of a large product in float32 {ROWS} rows and {COLUMNS} columns are compared with float64"] = (
                None
            )
        elif wide is not None and wide.shape == value.shape:
            node["float64"] = twin_of(wide)
        if n in self._undeclared:
            node["writes"] = self._undeclared[n]
        if n.stack_trace:
            node["stack"] = self._stacks.setdefault(n.stack_trace, len(self._stacks))
        if not is_finite and (cause := self._cause(n, value, before, wide, makes_nan=makes_nan)):
            node["cause"] = cause
        self.nodes.append(node)

    def _note_flow(self, n: Node, value: Any, before: Any) -> bool:
        """Note where the NaN of a value come from; whether it makes some of finite inputs though others are not."""

        def run_again(kept: Collection[Node]) -> Any:
            given = map_arg((n.args, n.kwargs), lambda each: self.env[each] if each in kept else finite(self.env[each]))
            after = random_state()
            try:
                return getattr(self, n.op)(n.target, *given)
            finally:
                set_random_state(after)

        read = {each: self.writes.read_as(each) for each in n.all_input_nodes}
        is_repeatable = n.op.startswith("call_") and before is None and not is_mutating(n)
        return self._flow.note(n, value, read, run_again if is_repeatable else None)

    def _cause(
        self, n: Node, value: torch.Tensor, before: Any, wide: torch.Tensor | None, *, makes_nan: bool = False
    ) -> str | None:
        """What made the first number that is not finite, if no input of the node has one of its kind.

        With ``makes_nan`` some of its NaN are of none that it reads.
        """
        if not n.op.startswith("call_"):
            return None
        if n.target is operator.getitem and (of := self._causes.get(n.all_input_nodes[0])) is not None:
            return of
        args, kwargs = self.fetch_args_kwargs_from_env(n) if before is None else before
        if makes_nan:
            args, kwargs = finite((args, kwargs))
            value, wide = getattr(self, n.op)(n.target, args, kwargs), None
        return cause_of(_name_of(n), args, kwargs, value, wide)


def _in_float64(value: Any) -> Any:
    is_narrow = isinstance(value, torch.Tensor) and value.dtype in _WIDENED
    return value.detach().to(torch.complex128 if value.is_complex() else torch.float64) if is_narrow else value


def _moved(value: Any) -> Any:
    """A value in float64, each element by up to a unit in the last place of its own type larger or smaller."""
    wide = _in_float64(value)
    if wide is value:
        return value
    generator = torch.Generator(wide.device).manual_seed(0)
    by = torch.rand(wide.shape, generator=generator, device=wide.device, dtype=torch.float64) * 2 - 1
    return wide * (1 + torch.finfo(value.dtype).eps * by)


def is_uninitialized(n: Node) -> bool:
    """Whether a node is memory that nobody has written to."""
    packet = getattr(n.target, "overloadpacket", n.target)
    return n.op != "call_module" and getattr(packet, "__name__", packet) in _UNINITIALIZED


def _operator_of(n: Node) -> str:
    return n.op if n.op in ("placeholder", "get_attr") else target_name(n.target)


def _name_of(n: Node) -> str:
    """The name of a node's operator: ``mm`` also of ``aten.mm.default``."""
    packet = getattr(n.target, "overloadpacket", n.target)
    return packet.rpartition(".")[2] if isinstance(packet, str) else getattr(packet, "__name__", "")


def _kind_of(value: torch.Tensor) -> str:
    if value.layout is not torch.strided:
        return str(value.layout).removeprefix("torch.")
    return "quantized" if value.is_quantized else f"a {type(value).__name__}"


_ROW_OPERATORS = ("softmax", "_softmax", "log_softmax", "_log_softmax", "logsumexp")
_PRODUCTS = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "__matmul__", "einsum")


def cause_of(name: str, args: Any, kwargs: Any, value: torch.Tensor, wide: torch.Tensor | None) -> str | None:
    """Return what made the first NaN of a value, or else its first infinity: ``log of -0.25 at [0, 3]``.

    None if an input has a number of the same kind already: then it came from there. ``name`` is the operator's,
    ``wide`` the value in float64.
    """
    is_bad = torch.isnan if bool(value.isnan().any()) else torch.isinf
    inputs = [each for each in tensors_in((args, kwargs)) if each.layout is torch.strided and each.is_floating_point()]
    if any(bool(is_bad(each).any()) for each in inputs):
        return None
    at = tuple(is_bad(value).nonzero()[0].tolist()) if value.dim() else ()
    place = f" at {list(at)}" if at else ""
    if wide is not None and wide.shape == value.shape and bool(wide[at].isfinite()):
        largest = torch.finfo(value.dtype).max
        if abs(float(wide[at])) > largest:
            return f"{name} overflows {_text(value.dtype)}: it is {float(wide[at]):.4g} in float64{place}"
    operands = [_operand(each, value, at) for each in (*args, *kwargs.values())]
    if name not in _ROW_OPERATORS + _PRODUCTS and operands and all(each is not None for each in operands):
        return f"{name} of {_list([each for each in operands if each])}{place}"
    return f"{name} of {_ranges(name, inputs)}{place}"


def _text(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _operand(operand: Any, value: torch.Tensor, at: tuple[int, ...]) -> str | None:
    """An operand at a position of the result. None if it has no such position; empty for what is no number."""
    if isinstance(operand, torch.Tensor):
        try:
            return f"{operand.expand(value.shape)[at].item():.6g}"
        except (RuntimeError, TypeError, ValueError):
            return None
    return f"{operand:.6g}" if isinstance(operand, (int, float)) and not isinstance(operand, bool) else ""


def _list(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _ranges(name: str, inputs: Sequence[torch.Tensor]) -> str:
    """What is known of operands that have no elements of their own for an element of the result."""
    parts = []
    for each in inputs:
        if not each.numel():
            parts.append("no elements")
            continue
        infinite = each.isinf()
        if name in _ROW_OPERATORS and bool(each.dim() and (infinite & (each < 0)).all(-1).any()):
            return "a row that is -inf everywhere"
        finite = each[~infinite & ~each.isnan()].double()
        zero = ", with zeros" if bool((each == 0).any()) else ""
        low, high = (float(finite.min()), float(finite.max())) if finite.numel() else (0.0, 0.0)
        parts.append(f"{low:.4g}..{high:.4g}{zero}{', with infinities' if bool(infinite.any()) else ''}")
    return " and ".join(parts) or "inputs without floating numbers"
