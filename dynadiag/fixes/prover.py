"""Proves candidates. The unchanged program is measured once; each changed one is run and checked against obligations.

The cheap runs come first: a candidate that the recorded run rejects is not timed again, and its calls are not compared.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from dynadiag.fixes.candidate import Candidate, Condition
from dynadiag.fixes.edits import Edit, EditConflict
from dynadiag.fixes.printed_output import ROUNDING, UNSTABLE, last_exception, mask_unstable, spread_of
from dynadiag.fixes.problems import FixProblem, RunSummary
from dynadiag.fixes.proof import (
    ALIKE,
    COMPARISONS,
    RAN,
    RECORDED,
    TIMED,
    Obligations,
    Proof,
    UnchangedProgram,
    first_objection,
)
from dynadiag.fixes.trials import RecordedRun, ReferenceRun, Trials

_TIMED_AGAIN = 2  # how often both programs are timed again before one counts as slower
_OTHER_INPUTS_SECONDS = 5.0  # for the runs with other inputs


class NothingToProve(Exception):  # noqa: N818 - an outcome of the search
    """No change can be proved. The message says why, and ``exit_code`` is that of `dynadiag fix`."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def refuse_failing(trials: Trials, first: RecordedRun) -> None:
    """Raise `NothingToProve` for a program without a problem that fails."""
    if first.outcome.exit_code != 0:
        plain = trials.recorded("unchanged, uncompiled", rung="uncompiled", fresh=True)
        refuse_failing_uncompiled(plain)
        found = "there is nothing to fix: no graph break and no recompile"
        failed = f"the program fails only where it is compiled, with {_ended(first)}"
        raise NothingToProve(f"{found}; {failed}: `dynadiag explain` and `dynadiag bisect` say more", 3)


def refuse_failing_uncompiled(plain: RecordedRun) -> None:
    """Raise `NothingToProve` if a run without torch.compile fails: there is nothing to compare a change with."""
    if plain.outcome.exit_code != 0:
        raise NothingToProve(f"the program fails uncompiled: {_ended(plain)}", 4)


def _ended(run: RecordedRun | ReferenceRun) -> str:
    """The exception that ended a run, or its exit code."""
    return last_exception(f"{run.printed}\n{run.outcome.tail}") or f"exit code {run.outcome.exit_code}"


