"""Checks what custom operators promise: whether one returns what its fake kernel says, and changes and shares only the
memory that its schema says.

The compiler trusts both. It generates code for the shape and dtype of the fake kernel, so operators that read the
result fail where that is wrong. It reads an argument earlier or later, or leaves a call out, where nothing is declared
to change, and keeps a result apart from an argument that it shares memory with. No other decision of the compiler is
at fault then. If that decision is switched off, the operator itself runs on sample tensors. Its result replaces the
promise, a schema that declares the changes replaces its own, and an operator that returns an argument's memory runs
uncompiled, between graphs that are compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from dynadiag.recording.torch_text.operators import is_custom_operator
from dynadiag.torch_private import bisect as torch_private
from dynadiag.torch_private.fake_kernels import (
    arguments_by_name,
    declare_changes,
    run_on_samples,
    size_hints,
    wrap_fake_dispatch,
)
from dynadiag.trial.context import TRIAL
from dynadiag.trial.events import Note, OperatorUsed
from dynadiag.trial.outcome import Decision

OPERATOR_KIND = "operator"  # the kind of these decisions
# A key of torch's caches has the graph, and not what a fake kernel returns: tried on torch 2.13 and 2.15.
_CACHES = " (once it is right, delete Inductor's cache: code that was made with it is used again)"
_reported: set[str] = set()  # the operators and wrong promises that this process has reported
_changed: dict[Any, tuple[str, ...]] = {}  # an operator -> the arguments that it changes and does not declare
_aliasing: set[Any] = set()  # operators whose results share memory with arguments, and that do not declare it


def install() -> None:
    """Install the hook in torch, once per process."""
    wrap_fake_dispatch(_fake_result)


def _fake_result(inner: Callable[..., Any], mode: Any, operator: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """The fake result of an operator: from its fake kernel, or from the operator itself where that is switched off."""
    if not TRIAL.observes(OPERATOR_KIND) or not _is_custom(operator):
        return inner(mode, operator, types, args, kwargs)
    name = _report_use(operator)
    promised = inner(mode, operator, types, args, kwargs)
    switch = TRIAL.plan.switch(OPERATOR_KIND)
    if switch is None or switch.is_on(name):
        return promised
    return _corrected_result(mode, operator, args, kwargs, promised)


@functools.lru_cache(maxsize=4096)
def _is_custom(operator: Any) -> bool:
    return is_custom_operator(str(operator))


def _is_first_report(text: str) -> bool:
    new = text not in _reported
    _reported.add(text)
    return new


def _report_use(operator: Any) -> str:
    name = str(operator)
    if _is_first_report(name):
        TRIAL.send(OperatorUsed(name))
    return name


def correct_operators(module: GraphModule) -> None:
    """Have a graph of Dynamo's call operators that change undeclared arguments as what they are.

    Reports its custom operators: one that a kernel of its own replaces where it is traced never gets to a fake kernel.
    """
    if _changed:
        declare_changes(module, _changed)
    if TRIAL.observes(OPERATOR_KIND):
        targets = (getattr(node.target, "default", node.target) for node in module.graph.nodes)
        for operator in targets:
            if isinstance(operator, torch._ops.OpOverload) and _is_custom(operator):
                _report_use(operator)


def runs_uncompiled(node: Node) -> bool:
    """Whether a node of Dynamo's graph calls an operator that runs uncompiled, since its schema hides an alias."""
    return getattr(node.target, "default", node.target) in _aliasing if node.op == "call_function" else False


def _corrected_result(mode: Any, operator: Any, args: Any, kwargs: Any, promised: Any) -> Any:
    try:
        run = run_on_samples(operator, args, kwargs)
    except Exception:  # noqa: BLE001 - the user's operator may raise anything on samples
        return promised
    if run.changed:
        _changed[operator] = run.changed
        names = " and ".join(run.changed)
        _report(operator, f"{operator} changes its argument {names}, which its schema does not declare")
    if run.aliased:
        _aliasing.add(operator)
        names = " and ".join(dict.fromkeys(run.aliased.values()))
        _report(operator, f"{operator} returns memory of its argument {names}, which its schema does not declare")
    real = pytree.tree_leaves(run.result)
    fake, form = pytree.tree_flatten(promised)
    if len(real) != len(fake):
        return promised
    text = next(filter(None, map(_difference, real, fake)), None)
    if text is not None:
        _report(operator, f"{operator} returns {text}: the fake kernel is wrong", _CACHES)
    leaves = [_corrected_fake(mode, r, p) for r, p in zip(real, fake, strict=True)]
    given = arguments_by_name(operator, args, kwargs)
    for position, name in run.aliased.items():
        offset = given[name].storage_offset() + real[position].storage_offset()
        with mode:
            leaves[position] = given[name].as_strided(leaves[position].shape, leaves[position].stride(), offset)
    return pytree.tree_unflatten(leaves, form)


def _report(operator: Any, wrong: str, then: str = "") -> None:
    name = str(operator)
    if not _is_first_report(wrong):
        return
    here = torch_private.compile_id(), torch_private.graph_kind()
    lines = tuple(torch_private.traced_user_lines())
    TRIAL.send(Decision(OPERATOR_KIND, name, name, *here, target=name, lines=lines))
    TRIAL.send(Note(f"{wrong}, and the compiler trusts it{then}"))


def _difference(real: Any, promised: Any) -> str | None:
    if not isinstance(real, torch.Tensor) or not isinstance(promised, torch.Tensor):
        return None
    texts = {
        "dtype": lambda: f"{real.dtype} where its fake kernel promises {promised.dtype}",
        "shape": lambda: f"the shape {list(real.shape)} where its fake kernel promises {size_hints(promised.shape)}",
        "strides": lambda: (
            f"the strides {list(real.stride())} where its fake kernel promises {size_hints(promised.stride())}"
        ),
    }
    form = broken_form(real, promised)
    return texts[form]() if form else None


def broken_form(real: torch.Tensor, promised: torch.Tensor) -> str:
    """What of a result is another than its fake kernel promises: dtype, shape or strides; empty if nothing is."""
    if real.dtype != promised.dtype:
        return "dtype"
    sizes, strides = size_hints(promised.shape), size_hints(promised.stride())
    if None in sizes:
        return ""  # a data-dependent size: any may be right
    if list(real.shape) != sizes:
        return "shape"
    dense = real.layout is torch.strided and real.numel() > 1
    return "strides" if dense and list(real.stride()) != strides else ""


def _corrected_fake(mode: Any, real: Any, promised: Any) -> Any:
    """A fake tensor with the metadata of the real one. Sizes stay symbolic where the promise has the right number."""
    if _difference(real, promised) is None:
        return promised
    with mode:
        sizes = _sizes(real, promised)
        return torch.empty_strided(sizes, _strides(real, sizes), dtype=real.dtype, device=promised.device)


def _sizes(real: torch.Tensor, promised: torch.Tensor) -> list[Any]:
    if real.dim() != promised.dim():
        return list(real.shape)
    known = zip(promised.shape, size_hints(promised.shape), real.shape, strict=True)
    return [size if hint in (None, number) else number for size, hint, number in known]


def _strides(real: torch.Tensor, sizes: Sequence[Any]) -> list[Any]:
    """Dense strides, in the order of the real tensor's dimensions."""
    strides: list[Any] = [1] * len(sizes)
    step: Any = 1
    for dimension in sorted(range(len(sizes)), key=lambda d: (real.stride(d), -d)):
        strides[dimension] = step
        step = step * sizes[dimension]
    return strides
