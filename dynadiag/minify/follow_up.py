"""Answers with trials what a maintainer asks of a proved repro: which values differ, and what the failure depends on.

The values are those that the repro's assertion compares, in a run as written and in an uncompiled one: the side that
differs between the two is what compiled code gives. A neighbour is the repro with one option changed; it says something
only if it passes uncompiled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from dynadiag.bisection.budget import SearchStoppedError
from dynadiag.bisection.ladder import rung_plan
from dynadiag.bisection.trial_search import TrialSearch
from dynadiag.minify.minify_result import ComparedDocument, MinifyResult, NeighbourDocument, ValueRow
from dynadiag.minify.proof import ReproTrialLog, matcher_of, search_of_repro
from dynadiag.trial.events import HookEvent
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.program import Program

_SHOWS = ("dynadiag.minify.shown_values", "show_values")  # it loads torch
_UNCOMPILED = rung_plan(Plan(), "uncompiled")
# A key of the caches does not have all that a neighbour may leave out, such as a changed lowering.
_COMPILED = Plan(caches=False)
_MAX_NEIGHBOURS = 8  # each costs a compile; a reduced program rarely has more options
_SECONDS = 60.0  # for all trials together
_TRIAL_TIMEOUT = 30.0  # as that of the bisection of the repro


@dataclass(frozen=True, slots=True)
class ValuesCompared(HookEvent):
    """Two values are compared. ``digests`` are of their bits, ``rows`` are places with both values where they differ.

    ``apart`` of ``total`` elements are not equal in the first tensor that differs, 0 of 0 if it is no tensor.
    """

    digests: tuple[str, str]
    rows: tuple[tuple[str, str, str], ...]
    apart: int = 0
    total: int = 0


def with_follow_up(search: TrialSearch, folder: Path, result: MinifyResult) -> MinifyResult:
    """Return the result with the values that differ and the neighbours of its proved repro, if time suffices.

    Without forks, where each trial would take seconds, and for a hang it is the result as it was.
    """
    if not search.runner.has_forks or result.failure is None or result.failure.kind == "hang":
        return result
    search.on_message("changing one option of the repro at a time")
    asked = _FollowUp(search, folder, result)
    try:
        result = replace(result, compared=asked.compared())
        return replace(result, neighbours=tuple(asked.neighbours()))
    except SearchStoppedError as stop:
        left_out = f"not all neighbours of the repro were tried: {stop}"
        return replace(result, neighbours=tuple(asked.tried), notes=(*result.notes, left_out))


class _FollowUp:
    def __init__(self, search: TrialSearch, folder: Path, result: MinifyResult) -> None:
        self._search, self._file, self._result = search, folder / "neighbour.py", result
        self._budget = search.budget.part(_SECONDS)
        self._same = matcher_of(result)
        self.tried: list[NeighbourDocument] = []

    def compared(self) -> ComparedDocument | None:
        """The values that differ; None if the repro compares no two values, or both of them change."""
        from minifier.source.assertions import handing_over_program  # loads the minifier: not for the help

        made = handing_over_program(self._result.text, *_SHOWS)
        if made is None:
            return None
        text, sources = made
        run = self._runs(text, "the values that the repro compares")
        uncompiled, compiled = _event(run(_UNCOMPILED)), _event(run(_COMPILED))
        if compiled is None or uncompiled is None:
            return None
        left, right = (a != b for a, b in zip(compiled.digests, uncompiled.digests, strict=True))
        if left == right or not compiled.rows:
            return None
        rows = (ValueRow(where, *((b, a) if left else (a, b))) for where, a, b in compiled.rows)
        return ComparedDocument(sources[right], tuple(rows), compiled.apart, compiled.total)

    def neighbours(self) -> list[NeighbourDocument]:
        """The neighbours that pass uncompiled, and how they end compiled; none if the repro passes in a fork, as they
        would. Those are kept that were tried before the time ends.
        """
        from minifier.source.neighbours import neighbours  # as above

        if self._status(self._runs(self._result.text, "the repro in a fork")(_COMPILED)) != "same":
            return []
        for each in islice(neighbours(self._result.text), _MAX_NEIGHBOURS):
            run = self._runs(each.text, f"with {each.now}" if each.now else f"without {each.was}")
            if not run(_UNCOMPILED).passed:
                continue
            ended = run(_COMPILED)
            if ended.invalid is None and not ended.is_hang:  # else short of memory, or of time: its limit is short
                self.tried.append(NeighbourDocument(each.kind, each.was, each.now, self._status(ended)))
        return self.tried

    def _status(self, outcome: Outcome) -> str:
        expected = self._result.reduced or self._result.failure
        assert expected is not None
        return "pass" if outcome.passed else "same" if self._same(outcome.signature, expected) else "different"

    def _runs(self, text: str, label: str) -> Callable[[Plan], Outcome]:
        """A function that runs the text with a plan, in a fork."""
        rows = ReproTrialLog(self._search.log, text)

        def run(plan: Plan) -> Outcome:
            self._file.write_text(text)
            with self._search.runner.for_program(Program(str(self._file))) as forks:
                forks.limits = replace(forks.limits, seconds=min(forks.limits.seconds, _TRIAL_TIMEOUT))
                trials = replace(search_of_repro(self._search, forks, rows), budget=self._budget)
                return trials.run(plan, f"{label}, uncompiled" if plan is _UNCOMPILED else label)

        return run


def _event(outcome: Outcome) -> ValuesCompared | None:
    """What the last comparison reported."""
    events = [event for event in outcome.hook_events if isinstance(event, ValuesCompared)]
    return events[-1] if events else None
