"""The task of a process that reduces a graph, and the call that it captures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule

from dynadiag.minify.torch_settings import TorchSnapshot
from dynadiag.trial.signature import Signature

__all__ = ["CapturedCall", "ReductionTask"]


@dataclass(slots=True)
class ReductionTask:
    """One call of one graph to reduce. ``memo`` and ``answers`` are paths of JSON files.

    ``own_numbers``: it fails only if Inductor draws its own random numbers.
    """

    graph: int
    call: int
    phase: str  # "compile" | "run" | "backward"
    rung: str
    accuracy: bool
    threads: int
    seconds: float  # of one trial
    memory: int
    reference: Signature
    tolerance: tuple[float, float] | None = None
    budget: float | None = None
    repeat: int = 1
    memo: str | None = None
    answers: str | None = None  # the outcomes of trials that this process could not fork
    stop: bool = False  # use known outcomes only, make no new trial
    passes: tuple[str, ...] = ()  # the rungs at which the program does not fail
    own_numbers: bool = False
    threads_set: bool = False  # by the program itself
    set_threads: Callable[[int], None] = field(default=torch.set_num_threads, repr=False)

    def to_json(self) -> dict[str, Any]:
        data = {name: getattr(self, name) for name in self.__slots__ if name != "set_threads"}
        return {**data, "reference": self.reference.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ReductionTask:
        tolerance = tuple(data["tolerance"]) if data["tolerance"] else None
        return cls(**{**data, "reference": Signature.from_json(data["reference"]), "tolerance": tolerance})


@dataclass(frozen=True, slots=True)
class CapturedCall:
    """A graph as Dynamo passed it to its backend, with the inputs of the failing call."""

    module: GraphModule
    inputs: tuple[Any, ...]
    backend: Any  # the program's backend
    snapshot: TorchSnapshot
    fullgraph: bool = False
