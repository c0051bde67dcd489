"""The private names of torch that the minifier uses, each with the versions that have it."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._functorch import predispatch
from torch._higher_order_ops import triton_kernel_wrap

# 2.11 to 2.15: the functions that Dynamo records for vmap, grad and jvp.
PREDISPATCH: Any = predispatch
_TRANSFORM = (
    *("_vmap_", "_add_batch_dim", "_remove_batch_dim", "lazy_load_decompositions"),
    *("_grad_", "_wrap_for_grad", "_jvp_", "_dual"),
)
_UNWRAPS = ("_wrap_for_grad", "_unwrap_for_grad", "_unpack_dual")


def autocast_blocks(graph: fx.Graph) -> dict[fx.Node, fx.Node]:
    """The nodes of Dynamo's graph that leave an autocast, each with the one that entered it; only those that are nested
    as statements are. The arguments of the second are those of `torch.autocast`. 2.11 to 2.15.
    """
    blocks: dict[fx.Node, fx.Node] = {}
    entered: list[fx.Node] = []
    for node in graph.nodes:
        if node.target is torch.amp._enter_autocast:
            entered.append(node)
        elif node.target is torch.amp._exit_autocast and entered:
            if entered.pop() is node.args[0]:
                blocks[node] = node.args[0]
            else:
                entered.clear()
    return blocks


def base_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor of which this is a view in autograd. AOTAutograd treats aliased inputs by it. 2.11 to 2.15."""
    return None if tensor.is_inference() else tensor._base


def is_transformed(value: Any) -> bool:
    """Whether a tensor exists only inside a vmap or grad that has been entered. 2.11 to 2.15."""
    return isinstance(value, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(value)


def is_zero_tensor(tensor: torch.Tensor) -> bool:
    """Whether it is a zero tensor without storage, as autograd makes them. 2.11 to 2.15."""
    return tensor._is_zerotensor()


def zero_tensor(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A zero tensor without storage. 2.11 to 2.15."""
    return torch._efficientzerotensor(shape, dtype=dtype, device=device)


def in_transform() -> bool:
    """Whether a vmap or grad has been entered. 2.11 to 2.15."""
    return torch._C._functorch.get_dynamic_layer_stack_depth() > 0


def is_transform_boundary(node: fx.Node) -> bool:
    """Whether a node enters or leaves a vmap, grad or jvp."""
    home = getattr(node.target, "__module__", None)
    name = getattr(node.target, "__name__", "")
    functorch = home in ("torch._functorch.predispatch", "torch._C._functorch", "torch._functorch.vmap")
    return functorch and any(part in name for part in _TRANSFORM)


def only_rewraps(node: fx.Node) -> bool:
    """Whether a node only wraps or unwraps a value for grad or jvp, or takes it out of a tuple. 2.11 to 2.15."""
    return node.target is operator.getitem or getattr(node.target, "__name__", "") in _UNWRAPS


@dataclass(frozen=True, slots=True)
class VmapStep:
    """One of the calls that Dynamo records for a vmap. ``value`` is wrapped or unwrapped along ``dim`` at ``level``."""

    kind: str  # "load" | "enter" | "wrap" | "unwrap" | "leave"
    value: Any = None
    dim: int | None = None
    level: int = 0
    randomness: str = "error"


def vmap_step(node: fx.Node) -> VmapStep | None:
    """The step of a vmap that a node is, or None. 2.11 to 2.15."""
    if node.target is PREDISPATCH.lazy_load_decompositions:
        return VmapStep("load")
    if node.target is PREDISPATCH._vmap_increment_nesting:
        return VmapStep("enter", randomness=str(node.args[1]))
    if node.target is PREDISPATCH._add_batch_dim:
        value, dim, level = node.args
        return VmapStep("wrap", value, dim, level)
    if node.target is PREDISPATCH._remove_batch_dim:
        value, level, _, dim = node.args
        return VmapStep("unwrap", value, dim, level)
    return VmapStep("leave") if node.target is PREDISPATCH._vmap_decrement_nesting else None


def symbol_of(size: Any) -> Any:
    """The symbol of a size. None if the size is a number or an expression. 2.11 to 2.15."""
    expression = size.node.expr if isinstance(size, torch.SymInt) else None
    return expression if expression is not None and expression.is_Symbol else None


def substitute_symbols(size: Any, values: Mapping[Any, int], otherwise: Any) -> Any:
    """A size with values for its symbols. ``otherwise`` if a symbol has no value, or the size has no symbol.

    2.11 to 2.15.
    """
    if not isinstance(size, torch.SymInt):
        return otherwise
    expression = size.node.expr
    return int(expression.xreplace(dict(values))) if expression.free_symbols <= values.keys() else otherwise


@contextmanager
def restore_torch_state() -> Iterator[None]:
    """Restore random state, grad mode and functorch's transforms after running unknown code. 2.11 to 2.15."""
    enabled, dual = torch.is_grad_enabled(), _in_dual_level()
    depth = torch._C._functorch.get_dynamic_layer_stack_depth()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
        if not dual and _in_dual_level():
            torch._C._exit_dual_level(level=0)  # dual levels do not nest
        torch.set_grad_enabled(enabled)


def _in_dual_level() -> bool:
    """Whether a level of forward-mode AD is entered: entering a second one raises. 2.11 to 2.15."""
    try:
        level = torch._C._enter_dual_level()
    except RuntimeError:
        return True
    torch._C._exit_dual_level(level=level)
    return False


@dataclass(frozen=True, slots=True)
class TritonKernelCall:
    """A call of a user-defined Triton kernel. Grid and arguments may hold nodes; ``writes`` names arguments."""

    kernel: Any
    grid: tuple[Any, ...]
    arguments: dict[str, Any]
    writes: frozenset[str]


def kernel_launch(node: fx.Node) -> TritonKernelCall | None:
    """The call behind Dynamo's node for a Triton kernel. 2.11 to 2.15.

    None for other nodes. None too for an autotuned kernel whose configurations have different grids, since no single
    call describes them, and for arguments that are tensor descriptors.
    """
    if node.target is not triton_kernel_wrap.triton_kernel_wrapper_mutation:
        return None
    words = node.kwargs
    grids = words["grid"]
    if any(grid != grids[0] for grid in grids[1:]) or words["tma_descriptor_metadata"]:
        return None
    table = triton_kernel_wrap.kernel_side_table
    arguments = {**words["kwargs"], **table.get_constant_args(words["constant_args_idx"])}
    return TritonKernelCall(
        table.get_kernel(words["kernel_idx"]), tuple(grids[0]), arguments, _mutated_arguments(words)
    )


def _mutated_arguments(words: Any) -> frozenset[str]:
    """The arguments that the kernel writes to, as torch finds in its code. All tensors if torch cannot find it."""
    examples = {
        name: value.meta.get("example_value") if isinstance(value, fx.Node) else value
        for name, value in words["kwargs"].items()
    }
    try:
        names = triton_kernel_wrap.get_mutated_tensors(words["kernel_idx"], words["constant_args_idx"], examples, {})
    except Exception:  # noqa: BLE001 - torch compiles the kernel for this, which may fail in any way
        names = [name for name, value in examples.items() if isinstance(value, torch.Tensor)]
    return frozenset(names)