@dataclass(slots=True)
class Prover:
    """The proofs of one search. ``conditions`` are those of all candidates so far, whose both sides have to be seen."""

    trials: Trials
    unchanged: UnchangedProgram = field(init=False)
    conditions: list[Condition] = field(default_factory=list)
    _tried: dict[tuple[Edit, ...], Proof] = field(default_factory=dict)
    _first: RecordedRun = field(init=False)  # the unchanged program in a fresh interpreter
    _again: RecordedRun | None = None  # a second one
    _compiled_spread: float = 0.0  # between two runs of the unchanged program

    def measure_unchanged(self, first: RecordedRun) -> None:
        """Run the unchanged program as a fork, and uncompiled. ``first`` is its run in a fresh interpreter.

        Raises `NothingToProve` if it fails uncompiled too, or its calls cannot be recorded.
        """
        recorded = self.trials.recorded("as written, for comparison")
        self._first, first = first, self._second_run(first, recorded)
        reference = self.trials.reference(self.conditions, _OTHER_INPUTS_SECONDS)
        code = recorded.outcome.exit_code
        failed = reference.outcome.exit_code != 0
        plain = self.trials.recorded("unchanged, uncompiled", rung="uncompiled") if code != 0 else None
        if plain is not None and failed:
            refuse_failing_uncompiled(plain)
        if (plain is not None and failed) or not reference.records.exists():
            raised = last_exception(reference.errors) or _ended(reference)
            raise NothingToProve(f"nothing can be proved: the trial that records the calls ended with {raised}", 1)
        printed = mask_unstable(recorded.printed, first.printed)
        self._compiled_spread = spread_of(recorded.printed, first.printed)
        if plain is not None:  # it fails only compiled, so a change has to make it as it is uncompiled
            code, printed, recorded = plain.outcome.exit_code, plain.printed, replace(recorded, files=plain.files)
        files = {name: mask_unstable(text, first.files.get(name, "")) for name, text in recorded.files.items()}
        stable = UNSTABLE not in printed
        self.unchanged = UnchangedProgram(recorded, reference, printed, stable, code, recompiles_last=True, files=files)

    def _second_run(self, first: RecordedRun, recorded: RecordedRun) -> RecordedRun:
        """A run beside ``recorded``, to see what differs from run to run: that in a fresh interpreter. Trials that
        begin at the first compiled call print less; where ``first`` ends as ``recorded`` does, nothing differs.
        """
        if not self.trials.from_first_call:
            return first
        same_files = all(first.files.get(name) == text for name, text in recorded.files.items())
        if same_files and first.printed.endswith(recorded.printed):
            return recorded
        return self.trials.recorded("as written, again")

    def as_from_beginning(self, unchanged: UnchangedProgram, changed: RecordedRun | None = None) -> UnchangedProgram:
        """The unchanged program as it prints and writes when it runs from its beginning in a fresh interpreter. It runs
        once more, to see what differs from run to run, unless what ``changed`` prints and writes is the same.
        """
        if not self.trials.from_first_call:
            return unchanged
        if changed is not None and (changed.printed, changed.files) == (self._first.printed, self._first.files):
            return replace(unchanged, printed=self._first.printed, files=self._first.files)
        if self._again is None:
            self._again = self.trials.recorded("as written, in a fresh interpreter", fresh=True)
        again = self._again
        files = {name: mask_unstable(text, again.files.get(name, "")) for name, text in self._first.files.items()}
        return replace(unchanged, printed=mask_unstable(self._first.printed, again.printed), files=files)

    def _see_what_is_new(self) -> None:
        """Run the unchanged program again if there are new conditions, to find inputs for both sides, or new files of
        packages whose globals are compared.
        """
        seen = self.unchanged.reference
        if set(self.conditions) - set(seen.conditions) or self.trials.libraries - seen.libraries:
            reference = self.trials.reference(self.conditions, _OTHER_INPUTS_SECONDS)
            self.unchanged = replace(self.unchanged, reference=reference)
            self._tried = {edits: replace(proof, compared=None) for edits, proof in self._tried.items()}

    def prove(
        self, problems: tuple[FixProblem, ...], candidate: Candidate, before: RunSummary
    ) -> tuple[Proof | None, str | None]:
        """The proof of a candidate, and why it is rejected; ``None`` if it is proved. There is no proof of edits that
        conflict.

        It has to remove ``problems``; ``before`` is what the program without it has. Runs that were made for the same
        edits are not made again.
        """
        self._see_what_is_new()
        try:
            known = self._recorded(candidate)
        except EditConflict as conflict:
            return None, str(conflict)
        proof = Proof(problems, candidate, self.unchanged, before, known.recorded, known.compared)
        proof, why = self._judged(proof, RECORDED)
        if why is not None:
            return proof, why
        proof = self.timed(proof)
        if (why := first_objection(proof, TIMED)) is not None:
            return proof, why
        if proof.compared is None:
            proof = self._compared(proof)
        self._tried[candidate.edits] = proof
        return self._judged(proof, COMPARISONS)

    def causes_with(self, candidate: Candidate) -> Collection[str] | None:
        """The causes that the program with a change has; ``None`` if it ends otherwise, or the edits conflict."""
        try:
            recorded = self._recorded(candidate).recorded
        except EditConflict:
            return None
        return recorded.summary.causes if recorded.outcome.exit_code == self.unchanged.exit_code else None

    def _recorded(self, candidate: Candidate) -> Proof:
        """What is known of a change: at least its recorded run. Raises `EditConflict`."""
        if candidate.edits not in self._tried:
            recorded, before = self.trials.recorded(candidate.title, candidate.edits), self.unchanged.recorded.summary
            self._tried[candidate.edits] = Proof((), candidate, self.unchanged, before, recorded)
        return self._tried[candidate.edits]

    def _judged(self, proof: Proof, obligations: Obligations) -> tuple[Proof, str | None]:
        """The objection to a proof. If it is a decimal number that is printed, the unchanged program runs uncompiled
        first, to show by how much such numbers differ from those of its compiled runs.
        """
        why, unchanged = first_objection(proof, obligations), self.unchanged
        if why is None or unchanged.spread is not None or unchanged.recorded.outcome.exit_code != 0:
            return proof, why
        if first_objection(_with_spread(proof, ROUNDING), obligations) is not None:
            return proof, why
        plain = self.trials.recorded("unchanged, uncompiled", rung="uncompiled")
        spread = max(self._compiled_spread, spread_of(unchanged.recorded.printed, plain.printed))
        self.unchanged = replace(unchanged, spread=spread)
        proof = _with_spread(proof, spread)
        return proof, first_objection(proof, obligations)

    def _compared(self, proof: Proof) -> Proof:
        """The proof with the calls compared: where they differ, with those of the unchanged program compiled, too."""
        label, reference = f"{proof.candidate.title}, with other inputs", self.unchanged.reference
        made = replace(proof, compared=self.trials.compared(label, proof.candidate, reference))
        known = reference.compiled is not None or first_objection(made, RAN) is not None
        if known or first_objection(made, ALIKE) is None:
            return made
        reference = self.trials.with_compiled(reference)
        self.unchanged = replace(self.unchanged, reference=reference)
        made = replace(made, baseline=replace(made.baseline, reference=reference))
        if not reference.has_other_results:
            return made
        return replace(made, compared=self.trials.compared(label, made.candidate, reference))

    def timed(self, proof: Proof, *, fresh: bool = False) -> Proof:
        """The proof, with the shortest times of more runs of both programs where the changed one seems slower: the
        machine may have been busy. ``fresh`` runs it in a fresh interpreter.
        """
        for _ in range(_TIMED_AGAIN):
            if first_objection(proof, TIMED) is not None:
                before, label = proof.baseline.recorded, f"{proof.candidate.title}, timed again"
                first = self.trials.recorded("as written, timed again")
                second = self.trials.recorded(label, proof.candidate.edits, fresh=fresh, timed=True)
                baseline = replace(proof.baseline, recorded=_shorter(before, first))
                proof = replace(proof, baseline=baseline, recorded=_shorter(proof.recorded, second))
        return proof


def _with_spread(proof: Proof, spread: float) -> Proof:
    return replace(proof, baseline=replace(proof.baseline, spread=spread))


def _shorter(one: RecordedRun, other: RecordedRun) -> RecordedRun:
    times = [run.warm for run in (one, other) if run.warm is not None]
    return replace(one, warm=min(times, default=None))
