"""Runs the trials of fixes: the unchanged program and changed copies of it, each in an isolated folder."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from dynadiag.explanation.explanation import Explanation, explain
from dynadiag.explanation.registry import Registry
from dynadiag.fixes.candidate import Candidate, Condition
from dynadiag.fixes.edits import Edit, apply_edits
from dynadiag.fixes.observation import (
    CALL_BUILTIN,
    SIDE_BUILTIN,
    CallDiffers,
    CallsCompared,
    CompiledOperators,
    Observation,
    SideTaken,
    VariantRun,
    WarmCallTime,
    WholeParts,
)
from dynadiag.fixes.overlay_file import changes_of, overlay_text
from dynadiag.fixes.printed_output import comparable, comparable_run
from dynadiag.fixes.problems import FixProblem, RunSummary, problems_of, summarize
from dynadiag.fixes.project import Project, entries_of, is_library, module_of, write_new
from dynadiag.overlay import VARIABLE
from dynadiag.recording.fold import fold
from dynadiag.recording.opening import open_recording
from dynadiag.trial.events import HookEvent
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.program import Program
from dynadiag.trial.runner import Runner
from dynadiag.trial.sandbox import changed_files, snapshot
from dynadiag.trial.supervise import Limits

HOOKS = ("dynadiag.fixes.observer",)
_MAX_COMPARED_FILE = 4 << 20  # bytes
_OUTPUT = 16 << 20  # bytes of a program's output that are compared
_HANG_SLACK, _HANG_FACTOR = 30.0, 10.0  # seconds, and times those of the unchanged program
TIMEOUT = 600.0  # default limit of a trial in seconds
E = TypeVar("E", bound=HookEvent)
OnOutcome = Callable[[str, Outcome], None]


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run under the recorder, with the program's own backend. ``warm`` is the seconds of a warm compiled call.

    ``compiled`` counts the operators that ran in graphs, ``None`` where they were not counted. ``files`` has the files
    that the program wrote into its folder, by name, with their contents.
    """

    outcome: Outcome
    summary: RunSummary
    problems: tuple[FixProblem, ...]
    explanation: Explanation | None
    printed: str
    warm: float | None
    compiled: CompiledOperators | None = None
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReferenceRun:
    """The unchanged program, uncompiled, with its results recorded in the file ``records``.

    ``sides`` has each side of each of the ``conditions`` that was taken, with the inputs that took it. ``printed`` is
    standard output, ``errors`` standard error. ``writes`` says that the program writes files into its folder: these
    have lines of other inputs too, so what it makes of them later differs from a candidate's. ``compiled`` is how the
    unchanged program differs when it is compiled, whose records are then in the file ``compiled_records``; ``None``
    while that was not looked at. ``libraries`` are the files of packages whose globals it has.
    """

    outcome: Outcome
    records: Path
    conditions: tuple[Condition, ...]
    sides: Mapping[tuple[str, bool], str]
    variants: int
    printed: str
    errors: str
    writes: bool = False
    compiled: ComparedRun | None = None
    libraries: frozenset[str] = frozenset()

    @property
    def compiled_records(self) -> Path:
        return self.records.with_suffix(".compiled")

    @property
    def has_other_results(self) -> bool:
        """Whether the unchanged program was seen to do something else when it is compiled, or its results to move with
        the last bits of its inputs by more than the usual rounding.
        """
        run = self.compiled
        return run is not None and run.compared is not None and (run.differs or 2 * run.compared.spread > 1)


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A program, compiled, with each call compared with the reference."""

    outcome: Outcome
    differences: tuple[CallDiffers, ...]
    compared: CallsCompared | None
    printed: str
    errors: str

    @property
    def differs(self) -> bool:
        """Whether a call differs by more than rounding."""
        return any(not each.rounding for each in self.differences)


def runner_of(program: Program, timeout: float = TIMEOUT) -> Runner:
    """The runner of a search's trials. ``timeout`` is the limit of one trial in seconds.

    Where the user did not set how texts are hashed, all trials hash them alike: a program may keep a hash, or loop over
    a set. Nor do threads of OpenMP spin while they wait: it counts as time of the call, and grows where other programs
    run beside it.
    """
    default = Limits.default(timeout)
    limits = Limits(default.seconds, default.memory, _OUTPUT)
    environment = {"PYTHONHASHSEED": "0", "OMP_WAIT_POLICY": "PASSIVE", **os.environ}
    return Runner(program, HOOKS, limits, environment=environment, seed=0)


@dataclass(slots=True)
class Trials:
    """All trials of one search. ``on_outcome`` is called with each outcome. ``libraries`` are files of packages, by
    name, whose globals are compared as the user's are: those that a change may be made in.
    """

    project: Project
    runner: Runner
    on_outcome: OnOutcome
    count: int = 0
    libraries: set[str] = field(default_factory=set)
    _stopped: tuple[Runner, Project] | None = None  # the program at its first compiled call, and its copy
    _started: Project | None = None  # the copy in which the program starts anew
    _open: ExitStack = field(default_factory=ExitStack)
    _slowest: float = 0.0  # seconds of the unchanged program under the recorder
    _registry: Registry = field(default_factory=Registry.installed)

    def __enter__(self) -> Trials:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def fork_at_first_call(self, threads: int) -> None:
        """Fork later trials from the program stopped at its first compiled call, where that is possible. Changes of the
        user's own files cannot be tried then.
        """
        copy = self._new_copy()
        runner = self._open.enter_context(self.runner.for_program(copy.program, copy.cwd))
        if runner.has_forks and runner.start_forks(threads) is None:
            self._stopped = runner, copy

    @property
    def from_first_call(self) -> bool:
        """Whether trials are forked at the first compiled call. Nothing that was printed before is theirs."""
        return self._stopped is not None

    def recorded(
        self,
        label: str,
        edits: Iterable[Edit] = (),
        *,
        fresh: bool = False,
        rung: str | None = None,
        timed: bool | None = None,
    ) -> RecordedRun:
        """Run the program with these edits under the recorder; ``fresh`` in a fresh interpreter. ``timed`` measures a
        warm call and counts operators: a compiled program in a fork, unless it is said.

        A changed program is ended after ten times the seconds of the unchanged one, and half a minute: it may wait for
        ever.
        """
        wanted = tuple(edits)
        limit = _HANG_SLACK + _HANG_FACTOR * self._slowest if wanted and self._slowest else None
        with self._copy(wanted, fresh=fresh) as (folder, copy):
            journal = folder / "run.journal"
            time_calls = timed if timed is not None else not fresh and rung is None
            asked = Observation(journal=str(journal), time_calls=time_calls)
            changed = asked if fresh else self._changed(asked, folder, wanted)
            variables = self._overlay(folder, wanted) if fresh else {}
            plan = Plan(rung=rung, task=changed.to_task())
            before = snapshot(copy.root)
            outcome = self._run(label, copy, plan, fresh=fresh, limit=limit, variables=variables)
            if not wanted:
                self._slowest = max(self._slowest, outcome.seconds)
            files = _contents(changed_files(before, snapshot(copy.root)), copy.root)
            explanation, graphs = self._explanation(journal)
            warm = next(_events(outcome, WarmCallTime), None)
            compiled = next(_events(outcome, CompiledOperators), None)
            return RecordedRun(
                outcome,
                summarize(explanation, copy, graphs) if explanation else RunSummary.empty(),
                problems_of(explanation, copy) if explanation else (),
                explanation,
                comparable_run(outcome.tail, _folders(folder, copy)),
                warm.seconds if warm else None,
                compiled,
                files,
            )

    def reference(self, conditions: Iterable[Condition], seconds: float) -> ReferenceRun:
        """Run the unchanged program uncompiled, with the program's inputs and others; note which sides are taken."""
        wanted = tuple(conditions)
        records = self.runner.scratch / "reference.records"
        edits = _instrumented(self.project, wanted)
        with self._copy(edits) as (folder, copy):
            errors = folder / "stderr"
            asked = Observation(
                stderr=str(errors),
                records=str(records),
                root=str(copy.root),
                uncompiled=True,
                seconds=seconds,
                sides=tuple(condition.key for condition in wanted),
            )
            before = snapshot(copy.root)
            plan = Plan(task=self._changed(asked, folder, edits).to_task())
            outcome = self._run("unchanged, uncompiled, with other inputs", copy, plan)
            folders = _folders(folder, copy)
            return ReferenceRun(
                outcome,
                records,
                wanted,
                {(each.key, each.side): each.inputs for each in reversed(list(_events(outcome, SideTaken)))},
                sum(1 for _ in _events(outcome, VariantRun)),
                comparable_run(outcome.tail, folders),
                comparable_run(_read(errors), folders),
                bool(changed_files(before, snapshot(copy.root))),
                libraries=frozenset(self.libraries),
            )

    def whole_parts(self, edits: Collection[Edit]) -> WholeParts | None:
        """The parts of the model that torch compiles whole; ``None`` where what is compiled is no module."""
        with self._copy(edits) as (folder, copy):
            asked = self._changed(Observation(parts=True, root=str(copy.root)), folder, edits)
            outcome = self._run("unchanged, to find the parts that are whole", copy, Plan(task=asked.to_task()))
            return next(_events(outcome, WholeParts), None)

    def compared(
        self, label: str, candidate: Candidate, reference: ReferenceRun, *, fresh: bool = False
    ) -> ComparedRun:
        """Run the changed program, compiled, and compare each call with the reference.

        Where a part of the change is right for finite numbers alone, the program without it, uncompiled, is compared
        with the others.
        """
        if not candidate.finite:
            return self._compared_with(label, candidate, reference, "all", fresh=fresh)
        rest = replace(candidate, edits=tuple(each for each in candidate.edits if each not in candidate.finite))
        finite = self._compared_with(f"{label} that are finite", candidate, reference, "finite", fresh=fresh)
        others = self._compared_with(
            f"{label}, without what is for finite ones", rest, reference, "not finite", fresh=fresh
        )
        code = reference.outcome.exit_code  # a run that fails, or compares nothing, decides
        ran = finite if finite.outcome.exit_code != code or finite.compared is None else others
        return replace(ran, differences=(*finite.differences, *others.differences), printed=finite.printed)

    def _compared_with(
        self, label: str, candidate: Candidate, reference: ReferenceRun, inputs: str, *, fresh: bool = False
    ) -> ComparedRun:
        asked = Observation(
            records=str(reference.records),
            compiled_records=str(reference.compiled_records) if reference.has_other_results else None,
            as_tensors=candidate.as_tensors,
            inputs=inputs,
        )
        return self._compared(label, watched(candidate), asked, fresh=fresh)

    def with_compiled(self, reference: ReferenceRun) -> ReferenceRun:
        """The reference, with what the unchanged program does when it is compiled."""
        asked = Observation(records=str(reference.records), own_records=str(reference.compiled_records))
        return replace(reference, compiled=self._compared("as written, compiled, with other inputs", [], asked))

    def _compared(self, label: str, edits: list[Edit], asked: Observation, *, fresh: bool = False) -> ComparedRun:
        with self._copy(edits, fresh=fresh) as (folder, copy):
            errors = folder / "stderr"
            asked = replace(asked, stderr=str(errors), root=str(copy.root), libraries=self._library_files)
            as_fork = replace(asked, seeds_first_call=self.from_first_call)
            changed = as_fork if fresh else self._changed(asked, folder, edits)
            variables = self._overlay(folder, edits) if fresh else {}
            plan = Plan(rung="eager", task=changed.to_task())
            outcome = self._run(label, copy, plan, fresh=fresh, variables=variables)
            folders = _folders(folder, copy)
            return ComparedRun(
                outcome,
                tuple(_events(outcome, CallDiffers)),
                next(_events(outcome, CallsCompared), None),
                comparable_run(outcome.tail, folders),
                comparable_run(_read(errors), folders),
            )

    @property
    def _library_files(self) -> tuple[str, ...]:
        """The files of packages whose globals count as the user's."""
        return tuple(str(self.project.path(name)) for name in sorted(self.libraries))

    def _changed(self, asked: Observation, folder: Path, edits: Iterable[Edit]) -> Observation:
        """The observation of a run whose copy is in ``folder``, with the modules of packages that the edits change."""
        names = {edit.file for edit in edits if is_library(edit.file)}
        return replace(
            asked,
            libraries=self._library_files,
            changed_modules={module_of(name): str(folder / name) for name in sorted(names)},
        )

    def _overlay(self, folder: Path, edits: Collection[Edit]) -> dict[str, str]:
        """The variable that names the overlay of these edits, as the user will have it."""
        changes = tuple(changes_of(self.project, edits))
        if not changes:
            return {}
        file = folder / "overlay.py"
        file.write_text(overlay_text(changes, self.project, edits, ()))
        return {VARIABLE: str(file)}

    @contextmanager
    def _copy(self, edits: Iterable[Edit], *, fresh: bool = False) -> Iterator[tuple[Path, Project]]:
        """A folder, removed afterwards, and a changed copy of the project, restored afterwards.

        A fork of the stopped program has its copy. The folder has the changed files of packages.
        """
        wanted = tuple(edits)
        sources = {edit.file: self.project.source(edit.file) for edit in wanted}
        folder, changed = Path(tempfile.mkdtemp(dir=self.runner.scratch)), apply_edits(sources, wanted)
        is_forked = self._stopped is not None and not fresh
        if self._stopped is not None and is_forked:
            copy = self._stopped[1]
        else:
            copy = self._started = self._started or self._new_copy()
        before = entries_of(copy.root)
        try:
            for name, text in changed.items():
                write_new((folder if is_forked or is_library(name) else copy.root) / name, text.encode())
            yield folder, copy
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            self.project.restore(copy, before)

    def _new_copy(self) -> Project:
        return self.project.copy_to(Path(tempfile.mkdtemp(dir=self.runner.scratch)))

    @contextmanager
    def _runner(self, copy: Project, *, fresh: bool) -> Iterator[Runner]:
        if self._stopped is not None and not fresh:
            yield self._stopped[0]
            return
        with self.runner.for_program(copy.program, copy.cwd) as runner:
            yield runner

    def _run(
        self,
        label: str,
        copy: Project,
        plan: Plan,
        *,
        fresh: bool = False,
        limit: float | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Outcome:
        with self._runner(copy, fresh=fresh) as runner:
            runner.environment = {**runner.environment, **(variables or {})}
            limits = runner.limits
            if limit is not None:
                runner.limits = replace(limits, seconds=min(limit, limits.seconds))
            outcome = runner.run_fresh(plan) if fresh else runner.run(plan)
            runner.limits = limits
        self.count += 1
        self.on_outcome(label, outcome)
        return outcome

    def _explanation(self, journal: Path) -> tuple[Explanation | None, tuple[str, ...]]:
        """What was recorded, and Dynamo's graphs; ``None`` if the program ended before it imported torch."""
        if not journal.exists():
            return None, ()
        made = journal.with_suffix(".dynadiag")
        fold(journal, made)
        with open_recording(made) as opened:
            graphs = tuple(opened.payload(graph.event) for graph in opened.graphs_at("dynamo"))
            return explain(opened, self._registry), graphs


def _events(outcome: Outcome, kind: type[E]) -> Iterator[E]:
    return (event for event in outcome.hook_events if isinstance(event, kind))


def _folders(folder: Path, copy: Project) -> list[str]:
    return [str(copy.root), str(folder)]


def _read(file: Path) -> str:
    return file.read_text("utf-8", "replace") if file.exists() else ""


def _contents(files: Iterable[str], root: Path) -> dict[str, str]:
    """The contents of files by their names; of a large file its digest."""
    found = {}
    for path in map(Path, files):
        content = path.read_bytes() if path.is_file() else b""
        small = len(content) < _MAX_COMPARED_FILE
        text = content.decode("latin-1") if small else hashlib.blake2b(content).hexdigest()
        found[path.relative_to(root).as_posix()] = comparable(text, [str(root)])
    return found


def watched(candidate: Candidate) -> list[Edit]:
    """The candidate's edits, with its whole calls watched as compiled calls are."""
    head = re.compile(rf"^( *)(def (?:{'|'.join(candidate.whole_calls) or '(?!)'})\()", re.M)
    return [replace(edit, text=head.sub(rf"\1@{CALL_BUILTIN}\n\1\2", edit.text)) for edit in candidate.edits]


def _instrumented(project: Project, conditions: Iterable[Condition]) -> list[Edit]:
    """Edits that make each condition report which side it takes."""
    edits = []
    for each in {condition.key: condition for condition in conditions}.values():
        text = project.source(each.file)[each.start : each.end]
        edits.append(Edit(each.file, each.start, each.end, f"{SIDE_BUILTIN}({each.key!r}, {text})"))
    return edits
