# ruff: noqa: ARG001 - torch gives a decomposition all arguments of its operator
"""Faults for `values.py`: each plants one in torch's compiler, in this process.

``model`` is where it is looked for, ``text`` a part of the line of the node that it makes wrong first, and ``graph``
the graph that has this node.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

aten, prims = torch.ops.aten, torch.ops.prims
Change = Callable[[fx.Graph, fx.Node], None]


@dataclass(frozen=True)
class Fault:
    """A fault, and where it shows first."""

    kind: str
    model: str
    text: str
    plant: Callable[[], None]
    graph: str = "forward"


def lowering(op: Any, wrong: Callable[[Any], Any]) -> Callable[[], None]:
    """Change the result of an operator's lowering."""

    def plant() -> None:
        from torch._inductor import lowering as table
        from torch._inductor.virtualized import ops

        for overload in op.overloads():
            own = table.lowerings.get(getattr(op, overload))
            if own is not None:
                table.lowerings[getattr(op, overload)] = _changed(own, lambda box: wrong((table, ops, box)))

    return plant


def _changed(own: Callable[..., Any], wrong: Callable[[Any], Any]) -> Callable[..., Any]:
    def lowered(*args: Any, **kwargs: Any) -> Any:
        return wrong(own(*args, **kwargs))

    return lowered


def scaled(by: float) -> Callable[[Any], Any]:
    """Multiply a lowered value."""

    def wrong(given: Any) -> Any:
        table, _, box = given
        return table.lowerings[aten.mul.Tensor](box, by) if by != 1.0 else box

    return wrong


def decomposition(op: Any, replacement: Callable[..., Any]) -> Callable[[], None]:
    """Replace the decomposition of an operator."""

    def plant() -> None:
        from torch._inductor import decomposition as table

        table.decompositions[op] = replacement

    return plant


def in_graph(op: Any, change: Change, *, backward: bool = False, which: int = 0) -> Callable[[], None]:
    """Change a node of the graph that Inductor lowers: the ``which``-th that calls ``op``."""

    def plant() -> None:
        from torch._inductor import compile_fx
        from torch._inductor.graph import GraphLowering

        own = GraphLowering.__init__

        def made(self: Any, gm: fx.GraphModule, *args: Any, **kwargs: Any) -> None:
            if bool(kwargs.get("is_backward")) == backward:
                nodes = [node for node in gm.graph.nodes if node.target in (op if isinstance(op, tuple) else (op,))]
                if len(nodes) > which:
                    change(gm.graph, nodes[which])
                    gm.recompile()
            own(self, gm, *args, **kwargs)

        GraphLowering.__init__ = made
        assert compile_fx

    return plant


def followed_by(op: Any, *more: Any) -> Change:
    """Put another operator behind a node."""

    def change(graph: fx.Graph, node: fx.Node) -> None:
        with graph.inserting_after(node):
            new = graph.call_function(op, (node, *more))
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)

    return change


def in_bfloat16(graph: fx.Graph, node: fx.Node) -> None:
    """Compute a product in bfloat16."""
    with graph.inserting_before(node):
        narrow = []
        for operand in node.args:
            cast = graph.call_function(prims.convert_element_type.default, (operand, torch.bfloat16))
            cast.meta = {**node.meta, "val": operand.meta["val"].to(torch.bfloat16)}
            narrow.append(cast)
    node.args = tuple(narrow)
    with graph.inserting_after(node):
        back = graph.call_function(prims.convert_element_type.default, (node, torch.float32))
    back.meta = dict(node.meta)
    node.replace_all_uses_with(back, delete_user_cb=lambda user: user is not back)
    node.meta = {**node.meta, "val": node.meta["val"].to(torch.bfloat16)}


def with_argument(place: int, value: Any) -> Change:
    """Change an argument of a node."""

    def change(_graph: fx.Graph, node: fx.Node) -> None:
        node.args = (*node.args[:place], value, *node.args[place + 1 :])

    return change


def kernel_text(pattern: str, replacement: str | Callable[[re.Match[str]], str], name: str) -> Callable[[], None]:
    """Change the source of the first C++ kernel whose name matches."""

    def plant() -> None:
        from torch._inductor.codegen.cpp import CppScheduling

        own, done = CppScheduling.define_kernel, list[str]()

        def define(self: Any, source: str, nodes: Any, *args: Any) -> Any:
            named = "_".join(
                str(origin.name) for node in nodes for part in node.get_nodes() for origin in part.node.origins
            )
            if not done and re.search(name, named):
                changed = re.sub(pattern, replacement, source, count=1)
                if changed != source:
                    done.append(named)
                    source = changed
            return own(self, source, nodes, *args)

        CppScheduling.define_kernel = define

    return plant


