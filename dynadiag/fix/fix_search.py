"""The search for fixes: candidates for each cause, each tried until one is proved, then all proved ones together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from dynadiag.fix.candidate import Candidate, Refusal, Sources
from dynadiag.fix.edits import Edit, EditConflict, apply_edits
from dynadiag.fix.fix_report import Evidence, Rejected
from dynadiag.fix.printed_output import UNSTABLE, mask_unstable
from dynadiag.fix.problems import FixProblem
from dynadiag.fix.project import Project
from dynadiag.fix.proof import (
    COMPARISONS,
    COUNTED,
    RECORDED,
    TIMED,
    Proof,
    UnchangedProgram,
    evidence_of,
    first_objection,
)
from dynadiag.fix.rewrites import CATALOGUE
from dynadiag.fix.trials import RecordedRun, Trials

__all__ = ["FailsUncompiled", "Fix", "FixResult", "find_fixes"]

_MAX_BEHIND = 6  # candidates that are tried again behind the proved fixes
_OTHER_INPUTS_SECONDS = 5.0  # for the runs with other inputs
Message = Callable[[str], None]


class FailsUncompiled(Exception):  # noqa: N818 - an outcome of the search
    """The program fails without torch.compile: there is nothing to compare a change with."""


@dataclass(frozen=True, slots=True)
class Fix:
    """One cause, with the candidate that is proved for it, if any, and the rejected ones with the reasons."""

    problem: FixProblem
    candidate: Candidate | None
    evidence: Evidence | None
    rejected: tuple[Rejected, ...]
    left: frozenset[str] = frozenset()  # identities of the causes that the program has with it


@dataclass(frozen=True, slots=True)
class FixResult:
    """All causes of a program. ``edits`` are those of all proved fixes, tried together, ``changed`` the new texts."""

    fixes: tuple[Fix, ...]
    edits: tuple[Edit, ...]
    changed: dict[str, str]
    evidence: Evidence | None
    torch: str | None = None


def find_fixes(trials: Trials, message: Message) -> FixResult:
    """Find and prove fixes for every cause in a program. Raises `FailsUncompiled`."""
    search = _Search(trials, message)
    return search.run()


@dataclass(slots=True)
class _Search:
    trials: Trials
    message: Message
    _sources: Sources = field(init=False)
    _tried: dict[tuple[Edit, ...], Proof] = field(default_factory=dict)
    _behind: list[tuple[FixProblem, Candidate]] = field(default_factory=list)  # rejected for causes that are left

    def __post_init__(self) -> None:
        self._sources = Sources(self.trials.project)

    @property
    def _project(self) -> Project:
        return self.trials.project

    def run(self) -> FixResult:
        self.trials.runner.warm_up()
        first = self.trials.recorded("as written", fresh=True)
        torch = first.explanation.run.torch if first.explanation else None
        if not first.problems:
            self._refuse_failing(first)
            return FixResult((), (), {}, None, torch)
        self.trials.runner.start_forks(first.outcome.facts.threads or 1, checkpoint=False)
        candidates = {problem: self._candidates(problem) for problem in first.problems}
        baseline = self._baseline(first, candidates)
        fixes = list[Fix]()
        for problem in sorted(first.problems, key=lambda each: each.kind):  # breaks first: recompiles may go with them
            gone = _gone_with(problem, fixes) if problem.kind == "recompile" else None
            broken = {fix.problem.function for fix in fixes if fix.candidate is None and fix.problem.kind == "break"}
            fitting = [_refused_in(broken, problem, each) for each in candidates[problem]]
            fixes.append(gone or self._fix(problem, fitting, baseline))
        return self._combine(self._tried_behind(fixes, baseline), baseline, torch)

    def _tried_behind(self, fixes: Sequence[Fix], baseline: UnchangedProgram) -> list[Fix]:
        """The fixes, and those of further causes that are proved together with them: one break may hide another."""
        found = {fix.problem: fix for fix in fixes}
        for problem, candidate in self._behind[:_MAX_BEHIND]:
            proved = [fix for fix in found.values() if fix.candidate is not None]
            if proved and found[problem].candidate is None:
                proof, why = self._prove_all([*proved, replace(found[problem], candidate=candidate)], baseline)
                if proof is not None and why is None:
                    found[problem] = replace(_proved(problem, proof, found[problem].rejected), candidate=candidate)
        return list(found.values())

    def _refuse_failing(self, first: RecordedRun) -> None:
        """Raise `FailsUncompiled` for a program without a problem that fails, compiled or not."""
        if first.outcome.exit_code != 0:
            plain = self.trials.recorded("unchanged, uncompiled", rung="uncompiled", fresh=True)
            if plain.outcome.exit_code != 0:
                raise FailsUncompiled(plain.outcome.tail)

    def _candidates(self, problem: FixProblem) -> tuple[Candidate | Refusal, ...]:
        found = (each for rewrite in CATALOGUE for each in rewrite.candidates(problem, self._sources))
        return tuple(found)

    def _baseline(
        self, first: RecordedRun, candidates: dict[FixProblem, tuple[Candidate | Refusal, ...]]
    ) -> UnchangedProgram:
        """The unchanged program, as a fork, and uncompiled. Raises `FailsUncompiled` if that fails."""
        recorded = self.trials.recorded("as written, for comparison")
        every = [
            condition
            for found in candidates.values()
            for each in found
            if isinstance(each, Candidate)
            for condition in each.both_sides
        ]
        reference = self.trials.reference(every, _OTHER_INPUTS_SECONDS)
        code = recorded.outcome.exit_code
        if reference.outcome.exit_code != 0 and code != 0:
            raise FailsUncompiled(reference.outcome.tail)
        printed = mask_unstable(recorded.printed, first.printed)
        if code != 0:  # it fails compiled alone, so a change has to make it as it is uncompiled
            plain = self.trials.recorded("unchanged, uncompiled", rung="uncompiled")
            code, printed, recorded = plain.outcome.exit_code, plain.printed, replace(recorded, files=plain.files)
        files = {name: mask_unstable(text, first.files.get(name, "")) for name, text in recorded.files.items()}
        return UnchangedProgram(recorded, reference, printed, UNSTABLE not in printed, code, files)

    def _fix(self, problem: FixProblem, candidates: Sequence[Candidate | Refusal], baseline: UnchangedProgram) -> Fix:
        rejected: list[Rejected] = []
        for candidate in candidates:
            if isinstance(candidate, Refusal):
                rejected.append(Rejected(candidate.title, candidate.why))
                continue
            proof, why = self._prove((problem,), candidate, baseline)
            if why is None:
                assert proof is not None
                return _proved(problem, proof, rejected)
            rejected.append(Rejected(candidate.title, why))
            if proof is not None and first_objection(proof, COUNTED) == why:
                self._behind.append((problem, candidate))
        return Fix(problem, None, None, tuple(rejected))

    def _prove(
        self, problems: tuple[FixProblem, ...], candidate: Candidate, baseline: UnchangedProgram
    ) -> tuple[Proof | None, str | None]:
        """The proof of a candidate, and why it is rejected; ``None`` if it is proved."""
        known = self._tried.get(tuple(sorted(candidate.edits)))
        label = candidate.title
        try:
            recorded = known.recorded if known else self.trials.recorded(label, candidate.edits)
        except EditConflict as conflict:
            return None, str(conflict)
        proof = Proof(problems, candidate, baseline, recorded)
        if (why := first_objection(proof, RECORDED)) is not None:
            self._remember(proof, why)
            return proof, why
        if first_objection(proof, TIMED) is not None:
            baseline, recorded = self._timed_again(proof, label)
            proof = Proof(problems, candidate, baseline, recorded)
            if (why := first_objection(proof, TIMED)) is not None:
                self._remember(proof, why)
                return proof, why
        compared = known.compared if known else None
        if compared is None:
            compared = self.trials.compared(f"{label}, with other inputs", candidate, baseline.reference, "eager")
        proof = Proof(problems, candidate, baseline, recorded, compared)
        why = first_objection(proof, COMPARISONS)
        self._remember(proof, why)
        return proof, why

    def _timed_again(self, proof: Proof, label: str) -> tuple[UnchangedProgram, RecordedRun]:
        """Both programs, each with the shorter time of a warm call of two runs: the machine may have been busy."""
        before = proof.baseline.recorded
        first = self.trials.recorded("as written, timed again")
        second = self.trials.recorded(f"{label}, timed again", proof.candidate.edits)
        return replace(proof.baseline, recorded=_shorter(before, first)), _shorter(proof.recorded, second)

    def _remember(self, proof: Proof, why: str | None) -> None:
        self._tried[tuple(sorted(proof.candidate.edits))] = proof
        self.message(f"{proof.candidate.title}: {'proved' if why is None else f'rejected, {why}'}")

    def _combine(self, fixes: Sequence[Fix], baseline: UnchangedProgram, torch: str | None) -> FixResult:
        """All proved fixes as one program. A fix that conflicts with those before it is dropped."""
        kept = [fix for fix in fixes if fix.candidate is not None]
        whole = kept[0] if kept else None
        if len({tuple(sorted(fix.candidate.edits)) for fix in kept if fix.candidate}) > 1:
            kept, whole, lost = self._provable_together(kept, baseline)
            fixes = [lost.get(fix.problem, fix) for fix in fixes]
        if whole is not None:
            fixes = [fix if fix.candidate else _gone_with(fix.problem, [whole]) or fix for fix in fixes]
        edits = tuple(sorted({edit for fix in kept if fix.candidate for edit in fix.candidate.edits}))
        if edits:
            why = self._ends_as_in_a_fresh_interpreter(edits, baseline)
            if why is not None:
                fixes = [_taken_back(fix, why) if fix.candidate else fix for fix in fixes]
                return FixResult(tuple(fixes), (), {}, None, torch)
        sources = {edit.file: self._project.source(edit.file) for edit in edits}
        return FixResult(tuple(fixes), edits, apply_edits(sources, edits), whole.evidence if whole else None, torch)

    def _provable_together(
        self, proved: Sequence[Fix], baseline: UnchangedProgram
    ) -> tuple[list[Fix], Fix | None, dict[FixProblem, Fix]]:
        """The fixes that are proved together, all of them as one, and those that are not, with the reasons."""
        proof, why = self._prove_all(proved, baseline)
        if why is None and proof is not None:
            return list(proved), _proved(proved[0].problem, proof, ()), {}
        kept: list[Fix] = []
        lost: dict[FixProblem, Fix] = {}
        whole = None
        for fix in proved:
            proof, why = self._prove_all([*kept, fix], baseline)
            if why is None and proof is not None:
                kept, whole = [*kept, fix], _proved(fix.problem, proof, ())
            else:
                lost[fix.problem] = _taken_back(fix, f"not together with the fixes above: {why}")
        return kept, whole, lost

    def _prove_all(self, fixes: Sequence[Fix], baseline: UnchangedProgram) -> tuple[Proof | None, str | None]:
        parts = [fix.candidate for fix in fixes if fix.candidate is not None]
        candidate = Candidate(
            f"{len(parts)} fixes together",
            "source",
            tuple(sorted({edit for part in parts for edit in part.edits})),
            "",
            tuple(condition for part in parts for condition in part.both_sides),
            tuple(name for part in parts for name in part.as_tensors),
        )
        return self._prove(tuple(fix.problem for fix in fixes), candidate, baseline)

    def _ends_as_in_a_fresh_interpreter(self, edits: tuple[Edit, ...], baseline: UnchangedProgram) -> str | None:
        """Why the patched program fails its proof in a fresh interpreter, as the user will run it; ``None`` if it
        passes.
        """
        final = self.trials.recorded("the patched program, in a fresh interpreter", edits, fresh=True)
        proof = Proof((), Candidate("", "source", edits, ""), baseline, final)
        return first_objection(proof, RECORDED)


def _shorter(one: RecordedRun, other: RecordedRun) -> RecordedRun:
    times = [run.warm for run in (one, other) if run.warm is not None]
    return replace(one, warm=min(times, default=None))


def _proved(problem: FixProblem, proof: Proof, rejected: Sequence[Rejected]) -> Fix:
    left = frozenset(proof.recorded.summary.causes)
    return Fix(problem, proof.candidate, evidence_of(proof), tuple(rejected), left)


def _refused_in(broken: Collection[str], problem: FixProblem, candidate: Candidate | Refusal) -> Candidate | Refusal:
    """The candidate, or why it is not tried in a function in which a graph break is left."""
    if isinstance(candidate, Refusal) or not candidate.for_whole_graphs or problem.function not in broken:
        return candidate
    why = f"a graph break of {problem.function} is left, behind which Python works with the number"
    return Refusal(candidate.title, why)


def _gone_with(problem: FixProblem, fixes: Sequence[Fix]) -> Fix | None:
    """The first of the proved fixes that removes this cause too, as a fix of this cause."""
    found = (fix for fix in fixes if fix.candidate is not None and problem.identity not in fix.left)
    return next((replace(fix, problem=problem, rejected=()) for fix in found), None)


def _taken_back(fix: Fix, why: str) -> Fix:
    assert fix.candidate is not None
    return Fix(fix.problem, None, None, (*fix.rejected, Rejected(fix.candidate.title, why)))
