"""What was compiled after a warm-up: after a mark in the recording, which the program or `--after` has set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from dynadiag.explanation.formatting import count
from dynadiag.explanation.source import ExplainedRecording
from dynadiag.recording.records import (
    Break,
    Compile,
    Graph,
    Guard,
    Kernel,
    Recompile,
    SkippedFrame,
    Symbol,
)

MARK, LAST_CALL = "dynadiag_warm_up", "dynadiag_last_warm_call"  # artifacts: the end of it, and of its last call
_BACKWARD = "bwd_compilation_metrics"

R = TypeVar("R", Break, Compile, Graph, Guard, Kernel, Recompile, Symbol)


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The end of a warm-up: after so many ``calls`` of the first compiled function (None: where the program says so).

    ``before`` is the number of compiles that began before it, ``late`` are those that began later, or whose backward
    was compiled later: ``backwards`` of those alone.
    """

    calls: int | None
    before: int
    late: tuple[str, ...]
    backwards: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What it comes to, in a sentence."""
        when = "" if self.calls is None else f" of {count(self.calls, 'call')}"
        if not self.late:
            return f"Nothing was compiled after the warm-up{when}."
        return f"{count(len(self.late), 'compile')} came after the warm-up{when}."

    def named(self, compiled: Compile) -> str:
        """What was compiled late: a function, or only the backward of one."""
        return f"the backward of {compiled.function}" if compiled.compile_id in self.backwards else compiled.function


def read_warm_up(recording: ExplainedRecording) -> WarmUp | None:
    """Read the first mark of a recording, and what was compiled after it. None where there is no mark.

    That of `--after` counts before those of the program. Where no call came after those of `--after` it ends with the
    last of them. The backward of that call belongs to it.
    """
    marks = [event for event in recording.events("artifact") if event.name in (MARK, LAST_CALL)]
    if not marks:
        return None
    first = min(marks, key=lambda event: (not recording.payload(event.index), event.name != MARK))
    mark, times, late, before = first.index, Counter[str](), list[str](), 0
    for event in recording.events("dynamo_start"):
        if event.attempt:  # torch starts a compile again after it met a break
            continue
        times[event.compile_id] += 1
        again = times[event.compile_id]
        id_ = event.compile_id if again == 1 else f"{event.compile_id}#{again}"
        if event.index > mark:
            late.append(id_)
        else:
            before += 1
    later = recording.events(_BACKWARD) if first.name == MARK else ()
    backwards = [event.compile_id for event in later if event.index > mark]
    backwards = [each for each in dict.fromkeys(backwards) if each not in late]
    text = recording.payload(mark)
    return WarmUp(int(text) if text.isdecimal() else None, before, (*late, *backwards), tuple(backwards))


def no_warm_up(calls: int | None, known: WarmUp | None) -> str | None:
    """Say why a recording has no warm-up of so many calls. None where it has, or where no number is asked for."""
    if calls is None or (known is not None and known.calls == calls):
        return None
    others = "" if known is None or known.calls is None else f", but one of {count(known.calls, 'call')}"
    return (
        f"no warm-up of {count(calls, 'call')} is recorded{others}: the program was not recorded with this `--after`, "
        "or did not call the first compiled function so often"
    )


class AfterWarmUp:
    """A recording without what was compiled before the end of the warm-up."""

    def __init__(self, recording: ExplainedRecording, late: Collection[str]) -> None:
        self._recording, self._late = recording, set(late)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recording, name)

    def _only(self, records: Iterable[R]) -> Iterator[R]:
        return (each for each in records if each.compile_id in self._late)

    def compiles(self) -> tuple[Compile, ...]:
        return tuple(self._only(self._recording.compiles()))

    def breaks(self) -> tuple[Break, ...]:
        return tuple(self._only(self._recording.breaks()))

    def recompiles(self) -> tuple[Recompile, ...]:
        return tuple(self._only(self._recording.recompiles()))

    def graphs(self, compile_id: str | None = None) -> tuple[Graph, ...]:
        return tuple(self._only(self._recording.graphs(compile_id)))

    def guards(self, compile_id: str | None = None) -> tuple[Guard, ...]:
        return tuple(self._only(self._recording.guards(compile_id)))

    def symbols(self) -> tuple[Symbol, ...]:
        return tuple(self._only(self._recording.symbols()))

    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(self._only(self._recording.kernels()))

    def skipped(self) -> tuple[SkippedFrame, ...]:
        """None: of a function that torch skips it is not known when."""
        return ()
