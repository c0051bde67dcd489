"""Runs one call several times from the same state, each time with another function: compiled, uncompiled, in float64.

Inputs are copied for each run. Random number generators and the state that the function can reach are restored.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard, TypeVar

import torch
from torch.utils import _pytree as pytree

from dynadiag.recording.torch_text.sources import source_text
from dynadiag.torch_private import trial as torch_private
from dynadiag.trial.reachable_state import ContainerSnapshot, bound_object, expand_objects, find_state

T = TypeVar("T")
Arguments = tuple[tuple[Any, ...], dict[str, Any]]
_AUTOCAST_DEVICES = ("cpu", "cuda")
_SEED = 0  # of the cotangents: with any fixed seed all runs differentiate the same scalar


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in nested containers, in order."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


@dataclass(slots=True)
class RunResult:
    """The results of one run of the call.

    ``inputs`` are the argument tensors after the run. ``gradients`` is ``None`` if nothing can be differentiated.
    ``state`` has copies of the tensors that the call can reach after the run: first those that it could reach before,
    then new ones. ``shared`` has for each output the position of the tensor of `ReplayableCall.state` whose memory it
    shares, or None. ``error`` is what the call raised, ``backward_error`` what differentiating it raised (the program
    may have freed the autograd graph, or written to a tensor that it needs).
    """

    result: Any
    inputs: list[torch.Tensor]
    outputs: list[Any]
    gradients: list[torch.Tensor | None] | None = None
    error: Exception | None = None
    backward_error: Exception | None = None
    state: list[torch.Tensor] = field(default_factory=list)
    shared: list[int | None] = field(default_factory=list)


class ReplayableCall:
    """A call and everything it depends on, saved before the first run, so that each run starts from the same state."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.name = _function_name(function)
        named, self.containers = self._find_state()
        self.state, self._state_names = [t for _, t in named], [name for name, _ in named]
        self._container_snapshots = [ContainerSnapshot(holder) for holder in self.containers]
        self._saved_gradients = [(t, t.grad) for t in self.state if t.is_leaf]
        self._saved_arguments = copy_tensors((args, kwargs))  # the program's own call may write to its arguments
        self._saved_state = [t.detach().clone() for t in self.state]
        self._saved_random_state = random_state()
        given = (leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Generator))
        self._saved_generators = [(generator, generator.get_state()) for generator in given]
        self.input_names = _input_names(function, args, kwargs)
        self.gradient_names = self._gradient_names()

    def restore(self) -> None:
        """Restore the state that the function can reach, and the random number generators, also those given to it."""
        for contents in self._container_snapshots:
            contents.restore()
        for tensor, gradient in self._saved_gradients:
            if tensor.grad is not gradient:
                tensor.grad = gradient
        for tensor, saved in zip(self.state, self._saved_state, strict=True):
            if not _is_unchanged(tensor, saved):
                tensor.data.copy_(saved)
        set_random_state(self._saved_random_state)
        for generator, state in self._saved_generators:
            generator.set_state(state)

    def start_values(self) -> tuple[dict[str, torch.Tensor], dict[int, torch.Tensor]]:
        """What each run starts from: the values of the state by name, and those of the arguments by position."""
        state = dict(zip(self._state_names, self._saved_state, strict=True))
        return state, {i: value.detach() for i, value in self._argument_tensors().items()}

    def start_from(self, state: Mapping[str, torch.Tensor], arguments: Mapping[int, torch.Tensor]) -> None:
        """Let each run start from these values, where a tensor of the same name, or at the same position among the
        arguments, has the same form.
        """
        own = zip(self._state_names, self._saved_state, strict=True)
        self._saved_state = [value if _has_form_of(value := state.get(name), saved) else saved for name, saved in own]
        for position, saved in self._argument_tensors().items():
            if _has_form_of(value := arguments.get(position), saved):
                saved.data.copy_(value)

    def _argument_tensors(self) -> dict[int, torch.Tensor]:
        leaves = enumerate(pytree.tree_leaves(self._saved_arguments))
        return {position: leaf for position, leaf in leaves if isinstance(leaf, torch.Tensor)}

    def named_state(self) -> dict[str, torch.Tensor]:
        """The tensors that the function can reach now, by name, other than arguments."""
        return dict(self._find_state()[0])

    def reachable_tensors(self) -> list[torch.Tensor]:
        """The tensors of `state`, then those that became reachable since."""
        before = {id(t) for t in self.state}
        return [*self.state, *(t for _, t in self._find_state()[0] if id(t) not in before)]

    def shared_state(self, outputs: list[Any]) -> list[int | None]:
        """For each output, the position of the first tensor of `state` that shares its memory, or ``None``. Arguments
        are copied for some runs, so what shares memory with them does not count.
        """
        given = {_memory(tensor) for tensor in tensors_in((self.args, self.kwargs))}
        places: dict[int | None, int] = {}
        for position, tensor in enumerate(self.state):
            places.setdefault(_memory(tensor), position)
        return [None if _memory(each) in {None, *given} else places.get(_memory(each)) for each in outputs]

    def state_name(self, position: int) -> str:
        """The name by which the function reaches a tensor of `reachable_tensors`, for example
        ``self.norm.running_mean``.
        """
        known = position < len(self.state)
        return self._state_names[position] if known else f"new tensor {position - len(self.state)}"

    def copies(self) -> Arguments:
        """Fresh copies of the arguments. Tensors that share storage share it in the copies too."""
        return copy_tensors(self._saved_arguments)

    def _find_state(self) -> tuple[list[tuple[str, torch.Tensor]], list[Any]]:
        """(named tensors, containers) that the call may read or change without being given them as arguments."""
        given = {id(t) for t in tensors_in((self.args, self.kwargs))}
        tensors, holders = find_state(self.function, pytree.tree_leaves((self.args, self.kwargs)))
        return [(name, t) for name, t in tensors if id(t) not in given], holders

    def _gradient_names(self) -> list[str]:
        given = zip(self.input_names, tensors_in((self.args, self.kwargs)), strict=True)
        inputs = [name for name, t in given if t.requires_grad]
        return inputs + [self.state_name(i) for i, t in enumerate(self.state) if t.requires_grad]


