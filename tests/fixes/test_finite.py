"""A change that is right for finite numbers alone: what is left without it is held to NaN and infinity."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dynadiag.fixes.candidate import Candidate
from dynadiag.fixes.edits import Edit
from dynadiag.fixes.observation import CallDiffers
from dynadiag.fixes.proof import COMPARISONS, first_objection
from dynadiag.fixes.trials import ComparedRun, ReferenceRun, Trials
from dynadiag.trial.outcome import Outcome
from tests.fixes.test_proof import COMPARED_RUN, PROVED, REFERENCE

FINITE, OTHER = Edit("f.py", 0, 1, "a"), Edit("f.py", 5, 6, "b")
CANDIDATE = Candidate("t", "source", (FINITE, OTHER), "w", finite=(FINITE,))
DIFFERS = CallDiffers(0, "nan", "results", "NaN in 3 of 4 elements")


@pytest.mark.parametrize(
    ("others", "right"),
    [
        (COMPARED_RUN, True),
        (replace(COMPARED_RUN, differences=(DIFFERS,)), False),
        (replace(COMPARED_RUN, compared=None), False),
        (replace(COMPARED_RUN, outcome=Outcome(exit_code=1)), False),
    ],
    ids=["alike", "differs", "compares nothing", "fails"],
)
def test_the_run_without_what_is_for_finite_numbers_decides(
    monkeypatch: pytest.MonkeyPatch, others: ComparedRun, right: bool
) -> None:
    seen: list[tuple[tuple[Edit, ...], str]] = []

    def compared(
        _: Trials, _label: str, made: Candidate, _reference: ReferenceRun, inputs: str, *, fresh: bool
    ) -> ComparedRun:
        assert not fresh
        seen.append((made.edits, inputs))
        return others if inputs == "not finite" else COMPARED_RUN

    monkeypatch.setattr(Trials, "_compared_with", compared)
    nothing: Any = None
    run = Trials(nothing, nothing, nothing).compared("t", CANDIDATE, REFERENCE)
    assert (first_objection(replace(PROVED, compared=run), COMPARISONS) is None) == right
    assert seen == [((FINITE, OTHER), "finite"), ((OTHER,), "not finite")]
