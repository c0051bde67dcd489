from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import MagicMock

import pytest

from dynadiag.bisection.bisector import BACKWARD_NOTES
from dynadiag.bisection.budget import SearchBudget
from dynadiag.bisection.trial_log import TrialLog
from dynadiag.bisection.trial_search import TrialSearch
from dynadiag.bisection.verdict import Culprit, Verdict
from dynadiag.minify import proof
from dynadiag.minify.minify_result import MinifyResult
from dynadiag.minify.proof import ReproBisection, ReproTrialLog, prove, with_culprits
from dynadiag.recording.reader import Recording
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.program import Program
from dynadiag.trial.signature import Signature
from dynadiag.trial.supervise import Limits

RESULT = MinifyResult("reduced", rung="inductor", text="# exception with backend inductor\nimport torch\n", proved=True)
FOUND = Verdict("found", {}, "inductor", culprits=(Culprit("lowering", "tanh", "0/0", "inference"),))


@dataclass
class Runner:
    has_forks: bool = True
    limits: Limits = Limits(600.0, 1 << 30)  # noqa: RUF009 - it is frozen
    jobs: int = 1

    @contextmanager
    def for_program(self, _: Program) -> Iterator[Runner]:
        yield self


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[TrialLog]:
    made = TrialLog(tmp_path / "search.dynadiag", "train.py", ["train.py"], asked={"command": "minify"})
    yield made
    made.discard()


def after(
    rows: TrialLog, runner: Any, monkeypatch: pytest.MonkeyPatch, verdict: Verdict
) -> tuple[MinifyResult, list[str]]:
    """The result, and what was told of trials, where bisection says this."""
    told: list[str] = []

    def bisect(search: TrialSearch, _: object) -> Verdict:
        search.on_trial(1, "aot_eager", "pass", 0.1)
        return verdict

    monkeypatch.setattr(proof, "bisect", bisect)
    search = TrialSearch(runner, rows, lambda _number, label, _status, _seconds: told.append(label))
    return with_culprits(
        RESULT, ReproBisection(search, Program("repro.py"), ReproTrialLog(rows, RESULT.text)).run()
    ), told


def test_what_is_at_fault_is_in_the_header(rows: TrialLog, monkeypatch: pytest.MonkeyPatch) -> None:
    result, told = after(rows, Runner(), monkeypatch, FOUND)
    assert result.text == "# exception with backend inductor\n# bisected: lowering tanh\nimport torch\n"
    assert result.bisect_verdict is FOUND
    assert told == ["the repro: aot_eager"]


def test_what_the_repro_printed_has_the_line_numbers_that_it_has_with_its_header() -> None:
    printed = (
        'Traceback:\n  File "/t/repro.py", line 2, in <module>\n    import torch\n'
        '  File "/t/torch/base.py", line 2, in f\n    raise Error\n'
    )
    result = with_culprits(replace(RESULT, printed=printed), FOUND)
    assert 'repro.py", line 3, in <module>\n    import torch' in result.printed
    assert result.text.splitlines()[2] == "import torch"
    assert 'base.py", line 2, in f' in result.printed


