"""One compiled call of a graph on given inputs: what a trial of the minifier does in its process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from dynadiag.torch_private import trial as torch_private
from dynadiag.trial.accuracy import call_and_compare

_SEED = 0


@dataclass(frozen=True, slots=True)
class GraphCall:
    """How to compile a graph, and what to check.

    ``backend`` is a name or the program's own function. With ``accuracy`` the call is compared with the uncompiled one.
    Otherwise it is only made, and differentiated if ``backward`` is set.
    """

    backend: str | Callable[..., Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    dynamic: bool | None = None
    fullgraph: bool = False
    backward: bool = False
    accuracy: bool = False


def compile_and_call(
    call: GraphCall, function: Callable[..., Any], inputs: Sequence[Any], previous_inputs: Sequence[Any] | None = None
) -> None:
    """Compile ``function`` without caches and call it. Raises what that raises.

    ``previous_inputs`` are the inputs of an earlier call, for which the code is compiled. With ``accuracy`` a wrong
    result ends the process, as in `call_and_compare`.
    """
    torch_private.reset()
    torch_private.bypass_caches()
    options = dict(call.options) or None
    compiled = torch.compile(
        function, backend=call.backend, options=options, dynamic=call.dynamic, fullgraph=call.fullgraph
    )
    if previous_inputs is not None:
        compiled(*previous_inputs)
    torch.manual_seed(_SEED)
    if call.accuracy:
        call_and_compare(compiled, function, tuple(inputs), {})
        return
    result = compiled(*inputs)
    if call.backward:
        differentiate(result)
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()  # device errors are asynchronous


def differentiate(result: Any, *, keep_graph: bool = False) -> None:
    """Run the backward pass of the sum of all outputs that require a gradient. ``keep_graph``: it may run again."""
    leaves = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    if leaves:
        with torch.enable_grad():  # the program may have left it off
            sums = [(leaf.abs() if leaf.is_complex() else leaf).sum() for leaf in leaves]
        torch.autograd.backward(sums, retain_graph=keep_graph)
