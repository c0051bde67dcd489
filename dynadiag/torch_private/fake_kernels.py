"""What torch expects of an operator: its fake kernel, and the arguments that its schema says it changes. Read in torch
2.11.0, 2.13.0, 2.15.0.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._guards import TracingContext
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch

_TORCH = torch.__file__.removesuffix("__init__.py")


def wrap_fake_dispatch(hook: Callable[..., Any]) -> None:
    """Let ``hook(inner, mode, operator, types, args, kwargs)`` compute the fake result of every operator.

    Dynamo, AOTAutograd and Inductor all call it. torch looks up its cached fake results inside `inner`.
    """
    inner = FakeTensorMode.dispatch

    @functools.wraps(inner)
    def dispatch(mode: Any, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return hook(inner, mode, operator, types, args, kwargs or {})

    FakeTensorMode.dispatch = dispatch


def size_hints(sizes: Sequence[int | torch.SymInt]) -> list[int | None]:
    """Return the value of each symbolic size, without adding a guard. None if it depends on data."""
    return [size if isinstance(size, int) else size.node.hint for size in sizes]


@dataclass(frozen=True, slots=True)
class SampleRun:
    """What an operator did with sample tensors: its result, and what its schema does not declare of that.

    ``changed`` are the arguments that it changes. ``aliased`` has, by the position of a result among the leaves, the
    argument whose memory it shares.
    """

    result: Any
    changed: tuple[str, ...]
    aliased: dict[int, str]


def run_on_samples(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SampleRun:
    """Run ``operator`` itself on sample tensors in place of these fake ones.

    The samples are of several numbers, and of these with the other sign for what changes; of zeros if the operator
    raises on those. Raises what it raises on zeros, and `ValueError` if the size of an input depends on data.
    """
    with no_dispatch():
        try:
            run = _run_on(_spread_like_fake, operator, args, kwargs)
        except Exception:  # noqa: BLE001 - the user's operator may raise anything on numbers that it does not expect
            return _run_on(_zeros_like_fake, operator, args, kwargs)
        with suppress(Exception):  # as above
            other = _run_on(_spread_of_other_sign, operator, args, kwargs)
            run = replace(run, changed=tuple(dict.fromkeys((*run.changed, *other.changed))))
        return run


def _run_on(sample: Callable[[Any], Any], operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SampleRun:
    args, kwargs = pytree.tree_map(sample, (args, kwargs))
    given = arguments_by_name(operator, args, kwargs)
    declared = {each.name: each.alias_info for each in operator._schema.arguments if each.alias_info is not None}
    may_change = {name for name, alias in declared.items() if alias.is_write}
    before = {name: _contents(value) for name, value in given.items() if name not in may_change}
    result = operator(*args, **kwargs)
    changed = [name for name, old in before.items() if not _is_unchanged(old, given[name])]
    return SampleRun(result, tuple(changed), _aliased(result, {n: v for n, v in given.items() if n not in declared}))


def arguments_by_name(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by the names of the operator's schema."""
    return {**dict(zip((each.name for each in operator._schema.arguments), args, strict=False)), **kwargs}


def _aliased(result: Any, given: dict[str, Any]) -> dict[int, str]:
    """The arguments that results share memory with. A list of tensors is left out: which of them it is stays open."""
    owners = {_storage(value): name for name, value in given.items()}
    owners.pop(None, None)
    shared = ((position, owners.get(_storage(leaf))) for position, leaf in enumerate(pytree.tree_leaves(result)))
    return {position: name for position, name in shared if name is not None}


def _storage(value: Any) -> int | None:
    """The identity of a strided tensor's memory."""
    strided = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return value.untyped_storage()._cdata if strided else None


_Contents = list[tuple[int, torch.Tensor]]


def _contents(value: Any) -> _Contents:
    tensors = (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))
    return [(tensor._version, tensor.clone()) for tensor in tensors]


def _is_unchanged(old: _Contents, value: Any) -> bool:
    now = _contents(value)
    return all(a[0] == b[0] and torch.equal(a[1], b[1]) for a, b in zip(old, now, strict=True))


def _spread_like_fake(leaf: Any) -> Any:
    """Numbers of both signs in a floating tensor; an integer tensor is of zeros, since it may be an index."""
    sample = _zeros_like_fake(leaf)
    if isinstance(sample, torch.Tensor) and sample.is_floating_point():
        sample.copy_(torch.linspace(-1.5, 1.25, sample.numel(), device=sample.device).reshape(sample.shape))
    return sample


def _spread_of_other_sign(leaf: Any) -> Any:
    sample = _spread_like_fake(leaf)
    return sample.neg_() if isinstance(sample, torch.Tensor) and sample.is_floating_point() else sample


def _zeros_like_fake(leaf: Any) -> Any:
    if isinstance(leaf, torch.SymInt):
        return _known_sizes([leaf])[0]
    if not isinstance(leaf, torch.Tensor):
        return leaf
    sizes, strides = _known_sizes(leaf.shape), _known_sizes(leaf.stride())
    return torch.empty_strided(sizes, strides, dtype=leaf.dtype, device=leaf.device).zero_()


def _known_sizes(sizes: Sequence[int | torch.SymInt]) -> list[int]:
    found = size_hints(sizes)
    if None in found:
        raise ValueError("a size that depends on data")
    return [size for size in found if size is not None]


def traced_user_line() -> tuple[str, int] | None:
    """Return the user's line that Dynamo is tracing, or None."""
    if TracingContext.try_get() is None:
        return None
    outside = [frame for frame in TracingContext.extract_stack() if not frame.filename.startswith(_TORCH)]
    return (outside[-1].filename, outside[-1].lineno or 0) if outside else None


# An operator's name -> the operator that declares what it changes, and the library that keeps that alive.
_declared: dict[str, tuple[torch.library.Library, Any]] = {}
_NAMESPACE = "dynadiag_declared"


def declare_changes(module: torch.fx.GraphModule, changed: dict[Any, tuple[str, ...]]) -> None:
    """Have a graph of Dynamo's call each of these operators by a schema that declares the arguments it changes.

    ``changed`` has the names of those arguments by operator.
    """
    for graph in (each.graph for each in module.modules() if isinstance(each, torch.fx.GraphModule)):
        for node in graph.nodes:
            operator = getattr(node.target, "default", node.target) if node.op == "call_function" else None
            if isinstance(operator, torch._ops.OpOverload) and operator in changed:
                node.target = _declaring(operator, changed[operator])


def _declaring(operator: Any, changed: tuple[str, ...]) -> Any:
    """The operator with another schema. It has no gradient of its own."""
    name = f"{operator}".replace(".", "_")
    if name not in _declared:
        schema = f"{operator._schema}".partition("(")[2]
        for number, argument in enumerate(changed):
            schema = re.sub(rf"\bTensor((?:\?|\[\d*\])*) {argument}\b", rf"Tensor(a{number}!)\1 {argument}", schema)
        library = torch.library.Library(_NAMESPACE, "FRAGMENT")
        library.define(f"{name}({schema}")
        library.impl(name, operator, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{_NAMESPACE}::{name}", operator, lib=library)
        _declared[name] = (library, getattr(torch.ops.dynadiag_declared, name).default)
    return _declared[name][1]