def test_the_promise_that_an_operator_breaks_is_in_the_header_and_the_notes(
    rows: TrialLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = "a.b.default changes its argument x, which its schema does not declare"
    verdict = replace(FOUND, culprits=(Culprit("operator", "a.b.default"),), notes=("of other kinds", note))
    result, _ = after(rows, Runner(), monkeypatch, verdict)
    assert result.text.splitlines()[1:3] == ["# bisected: operator a.b.default", f"# {note}"]
    assert result.notes == (note,)


@pytest.mark.parametrize("note", BACKWARD_NOTES)
def test_whether_a_backward_fails_uncompiled_too_is_in_the_header_and_the_notes(
    note: str, rows: TrialLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, _ = after(rows, Runner(), monkeypatch, replace(FOUND, notes=("of other kinds", note)))
    assert note.partition(";")[0] in result.text
    assert result.notes == (note,)


@pytest.mark.parametrize("why", ["below its rung", "some runs", "no forks", "too long"])
def test_where_nothing_is_found_the_text_is_as_it_was_proved(
    rows: TrialLog, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    verdicts = {"below its rung": "found", "some runs": "flaky", "too long": "stopped"}
    verdict = Verdict(verdicts[why], {}) if why in verdicts else FOUND
    result, told = after(rows, Runner(has_forks=why != "no forks"), monkeypatch, verdict)
    assert (result.text, result.bisect_verdict, result.proved) == (RESULT.text, None, True)
    (note,) = result.notes
    assert ("too long" if why == "no forks" else why) in note
    assert bool(told) == (why != "no forks")
    assert result.passes_fresh == (why == "some runs")  # then the graph is reduced again


PASSED, SLOW = Outcome(None, 1.0), Outcome(None, 9.0)


def test_trials_of_a_text_are_rows_of_the_search(tmp_path: Path) -> None:
    made = TrialLog(tmp_path / "search.dynadiag", "train.py", ["train.py"], asked={"command": "minify"})
    of_text = ReproTrialLog(made, "import torch\n")
    of_text.add("plan", PASSED, "pass", "at eager")
    assert (of_text.count, made.count) == (1, 1)
    with Recording(made.finish(0, force=True)) as search:
        (trial,) = search.trials()
    assert "the repro: at eager" in trial.outcome
    resumed = TrialLog(tmp_path / "again.dynadiag", "train.py", ["train.py"], tmp_path / "search.dynadiag")
    other, same = ReproTrialLog(resumed, "import math\n"), ReproTrialLog(resumed, "import torch\n")
    assert not other.has_recorded("plan")
    assert other.next_recorded("plan") is None
    assert same.has_recorded("plan")
    assert same.next_recorded("plan") == PASSED
    resumed.discard()


def test_another_search_on_a_text_knows_each_outcome_once(rows: TrialLog) -> None:
    first = ReproTrialLog(rows, "import torch\n")
    first.add("plan", PASSED, "pass")
    assert first.next_recorded("plan") is None  # whoever asks again wants another trial
    second = first.for_next_search({})
    assert second.has_recorded("plan")
    assert second.next_recorded("plan") == PASSED
    assert second.next_recorded("plan") is None
    second.add("plan", SLOW, "pass")
    assert second.for_next_search({}).next_recorded("plan") == SLOW


HANG = Signature("hang", "hang", "the trial did not end")
RAISED = Signature("exception", "RuntimeError", "no lowering", "torch/_inductor/lowering.py:1 in f")


class FreshRunner(Runner):
    """Stands in for fresh interpreters: a repro that fails as written and passes at each rung below, and a control
    program that passes in five seconds.
    """

    has_forks = True
    failure = HANG
    seconds: ClassVar[list[float]] = []  # the time limit of each trial of the repro
    started: ClassVar[list[list[str | None]]] = []  # the rungs of the trials that were started at once

    def __init__(self, program: Program, *_: Any, limits: Limits | None = None, **_options: Any) -> None:
        self.limits = limits or Limits(600.0, 1 << 30)
        self._is_control = program.target.endswith("control.py")

    def __enter__(self) -> FreshRunner:
        return self

    def __exit__(self, *_: object) -> None: ...

    def run_fresh(self, plan: Plan) -> Outcome:
        if self._is_control:
            return Outcome(None, 5.0)
        self.seconds.append(self.limits.seconds)
        failed = plan.rung in (None, "aot_eager")
        return Outcome(self.failure if failed else None, self.limits.seconds if failed else 1.0)

    run = run_fresh

    def start_fresh(self, plans: Sequence[Plan]) -> None:
        self.started.append([plan.rung for plan in plans])


@pytest.mark.parametrize(("jobs", "failure"), [(1, RAISED), (2, RAISED), (2, HANG)])
def test_the_fresh_processes_run_while_the_repro_is_bisected(
    rows: TrialLog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, jobs: int, failure: Signature
) -> None:
    monkeypatch.setattr(proof, "Runner", FreshRunner)
    monkeypatch.setattr(FreshRunner, "failure", failure)
    monkeypatch.setattr(FreshRunner, "started", [])
    monkeypatch.setattr(FreshRunner, "jobs", jobs)
    program = Program(str(tmp_path / "repro.py"))
    search = TrialSearch(FreshRunner(program), rows)  # type: ignore[arg-type]  # a stand-in
    result = MinifyResult("reduced", rung="aot_eager", text="x", failure=failure)
    seen: list[list[str | None]] = []
    monkeypatch.setattr(proof, "_verdict", lambda *_: seen.extend(FreshRunner.started))
    log = ReproTrialLog(rows, "x")
    found = prove(search, program, log, result, {}, ReproBisection(search, program, log))
    assert found.proved
    # A hang is told by the time that it takes, so nothing runs beside it.
    assert seen == ([[None, "uncompiled"]] if jobs > 1 and failure is RAISED else [])


@pytest.mark.parametrize("failure", [HANG, RAISED])
def test_a_hang_is_told_from_a_slow_compile_by_a_compile_that_passes(
    rows: TrialLog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failure: Signature
) -> None:
    monkeypatch.setattr(proof, "Runner", FreshRunner)
    monkeypatch.setattr(FreshRunner, "failure", failure)
    monkeypatch.setattr(FreshRunner, "seconds", [])
    program = Program(str(tmp_path / "repro.py"))
    search = TrialSearch(FreshRunner(program), rows)  # type: ignore[arg-type]  # a stand-in
    text = "torch.compile(f, backend='aot_eager')()"
    result = MinifyResult("reduced", rung="aot_eager", text=text, failure=failure)
    found = prove(search, program, ReproTrialLog(rows, text), result, {})
    assert found.proved
    assert found.proof[1:] == ("uncompiled: passes", "eager: passes")
    if failure is HANG:
        assert "a compile that passes takes 5 s" in found.proof[0]
        assert FreshRunner.seconds[0] < 60
        assert "backend='aot_eager'" in (tmp_path / "control.py").read_text()  # it compiles no more than the repro
    else:
        assert found.proof[0] == "in a fresh process with fresh caches it fails the same way"
        assert FreshRunner.seconds[0] == 600


@pytest.mark.parametrize(
    ("budget", "passing", "seconds"),
    [(None, 5.0, 45.0), (None, 20.0, 70.0), (60.0, 20.0, 60.0), (75.0, 14.0, 47.0), (500.0, 20.0, 70.0)],
)
def test_a_budget_shortens_the_limit_of_a_hang_to_several_compiles_that_pass(
    budget: float | None, passing: float, seconds: float
) -> None:
    search = MagicMock(budget=SearchBudget(budget))
    assert proof._seconds_of_hang(search, passing) == pytest.approx(seconds, abs=1.0)


def test_only_what_inductor_compiles_to_know_the_processor_is_copied_to_an_empty_cache(tmp_path: Path) -> None:
    from torch._inductor.cpu_vec_isa import VecISA

    cache, fresh = tmp_path / "cache", tmp_path / "fresh"
    sources = {"aa/caa1": VecISA._avx_code, "bb/cbb1": 'extern "C" void kernel() {}', "cc/ccc1": VecISA._avx_code}
    for name, source in sources.items():
        (cache / name).parent.mkdir(parents=True)
        (cache / f"{name}.cpp").write_text(source)
    for name in ("aa/caa1", "bb/cbb1"):  # the last has no library: it was not compiled, or is just being compiled
        (cache / f"{name}.so").write_bytes(b"library")
    proof._copy_machine_checks(cache, fresh)
    copied = {str(path.relative_to(fresh)) for path in fresh.rglob("*") if path.is_file()}
    assert copied == {"aa/caa1.cpp", "aa/caa1.so"}
    proof._copy_machine_checks(tmp_path / "missing", fresh)
