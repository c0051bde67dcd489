"""Where the time went: in which compiles, first or again, and in which part of the compiler.

A recording has the times of compiles, not of calls. The slow first call is the first compile of each frame it
reaches; a later call is slow because some frame is compiled again, or for the first time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from dynadiag.explanation.alike_modules import AlikeModules, alike_modules
from dynadiag.explanation.changes import by_frequency, main_changes
from dynadiag.explanation.guard_text import what_changed
from dynadiag.recording.records import Compile, Guard, GuardFailure, Recompile, Seconds

PARTS = ("dynamo", "aot", "backend", "inductor", "codegen", "cached", "other")
_SLOW = 5.0  # seconds of a compile from which on it is worth while to compile its modules apart


@dataclass(frozen=True, slots=True)
class PhaseShare:
    """A part of the compiler and the seconds spent in it alone."""

    part: str  # of PARTS
    seconds: float


@dataclass(frozen=True, slots=True)
class CompileTime:
    """One compile that took time; ``again`` where its frame had been compiled before, ``because`` of what."""

    compile: Compile
    again: bool
    because: str | None  # what changed
    seconds: float
    shares: tuple[PhaseShare, ...]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of compiling in all, in first compiles and in later ones, and each compile, the slowest first.

    ``alike`` are the modules of slow compiles that could share their code.
    """

    total: float
    first_compiles: float
    recompiles: float
    shares: tuple[PhaseShare, ...]
    spent: tuple[CompileTime, ...]
    hits: int  # compiles whose code came from the FX graph cache
    alike: tuple[AlikeModules, ...] = ()


def timing(
    compiles: Sequence[Compile],
    recompiles: Sequence[Recompile] = (),
    lowered: Collection[str] = (),
    guards: Iterable[Guard] = (),
) -> Timing | None:
    """The times of a run; ``None`` where no compile has any. ``lowered`` compiles have a graph later than Dynamo's."""
    reasons = {(item.compile_id, item.function): item.reasons for item in by_frequency(recompiles)}
    spent = [
        CompileTime(
            item,
            _is_again(item.compile_id),
            _main(reasons.get((item.compile_id, item.function), ())),
            item.seconds.total,
            shares(item.seconds, _backend_part(item, lowered)),
        )
        for item in compiles
        if item.seconds.total is not None
    ]
    if not spent:
        return None
    again = sum(item.seconds for item in spent if item.again)
    total = sum(item.seconds for item in spent)
    slowest = tuple(sorted(spent, key=lambda item: -item.seconds))
    hits = sum(item.compile.cache == "hit" for item in spent)
    alike = alike_modules(guards, [item.compile.compile_id for item in slowest if item.seconds >= _SLOW])
    return Timing(total, total - again, again, _sum(item.shares for item in spent), slowest, hits, alike)


def _main(reasons: Sequence[GuardFailure]) -> str | None:
    """What changed, in the words of the finding on that recompile."""
    own = main_changes(reasons)
    return what_changed(own[0]).removesuffix(" changed") if own else None


def _is_again(compile_id: str) -> bool:
    """Whether the last part counts from the frame's first compile (``0/0``). Ids begin anew after
    ``torch._dynamo.reset()``: ``0/0#2`` is a first compile again."""
    own = compile_id.partition("#")[0]
    return own.rpartition("/")[2] not in ("0", own)


def _backend_part(item: Compile, lowered: Collection[str]) -> str:
    """Return the part that the time of a backend is spent in, but for Inductor's own.

    Of a compile whose code came from the cache torch times no part of the backend: all of it is "cached" then. That of
    one without a later graph than Dynamo's is only the "backend", because nothing shows that AOTAutograd ran.
    """
    if item.seconds.inductor or item.seconds.codegen:
        return "aot"
    if item.cache == "hit":
        return "cached"
    return "aot" if item.compile_id in lowered else "backend"


def shares(seconds: Seconds, backend: str = "aot") -> tuple[PhaseShare, ...]:
    """The nested times of a compile as parts that add up to its total; parts of no length are left out.

    A clock that ran unevenly may make an inner time longer than the outer one: its excess is not counted twice.
    ``backend`` is the part that is not Inductor's own.
    """
    total = seconds.total or 0.0
    dynamo = min(seconds.dynamo or 0.0, total)
    aot = min(max(seconds.aot or 0.0, seconds.inductor or 0.0, seconds.codegen or 0.0), total - dynamo)
    inductor = min(max(seconds.inductor or 0.0, seconds.codegen or 0.0), aot)
    codegen = min(seconds.codegen or 0.0, inductor)
    parts = (
        PhaseShare("dynamo", dynamo),
        PhaseShare(backend, aot - inductor),
        PhaseShare("inductor", inductor - codegen),
        PhaseShare("codegen", codegen),
        PhaseShare("other", total - dynamo - aot),
    )
    return tuple(part for part in parts if part.seconds > 0)


def _sum(each: Iterable[tuple[PhaseShare, ...]]) -> tuple[PhaseShare, ...]:
    found: dict[str, float] = {}
    for parts in each:
        for part in parts:
            found[part.part] = found.get(part.part, 0.0) + part.seconds
    return tuple(PhaseShare(part, seconds) for part, seconds in found.items())
