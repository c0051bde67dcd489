"""The search for fixes: the first candidates of all causes are tried together, and in parts where they are not proved.

Most first candidates are right, and a trial of all of them costs as much as a trial of one. What is proved is kept, and
each further candidate is tried on top of it, so that the changes are proved together at every step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from dynadiag.explanation.formatting import count
from dynadiag.fixes.candidate import Candidate, Refusal, Rewrite, Sources
from dynadiag.fixes.edits import Edit, apply_edits
from dynadiag.fixes.fix_report import Evidence, RegionEntry, Rejected
from dynadiag.fixes.fix_result import Fix, FixResult
from dynadiag.fixes.overlay_file import NotOfFunctions, changes_of, library_edits, package_of
from dynadiag.fixes.problems import FixProblem, RunSummary
from dynadiag.fixes.project import Project, is_library, module_of
from dynadiag.fixes.proof import (
    COUNTED,
    MENDABLE,
    RECORDED,
    TIMED,
    Proof,
    evidence_of,
    first_objection,
    prints_the_same,
    runs_as_much_compiled,
)
from dynadiag.fixes.prover import Prover, refuse_failing
from dynadiag.fixes.rewrites import CATALOGUE
from dynadiag.fixes.smaller_region import smaller_region
from dynadiag.fixes.trials import RecordedRun, Trials
from dynadiag.known_fixes import KnownFix, function_at, known_fixes

_MAX_HIDDEN = 4  # breaks behind one another that are looked for
Message = Callable[[str], None]


def find_fixes(trials: Trials, message: Message) -> FixResult:
    """Find and prove fixes for every cause in a program. Raises `NothingToProve`."""
    trials.runner.warm_up()
    first = trials.recorded("as written", fresh=True)
    torch = first.explanation.run.torch if first.explanation else None
    if not first.problems:
        refuse_failing(trials, first)
        return FixResult((), (), {}, None, torch)
    trials.runner.start_forks(first.outcome.facts.threads or 1, checkpoint=False)
    with trials:
        return _Search(trials, message, Prover(trials)).run(first, torch)


@dataclass(slots=True)
class Cause:
    """One cause, with the candidates that were not tried yet, and what was found."""

    problem: FixProblem
    untried: list[Candidate | Refusal]
    remedies: frozenset[str] = frozenset()  # the keys of those that its candidates are
    proved: Candidate | None = None
    evidence: Evidence | None = None
    rejected: list[Rejected] = field(default_factory=list)

    @property
    def advice(self) -> tuple[str, ...]:
        """What `explain` advises and no candidate is."""
        return tuple(each.text for each in self.problem.advice if each.key not in self.remedies)

    def next(self) -> Candidate | None:
        """The next candidate; refusals before it are noted."""
        while self.untried:
            found = self.untried.pop(0)
            if isinstance(found, Candidate):
                return found
            self.rejected.append(Rejected(found.title, found.why))
        return None

    def reject(self, candidate: Candidate, why: str) -> None:
        """Note why a candidate is rejected, in place of what was noted before."""
        self.rejected = [each for each in self.rejected if each.title != candidate.title]
        self.rejected.append(Rejected(candidate.title, why))

    def prove(self, candidate: Candidate, evidence: Evidence) -> None:
        """Note that a candidate is proved."""
        self.proved, self.evidence = candidate, evidence
        self.rejected = [each for each in self.rejected if each.title != candidate.title]


_Pick = tuple[Cause, Candidate]


@dataclass(slots=True)
class _Search:
    trials: Trials
    message: Message
    prover: Prover
    _sources: Sources = field(init=False)
    _causes: list[Cause] = field(default_factory=list)
    _left: list[Cause] = field(default_factory=list)  # recompiles of the changed program alone that nothing removes
    _behind: list[_Pick] = field(default_factory=list)  # rejected for what another change may mend
    _whole: Proof | None = None  # of all proved fixes

    def __post_init__(self) -> None:
        self._sources = Sources(self.trials.project)

    @property
    def _project(self) -> Project:
        return self.trials.project

    @property
    def _summary(self) -> RunSummary:
        """What the program with all proved fixes still has."""
        return (self._whole.recorded if self._whole else self.prover.unchanged.recorded).summary

    def run(self, first: RecordedRun, torch: str | None) -> FixResult:
        self._causes = [self._cause(problem) for problem in first.problems]
        edits = [edit for cause in self._causes for each in cause.untried for edit in edits_of(each)]
        if edits and all(is_library(edit.file) for edit in edits):
            self.trials.fork_at_first_call(first.outcome.facts.threads or 1)
        self.prover.measure_unchanged(first)
        self._message_causes()
        self._add_all()
        strict = replace(self.prover.unchanged, recompiles_last=False)
        if self._whole is not None and runs_as_much_compiled(replace(self._whole, baseline=strict)) is not None:
            self.message("torch gives up at a limit of recompiles with these changes: looking for others")
            self._causes = [self._cause(problem) for problem in first.problems]
            self.prover.unchanged, self._whole, self._behind = strict, None, []  # what was tried is not tried again
            self._add_all()
        return self._result(torch)

    def _add_all(self) -> None:
        """Prove changes for all causes, and leave out what is not needed."""
        self._add_kind("break")
        unchanged = len(self._causes)
        self._see_recompiles_again()
        self._causes += [self._cause(problem) for problem in self._new_problems(self._whole, "recompile")]
        broken = {each.problem.function for each in self._causes if each.proved is None and self._breaks(each.problem)}
        for cause in self._causes:
            cause.untried = [refused_in(broken, cause.problem, each) for each in cause.untried]
        self._add_kind("recompile")  # breaks first: recompiles may go with them
        self._left = [cause for cause in self._causes[unchanged:] if cause.proved is None]
        self._causes[unchanged:] = [cause for cause in self._causes[unchanged:] if cause.proved is not None]
        self._drop_needless()

    def _see_recompiles_again(self) -> None:
        """Add the candidates for recompiles as the program without its breaks has them: in one graph, another line may
        be the first that needs a value.
        """
        left = {each.identity: each for each in self._whole.recorded.problems} if self._whole else {}
        for cause in self._causes:
            now = left.get(cause.problem.identity) if cause.problem.kind == "recompile" else None
            moved = now.before(self._edits, self._project) if now is not None else None
            found = self._cause(moved).untried if moved is not None else []
            cause.untried = [*found, *(each for each in cause.untried if each not in found)]

    def _cause(self, problem: FixProblem) -> Cause:
        made = [(rewrite, each) for rewrite in CATALOGUE for each in self._candidates(rewrite, problem)]
        found = [each for _, each in made]
        if problem.file is not None and is_library(problem.file) and not any(map(edits_of, found)):
            outside = problem.from_outside
            found += [each for rewrite in CATALOGUE for each in self._candidates(rewrite, outside)]
        known = known_titles(self._project, problem)
        in_library = problem.file is not None and is_library(problem.file)
        # What was proved there before is tried first. A setting for the whole program comes last in a library.
        found.sort(key=lambda each: (in_library and getattr(each, "kind", "") == "config", each.title not in known))
        for each in found:
            self.prover.conditions += each.conditions if isinstance(each, Candidate) else ()
        return Cause(problem, found, frozenset(key for rewrite, _ in made for key in rewrite.remedies))

    def _candidates(self, rewrite: Rewrite, problem: FixProblem) -> Iterator[Candidate | Refusal]:
        """The candidates of a rewrite. One in a package has to be a change of functions, which an overlay can hold."""
        for each in self._made(rewrite, problem):
            if isinstance(each, Candidate) and library_edits(each.edits):
                try:
                    list(changes_of(self._project, each.edits))
                except NotOfFunctions as why:
                    yield Refusal(each.title, f"an overlay cannot hold it: {why}")
                    continue
                self.trials.libraries |= {edit.file for edit in library_edits(each.edits)}
            inside = library_edits(edits_of(each)) == tuple(edits_of(each)) and not getattr(each, "whole_calls", ())
            if self.trials.from_first_call and not inside:
                yield Refusal(
                    each.title, "trials begin at the first compiled call here, where only packages are changed"
                )
                continue
            yield each

    def _made(self, rewrite: Rewrite, problem: FixProblem) -> Iterator[Candidate | Refusal]:
        """What a rewrite makes. One that raises is a fault of ours, which the report has, and the others go on."""
        try:
            yield from rewrite.made(problem, self._sources)
        except Exception as error:  # noqa: BLE001 - whatever it is, no other change depends on it
            yield Refusal(rewrite.name, f"a fault of dynadiag, please report it: {type(error).__name__}: {error}")

    def _message_causes(self) -> None:
        number = sum(isinstance(each, Candidate) for cause in self._causes for each in cause.untried)
        run = self.prover.unchanged.recorded.summary
        met = f"{count(run.breaks, 'break')} and {count(run.recompiles, 'recompile')}"
        self.message(f"{met} of {count(len(self._causes), 'cause')}: {count(number, 'change')} to try")

    def _add_kind(self, kind: str) -> None:
        """Prove changes for all causes of a kind; those that failed because of other causes are tried again at last."""
        picks = self._first_picks(cause for cause in self._causes if cause.problem.kind == kind)
        later = self._gone_with_first(picks) if kind == "break" else []
        self._add([pick for pick in picks if pick not in later])
        for cause, candidate in later:
            cause.untried.insert(0, candidate)
        self._add(self._first_picks(cause for cause, _ in later))
        again, self._behind = [pick for pick in self._behind if pick[0].proved is None], []
        for pick in again if self._whole else ():
            if pick[0].problem.identity in self._summary.causes:  # else what is proved by now removes it as well
                self._add([pick])

    def _gone_with_first(self, picks: list[_Pick]) -> list[_Pick]:
        """Those for breaks in packages that go with the breaks of the first compiled function: behind these, what a
        library calls is compiled by itself, and a change of it may be needless.
        """
        frames = [cause.problem.compile_id.partition("/")[0] for cause, _ in picks]
        first = [pick for pick, frame in zip(picks, frames, strict=True) if frame == frames[0]]
        rest = [pick for pick in picks if pick not in first and is_library(pick[0].problem.file or "")]
        left = self.prover.causes_with(_combined((), first)) if rest else None
        return [pick for pick in rest if pick[0].problem.identity not in left] if left is not None else []

    def _first_picks(self, causes: Iterable[Cause]) -> list[_Pick]:
        """The next candidate of each cause that the program still has."""
        left = [cause for cause in causes if cause.problem.identity in self._summary.causes]
        found = [(cause, cause.next()) for cause in left]
        return [(cause, candidate) for cause, candidate in found if candidate is not None]

    def _add(self, picks: list[_Pick]) -> None:
        """Keep the changes if they are proved on top of those that are; else try each half, and of a single one the
        next candidate of its cause.
        """
        if not picks:
            return
        proof, why = self._prove(picks)
        if why is None or (proof is not None and self._add_hidden(picks, proof, why)):
            return
        if len(picks) > 1:
            half = len(picks) // 2
            self._add(picks[:half])
            self._add([pick for pick in picks[half:] if pick[0].problem.identity in self._summary.causes])
            return
        cause, candidate = picks[0]
        if proof is None and self._replaces(cause, candidate):
            return
        if proof is not None and first_objection(proof, (prints_the_same,)) == why and self._goes_with(picks[0]):
            return
        cause.reject(candidate, why)
        if proof is not None and first_objection(proof, MENDABLE) == why:
            self._behind.append(picks[0])
        self._add(self._first_picks([cause]))

    def _replaces(self, cause: Cause, candidate: Candidate) -> bool:
        """Whether a change that conflicts with proved ones is proved in their place, for their causes too: a function
        that is split further down is split for the breaks before as well.
        """
        kept = [each for each in self._causes if each.proved is not None]
        others = [each for each in kept if each.proved is not None and _overlap(each.proved, candidate)]
        picks = [(each, candidate) for each in (cause, *others)]
        return bool(others) and self._prove(picks)[1] is None

    def _goes_with(self, pick: _Pick) -> bool:
        """Whether a change is proved with the next change of a cause that is proved: with fewer breaks, what is printed
        after a graph comes later, or torch forgets it.
        """
        kept = [each for each in self._causes if each.proved is not None and each.problem.kind == "break"]
        others = [(each, other) for each in kept for other in each.untried[:1] if isinstance(other, Candidate)]
        return any(self._prove([pick, other])[1] is None for other in others)

    def _add_hidden(self, picks: list[_Pick], proof: Proof, why: str) -> bool:
        """Try the changes with those for causes that stand behind them. Whether they are proved.

        Of a function whose loop breaks, torch reports no further breaks. And one graph that is compiled again for each
        call is slower than several of which one is.
        """
        hidden: list[_Pick] = []
        while len(hidden) < _MAX_HIDDEN:
            found = self._hidden(proof, why, hidden)
            if not found:
                break
            hidden += found
            next_proof, next_why = self._prove([*picks, *hidden])
            if next_why is None:
                known = [id(cause) for cause in self._causes]
                self._causes += [cause for cause, _ in hidden if id(cause) not in known]
                return True
            if next_proof is None:
                break
            proof, why = next_proof, next_why
        for cause, candidate in hidden:
            cause.untried.insert(0, candidate)
        return False

    def _hidden(self, proof: Proof, why: str, known: Sequence[_Pick]) -> list[_Pick]:
        """Changes for causes that keep these changes from being proved."""
        if first_objection(proof, COUNTED) == why:
            found = [self._cause(problem) for problem in self._new_problems(proof, "break", known)]
        elif first_objection(proof, TIMED) == why:
            taken = [id(cause) for cause, _ in known]
            found = [cause for cause in self._causes if self._is_left(cause, proof) and id(cause) not in taken]
            found += [self._cause(problem) for problem in self._new_problems(proof, "recompile", known)]
        else:
            return []
        return [(cause, candidate) for cause in found if (candidate := cause.next()) is not None]

    def _is_left(self, cause: Cause, proof: Proof) -> bool:
        return cause.problem.kind == "recompile" and cause.problem.identity in proof.recorded.summary.causes

    def _new_problems(self, proof: Proof | None, kind: str, known: Sequence[_Pick] = ()) -> Iterator[FixProblem]:
        """The causes that a changed program has and the unchanged one does not, at their places in the latter."""
        identities = {cause.problem.identity for cause in (*self._causes, *(cause for cause, _ in known))}
        for problem in proof.recorded.problems if proof is not None else ():
            if problem.kind == kind and problem.identity not in identities:
                moved = problem.before(proof.candidate.edits, self._project) if proof is not None else None
                if moved is not None:
                    yield moved

    def _prove(self, picks: Sequence[_Pick]) -> tuple[Proof | None, str | None]:
        """The proof of the changes on top of those that are kept, and why they are rejected; ``None`` if they are
        proved, and they are kept then.
        """
        picked = [id(cause) for cause, _ in picks]
        kept = [each for cause in self._causes if (each := cause.proved) and id(cause) not in picked]
        candidate = _combined(kept, picks)
        problems = tuple(cause.problem for cause, _ in picks)
        proof, why = self.prover.prove(problems, candidate, self._summary)
        self.message(f"{candidate.title}: {'proved' if why is None else f'rejected, {why}'}")
        if why is None:
            assert proof is not None
            self._whole = proof
            for cause, own in picks:
                cause.prove(own, evidence_of(proof))
        return proof, why

    def _drop_needless(self) -> None:
        """Take back each setting without which the other changes do as well: a later one may have removed its cause."""
        proved = [each for cause in self._causes if (each := cause.proved) is not None]
        for setting in dict.fromkeys(each for each in proved if each.kind != "source"):
            kept = [each for each in proved if each != setting]
            others = _combined(kept, ())
            if not kept or others.edits == self._edits:
                continue
            proof, why = self.prover.prove((), replace(others, title=kept[-1].title), self._summary)
            if why is None:
                self.message(f"{setting.title}: taken back, the other changes do without it")
                self._whole, proved = proof, kept
                for cause in self._causes:
                    cause.proved = None if cause.proved == setting else cause.proved

    @property
    def _edits(self) -> tuple[Edit, ...]:
        """Those of all proved changes."""
        return self._whole.candidate.edits if self._whole is not None else ()

    def _breaks(self, problem: FixProblem) -> bool:
        return problem.kind == "break" and problem.identity in self._summary.causes

    def _result(self, torch: str | None) -> FixResult:
        """What was found, if the patched program passes its proof in a fresh interpreter, as the user will run it."""
        whole = self._whole
        if whole is None:
            fixes = tuple(_fix(cause, None) for cause in self._causes)
            return FixResult(fixes, (), {}, None, torch, self._region(None))
        edits = whole.candidate.edits
        final = self.trials.recorded("the patched program, in a fresh interpreter", edits, fresh=True)
        baseline = self.prover.as_from_beginning(whole.baseline, final)
        why = first_objection(replace(whole, problems=(), recorded=final, baseline=baseline), RECORDED)
        if why is not None:
            return FixResult(tuple(_taken_back(cause, why) for cause in self._causes), (), {}, None, torch)
        sources = {edit.file: self._project.source(edit.file) for edit in edits}
        fixes = tuple(_fix(cause, whole) for cause in self._causes)
        changed = {name: text for name, text in apply_edits(sources, edits).items() if not is_library(name)}
        still = [cause for cause in self._left if cause.problem.identity in self._summary.causes]
        left = tuple(_fix(cause, None) for cause in still)
        return FixResult(fixes, edits, changed, evidence_of(whole), torch, self._region(whole), left)

    def _region(self, whole: Proof | None) -> RegionEntry | None:
        """What can be compiled in place of the model, where breaks are left."""
        if not any(self._breaks(cause.problem) for cause in self._causes):
            return None
        return smaller_region(self.trials, self.prover, self._sources, whole, self.message)


def edits_of(candidate: Candidate | Refusal) -> tuple[Edit, ...]:
    """The edits of a candidate; none of a refusal."""
    return candidate.edits if isinstance(candidate, Candidate) else ()


def _combined(kept: Sequence[Candidate], picks: Sequence[_Pick]) -> Candidate:
    """All these changes as one. Its title names what is new in it."""
    parts = [*kept, *(candidate for _, candidate in picks)]
    titles = list(dict.fromkeys(candidate.title for _, candidate in picks))
    return Candidate(
        titles[0] if len(titles) == 1 else f"{len(titles) or len(parts)} changes together",
        "source",
        tuple(sorted({edit for part in parts for edit in part.edits})),
        "",
        tuple(condition for part in parts for condition in part.conditions),
        tuple(name for part in parts for name in part.as_tensors),
        tuple(name for part in parts for name in part.whole_calls),
        finite=tuple(edit for part in parts for edit in part.finite),
        leaves_out_condition=any(part.leaves_out_condition for part in parts),
        moved_out=sum(part.moved_out for part in parts),
    )


def _overlap(one: Candidate, other: Candidate) -> bool:
    """Whether two changes change the same text."""
    pairs = ((a, b) for a in one.edits for b in other.edits)
    return any(a != b and a.file == b.file and a.start < b.end and b.start < a.end for a, b in pairs)


def refused_in(broken: Collection[str], problem: FixProblem, candidate: Candidate | Refusal) -> Candidate | Refusal:
    """The candidate, or a refusal if it needs a whole graph and its function still has a graph break."""
    if isinstance(candidate, Refusal) or not candidate.for_whole_graphs or problem.function not in broken:
        return candidate
    why = f"a graph break of {problem.function} is left, behind which Python works with the number"
    return Refusal(candidate.title, why)


def _fix(cause: Cause, whole: Proof | None) -> Fix:
    """The fix of a cause: its own change, or all changes together if these alone removed it."""
    gone = whole is not None and cause.problem.identity not in whole.recorded.summary.causes
    if cause.proved is None and whole is not None and gone:
        if (why := _recompiled_instead(whole, cause.problem)) is not None:
            rejected = (*cause.rejected, Rejected(whole.candidate.title, why))
            return Fix(cause.problem, rejected=rejected, advice=cause.advice)
        return Fix(cause.problem, whole.candidate, evidence_of(whole), combined=True)
    return Fix(cause.problem, cause.proved, cause.evidence, tuple(cause.rejected), advice=cause.advice)


def _recompiled_instead(whole: Proof, problem: FixProblem) -> str | None:
    """Why a cause is not gone, which the changed program has no more: it recompiles for the same in a function of
    another name, or no less often for what the unchanged one did not.
    """
    before, after = whole.baseline.recorded.summary, whole.recorded.summary
    new = [cause for cause in after.causes if cause.startswith("recompile ") and not before.causes[cause]]
    if problem.kind != "recompile" or not new:
        return None
    what = problem.identity.partition(": ")[2]
    if same := [each for each in new if each.partition(": ")[2] == what]:
        return f"the changed program recompiles for it, too, at {after.places[same[0]]}"
    if after.recompiles < before.recompiles:
        return None
    return f"torch recompiles for something else instead, in the changed program at {after.places[new[0]]}"


def _taken_back(cause: Cause, why: str) -> Fix:
    own = (Rejected(cause.proved.title, why),) if cause.proved is not None else ()
    return Fix(cause.problem, rejected=(*cause.rejected, *own), advice=cause.advice)


def known_titles(project: Project, problem: FixProblem) -> frozenset[str]:
    """The changes that were proved for breaks of this kind in this very function."""
    if problem.file is None or problem.span.line is None or not is_library(problem.file):
        return frozenset()
    source = project.source(problem.file)
    found = known_fixes(module_of(problem.file), source, problem.span.line, problem.gb_id)
    return frozenset(entry.title for entry in found)


def entry_of(project: Project, problem: FixProblem, title: str, model: str, proof: str) -> KnownFix | None:
    """The entry of a proved change; ``None`` where it is for no function of an installed package."""
    if problem.file is None or problem.span.line is None or not is_library(problem.file):
        return None
    function = function_at(project.source(problem.file), problem.span.line)
    try:
        package = package_of(project, problem.file)
    except NotOfFunctions:
        return None
    if function is None:
        return None
    return KnownFix(*package, module_of(problem.file), *function, problem.gb_id, title, (model,), proof)


def merged(entries: Iterable[KnownFix]) -> Iterator[KnownFix]:
    """The entries, each change once with all its model classes."""
    by_key: dict[object, list[KnownFix]] = {}
    for entry in sorted(entries):
        by_key.setdefault(entry.key, []).append(entry)
    for alike in by_key.values():
        classes = tuple(sorted({name for entry in alike for name in entry.classes}))
        yield msgspec.structs.replace(alike[0], classes=classes)