def overwriting(name: str, which: int = -1) -> Callable[[], None]:
    """Write to a buffer of the kernel whose name matches, after it: as a race of kernels would."""

    def plant() -> None:
        from torch._inductor.codegen.wrapper import PythonWrapperCodegen

        own, done = PythonWrapperCodegen.generate_kernel_call, list[str]()

        def call(self: Any, kernel: str, arguments: Any, *args: Any, **kwargs: Any) -> Any:
            made = own(self, kernel, arguments, *args, **kwargs)
            if not done and re.search(name, kernel):
                stored = [each for each in arguments if str(each).startswith("buf")]
                buffer = stored[which]
                self.writeline(f"{buffer}.as_strided(({buffer}.numel() // 7,), (7,)).add_(0.25)")
                done.append(kernel)
            return made

        PythonWrapperCodegen.generate_kernel_call = call

    return plant


def _wrong_gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    return x * torch.sigmoid(1.6 * x)


def _wrong_layer_norm(x: torch.Tensor, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    mean, rstd = x.mean(-1, keepdim=True), torch.rsqrt(x.var(-1, keepdim=True) + eps)
    return (x - mean) * rstd * weight + bias, mean, rstd


def _wrong_silu_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    gate = torch.sigmoid(x)
    return grad * gate * (1 + x * gate)


def _wrong_gelu_backward(grad: torch.Tensor, x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    return grad * 0.5 * (1 + torch.erf(x * 0.7071067811865476))


def _wrong_softplus(x: torch.Tensor, beta: float = 1, threshold: float = 20) -> torch.Tensor:
    return torch.where(x > 0, x, torch.log1p(torch.exp(x)))


def _wrong_leaky_backward(grad: torch.Tensor, x: torch.Tensor, slope: float, is_result: bool) -> torch.Tensor:
    return torch.where(x > 0, grad, grad * slope * 3)


def _wrong_log_softmax(x: torch.Tensor, dim: int, half: bool) -> torch.Tensor:
    return x - x.amax(dim, keepdim=True) - torch.log(torch.exp(x).sum(dim, keepdim=True))


def _masked_by_product(graph: fx.Graph, node: fx.Node) -> None:
    """Compute where(mask, a, b) as mask * a + ~mask * b."""
    mask, a, b = node.args
    with graph.inserting_before(node):
        keep = graph.call_function(prims.convert_element_type.default, (mask, torch.float32))
        keep.meta = {**mask.meta, "val": mask.meta["val"].float()}
        lost = graph.call_function(aten.sub.Tensor, (1, keep))
        lost.meta = dict(keep.meta)
        first = graph.call_function(aten.mul.Tensor, (keep, a))
        first.meta = dict(node.meta)
        second = graph.call_function(aten.mul.Tensor, (lost, b))
        second.meta = dict(node.meta)
    node.target, node.args = aten.add.Tensor, (first, second)


_BOUND = r"(x\d+<static_cast<int64_t>\()(\d+)(L\))"
FAULTS: dict[str, Fault] = {
    # a lowering
    "gpt2 lowering of exp": Fault("lowering", "gpt2", "F.cross_entropy(", lowering(aten.exp, scaled(1.01))),
    "gpt2 lowering of erf": Fault("lowering", "gpt2", "F.gelu(", lowering(aten.erf, scaled(0.98))),
    "vit lowering of tanh": Fault("lowering", "vit", "torch.tanh(", lowering(aten.tanh, scaled(0.99))),
    "unet lowering of relu": Fault("lowering", "unet", "torch.relu(", lowering(aten.relu, scaled(1.02))),
    "unet lowering of cos": Fault("lowering", "unet", "torch.cos(", lowering(aten.cos, scaled(1.1))),
    "mamba lowering of rsqrt": Fault("lowering", "mamba", "torch.rsqrt(", lowering(aten.rsqrt, scaled(1.01))),
    # a decomposition
    "gpt2 decomposition of gelu": Fault(
        "decomposition", "gpt2", "F.gelu(", decomposition(aten.gelu.default, _wrong_gelu)
    ),
    "gpt2 decomposition of layer_norm": Fault(
        "decomposition", "gpt2", "self.first(", decomposition(aten.native_layer_norm.default, _wrong_layer_norm)
    ),
    "mamba decomposition of softplus": Fault(
        "decomposition", "mamba", "F.softplus(", decomposition(aten.softplus.default, _wrong_softplus)
    ),
    "vit decomposition of log_softmax": Fault(
        "decomposition", "vit", "F.log_softmax(", decomposition(aten._log_softmax.default, _wrong_log_softmax)
    ),
    # a kernel's mask: its last rows are not computed
    "gpt2 mask of a kernel": Fault(
        "mask", "gpt2", "F.gelu(", kernel_text(_BOUND, lambda m: f"{m[1]}{int(m[2]) - 16}{m[3]}", "gelu|erf")
    ),
    "unet mask of a kernel": Fault(
        "mask", "unet", "torch.relu(", kernel_text(_BOUND, lambda m: f"{m[1]}{int(m[2]) - 1}{m[3]}", "^relu|_relu")
    ),
    "mamba mask of a kernel": Fault(
        "mask", "mamba", "torch.sigmoid(", kernel_text(_BOUND, lambda m: f"{m[1]}{int(m[2]) - 1}{m[3]}", "sigmoid")
    ),
    # accumulation in bfloat16
    "gpt2 product in bfloat16": Fault(
        "bfloat16", "gpt2", "self.qkv(", in_graph((aten.addmm.default, aten.mm.default), in_bfloat16)
    ),
    "vit product in bfloat16": Fault(
        "bfloat16", "vit", "self.up(", in_graph((aten.addmm.default, aten.mm.default), in_bfloat16, which=2)
    ),
    "loop product in bfloat16": Fault(
        "bfloat16", "loop", "self.second(", in_graph((aten.addmm.default, aten.mm.default), in_bfloat16, which=1)
    ),
    # a dropped cast, or other arguments
    "loop cast to int32": Fault("cast", "loop", "to(torch.int32)", lambda: _drop_integer_cast()),
    "loop clamp": Fault("pass", "loop", "torch.clamp(", lowering(aten.clamp_max, scaled(0.97))),
    "unet padding": Fault("pass", "unet", "F.pad(", in_graph(aten.constant_pad_nd.default, with_argument(2, 0.5))),
    # a wrong backward
    "mamba backward of silu": Fault(
        "backward", "mamba", "F.silu(", decomposition(aten.silu_backward.default, _wrong_silu_backward), "backward"
    ),
    "gpt2 backward of gelu": Fault(
        "backward", "gpt2", "F.gelu(", decomposition(aten.gelu_backward.default, _wrong_gelu_backward), "backward"
    ),
    "loop backward of leaky_relu": Fault(
        "backward",
        "loop",
        "F.leaky_relu(",
        decomposition(aten.leaky_relu_backward.default, _wrong_leaky_backward),
        "backward",
    ),
    "unet backward of a product": Fault(
        "backward", "unet", "self.step(", in_graph(aten.mm.default, in_bfloat16, backward=True), "backward"
    ),
    "vit backward of tanh": Fault(
        "backward",
        "vit",
        "torch.tanh(",
        in_graph(aten.mul.Tensor, followed_by(aten.mul.Tensor, 1.01), backward=True, which=3),
        "backward",
    ),
    # NaN
    "gpt2 mask by a product": Fault("nan", "gpt2", "masked_fill(", in_graph(aten.where.self, _masked_by_product)),
    # memory that is not written
    "unet store left out": Fault(
        "uninitialized", "unet", "F.interpolate(", kernel_text(r"tmp\d+\.store\((out_ptr1[^;]*)\);", ";", "index")
    ),
    "vit store left out": Fault(
        "uninitialized", "vit", "torch.cat(", kernel_text(r"tmp\d+\.store\(([^;]*)\);", ";", "cat")
    ),
    # a buffer that another kernel writes to
    "gpt2 overwritten buffer": Fault("race", "gpt2", "mixed = (shares @ v)", overwriting("softmax")),
    "mamba overwritten buffer": Fault("race", "mamba", "decays = ", overwriting("softplus")),
    "unet overwritten buffer": Fault("race", "unet", "torch.relu(", overwriting("relu", 0)),
}


def _drop_integer_cast() -> None:
    from torch._inductor import lowering as table

    own = table.lowerings[prims.convert_element_type.default]

    def cast(x: Any, dtype: torch.dtype) -> Any:
        return x if dtype is torch.int32 else own(x, dtype)

    table.lowerings[prims.convert_element_type.default] = cast
