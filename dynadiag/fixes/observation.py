"""The task of a trial of a fix, and the events that it reports. Imports no torch: the search reads it too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from dynadiag.trial.events import HookEvent

CALL_BUILTIN = "__dynadiag_call__"  # the builtin decorator of a function, or a module, whose calls are compared
SIDE_BUILTIN = "__dynadiag_side__"  # the builtin that an instrumented condition asks

MAX_DIFFERENCES = 20  # reported differences of one trial, rounding aside; the first decides


@dataclass(frozen=True, slots=True)
class Observation:
    """The task of one trial (`Plan.task`, as JSON).

    ``journal`` is where the trial records what torch does. ``stderr`` is the file that gets its standard error, which
    otherwise goes where its standard output goes. ``records`` is the file with the results of the compiled calls: it is
    written where ``uncompiled`` is true (the unchanged program), and compared with otherwise. ``own_records`` is where
    a run that compares writes its own. ``compiled_records`` are those that the unchanged program made in this way: what
    does as they say is right, too. ``seed`` is for a program that seeds nothing; ``seeds_first_call`` seeds again at
    the first compiled call, as in a fork from there. ``root`` is the folder of the user's modules. ``time_calls``
    measures a warm call at the end. ``changed_modules`` are modules of packages by name, with the file that is loaded
    in the place of each. ``libraries`` are files of packages whose globals count as the user's.
    ``parts`` looks for the parts of the model that are whole, in a program that runs uncompiled.
    ``sides`` are branches of which both sides are wanted. ``as_tensors`` are attributes that the candidate turns from
    numbers into tensors.
    """

    journal: str | None = None
    stderr: str | None = None
    records: str | None = None
    own_records: str | None = None
    compiled_records: str | None = None
    uncompiled: bool = False
    time_calls: bool = False
    parts: bool = False
    inputs: str = "all"  # "all" | "finite" | "not finite": which records a run compares
    seed: int = 0
    seeds_first_call: bool = False
    root: str = ""
    libraries: tuple[str, ...] = ()
    changed_modules: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 10.0  # for other inputs
    sides: tuple[str, ...] = ()
    as_tensors: tuple[str, ...] = ()

    @property
    def roots(self) -> tuple[str, ...]:
        """What the paths of the modules begin with whose globals, and whose own exceptions, are compared."""
        return (self.root, *self.libraries, *self.changed_modules.values()) if self.root else ()

    def compares(self, inputs: str) -> bool:
        """Whether a run compares the calls with inputs of this name. Those of the program always count."""
        finite = inputs.removeprefix("state ") not in ("nan", "inf", "-inf") and not inputs.endswith(" nan")
        return self.inputs == "all" or finite == (self.inputs == "finite")

    def to_task(self) -> str:
        """The observation as the text of a plan's task."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_task(cls, task: str) -> Observation:
        """The observation in a plan's task."""
        return msgspec.json.decode(task, type=cls)


@dataclass(frozen=True, slots=True)
class CallDiffers(HookEvent):
    """A compiled call of the candidate differs from the unchanged program's. ``what`` names the obligation."""

    call: int
    inputs: str
    what: str  # "output" | "results" | "gradients" | "mutations" | "random" | "printed" | "error"
    text: str
    rounding: bool = False


@dataclass(frozen=True, slots=True)
class CallsCompared(HookEvent):
    """All recorded calls were compared. ``calls`` and ``inputs`` count them and their inputs.

    ``gradients``: one of them could be differentiated. ``spread`` is the largest `CallRecord.spread` of the unchanged
    program, where it makes records of its own.
    """

    calls: int
    inputs: int
    gradients: bool
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class CompiledOperators(HookEvent):
    """How many operators on tensors ran in Dynamo's graphs.

    ``ran`` counts each as often as its graph was called. ``once`` is the sum over the functions of their largest
    graphs, wherever torch gave up later, as at a limit of recompiles. ``calls`` are those of all graphs.
    """

    ran: int
    once: int
    calls: int = 0


@dataclass(frozen=True, slots=True)
class WholeParts(HookEvent):
    """The modules of a model by name (``encoder.layers.0``), and those that torch compiles as one graph each, without
    what is inside of another one.
    """

    modules: tuple[str, ...]
    whole: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SideTaken(HookEvent):
    """A branch of the unchanged program went to this side, with the program's own inputs or with others."""

    key: str
    side: bool
    inputs: str


@dataclass(frozen=True, slots=True)
class VariantRun(HookEvent):
    """The unchanged program ran with these inputs."""

    call: int
    inputs: str
    error: str | None


@dataclass(frozen=True, slots=True)
class WarmCallTime(HookEvent):
    """The shortest time of one warm call, in seconds."""

    seconds: float
