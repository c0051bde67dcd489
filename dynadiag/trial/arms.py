"""One call of a function run in two ways from the same state: copies of its inputs, and its state put back."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch.utils import _pytree as pytree

from dynadiag.torch_private import trial as torch_private

__all__ = ["Arguments", "Arm", "Call", "copied", "run_arm", "tensors_in"]

T = TypeVar("T")
Arguments = tuple[tuple[Any, ...], dict[str, Any]]
_AUTOCAST_DEVICES = ("cpu", "cuda")
_SEED = 0  # of the cotangents: any fixed one will do, so that both arms differentiate the same scalar


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in nested containers, in order."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


@dataclass(slots=True)
class Arm:
    """One run. ``inputs`` are the arguments after it, ``gradients`` ``None`` where nothing can be differentiated."""

    result: Any
    inputs: list[torch.Tensor]
    outputs: list[Any]
    gradients: list[torch.Tensor | None] | None = None
    error: Exception | None = None
    state: list[torch.Tensor] = field(default_factory=list)


class Call:
    """A call with everything that it depends on, as it was before the first arm ran."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.name = getattr(function, "__qualname__", type(function).__name__)
        self.state = _reachable(function, args, kwargs)
        self._pristine = copied((args, kwargs))  # the program's own arm changes what it is given
        self._saved = [t.detach().clone() for t in self.state]
        self._random = _random_state()
        self.gradient_names = self._names()

    def restore(self) -> None:
        """Puts back the tensors that the function can reach, and the random number generators."""
        for tensor, saved in zip(self.state, self._saved, strict=True):
            if not _same(tensor, saved):
                tensor.data.copy_(saved)
        _set_random_state(self._random)

    def copies(self) -> Arguments:
        """The arguments anew, storage shared where it was shared."""
        return copied(self._pristine)

    def _names(self) -> list[str]:
        inputs = [f"input {i}" for i, t in enumerate(tensors_in((self.args, self.kwargs))) if t.requires_grad]
        return inputs + [f"parameter {i}" for i, t in enumerate(self.state) if t.requires_grad]


def copied(values: T) -> T:
    """Nested containers with their tensors copied, storage shared where it was shared."""
    return pytree.tree_map(_Copier(), values)


class _Copier:
    """Copies tensors; those that share storage share it in the copy."""

    def __init__(self) -> None:
        self._storages: dict[int, torch.UntypedStorage] = {}

    def __call__(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if torch_private.is_without_storage(leaf):  # a clone would have one
            return leaf.detach().requires_grad_(leaf.requires_grad)
        if type(leaf) not in (torch.Tensor, torch.nn.Parameter) or leaf.layout is not torch.strided:
            return leaf.detach().clone().requires_grad_(leaf.requires_grad)
        source = leaf.untyped_storage()
        storage = self._storages.setdefault(source._cdata, source.clone())
        with torch.no_grad():
            copy = torch.empty(0, dtype=leaf.dtype, device=leaf.device)
            copy.set_(storage, leaf.storage_offset(), leaf.size(), leaf.stride())
        if isinstance(leaf, torch.nn.Parameter):
            return torch.nn.Parameter(copy, requires_grad=leaf.requires_grad)
        return copy.requires_grad_(leaf.requires_grad)


def run_arm(call: Call, function: Callable[..., Any], arguments: Arguments, *, differentiate: bool = True) -> Arm:
    """Runs the function from the call's state, and puts that back unless the arm is the program's own."""
    call.restore()
    args, kwargs = arguments
    inputs = tensors_in(arguments)
    try:
        result = function(*args, **kwargs)
        outputs = pytree.tree_leaves(result)
        state = [t.detach().clone() for t in call.state]
        gradients = _gradients(outputs, inputs, call.state) if differentiate else None
        return Arm(result, inputs, outputs, gradients, state=state)
    except Exception as error:  # noqa: BLE001 - what either arm raises is compared with the other
        return Arm(None, inputs, [], error=error)
    finally:
        if differentiate:
            call.restore()


def _gradients(
    outputs: list[Any], inputs: list[torch.Tensor], state: list[torch.Tensor]
) -> list[torch.Tensor | None] | None:
    """The gradient of a fixed random projection of all outputs, in each input and parameter."""
    roots = [o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad]
    leaves = [t for t in (*inputs, *state) if t.requires_grad]
    if not roots or not leaves or not torch.is_grad_enabled():
        return None
    generator = torch.Generator().manual_seed(_SEED)
    cotangents = [_cotangent(root, generator) for root in roots]
    with _without_autocast():
        return list(torch.autograd.grad(roots, leaves, cotangents, allow_unused=True))


@contextlib.contextmanager
def _without_autocast() -> Iterator[None]:
    """As torch's documentation has it: the forward pass under autocast, the backward pass outside."""
    with contextlib.ExitStack() as stack:
        for device in _AUTOCAST_DEVICES:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


def _cotangent(root: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    values = torch.randn(root.shape, generator=generator, dtype=torch.float64)
    return values.to(device=root.device, dtype=root.dtype)


def _reachable(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Tensors that the function may read or change without their being arguments, each storage's once."""
    owners = [*_referenced(function), *pytree.tree_leaves((args, kwargs))]
    given = {id(t) for t in tensors_in((args, kwargs))}
    found: dict[int, torch.Tensor] = {}
    for owner in owners:
        for tensor in _tensors_of(owner):
            if id(tensor) not in given:
                found.setdefault(id(tensor), tensor)
    return list(found.values())


def _referenced(function: Any) -> Iterator[Any]:
    """The function's module, closure and the globals that its code names."""
    function = inspect.unwrap(function) if callable(function) else function
    yield getattr(function, "__self__", function)
    code = getattr(function, "__code__", None)
    if code is None:
        return
    for cell in getattr(function, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # an empty cell: the variable is not set yet
            yield cell.cell_contents
    names = getattr(function, "__globals__", {})
    yield from (names[name] for name in code.co_names if name in names)


def _tensors_of(owner: Any) -> Iterator[torch.Tensor]:
    if isinstance(owner, torch.Tensor):
        yield owner
    elif isinstance(owner, torch.nn.Module):
        yield from owner.parameters()
        yield from owner.buffers()
    elif inspect.ismethod(owner) and isinstance(owner.__self__, torch.nn.Module):
        yield from _tensors_of(owner.__self__)
    elif isinstance(owner, (list, tuple, dict)):
        yield from tensors_in(owner)


def _same(tensor: torch.Tensor, saved: torch.Tensor) -> bool:
    if tensor.shape != saved.shape or tensor.dtype != saved.dtype:
        return True  # resized or replaced: it cannot be put back by copying
    return bool(torch.equal(tensor.detach(), saved))


def _random_state() -> tuple[torch.Tensor, list[torch.Tensor]]:
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []


def _set_random_state(state: tuple[torch.Tensor, list[torch.Tensor]]) -> None:
    torch.set_rng_state(state[0])
    if state[1]:
        torch.cuda.set_rng_state_all(state[1])
