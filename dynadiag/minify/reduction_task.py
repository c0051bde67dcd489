"""The task of a process that reduces a graph: what the command asks of it, and the events by which it answers.

The command's own process loads this without torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from dynadiag.trial.events import TrialEvent
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.signature import Signature

# Kinds of events that a plan can ask the hooks to record.
GRAPH_CALLS = "call"  # begin and end of each call of a graph: "begin run 0 3", "end run 0 3" (graph 0, call 3)
COMPARED_GRAPH_CALLS = "compared call"  # as GRAPH_CALLS, and each call is compared with an uncompiled one
INDUCTOR_RANDOM = "own random numbers"  # in addition: Inductor draws its own random numbers, so values are not compared
FAILED_LOWERING = "origin"  # the nodes of the graph from which an operator came whose lowering failed
LOWERING_STARTED = "begun"  # the same nodes for each operator, before it is lowered; their names are joined by spaces
KERNEL_REACHED = "kernel reached"  # the first kernel is given to the C++ compiler or to Triton
PASSES_AT_KERNEL = "passes at a kernel"  # in place of that, the trial ends, as one that passed


@dataclass(frozen=True, slots=True)
class ReductionTask:
    """One call of one graph to reduce. ``memo`` and ``answers`` are paths of JSON files.

    ``own_numbers``: it fails only if Inductor draws its own random numbers. ``plain_inputs``: the inputs are reduced
    too.
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
    plain_inputs: bool = True
    jobs: int = 1  # candidates that may run side by side

    def is_at(self, graph: int, call: int, rank: int | None) -> bool:
        """Whether this is the call: of a job's ranks that of the one that fails."""
        return (self.graph, self.call) == (graph, call) and self.reference.rank in (None, rank)


@dataclass(frozen=True, slots=True)
class GraphCaptured(TrialEvent):
    """The failing graph was reached. ``operations`` counts its operations."""

    operations: int


@dataclass(frozen=True, slots=True)
class InputsKept(TrialEvent):
    """The key of the captured graph with its inputs, by which another run knows whether they are the same."""

    key: str


@dataclass(frozen=True, slots=True)
class CandidateTried(TrialEvent):
    """One trial of the reduction. ``size`` counts operations or lines."""

    key: str
    stage: str
    size: int
    status: str
    outcome: Outcome
    best: int | None = None
    cached: int | None = None
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class ReductionRefused(TrialEvent):
    """The graph cannot be reduced; ``text`` says why."""

    text: str


@dataclass(frozen=True, slots=True)
class ReproWritten(TrialEvent):
    """The result. ``signature`` is the repro's failure."""

    text: str
    missing: tuple[str, ...]
    nodes_before: int
    nodes_after: int
    inputs: int
    elements: int
    minimal: bool
    cached: int
    signature: Signature


@dataclass(frozen=True, slots=True)
class ReductionEnded(TrialEvent):
    """The reduction has ended, with or without a repro."""
