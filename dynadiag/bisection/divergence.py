"""Finds where the values of a compiled graph first diverge from those of the graph that it was compiled from.

In a trial that records ``INTERMEDIATES`` each graph first runs uncompiled, node by node, on the same inputs. Then every
buffer that a kernel wrote is compared with the value of its node. The kernels are unchanged: only the module that calls
them has more lines. The kernel where the distance grows most is reported, because rounding grows slowly and a fault at
once. So is a kernel that the C++ compiler or Triton rejected, and the kernel that was running when the call raised or
its process was killed. This is a hint where to look first: the descent verifies it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from dynadiag.torch_private import kernel_codegen as torch_private
from dynadiag.torch_private.kernel_codegen import NO_NODES, KernelNodes
from dynadiag.trial.context import TRIAL
from dynadiag.trial.events import KernelRunning, ValuesDiverged
from dynadiag.trial.reference_run import copy_tensors

_MAX_CALLS = 32  # compared calls per graph, so that a long training does not take much longer
_NOISE = 2.0  # units in the last place of a tensor's largest element: the least rounding of one kernel
_MIN_JUMP = 8.0  # times the largest distance so far: rounding grows less from one kernel to the next

_graphs: list[_ComparedGraph] = []  # a stack of the graphs being compiled, since compiles nest


class _ComparedGraph:
    """One graph: what its kernels are compared with."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix  # of its decisions' keys
        self.module: GraphModule | None = None
        self.kernels: dict[str, KernelNodes] = {}  # node -> what its kernel computes
        self.kernels_by_mark: dict[str, KernelNodes] = {"": NO_NODES}  # mark -> what its kernel computes
        self.calls = 0

    def mark(self, kernel: KernelNodes) -> str:
        self.module = self.module or torch_private.current_lowered_graph()
        mark = "+".join(kernel.names)
        self.kernels_by_mark[mark] = kernel
        return mark

    def watch(self, node: Node, kernel: KernelNodes) -> str:
        self.kernels[node.name] = kernel
        return node.name

    def report_divergence(self, kernel: KernelNodes, jump: float, value: str = "") -> None:
        TRIAL.send(ValuesDiverged(self._keys(kernel), tuple(kernel.captured_names), jump, value))

    def report_running(self, mark: str) -> None:
        """Report the kernel that begins to run ("" for none). Waits for earlier launches, so that their errors are
        raised here.
        """
        if torch.cuda.is_initialized() and torch_private.can_read_tensors():
            torch.cuda.synchronize()
        kernel = self.kernels_by_mark[mark]
        TRIAL.send(KernelRunning(self._keys(kernel), tuple(kernel.captured_names)))

    def _keys(self, kernel: KernelNodes) -> tuple[str, ...]:
        return tuple(f"{self.prefix}/{name}" for name in kernel.names)

    def call(self, compiled: Callable[..., Any], inputs: list[Any]) -> Any:
        self.calls += 1
        if self.module is None or self.calls > _MAX_CALLS or not torch_private.can_read_tensors():
            return compiled(inputs)
        wanted = _uncompiled_values(self.module, inputs, self.kernels.keys())
        farthest = 0.0

        def compare(name: str, value: torch.Tensor) -> None:
            nonlocal farthest
            distance, noise = _distance(value, wanted.pop(name))
            jump = distance / max(farthest, noise)
            if jump > _MIN_JUMP:
                self.report_divergence(self.kernels[name], jump, name)
            farthest = max(farthest, min(distance, 1.0))

        def on_value(name: str, value: torch.Tensor | None) -> None:
            if value is None:
                self.report_running(name)
            elif name in wanted and torch_private.can_read_tensors():
                compare(name, value)

        with torch_private.intermediate_hook(on_value):
            return compiled(inputs)


def install() -> None:
    """Install the hooks in torch, once per process."""
    is_active = lambda: bool(_graphs)  # noqa: E731
    torch_private.wrap_kernel_call(
        is_active, lambda kernel: _graphs[-1].mark(kernel), lambda node, kernel, _: _graphs[-1].watch(node, kernel)
    )
    torch_private.wrap_kernel_failure(is_active, lambda kernel: _graphs[-1].report_divergence(kernel, math.inf))


def compile_and_compare(compile_inner: Callable[[], Callable[..., Any]], prefix: str) -> Callable[..., Any]:
    """Compile with ``compile_inner``; compare the compiled graph's values with the uncompiled graph's at each call.

    ``prefix`` starts the keys of the decisions on the graph's nodes.
    """
    graph = _ComparedGraph(prefix)
    _graphs.append(graph)
    try:
        compiled = compile_inner()
    finally:
        _graphs.pop()
    call = functools.partial(graph.call, compiled)
    call._boxed_call = True  # type: ignore[attr-defined]  # AOTAutograd's mark of a callable that takes a list
    return call


def _uncompiled_values(module: GraphModule, inputs: list[Any], names: Any) -> dict[str, torch.Tensor]:
    """The values of these nodes from running the graph uncompiled; none if that is not possible."""
    if torch_private.uses_inductor_random(module):
        return {}
    kept = _ValueRecorder(module, frozenset(names))
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices):
            kept.run(*copy_tensors(inputs))
    except Exception:  # noqa: BLE001 - for example an operator that only Inductor knows
        return {}
    return kept.values


class _ValueRecorder(Interpreter):
    """Runs a graph and copies some of its values, since a later node may overwrite them."""

    def __init__(self, module: GraphModule, names: frozenset[str]) -> None:
        super().__init__(module)
        self.names = names
        self.values: dict[str, torch.Tensor] = {}

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n.name in self.names and isinstance(value, torch.Tensor):
            self.values[n.name] = value.detach().clone()
        return value


def _distance(value: torch.Tensor, wanted: torch.Tensor) -> tuple[float, float]:
    """The largest difference relative to the largest element, and the size of difference that rounding explains."""
    if value.shape != wanted.shape or value.dtype != wanted.dtype or not value.numel():
        return 0.0, 1.0  # another layout: not comparable
    if not (value.is_floating_point() or value.is_complex()):
        return (value != wanted).double().mean().item(), torch.finfo(torch.float32).eps
    noise = _NOISE * torch.finfo(value.dtype).eps
    finite = value.isfinite()
    if not torch.equal(finite, wanted.isfinite()):
        return math.inf, noise
    wide = torch.complex128 if value.is_complex() else torch.float64
    apart = (value.to(wide) - wanted.to(wide)).abs()[finite]
    scale = wanted.to(wide).abs()[finite]
    if not apart.numel() or not apart.max():
        return 0.0, noise
    return (apart.max() / scale.max().clamp_min(torch.finfo(torch.float32).tiny)).item(), noise