def _input_names(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """A name for each tensor among the arguments, as the program has it: ``input 'x'``, by position if that is not
    known.
    """
    held = bound_object(function)
    if isinstance(held, torch.fx.GraphModule):
        sources = torch_private.input_sources(held.graph)
        named = [(source and source_text(source), value) for source, value in zip(sources, args, strict=False)]
    else:
        try:
            bound = inspect.signature(function).bind(*args, **kwargs).arguments
        except (TypeError, ValueError):  # a builtin, or arguments that the call itself refuses
            bound = {}
        named = list(bound.items())
    found = {id(t): f"input '{name}'" for name, value in named if name for t in tensors_in(value)}
    return [found.get(id(t), f"input {i}") for i, t in enumerate(tensors_in((args, kwargs)))]


def _function_name(function: Callable[..., Any]) -> str:
    """The name of the function. For a module it is that of its class, since all modules share one ``__call__``."""
    held = bound_object(function)
    if isinstance(held, torch.fx.GraphModule):
        return "GraphModule"  # torch makes a class for each instance
    named = type(held) if isinstance(held, torch.nn.Module) else inspect.unwrap(function)
    return getattr(named, "__qualname__", type(function).__name__)


def copy_tensors(values: T) -> T:
    """Nested containers with copied tensors. Tensors that share storage share it in the copies too."""
    return pytree.tree_map(_TensorCopier(), values)


class _TensorCopier:
    """Copies tensors. One copier per call of `copy_tensors`, since it remembers the storages it has copied.

    A view is one in the copies too, since AOTAutograd treats two tensors of one memory by what they are views of.
    """

    def __init__(self) -> None:
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by identity, which lasts while it is held

    def __call__(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if torch_private.is_without_storage(leaf):  # clone() would allocate one
            return leaf.detach().requires_grad_(leaf.requires_grad)
        if type(leaf) not in (torch.Tensor, torch.nn.Parameter) or leaf.layout is not torch.strided:
            return leaf.detach().clone().requires_grad_(leaf.requires_grad)
        base = leaf._base
        if base is None or leaf.requires_grad or not _is_plain_view(leaf, base):
            return self._copied_once(leaf)
        return self._copied_once(base).as_strided(leaf.size(), leaf.stride(), leaf.storage_offset())

    def _copied_once(self, leaf: torch.Tensor) -> torch.Tensor:
        if id(leaf) not in self._copies:
            self._copies[id(leaf)] = leaf, self._copy(leaf)
        return self._copies[id(leaf)][1]

    def _copy(self, leaf: torch.Tensor) -> torch.Tensor:
        source = leaf.untyped_storage()
        storage = self._storages.setdefault(source._cdata, source.clone())
        with torch.no_grad():
            copy = torch.empty(0, dtype=leaf.dtype, device=leaf.device)
            copy.set_(storage, leaf.storage_offset(), leaf.size(), leaf.stride())
            copy = copy.conj() if leaf.is_conj() else copy
            copy = torch._neg_view(copy) if leaf.is_neg() else copy
        if isinstance(leaf, torch.nn.Parameter):
            copy = torch.nn.Parameter(copy, requires_grad=leaf.requires_grad)
        return copy.requires_grad_(leaf.requires_grad)


def _is_plain_view(leaf: torch.Tensor, base: torch.Tensor) -> bool:
    """Whether a tensor is other elements of its base, in the same type."""
    is_alike = leaf.dtype is base.dtype and leaf.is_conj() == base.is_conj() and leaf.is_neg() == base.is_neg()
    return is_alike and type(base) is torch.Tensor and not base.requires_grad and base.layout is torch.strided


def run_call(
    call: ReplayableCall, function: Callable[..., Any], arguments: Arguments, *, differentiate: bool = True
) -> RunResult:
    """Run ``function`` from the saved state.

    With ``differentiate`` the gradients are computed and the state is restored afterwards, and outputs that are part of
    it are copies. Without it the state stays
    as the run left it: that is for the run whose result the program gets.
    """
    call.restore()
    torch.clear_autocast_cache()  # it has parameters of the last run, cast, which belong to the graph of that one
    args, kwargs = arguments
    inputs = tensors_in(arguments)
    try:
        result = function(*args, **kwargs)
        run = RunResult(result, inputs, expand_objects(pytree.tree_leaves(result)))
        run.state = [t.detach().clone() for t in call.reachable_tensors()]
        run.shared = call.shared_state(run.outputs)
        if differentiate:
            _differentiate(run, call)
            run.outputs = _apart_from(call.state, run.outputs)
        return run
    except Exception as error:  # noqa: BLE001 - the exceptions of two runs are compared
        return RunResult(None, inputs, [], error=error)
    finally:
        if differentiate:
            call.restore()


def _apart_from(state: list[torch.Tensor], outputs: list[Any]) -> list[Any]:
    """The outputs, with copies of those that share memory with the state: it is restored, and they are compared as they
    were returned.
    """
    memory = {_memory(tensor) for tensor in state} - {None}
    copies = copy_tensors([each if _memory(each) in memory else None for each in outputs])
    return [each if copy is None else copy for each, copy in zip(outputs, copies, strict=True)]


def _memory(value: Any) -> int | None:
    """Where a plain tensor's memory begins."""
    plain = type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided and value.numel() > 0
    return value.untyped_storage().data_ptr() if plain and not torch_private.is_without_storage(value) else None


def _differentiate(run: RunResult, call: ReplayableCall) -> None:
    try:
        run.gradients = _gradients(run.outputs, run.inputs, call.state)
    except Exception as error:  # noqa: BLE001 - the exceptions of two runs are compared
        run.backward_error = error


def _gradients(
    outputs: list[Any], inputs: list[torch.Tensor], state: list[torch.Tensor]
) -> list[torch.Tensor | None] | None:
    """The gradients of one fixed random projection of all outputs, for each input and state tensor that needs one."""
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
    """Autocast off: torch recommends it for the forward pass alone."""
    with contextlib.ExitStack() as stack:
        for device in _AUTOCAST_DEVICES:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


def _cotangent(root: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    values = torch.randn(root.shape, generator=generator, dtype=torch.float64)
    return values.to(device=root.device, dtype=root.dtype)


def _has_form_of(value: torch.Tensor | None, saved: torch.Tensor) -> TypeGuard[torch.Tensor]:
    """Whether a value can take the place of a saved tensor."""
    if value is None or saved.layout is not torch.strided:
        return False
    return (value.shape, value.dtype, value.layout) == (saved.shape, saved.dtype, saved.layout)


def _is_unchanged(tensor: torch.Tensor, saved: torch.Tensor) -> bool:
    if tensor.shape != saved.shape or tensor.dtype != saved.dtype or tensor.layout is not torch.strided:
        return True  # resized or replaced: copying cannot restore it
    return bool(torch.equal(tensor.detach(), saved))


def random_state() -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the state of the random number generators: the CPU's, and those of the GPUs that are in use."""
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []


def has_random_state(state: tuple[torch.Tensor, list[torch.Tensor]]) -> bool:
    """Whether the random number generators are in a state: no number was drawn since."""
    now = random_state()
    return torch.equal(state[0], now[0]) and all(map(torch.equal, state[1], now[1]))


def set_random_state(state: tuple[torch.Tensor, list[torch.Tensor]]) -> None:
    """Set what `random_state` returned."""
    torch.set_rng_state(state[0])
    if state[1]:
        torch.cuda.set_rng_state_all(state[1])
