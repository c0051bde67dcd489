"""The comparison: every variant is set up once, then all are measured in turn, round by round.

In turn, because a machine drifts (its clock, its other users): what happens to one variant happens to all. Every other
round goes backwards, so that none always follows the same one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from dynadiag.compare.compiled import read
from dynadiag.compare.row import Gpu, Peak, Row
from dynadiag.compare.subject import Subject, VariantFailed
from dynadiag.compare.variant import Variant
from dynadiag.explain.warm import WARM
from dynadiag.trial.program import Program
from dynadiag.trial.signature import Signature
from dynadiag.trial.supervise import Limits
from dynadiag.trial.workplace import Workplaces, environment_of, own_caches

__all__ = ["Comparison", "Settings", "compare"]

Tell = Callable[[int, str, str, float], None]
_NOT_RUN = Signature("interrupted", "interrupted", "not measured: the comparison was interrupted")


@dataclass(frozen=True, slots=True)
class Settings:
    """``seconds`` is how long one variant is measured in one round; ``limits`` holds for its first calls together, and
    for each round. ``fresh`` starts each variant with empty compiler caches in a folder of its own. ``inputs`` names a
    function of the target's file that gives further arguments; each variant is called once with each."""

    rounds: int = 5
    seconds: float = 0.2
    limits: Limits = field(default_factory=lambda: Limits.default(600.0))
    fresh: bool = False
    inputs: str | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rows in the order of the variants; ``interrupted`` where not all rounds were run."""

    rows: tuple[Row, ...]
    interrupted: bool

    def eager(self, variant: Variant) -> Row | None:
        """The uncompiled row that a variant is held against: the one under the same autocast."""
        found = (row for row in self.rows if row.variant.is_eager and row.variant.amp == variant.amp)
        return next(found, None)


def compare(program: Program, chosen: Sequence[Variant], folder: Path, settings: Settings, tell: Tell) -> Comparison:
    """Measure the variants of a target; their recordings are made in ``folder``.

    ``tell(number, label, status, seconds)`` is called as it goes on. On Ctrl-C what was measured until then is
    returned; variants that have made their first calls are measured once where they were not yet.

    Raises `TargetError` where the target gives no call.
    """
    with _Race(program, folder, settings, tell) as race:
        try:
            for variant in chosen:
                race.start(variant)
            race.first()
            for number in range(settings.rounds):
                race.round(number)
            race.inputs()
            race.count()
            race.warm()
        except KeyboardInterrupt:
            race.interrupted = True
            with suppress(KeyboardInterrupt):  # asked twice: what there is
                race.finish()
    rows = (_read(race.rows.get(variant, Row(variant, _NOT_RUN))) for variant in chosen)
    return Comparison(tuple(_cut_short(row) for row in rows), race.interrupted)


def _read(row: Row) -> Row:
    """The row with what its recording says; without, where the process never came to record."""
    if row.recording is None or not row.recording.exists():
        return replace(row, recording=None)
    return replace(row, compiled=read(row.recording))


def _cut_short(row: Row) -> Row:
    """A row without a single round has no result, and says so."""
    return replace(row, failure=_NOT_RUN) if row.failure is None and not row.rounds else row


class _Race:
    """The processes of the variants that have not failed, and the rows so far."""

    def __init__(self, program: Program, folder: Path, settings: Settings, tell: Tell) -> None:
        self.rows: dict[Variant, Row] = {}
        self._program, self._folder, self._settings, self._tell = program, folder, settings, tell
        self._running: dict[Variant, Subject] = {}
        self._places = Workplaces(own_headers=settings.fresh)
        self._told = 0
        self.interrupted = False

    def __enter__(self) -> _Race:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for subject in self._running.values():
            subject.kill() if self.interrupted or kind else subject.end()
        self._places.remove()

    def start(self, variant: Variant) -> None:
        """Load the function in a process of its own: a wrong name is found before anything is compiled."""
        place = self._folder / f"{len(self.rows):02}-{_file_name(variant)}.dynadiag"
        self.rows[variant] = Row(variant, recording=place)
        program = replace(self._program, name=variant.name)
        limits, variables = self._settings.limits, self._environment(variant)
        self._running[variant] = Subject(program, variant, place, limits, variables)
        self._ask(variant, "load")

    def first(self) -> None:
        """Make the first calls of each, one variant after the other."""
        for variant in list(self._running):
            answer = self._ask(variant, "first")
            if answer is not None:
                first = tuple(answer["seconds"])
                self.rows[variant] = replace(
                    self.rows[variant],
                    first=first,
                    first_peak=Peak(**answer["memory"]),
                    torch=answer["torch"],
                    threads=answer["threads"],
                    device=answer["device"],
                )
                self._said(f"{variant.name}: {variant.label}", "first call", first[0])

    def round(self, number: int) -> None:
        """Measure each once more."""
        began = time.monotonic()
        order = list(self._running)
        for variant in order if number % 2 == 0 else reversed(order):
            self._measure(variant)
        self._said(f"round {number + 1} of {self._settings.rounds}", "measured", time.monotonic() - began)

    def _measure(self, variant: Variant) -> None:
        answer = self._ask(variant, "round", seconds=self._settings.seconds)
        if answer is not None:
            row = self.rows[variant]
            rounds = (*row.rounds, tuple(answer["times"]))
            self.rows[variant] = replace(row, rounds=rounds, warm_peak=Peak(**answer["memory"]))

    def finish(self) -> None:
        """Give those that are ready and were not measured the one round that makes them a row."""
        ready = [variant for variant in self._running if self.rows[variant].first and not self.rows[variant].rounds]
        for variant in ready:
            self._measure(variant)

    def inputs(self) -> None:
        """Call each with other arguments, after it was timed: new shapes may make for slower code."""
        for variant in list(self._running) if self._settings.inputs else ():
            answer = self._ask(variant, "inputs", name=self._settings.inputs)
            if answer is not None:
                self.rows[variant] = replace(self.rows[variant], inputs=tuple(answer["seconds"]))

    def count(self) -> None:
        """What one call runs on a GPU."""
        for variant in list(self._running):
            answer = self._ask(variant, "count")
            if answer is not None and "gpu" in answer:
                self.rows[variant] = replace(self.rows[variant], gpu=Gpu(**answer["gpu"]))

    def warm(self) -> None:
        """Which compiled code warm calls run, for their recordings."""
        for variant in [one for one in self._running if not one.is_eager]:
            subject = self._running[variant]
            answer = self._ask(variant, "warm", seconds=self._settings.seconds)
            if answer is not None:
                subject.note(WARM, answer["warm"])

    def _ask(self, variant: Variant, what: str, **how: Any) -> dict[str, Any] | None:
        """The answer of a variant, or None where it failed, which its row then says."""
        began = time.monotonic()
        try:
            return self._running[variant].ask(what, **how)
        except VariantFailed as failed:
            del self._running[variant]
            self.rows[variant] = replace(self.rows[variant], failure=failed.signature)
            self._said(f"{variant.name}: {variant.label}", f"failed: {failed.signature.type}", time.monotonic() - began)
            return None
        except KeyboardInterrupt:  # it is gone: nobody waits for the end of what it was doing
            del self._running[variant]
            raise

    def _said(self, label: str, status: str, seconds: float) -> None:
        self._told += 1
        self._tell(self._told, label, status, seconds)

    def _environment(self, variant: Variant) -> Mapping[str, str]:
        """The program's own, as trials have it. Uncompiled: nothing in the function compiles itself either."""
        scratch = self._places.scratch()
        environment = environment_of(scratch, {})
        if variant.is_eager:
            environment["TORCHDYNAMO_DISABLE"] = "1"
        if self._settings.fresh:
            environment |= own_caches(Path(scratch))
        return environment


def _file_name(variant: Variant) -> str:
    return f"{variant.name}-{variant.label}".replace(", ", "-").replace(" ", "-").replace("/", "_")
