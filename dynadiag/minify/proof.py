"""Proves a repro: it reproduces the failure in a fresh interpreter with fresh caches, and passes at the rungs below.

A proved repro is bisected too, to name the culprit in its header. It is small, so that takes seconds.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from dynadiag.bisection.bisector import BACKWARD_NOTES, bisect
from dynadiag.bisection.budget import SearchStoppedError
from dynadiag.bisection.failing_rung import BisectOptions
from dynadiag.bisection.ladder import rung_plan
from dynadiag.bisection.trial_log import TrialLog
from dynadiag.bisection.trial_search import TrialSearch, fresh_key
from dynadiag.bisection.verdict import Verdict
from dynadiag.minify.failure_match import reproduces
from dynadiag.minify.minify_result import MinifyResult, culprit_names
from dynadiag.minify.repro_header import add_header_line
from dynadiag.minify.source_match import same_failure_of_source
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import AS_WRITTEN, RUNGS, Plan
from dynadiag.trial.program import Program
from dynadiag.trial.runner import Runner
from dynadiag.trial.sandbox import default_inductor_cache
from dynadiag.trial.signature import Signature

_MAX_MACHINE_CHECK = 3000  # bytes of source; the longest of torch 2.13 has 459
_FRESH_TIMEOUT = 180.0  # seconds for a fresh process with empty caches; the longest seen on a busy machine took 75
# A compile that passes: the time limit of a hang is derived from its time. With empty caches it took 53 to 134 s on a
# machine with three times too much load, where forward and backward of a layer took 85 to 98 s compiled. Uncompiled
# they took 9 to 20 s, which says nothing about compile times.
_CONTROL_PROGRAM = "import torch\n\ntorch.compile(torch.sin)(torch.ones(2))\n"
_HANG_SLACK, _HANG_FACTOR, _HANG_FEWEST = 30.0, 2.0, 3.0
HANG_LEAST = 45.0  # seconds that the repro of a hang has to outlast, however fast that compile is
_TRIAL_TIMEOUT = 30.0  # seconds for one trial: a repro compiles only a few operations
_TOTAL_TIMEOUT = 120.0  # for all trials together
# An entry of a traceback, with its line of code.
_ENTRY = re.compile(r'(?P<file>File "[^"\n]+", line )(?P<line>\d+)(?P<rest>[^\n]*\n(?P<code>[^\n]*))')
_NOT_IN_TIME = "the repro is not bisected: it takes too long"
_NO_CULPRIT = "bisecting the repro finds no culprit below its rung"
_UNSTEADY = "the repro fails in some runs and passes in others"


def _repro_reporter(search: TrialSearch) -> Callable[[int, str, str, float], None]:
    """A callback that reports trials as trials of the repro."""
    return lambda number, label, status, seconds: search.on_trial(number, f"the repro: {label}", status, seconds)


class ReproTrialLog(TrialLog):
    """The trial log of one text: a view of the log of the whole search, in which keys have a prefix for the text.

    ``known`` are known outcomes that need no trial; each is used once.
    """

    def __init__(self, rows: TrialLog, text: str, known: Mapping[str, Outcome] | None = None) -> None:
        digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        self._log, self._text, self._prefix = rows, text, f"repro {digest} "
        self._known, self._seen = dict(known or {}), dict[str, Outcome]()
        self.count = rows.count

    def next_recorded(self, candidate: str) -> Outcome | None:
        outcome = self._known.pop(candidate, None) or self._log.next_recorded(self._prefix + candidate)
        if outcome is not None:
            self._seen[candidate] = outcome
        return outcome

    def has_recorded(self, candidate: str) -> bool:
        return candidate in self._known or self._log.has_recorded(self._prefix + candidate)

    def add(self, candidate: str, outcome: Outcome, status: str, label: str = "") -> None:
        self._log.add(self._prefix + candidate, outcome, status, f"the repro: {label}")
        self.count, self._seen[candidate] = self._log.count, outcome

    def for_next_search(self, known: Mapping[str, Outcome]) -> ReproTrialLog:
        """A log for the next search on the same text: it knows these outcomes and those of this one."""
        return ReproTrialLog(self._log, self._text, {**known, **self._seen})


def prove(
    search: TrialSearch,
    program: Program,
    rows: ReproTrialLog,
    result: MinifyResult,
    rungs: Mapping[str, str],
    bisection: ReproBisection | None = None,
) -> MinifyResult:
    """Run the repro, and add the proof to the result.

    ``program`` is the repro as a file, ``rows`` logs its trials. ``rungs`` is the status of the user's program at each
    rung: at a rung below the failing one, the repro has to pass unless the program itself fails there.
    A proof for which the search has no time left is none. With a ``bisection`` both fresh processes start at once
    where trials may run side by side, and it runs before they are waited for.
    """
    try:
        return _prove(search, program, rows, result, rungs, bisection)
    except SearchStoppedError as stop:
        return replace(result, notes=(*result.notes, f"the proof was not ended: {stop}"))


def _prove(
    search: TrialSearch,
    program: Program,
    rows: ReproTrialLog,
    result: MinifyResult,
    rungs: Mapping[str, str],
    bisection: ReproBisection | None,
) -> MinifyResult:
    expected = result.reduced or result.failure
    assert expected is not None
    same = matcher_of(result)
    with _fresh_runner(search, program) as fresh, search.runner.for_program(program) as forks:
        fresh_search, fork_search = (search_of_repro(search, runner, rows) for runner in (fresh, forks))
        control = _control(search, program, result) if expected.kind == "hang" else None
        if control is not None and control.passed:
            fresh.limits = replace(fresh.limits, seconds=_seconds_of_hang(search, control.seconds))
        # As the bisection of the repro tries them: it knows their outcomes then.
        below = {rung: rung_plan(Plan(), rung) for rung in _rungs_below(result.rung)}
        at_once = forks.has_forks and search.runner.jobs > 1 and search.budget.seconds is None
        if bisection and control is None and at_once:
            fresh_search.start_fresh([AS_WRITTEN, below["uncompiled"]])
            for rung in list(below)[1:]:
                fork_search.run(below[rung], f"at {rung}")
            shown = fork_search.run(rung_plan(Plan(), result.rung or "inductor"), "as written, forked")
            if same(shown.signature, expected):
                bisection.run(shown)
        outcome = fresh_search.run_fresh(AS_WRITTEN, "in a fresh process")
        proved, printed = same(outcome.signature, expected), outcome.tail
        how = _how_it_reproduces(outcome, control) if proved else _how_it_ends(outcome)
        words = [f"in a fresh process with fresh caches it {how}"]
        for rung, plan in below.items() if proved else ():
            at = fresh_search.run_fresh(plan, rung) if rung == "uncompiled" else fork_search.run(plan, f"at {rung}")
            may_fail = rungs.get(rung) == "different"  # one culprit: the program fails there too, with another error
            proved = proved and (at.passed or may_fail)
            as_well = ", and the program fails there too" if may_fail and not at.passed else ""
            words.append(f"{rung}: {_how_it_ends(at)}{as_well}")
    reduced = outcome.signature if proved else result.reduced
    return replace(
        result, reduced=reduced, proved=proved, proof=tuple(words), printed=printed, passes_fresh=outcome.passed
    )


def matcher_of(result: MinifyResult) -> Callable[[Signature | None, Signature], bool]:
    """What decides whether the failure of a trial is that of the repro."""
    if result.level == "graph":
        return reproduces
    return partial(same_failure_of_source, text=result.text, whole_text=result.text)


def search_of_repro(
    search: TrialSearch, runner: Runner, rows: ReproTrialLog, seconds: float | None = None
) -> TrialSearch:
    """The trials of the repro, within the time of the whole search and within these seconds."""
    return TrialSearch(runner, rows, _repro_reporter(search), budget=search.budget.part(seconds))


def _rungs_below(rung: str | None) -> Iterator[str]:
    """The rungs below the failing one, `uncompiled` first. `custom` counts as the highest rung."""
    yield from (r for r in RUNGS[: RUNGS.index(rung or "inductor")] if r not in ("triton", "inductor"))


@contextmanager
def _fresh_runner(search: TrialSearch, program: Program) -> Iterator[Runner]:
    """A runner of fresh interpreters with their own cache folder, under the search's limits."""
    fresh = Path(program.target).with_suffix(".cache")
    _copy_machine_checks(Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR") or default_inductor_cache()), fresh)
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(fresh)}
    limits = replace(search.runner.limits, seconds=max(search.runner.limits.seconds, _FRESH_TIMEOUT))
    # No hooks of a search: nothing is compiled uncompiled, and they would load the compiler.
    with Runner(program, (), limits, fresh_caches=True, environment=environment) as runner:
        yield runner


