"""What custom operators of a graph break of what their fake kernels promise.

A smaller input may make an operator break another promise than in the program: of a tensor that has fewer rows than a
number asks for, a slice is shorter than the fake kernel says. A repro of that is one of another failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter
from torch.utils import _pytree as pytree

from dynadiag.bisection.fake_kernel_check import broken_form
from dynadiag.recording.torch_text.operators import is_custom_operator

BrokenPromise = tuple[str, str]  # the operator, and what of a result is another: "dtype", "shape", "strides"


def broken_in_program(module: GraphModule, inputs: Sequence[Any]) -> frozenset[BrokenPromise] | None:
    """The promises that are broken in the whole graph; None where there is nothing to check."""
    if not any(_custom_operator(node.target) is not None for node in module.graph.nodes):
        return None
    try:
        return broken_promises(module, inputs)
    except Exception:  # noqa: BLE001 - a graph may not run by itself
        return None


def broken_promises(module: GraphModule, inputs: Sequence[Any]) -> frozenset[BrokenPromise]:
    """The promises that are broken where the graph runs uncompiled on copies of these inputs."""
    run = _Checked(module, garbage_collect_values=False)
    copies = [value.detach().clone() if isinstance(value, torch.Tensor) else value for value in inputs]
    with torch.no_grad():
        run.run(*copies)
    return frozenset(run.broken)


class _Checked(Interpreter):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.broken: set[BrokenPromise] = set()

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        operator = _custom_operator(target)
        promised = None if operator is None else _promised(operator, args, kwargs)
        result = super().call_function(target, args, kwargs)
        self.broken.update((str(operator), form) for form in _forms(result, promised))
        return result


def _custom_operator(target: Any) -> Any:
    operator = getattr(target, "default", target)
    known = isinstance(operator, torch._ops.OpOverload) and is_custom_operator(str(operator))
    return operator if known else None


def _promised(operator: Any, args: Any, kwargs: Any) -> Any:
    mode = torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True)
    try:
        with mode:
            given = pytree.tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
            return operator(*given[0], **given[1])
    except Exception:  # noqa: BLE001 - the user's fake kernel may raise anything, and then promises nothing
        return None


def _forms(result: Any, promised: Any) -> Iterator[str]:
    for real, fake in zip(pytree.tree_leaves(result), pytree.tree_leaves(promised), strict=False):
        if isinstance(real, torch.Tensor) and isinstance(fake, torch.Tensor) and (form := broken_form(real, fake)):
            yield form
