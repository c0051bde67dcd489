"""One compiled call of a graph on given inputs: what a trial of the minifier does, in the process of the trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from dynadiag.torch_private import trial as torch_private
from dynadiag.trial.accuracy import compared_call

__all__ = ["GraphCall", "attempt"]

_SEED = 0


@dataclass(frozen=True, slots=True)
class GraphCall:
    """How a graph is compiled and what is asked of it.

    ``backend`` is a name or the program's own function. ``accuracy`` compares the call with its uncompiled self, else
    the call is only made, and differentiated where ``backward``.
    """

    backend: str | Callable[..., Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    dynamic: bool | None = None
    fullgraph: bool = False
    backward: bool = False
    accuracy: bool = False


def attempt(
    call: GraphCall, function: Callable[..., Any], inputs: Sequence[Any], earlier: Sequence[Any] | None = None
) -> None:
    """Compiles and calls ``function``, with no compiler cache. What that raises, it raises.

    ``earlier`` are the inputs of a call before the one in question, for which the code is made. Where ``accuracy``
    finds a wrong result it ends the process, as `compared_call` does.
    """
    torch_private.reset()
    torch_private.bypass_caches()
    options = dict(call.options) or None
    compiled = torch.compile(
        function, backend=call.backend, options=options, dynamic=call.dynamic, fullgraph=call.fullgraph
    )
    if earlier is not None:
        compiled(*earlier)
    torch.manual_seed(_SEED)
    if call.accuracy:
        compared_call(compiled, function, tuple(inputs), {})
        return
    result = compiled(*inputs)
    if call.backward:
        _differentiate(result)
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()  # a device tells of its errors late


def _differentiate(result: Any) -> None:
    """The backward pass of the sum of everything that can be differentiated."""
    leaves = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad]
    if leaves:
        torch.autograd.backward([leaf.sum() for leaf in leaves])