def _copy_machine_checks(cache: Path, fresh: Path) -> None:
    """Copy to an empty cache the libraries with which Inductor finds out what vector instructions the processor has.

    They hold nothing of a program, and Inductor loads them again. To compile them takes a third of the CPU time of a
    first compile.
    """
    for source in cache.glob("??/c*.cpp"):
        library = source.with_suffix(".so")
        try:
            if source.stat().st_size < _MAX_MACHINE_CHECK and b"_chk_kernel" in source.read_bytes():
                (target := fresh / source.parent.name).mkdir(parents=True, exist_ok=True)
                for file in (library, source):
                    shutil.copy2(file, target)
        except OSError:  # somebody cleans the cache, or its library is missing
            continue


def _control(search: TrialSearch, program: Program, result: MinifyResult) -> Outcome:
    """Time a compile that passes, in the same way, at the repro's backend and under the machine's present load."""
    from minifier.source.altered import names_backend, with_backend  # loads the minifier, which the help does not need

    rung = str(result.rung)
    text = with_backend(_CONTROL_PROGRAM, rung) if names_backend(result.text, rung) else _CONTROL_PROGRAM
    file = Path(program.target).with_name("control.py")
    file.write_text(text)
    with _fresh_runner(search, Program(str(file))) as runner:
        rows = ReproTrialLog(search.log, text)
        return search_of_repro(search, runner, rows).run_fresh(AS_WRITTEN, "for comparison, a compile that passes")


