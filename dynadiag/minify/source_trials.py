"""Runs the candidates of a source reduction: as a file in a folder of its own, compiled and uncompiled."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from dynadiag.bisection.budget import SearchStoppedError
from dynadiag.bisection.trial_search import TrialSearch
from dynadiag.minify.job_forms import JobForm
from dynadiag.minify.source_match import is_raised_by_program, same_failure_of_source, values_differ
from dynadiag.minify.source_program import insert_first
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import RUNGS, Plan
from dynadiag.trial.program import Program
from dynadiag.trial.runner import Runner
from dynadiag.trial.signature import Signature
from dynadiag.trial.typed_json import load
from minifier.source import Observed, fill_memory, observer_file

FILE = "repro.py"  # the name of a candidate's file
_PREFIX = "source "  # of the keys of these trials in the trial log
_WITH_KERNELS = RUNGS[RUNGS.index("inductor") :]
UNCOMPILED = Plan(rung="uncompiled", caches=False)
_CONTROL = "import torch\ntorch.compile(lambda x: x + 1, backend='eager')(torch.ones(2))\n"  # a compile that passes
# A candidate hangs after these seconds, and after this multiple of the time of a program that passes.
_HANG_LEAST, _HANG_FACTOR = 2.0, 8.0
# A candidate ends after these seconds, and after this multiple of the time of the fastest program so far. Without the
# arguments that keep a model small, each later trial would build the large one.
_SLOW_LEAST, _SLOW_FACTOR = 0.5, 4.0
# That least where kernels are written: a C++ compiler takes 1 to 3 seconds for one, and none for one in its cache.
_SLOW_LEAST_WITH_KERNELS = 10.0
# Where forks do not show the failure, each trial is a fresh interpreter, which loads torch. Without --budget the
# reduction then ends after these seconds, or after this multiple of the first trials' time if that is longer.
_FRESH_LEAST, _FRESH_FACTOR = 600.0, 20.0
_OBSERVED_SHARE = 0.8  # of the time limit, after which a program that is observed ends
_ENDED = (
    "the reduction was ended before it had tried everything: no fork shows the failure, so each loads torch anew; "
    "--budget gives it more time, --resume continues it"
)
_PRINTED = "printed.txt"
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_MAX_PRINTED = 4000  # characters that are compared; a trial log keeps as many
_REDIRECT = f"import sys\nsys.stdout = open({_PRINTED!r}, 'w', buffering=1)\n"
_OTHER_MEMORY = f"{inspect.getsource(fill_memory)}{fill_memory.__name__}()\n"
OUTPUT_DIFFERS = Signature("wrong_result", "wrong_result", "it prints something other than uncompiled", rung="eager")


@dataclass(slots=True)
class SourceTrials:
    """The trials of one program's candidates. Each runs in a folder of its own, which is removed afterwards.

    ``expected`` is the failure that a candidate has to show, ``whole_text`` the program that shows it. With
    ``own_words`` an assertion of the program has to keep its message. With a ``form`` the program is that of a job's
    ranks.
    """

    search: TrialSearch
    runner: Runner
    whole_text: str
    expected: Signature | None
    rung: str = "eager"  # that candidates are compiled at
    files: Mapping[str, Path] = field(default_factory=dict)  # copied into the folder of each candidate
    own_words: bool = True
    checks_memory: bool = False  # each candidate is tried with other values in memory that nothing has set
    form: JobForm | None = None
    in_values: bool | None = None  # whether the output differs in numbers, not only in words
    cached: int = 0
    best_tokens: int = 0
    fastest: float = math.inf  # seconds of CPU time of the fastest text that failed as expected
    last_failure: Signature | None = None  # of the last text that failed as expected
    observed: dict[str, Observed] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)  # outcomes of a search that is resumed
    made: dict[str, Outcome] = field(default_factory=dict)  # outcomes of this search, by key
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False
    out_of_time: bool = False
    ends: float = math.inf  # when the reduction ends, by the clock of `time.monotonic`

    @property
    def compiled(self) -> Plan:
        """The plan of a candidate that is compiled."""
        return Plan(rung=self.rung, caches=False)

    @property
    def stopped(self) -> bool:
        """Whether a candidate was refused because the time is over, or Ctrl-C was pressed."""
        return self.interrupted or self.out_of_time

    def use_kept_time(self) -> None:
        """Let the last trials use what `--budget` keeps for the proof."""
        self.search.budget.keep_back(0.0)
        self.ends = math.inf
        self.out_of_time = self.search.budget.is_out_of_time

    @contextmanager
    def few_more(self) -> Iterator[None]:
        """Run the few trials that the best so far needs to be a repro, also after the search has ended."""
        ended = self.interrupted, self.out_of_time
        if self.stopped and self.runner.has_forks:
            self.interrupted = False
            self.use_kept_time()
        yield
        self.interrupted, self.out_of_time = self.interrupted or ended[0], self.out_of_time or ended[1]

    def note_step(self, _name: str, tokens: int) -> None:
        """The reduction has a smaller program."""
        self.best_tokens = tokens

    def note_fault(self, name: str, error: Exception) -> None:
        """A pass of the reduction has raised, and was left out."""
        note = f"the pass {name} was left out: it raised {type(error).__name__}: {error} (a fault of dynadiag)"
        if note not in self.notes:
            self.notes.append(note)

    def first_failure(self, text: str) -> Signature | None:
        """The failure of the whole program as one file, which becomes the expected one. None if it fails otherwise or
        not at all.
        """
        if self.expected is not None and self.expected.kind == "hang":
            self._shorten_limit(text)
        began = time.monotonic()
        found = self._first_failure(text)
        if not self.runner.has_forks and self.search.budget.seconds is None:
            self.ends = time.monotonic() + max(_FRESH_LEAST, _FRESH_FACTOR * (time.monotonic() - began))
        return found

    def _first_failure(self, text: str) -> Signature | None:
        if self.expected is not None and self.expected.is_wrong_result:
            return self.expected if self.fails(text) else None
        outcome = self.run(text, self.compiled, "the program as one file")
        found = outcome.signature
        if found is None or (self.expected is not None and not self.matches(outcome, text)):
            self.notes.append(f"{self._place}, {_describe(found)}")
            return None
        self.expected = self.last_failure = found
        uncompiled = self.run(text, UNCOMPILED, "uncompiled")
        if not uncompiled.passed:
            self.notes.append(f"{self._place} and uncompiled, {_describe(uncompiled.signature)}")
        self._refuse_slower(outcome, uncompiled)
        return found if uncompiled.passed else None

    @property
    def _place(self) -> str:
        return f"as {self.form.description}" if self.form else "as one file in an empty folder"

    def file(self, text: str) -> str:
        """The program as the repro has it."""
        return self.form.file(text) if self.form else text

    def _shorten_limit(self, text: str) -> None:
        """Shorten the time limit of a candidate to several times what a compile that passes takes here."""
        passing = self.run(text, UNCOMPILED, "uncompiled"), self.run(_CONTROL, self.compiled, "a compile that passes")
        self.limit_seconds(max(_HANG_LEAST, _HANG_FACTOR * max(outcome.cpu_seconds for outcome in passing)))

    def limit_seconds(self, seconds: float, most: float | None = None) -> None:
        """Set the time limit of a candidate, in seconds of CPU time: at most that of the search, or ``most``."""
        most = self.search.runner.limits.seconds if most is None else most
        self.runner.limits = replace(self.runner.limits, seconds=min(seconds, most), of_cpu=True)

    def fails(self, text: str) -> bool:
        """Whether a program fails in the expected way, and passes uncompiled. After the end of the search none does."""
        with self._noting_the_end():
            return not self.stopped and self._fails(text)
        return False

    @contextmanager
    def _noting_the_end(self) -> Iterator[None]:
        """Note what ends the search, instead of raising it: the best so far is kept."""
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted = True
        except SearchStoppedError:
            self.out_of_time = True

    def _fails(self, text: str) -> bool:
        if self.expected is not None and self.expected.is_wrong_result:
            return self._prints_otherwise(text)
        if self._begins_uncompiled and not self.run(text, UNCOMPILED, "uncompiled").passed:
            return False
        outcome = self.run(text, self.compiled, "compiled")
        if not self.matches(outcome, text):
            return False
        uncompiled = self.run(text, UNCOMPILED, "uncompiled")
        if not uncompiled.passed:
            return False
        if outcome.is_hang and uncompiled.cpu_seconds > self.runner.limits.seconds / 2:
            return False
        self.last_failure = outcome.signature
        if outcome.is_hang:  # each later one takes the limit: shorter now that the program is
            shorter = max(_HANG_LEAST, _HANG_FACTOR * uncompiled.cpu_seconds)
            self.limit_seconds(min(shorter, self.runner.limits.seconds))
        self._refuse_slower(outcome, uncompiled)
        return True

    @property
    def _begins_uncompiled(self) -> bool:
        """Whether a candidate runs uncompiled first: a hang takes the whole limit, and an assertion of the program
        fails in many broken programs. Few candidates raise what torch raised, and most of these pass uncompiled.
        """
        return self.expected is not None and (self.expected.kind == "hang" or is_raised_by_program(self.expected))

    def _refuse_slower(self, compiled: Outcome, uncompiled: Outcome) -> None:
        """End later candidates that take far longer than the fastest that fails as expected, which may be this one."""
        if not compiled.is_hang:
            self.fastest = min(self.fastest, max(compiled.cpu_seconds, uncompiled.cpu_seconds))
            least = _SLOW_LEAST_WITH_KERNELS if self.rung in _WITH_KERNELS else _SLOW_LEAST
            self.limit_seconds(max(least, _SLOW_FACTOR * self.fastest))

    def _prints_otherwise(self, text: str) -> bool:
        """Whether the compiled program prints something else."""
        uncompiled = self.printed(text, UNCOMPILED, "uncompiled")
        compiled = self.printed(text, self.compiled, "compiled") if uncompiled is not None else None
        if compiled is None or uncompiled is None or compiled == uncompiled:
            return False
        in_values = values_differ(compiled, uncompiled)
        if self.in_values is not None and in_values != self.in_values:
            return False
        if self.checks_memory and self.prints_unset_memory(text):
            return False
        self.in_values = in_values
        return True

    def prints_unset_memory(self, text: str) -> bool:
        """Whether the program prints something else uncompiled too where memory that nothing has set holds something
        else.
        """
        other = self.printed(insert_first(text, _OTHER_MEMORY), UNCOMPILED, "uncompiled, with other memory")
        return other != self.printed(text, UNCOMPILED, "uncompiled")

    def printed(self, text: str, plan: Plan, label: str) -> str | None:
        """What a program prints, without addresses; None if it fails, or if no time is left."""
        with self._noting_the_end():
            outcome = self.run(insert_first(text, _REDIRECT), plan, label, keep=_PRINTED)
            return _ADDRESS.sub("0x", outcome.tail) if outcome.passed else None
        return None

    def matches(self, outcome: Outcome, text: str) -> bool:
        """Whether the outcome of a program is the expected failure."""
        return self.expected is not None and same_failure_of_source(
            outcome.signature, self.expected, text, self.whole_text, own_words=self.own_words
        )

    def run(self, text: str, plan: Plan, label: str, keep: str | None = None) -> Outcome:
        """The outcome of a program; a known one where the search is resumed. ``keep`` is a file that it writes, whose
        text becomes the outcome's output. Raises `SearchStoppedError` if no time is left.
        """
        return self._known(text, label) or self._run_new([text], plan, label, keep)[0]

    def run_ahead(self, texts: Sequence[str]) -> None:
        """Run the first trial of each of these programs side by side, before `fails` asks for it."""
        plan, label, keep = self.compiled, "compiled", None
        if self._begins_uncompiled:
            plan, label = UNCOMPILED, "uncompiled"
        elif self.expected is not None and self.expected.is_wrong_result:
            plan, label, keep = UNCOMPILED, "uncompiled", _PRINTED
            texts = [insert_first(text, _REDIRECT) for text in texts]
        new = [text for text in texts if self._known(text, label) is None]
        with self._noting_the_end():
            if len(new) > 1 and not self.stopped:
                self._run_new(new, plan, label, keep)

    def _known(self, text: str, label: str) -> Outcome | None:
        """The outcome of a trial that was made, by this search or by the one that it resumes."""
        key = self._key(text, label)
        if (known := self.known.pop(key, None)) is not None:
            self.cached += 1
            self.made[key] = load(known, Outcome)
        return self.made.get(key)

    def _run_new(self, texts: Sequence[str], plan: Plan, label: str, keep: str | None) -> list[Outcome]:
        if time.monotonic() > self.ends:
            self.notes.append(_ENDED)
            raise SearchStoppedError(_ENDED)
        with ExitStack() as folders:
            files = [folders.enter_context(self._file(self._program(text))) for text in texts]
            places = [(Program(str(file)), file.parent) for file in files]
            outcomes = self.search.budget.run(self.runner, lambda: self.runner.run_programs(plan, places))
            printed = [file.with_name(keep) for file in files] if keep else []
            for number, file in enumerate(printed):
                if file.exists():
                    tail = file.read_text(errors="replace")[-_MAX_PRINTED:]
                    outcomes[number] = replace(outcomes[number], tail=tail)
        for text, outcome in zip(texts, outcomes, strict=True):
            key = self._key(text, label)
            if not outcome.is_hang:  # at another limit it may not be any
                self.made[key] = outcome
            self._log(key, outcome, text, label)
        return outcomes

    def _program(self, text: str) -> str:
        return self.form.file(text, forked=True) if self.form else text

    def _key(self, text: str, label: str) -> str:
        """The key of a trial in the trial log."""
        digest = hashlib.blake2b(self._program(text).encode(), digest_size=12).hexdigest()
        return f"{_PREFIX}{label} {digest}"

    def _log(self, key: str, outcome: Outcome, text: str, label: str) -> None:
        status = "pass" if outcome.passed else "same" if self.matches(outcome, text) else "different"
        self.search.log.add(key, outcome, status, f"source: {label}")
        best = f", best so far {self.best_tokens} tokens" if self.best_tokens else ""  # none before the first reduction
        shown = f"source, {label}{best}"
        self.search.on_trial(self.search.log.count, shown, status, outcome.seconds)

    @contextmanager
    def _file(self, text: str) -> Iterator[Path]:
        """The program's file, in a folder with copies of its data files."""
        folder = Path(tempfile.mkdtemp(dir=self.runner.scratch))
        file = folder / FILE
        file.write_text(text, encoding="utf-8")
        for name, source in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / name)
        try:
            yield file
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def observe(self, text: str) -> Observed:
        """What an uncompiled run of the program showed. Empty if it cannot be observed."""
        if text not in self.observed:
            self.observed = {text: Observed()}
            with self._noting_the_end():
                self.observed = {text: self._observe(text)}
        return self.observed[text]

    def _observe(self, text: str) -> Observed:
        with self._file(text) as file:
            output = file.with_name("observed.json")
            limits = self.runner.limits
            self.runner.limits = self.search.runner.limits  # what hangs may have a shorter one
            seconds = str(self.runner.limits.seconds * _OBSERVED_SHARE)
            program = Program(str(observer_file()), (str(file), str(output), seconds))
            try:
                self.search.budget.run(
                    self.runner, lambda: self.runner.run_programs(UNCOMPILED, [(program, file.parent)])
                )
            finally:
                self.runner.limits = limits
            try:
                return Observed.from_json(json.loads(output.read_text()))
            except (OSError, ValueError):
                return Observed()


def _describe(failure: Signature | None) -> str:
    """How the program ended, in a line."""
    if failure is None:
        return "it passes"
    return f"it fails with {failure.type}: {failure.message.strip().partition(chr(10))[0]}"


@contextmanager
def source_trials(
    search: TrialSearch,
    text: str,
    imports: Sequence[str],
    expected: Signature | None,
    rung: str = "eager",
    files: Mapping[str, Path] = MappingProxyType({}),
) -> Iterator[SourceTrials]:
    """The trials of a program's candidates, in forks that have its libraries loaded."""
    with search.runner.for_program(search.runner.program, imports=imports) as runner:
        known = search.log.recorded_with_prefix(_PREFIX)
        yield SourceTrials(search, runner, text, expected, rung, files, known=known)
