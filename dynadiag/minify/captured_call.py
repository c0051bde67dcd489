"""The call of a graph that is reduced, as the hooks captured it for the reducer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule

from dynadiag.minify.torch_settings import TorchSnapshot


@dataclass(slots=True)
class ProgramThreads:
    """The number of threads that the program works with. ``was_set``: by the program itself. ``apply`` sets it."""

    count: int
    apply: Callable[[int], None]
    was_set: bool = False

    def note(self, count: int) -> None:
        """Keep the number that the program sets."""
        self.count, self.was_set = count, True


@dataclass(frozen=True, slots=True)
class CapturedCall:
    """A graph as Dynamo passed it to its backend, with the inputs of the failing call."""

    module: GraphModule
    inputs: tuple[Any, ...]
    backend: Any  # the program's backend
    snapshot: TorchSnapshot
    threads: ProgramThreads
    fullgraph: bool = False