def _seconds_of_hang(search: TrialSearch, passing: float) -> float:
    """The time limit of a repro that hangs, by the seconds of a compile that passes. A budget may leave less, down to
    several times those: the proof tells both.
    """
    seconds, left = max(HANG_LEAST, _HANG_SLACK + _HANG_FACTOR * passing), search.budget.seconds_left()
    if left is None:
        return seconds
    return max(_HANG_FEWEST * passing, min(seconds, left - 2 * passing))  # it runs uncompiled as well


def _how_it_reproduces(outcome: Outcome, control: Outcome | None) -> str:
    if control is None:
        return "fails the same way"
    return f"hangs too: stopped after {outcome.seconds:.0f} s; a compile that passes takes {control.seconds:.0f} s"


def _how_it_ends(outcome: Outcome) -> str:
    if outcome.passed:
        return "passes"
    found = outcome.signature
    return f"fails with {found.text.rstrip('.')}" if found else f"{outcome.invalid}"


def with_culprits(result: MinifyResult, verdict: Verdict | None) -> MinifyResult:
    """The result of a repro with the culprits of its bisection, which its header names too. If there are none, a
    note says so, or that it does not fail in each run.
    """
    if verdict is not None and verdict.verdict == "flaky":
        return replace(result, notes=(*result.notes, _UNSTEADY), passes_fresh=True)
    if verdict is None or not verdict.culprits:
        return replace(result, notes=(*result.notes, _NOT_IN_TIME if verdict is None else _NO_CULPRIT))
    operators = tuple(f"{culprit.name} " for culprit in verdict.culprits if culprit.group == "operator")
    # What a maintainer asks first: whether a backward fails uncompiled too, and which promise of its schema it breaks.
    told = [note for note in verdict.notes if note in BACKWARD_NOTES or (operators and note.startswith(operators))]
    text = result.text
    for line in (f"bisected: {culprit_names(verdict)}", *told):
        text = add_header_line(text, line)
    notes = tuple(dict.fromkeys((*result.notes, *told)))
    printed = _shifted(result.printed, result.text, text.count("\n") - result.text.count("\n"))
    return replace(result, bisect_verdict=verdict, text=text, notes=notes, printed=printed)


def _shifted(printed: str, text: str, lines: int) -> str:
    """What the repro printed, with the line numbers that it has behind so many more lines of header."""
    source = [line.strip() for line in text.splitlines()]

    def shifted(entry: re.Match[str]) -> str:
        number = int(entry["line"])
        is_own = number <= len(source) and entry["code"].strip() == source[number - 1]
        return f"{entry['file']}{number + lines if is_own else number}{entry['rest']}"

    return _ENTRY.sub(shifted, printed)


@dataclass(slots=True)
class ReproBisection:
    """Bisects a repro once: while its proof runs, or after it. ``program`` is the repro as a file."""

    search: TrialSearch
    program: Program
    rows: ReproTrialLog
    _made: list[Verdict | None] = field(default_factory=list)

    def run(self, shown: Outcome | None = None) -> Verdict | None:
        """The verdict; None if it takes too long, as it would in fresh interpreters.

        ``shown`` is how the repro fails in a fork, where no fresh interpreter has told it yet.
        """
        if not self._made:
            known = {} if shown is None else {fresh_key(AS_WRITTEN): shown}
            self._made.append(_verdict(self.search, self.program, self.rows.for_next_search(known)))
        return self._made[0]


def _verdict(search: TrialSearch, program: Program, rows: ReproTrialLog) -> Verdict | None:
    with search.runner.for_program(program) as runner:
        if not runner.has_forks:
            return None
        search.on_message("bisecting the repro")
        runner.limits = replace(runner.limits, seconds=min(runner.limits.seconds, _TRIAL_TIMEOUT))
        repro = replace(search_of_repro(search, runner, rows, _TOTAL_TIMEOUT), repeat=search.repeat)
        verdict = bisect(repro, BisectOptions(repeat=search.repeat, remarks=False))
    return None if verdict.verdict == "stopped" else verdict
