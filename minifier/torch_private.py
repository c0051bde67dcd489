"""The private names of torch that the minifier uses, each with the versions it was seen in."""

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

__all__ = [
    "PREDISPATCH",
    "KernelCall",
    "VmapStep",
    "base_of",
    "changes_nothing",
    "inside_transform",
    "is_transformed",
    "is_without_storage",
    "kernel_launch",
    "opens_transform",
    "size_at",
    "symbol_of",
    "undisturbed",
    "vmap_step",
    "zeros_without_storage",
]

# 2.11 to 2.15: what Dynamo records of vmap, grad and jvp inside a graph.
PREDISPATCH: Any = predispatch
_TRANSFORM = (
    *("_vmap_", "_add_batch_dim", "_remove_batch_dim", "lazy_load_decompositions"),
    *("_grad_", "_wrap_for_grad", "_jvp_", "_dual"),
)
_UNWRAPS = ("_wrap_for_grad", "_unwrap_for_grad", "_unpack_dual")


def base_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """What a tensor is a view of, to autograd: AOTAutograd treats inputs of one storage by it. 2.11 to 2.15."""
    return None if tensor.is_inference() else tensor._base


def is_transformed(value: Any) -> bool:
    """Whether a tensor exists only inside a vmap or grad that has been entered. 2.11 to 2.15."""
    return isinstance(value, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(value)


def is_without_storage(tensor: torch.Tensor) -> bool:
    """Whether it is one of the zeros that autograd gives without memory. 2.11 to 2.15."""
    return tensor._is_zerotensor()


def zeros_without_storage(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Another of these. 2.11 to 2.15."""
    return torch._efficientzerotensor(shape, dtype=dtype, device=device)


def inside_transform() -> bool:
    """Whether a vmap or grad has been entered. 2.11 to 2.15."""
    return torch._C._functorch.get_dynamic_layer_stack_depth() > 0


def opens_transform(node: fx.Node) -> bool:
    """Whether a node enters or leaves a vmap, grad or jvp."""
    home = getattr(node.target, "__module__", None)
    name = getattr(node.target, "__name__", "")
    functorch = home in ("torch._functorch.predispatch", "torch._C._functorch", "torch._functorch.vmap")
    return functorch and any(part in name for part in _TRANSFORM)


def changes_nothing(node: fx.Node) -> bool:
    """Whether a node only takes a value into a grad or jvp, or out of it, or out of a tuple. 2.11 to 2.15."""
    return node.target is operator.getitem or getattr(node.target, "__name__", "") in _UNWRAPS


@dataclass(frozen=True, slots=True)
class VmapStep:
    """One of the calls that Dynamo records of a vmap. ``value`` is wrapped or unwrapped along ``dim`` at ``level``."""

    kind: str  # "load" | "enter" | "wrap" | "unwrap" | "leave"
    value: Any = None
    dim: int | None = None
    level: int = 0
    randomness: str = "error"


def vmap_step(node: fx.Node) -> VmapStep | None:
    """What a node does to a vmap, or None. 2.11 to 2.15."""
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
    """The symbol that a size is, or None where it is a number or computed of symbols. 2.11 to 2.15."""
    expression = size.node.expr if isinstance(size, torch.SymInt) else None
    return expression if expression is not None and expression.is_Symbol else None


def size_at(size: Any, values: Mapping[Any, int], otherwise: Any) -> Any:
    """A size with these values for its symbols; ``otherwise`` where one has none. 2.11 to 2.15."""
    if not isinstance(size, torch.SymInt):
        return otherwise
    expression = size.node.expr
    return int(expression.xreplace(dict(values))) if expression.free_symbols <= values.keys() else otherwise


@contextmanager
def undisturbed() -> Iterator[None]:
    """Run code of unknown manners: the state of randomness, gradients and transforms is as before. 2.11 to 2.15."""
    enabled, dual = torch.is_grad_enabled(), _dual_entered()
    depth = torch._C._functorch.get_dynamic_layer_stack_depth()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
        if not dual and _dual_entered():
            torch._C._exit_dual_level(level=0)  # the only one: levels do not nest
        torch.set_grad_enabled(enabled)


def _dual_entered() -> bool:
    """Whether a level of forward-mode AD has been entered: entering another tells. 2.11 to 2.15."""
    try:
        level = torch._C._enter_dual_level()
    except RuntimeError:
        return True
    torch._C._exit_dual_level(level=level)
    return False


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A call of a Triton kernel of the user's. Grid and arguments may hold nodes; ``writes`` names arguments."""

    kernel: Any
    grid: tuple[Any, ...]
    arguments: dict[str, Any]
    writes: frozenset[str]


def kernel_launch(node: fx.Node) -> KernelCall | None:
    """What Dynamo's node for a Triton kernel stands for, or None. 2.11 to 2.15.

    An autotuned kernel has a grid for each of its configurations: only where these are the same is there one call that
    means them all. Neither is there one where arguments are tensor descriptors.
    """
    if node.target is not triton_kernel_wrap.triton_kernel_wrapper_mutation:
        return None
    words = node.kwargs
    grids = words["grid"]
    if any(grid != grids[0] for grid in grids[1:]) or words["tma_descriptor_metadata"]:
        return None
    table = triton_kernel_wrap.kernel_side_table
    arguments = {**words["kwargs"], **table.get_constant_args(words["constant_args_idx"])}
    return KernelCall(table.get_kernel(words["kernel_idx"]), tuple(grids[0]), arguments, _written(words))


def _written(words: Any) -> frozenset[str]:
    """The arguments that the kernel writes to, by its own code; all tensors, where torch cannot read that."""
    examples = {
        name: value.meta.get("example_value") if isinstance(value, fx.Node) else value
        for name, value in words["kwargs"].items()
    }
    try:
        names = triton_kernel_wrap.get_mutated_tensors(words["kernel_idx"], words["constant_args_idx"], examples, {})
    except Exception:  # noqa: BLE001 - it compiles the kernel to find out, and that may fail in any way
        names = [name for name, value in examples.items() if isinstance(value, torch.Tensor)]
    return frozenset(names)
