"""A search that does not converge, or whose trials contradict each other, stops and reports what it found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

import pytest

from dynadiag.bisection import bisector, trial_search
from dynadiag.bisection.bisector import bisect
from dynadiag.bisection.budget import AnswersContradictError, SearchBudget, SearchStoppedError
from dynadiag.bisection.decisions import DecisionPool
from dynadiag.bisection.descent import DescentResult
from dynadiag.bisection.failing_rung import BisectOptions, FailingRung, find_failing_rung
from dynadiag.bisection.trial_log import TrialLog
from dynadiag.bisection.trial_search import LabeledPlan, TrialSearch
from dynadiag.bisection.verdict import Culprit, InterruptedSearch, Verdict
from dynadiag.trial.events import RunFacts
from dynadiag.trial.outcome import Decision, Outcome
from dynadiag.trial.plan import Plan, Switch
from dynadiag.trial.signature import Signature
from dynadiag.trial.supervise import Limits

FAILURE = Signature("exception", "AssertionError", "too slow", user="program.py:9")
FAILED = Outcome(FAILURE, 0.1, pid=1, facts=RunFacts(backends=("inductor",)))
PASSED = Outcome(None, 0.1, pid=1, facts=RunFacts(backends=("inductor",)))


@dataclass
class Answers:
    """A runner that answers by a function of the plan and of the number of trials so far."""

    answer: Callable[[Plan, int], Outcome]
    has_forks: bool = False
    runs_in_parallel: bool = False
    limits: Limits = field(default_factory=lambda: Limits(100.0, 1 << 40))
    notes: list[str] = field(default_factory=list)
    trials: int = 0
    fresh: int = 0

    def run(self, plan: Plan) -> Outcome:
        self.trials += 1
        return self.answer(plan, self.trials)

    def run_fresh(self, plan: Plan) -> Outcome:
        self.fresh += 1
        return self.run(plan)

    def start_forks(self, threads: int) -> None:
        self.has_forks = True

    def stop_forks(self) -> None:
        self.has_forks = False

    def warm_up(self) -> None: ...

    def drop_checkpoint(self) -> bool:
        return False


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[TrialLog]:
    log = TrialLog(tmp_path / "search.dynadiag", "program.py", ["program.py"])
    yield log
    log.discard()


def search_of(rows: TrialLog, answer: Callable[[Plan, int], Outcome], **budget: float) -> TrialSearch:
    return TrialSearch(Answers(answer), rows, reference=FAILURE, budget=SearchBudget(**budget))  # type: ignore[arg-type]


def test_a_search_stops_at_its_number_of_trials(rows: TrialLog) -> None:
    search = search_of(rows, lambda _plan, _n: PASSED, trials=2)
    search.run(Plan(rung="eager"), "eager")
    search.run(Plan(rung="eager"), "eager")  # known
    search.run(Plan(rung="aot_eager"), "aot_eager")
    with pytest.raises(SearchStoppedError, match="2 trials have named no culprit"):
        search.run(Plan(rung="inductor"), "inductor")


def test_a_search_stops_when_its_seconds_are_spent(rows: TrialLog) -> None:
    search = search_of(rows, lambda _plan, _n: PASSED, seconds=-1.0)
    with pytest.raises(SearchStoppedError, match="--budget"):
        search.run(Plan(rung="eager"), "eager")
    assert rows.count == 0


def test_a_trial_that_the_budget_cuts_short_is_no_hang(rows: TrialLog) -> None:
    limits = []

    def answer(_plan: Plan, _n: int) -> Outcome:
        limits.append(search.runner.limits.seconds)
        return Outcome(Signature("hang", "timeout", "did not end in time"), 1.0)

    search = search_of(rows, answer, seconds=50.0)
    with pytest.raises(SearchStoppedError):
        search.run(Plan(rung="eager"), "eager")
    assert limits[0] <= 50.0
    assert search.runner.limits.seconds == 100.0
    assert rows.count == 0


def test_a_trial_under_a_budget_keeps_the_other_limits(rows: TrialLog) -> None:
    def answer(_plan: Plan, _n: int) -> Outcome:
        seen.append(search.runner.limits)
        return PASSED

    seen: list[Limits] = []
    search = search_of(rows, answer, seconds=50.0)
    search.runner.limits = Limits(20.0, 1 << 30, output=7, of_cpu=True)  # up to 80 s of wall clock
    search.run(Plan(rung="eager"), "eager")
    assert (seen[0].output, seen[0].of_cpu) == (7, False)
    assert seen[0].seconds <= 50.0
    assert search.runner.limits.of_cpu


def test_what_is_kept_back_is_not_for_the_search() -> None:
    budget = SearchBudget(50.0)
    budget.keep_back(60.0)
    assert budget.is_out_of_time
    assert (budget.part(5.0).seconds or 0.0) < 0.0
    budget.keep_back(0.0)
    assert not budget.is_out_of_time
    assert budget.part(5.0).seconds == 5.0
    assert SearchBudget().part().seconds is None


def test_known_answers_that_change_end_the_search(rows: TrialLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_search, "_TRIALS_PER_CHECK", 3)
    search = search_of(rows, lambda _plan, n: PASSED if n < 4 else FAILED)
    for rung in ("uncompiled", "eager", "aot_eager"):
        search.run(Plan(rung=rung), rung)
    with pytest.raises(AnswersContradictError, match="aot_eager: pass, then same"):
        search.run(Plan(rung="inductor"), "inductor")
    assert search.inconsistent


def test_known_answers_that_stay_are_checked_once(rows: TrialLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_search, "_TRIALS_PER_CHECK", 1)
    search = search_of(rows, lambda _plan, _n: PASSED)
    for _ in range(3):
        search.check_answers([LabeledPlan(Plan(rung="eager"), "eager")])  # unknown: nothing to check
        search.run(Plan(rung="eager"), "eager")
    assert rows.count == 2


def test_a_part_that_fails_where_the_whole_passes_is_tried_again(rows: TrialLog) -> None:
    search = search_of(rows, lambda _plan, n: PASSED if n == 1 else FAILED)
    points = {key: Decision("lowering", key, key) for key in "abc"}
    pool = DecisionPool(search, Plan(rung="inductor"), "lowering", points)
    assert not pool.fails_with_only(frozenset("ab"))
    with pytest.raises(AnswersContradictError):
        pool.fails_with_only(frozenset("a"))


def test_another_failure_is_told_once(rows: TrialLog) -> None:
    other = [Signature("exception", "ValueError", f"at step {n % 2}", where=f"torch/a.py:{n // 4}") for n in range(28)]
    search = search_of(rows, lambda _plan, n: replace(FAILED, signature=other[n - 1]))
    for n in range(28):
        search.run(Plan(rung="eager", task=str(n)), f"trial {n}")
    assert len(search.other_failures) == 7
    text = str(Verdict("stopped", {}, other_failures=search.other_failures))
    assert text.count("other failure: trial ") == 5
    assert "other failure: and 2 more (--json)" in text


def test_a_stopped_search_says_what_it_knows(rows: TrialLog) -> None:
    answers = Answers(lambda plan, _n: FAILED if plan.rung in (None, "inductor") else PASSED)
    search = TrialSearch(answers, rows, budget=SearchBudget(trials=4))  # type: ignore[arg-type]
    verdict = bisect(search, BisectOptions())
    assert (verdict.verdict, verdict.exit_code, verdict.failure) == ("stopped", 5, FAILURE)
    assert (verdict.rungs["inductor"], verdict.rungs["eager"], verdict.rungs["aot_eager"]) == (
        "same",
        "pass",
        "not_run",
    )
    assert str(verdict).startswith("the search stopped before it found the culprit")
    assert any("--resume continues it" in note for note in verdict.notes)
    assert "the last trial that passed: eager" in verdict.notes


def test_forks_that_contradict_each_other_give_way_to_fresh_interpreters(
    rows: TrialLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program whose clock has run on: its forks pass at first, and fail later at every rung."""
    monkeypatch.setattr(trial_search, "_TRIALS_PER_CHECK", 4)

    def answer(plan: Plan, n: int) -> Outcome:
        late = runner.has_forks and n > 5
        return FAILED if late or plan.rung in (None, "inductor") else PASSED

    runner = Answers(answer)
    verdict = bisect(TrialSearch(runner, rows), BisectOptions())  # type: ignore[arg-type]
    assert (verdict.verdict, verdict.rung, verdict.rungs["aot_eager"]) == ("found", "inductor", "pass")
    assert runner.fresh > 1
    assert any("contradict" in note for note in verdict.notes)


def test_the_version_of_torch_is_known_where_the_program_crashed() -> None:
    assert FailingRung(FAILED).torch == version("torch")


HANG = Signature("hang", "timeout", "did not end in time")
HANGS = Outcome(HANG, 30.0, pid=1, facts=RunFacts(backends=("inductor",)))


def test_a_slow_trial_that_passes_lengthens_the_limit_of_a_hang(rows: TrialLog) -> None:
    """What took no longer than it did was no hang, and is tried again."""
    search = search_of(rows, lambda plan, _n: HANGS if plan.task == "hangs" else replace(PASSED, seconds=plan_seconds))
    search.reference, plan_seconds = HANG, 1.0
    search.run(Plan(rung="eager"), "eager")
    search.shorten_limit(PASSED)
    assert search.runner.limits.seconds == 20.0
    search.run(Plan(task="hangs"), "a part")
    plan_seconds = 15.0
    search.run(Plan(rung="inductor", task="slow"), "slow")
    assert search.runner.limits.seconds == 40.0
    search.run(Plan(task="hangs"), "a part")
    assert rows.count == 4
    plan_seconds = 90.0
    search.run(Plan(rung="inductor", task="slower"), "slower")
    assert search.runner.limits.seconds == 100.0


def test_fresh_interpreters_have_the_whole_limit_again(rows: TrialLog) -> None:
    search = search_of(rows, lambda _plan, _n: PASSED)
    search.reference = HANG
    search.run(Plan(rung="eager"), "eager")
    search.shorten_limit(PASSED)
    assert search.runner.limits.seconds < 100.0
    search.clear_cache()
    assert search.runner.limits.seconds == 100.0


def test_a_hang_before_it_reports_its_backends_takes_the_whole_limit_once(rows: TrialLog) -> None:
    limits: dict[str | None, float] = {}

    def answer(plan: Plan, _n: int) -> Outcome:
        limits.setdefault(plan.rung, runner.limits.seconds)
        return replace(PASSED, facts=RunFacts()) if plan.rung == "uncompiled" else Outcome(HANG, 100.0)

    runner = Answers(answer, has_forks=True)
    located = find_failing_rung(TrialSearch(runner, rows), BisectOptions())  # type: ignore[arg-type]
    assert located.rung == "eager"
    assert limits[None] == 100.0 > limits["eager"]


@pytest.mark.parametrize("contradicts", [True, False])
def test_a_hang_that_no_few_decisions_explain_has_its_rung_alone(
    rows: TrialLog, monkeypatch: pytest.MonkeyPatch, contradicts: bool
) -> None:
    """A compile that takes longer and longer: how many decisions it takes to hang is another number each time."""

    def endless(search: TrialSearch, base: Plan, *_: object) -> None:
        for n in range(100):
            search.run(replace(base, task=str(n)), f"part {n}")
            if contradicts:
                raise AnswersContradictError("part 0: same, then pass")

    monkeypatch.setattr(bisector, "descend", endless)
    runner = Answers(lambda plan, _n: HANGS if plan.rung in (None, "inductor") else PASSED, has_forks=True)
    verdict = bisect(TrialSearch(runner, rows), BisectOptions())  # type: ignore[arg-type]
    assert (verdict.verdict, verdict.rung, verdict.culprits) == ("found", "inductor", ())
    assert any("it may only take longer" in note for note in verdict.notes)
    assert verdict.trials <= 40
    assert runner.fresh <= 1


@pytest.mark.parametrize("contradicts", [True, False])
def test_a_program_that_times_itself_stops_where_the_time_is_at_fault(
    rows: TrialLog, monkeypatch: pytest.MonkeyPatch, contradicts: bool
) -> None:
    """Every trial that fails takes longer than every one that passes, and no few decisions fail."""

    def endless(search: TrialSearch, base: Plan, *_: object) -> None:
        for n in range(100):
            search.run(replace(base, task=str(n)), f"part {n}")
            if contradicts and n == 20:
                raise AnswersContradictError("part 0: same, then pass")

    def answer(plan: Plan, _n: int) -> Outcome:
        slow = plan.rung in (None, "inductor") and int(plan.task or "0") % 2 == 0
        return replace(FAILED, seconds=30.0) if slow else PASSED

    monkeypatch.setattr(bisector, "descend", endless)
    verdict = bisect(TrialSearch(Answers(answer, has_forks=True), rows), BisectOptions())  # type: ignore[arg-type]
    assert (verdict.verdict, verdict.rung, verdict.culprits) == ("found", "inductor", ())
    assert any("no few decisions make it fail: it may only take longer" in note for note in verdict.notes)
    assert verdict.trials <= 40


def test_a_confirmed_culprit_is_named_though_the_budget_ends(rows: TrialLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def confirmed(search: TrialSearch, *_: object) -> DescentResult:
        search.budget.leave(0, by_time=False)
        with pytest.raises(SearchStoppedError) as stop:
            search.budget.take(1)
        search.leave_out(stop.value, "a narrower culprit")
        return DescentResult((Culprit("pass", "fx_graph_cse"),), ("it passes without", "it fails with only that"))

    monkeypatch.setattr(bisector, "descend", confirmed)
    answers = Answers(lambda plan, _n: FAILED if plan.rung in (None, "inductor") else PASSED)
    verdict = bisect(TrialSearch(answers, rows), BisectOptions())  # type: ignore[arg-type]
    assert (verdict.verdict, [culprit.name for culprit in verdict.culprits]) == ("found", ["fx_graph_cse"])
    (note,) = (note for note in verdict.notes if note.startswith("not searched, since"))
    assert note.endswith(": a narrower culprit; the program again, to see whether it fails every time")


def test_a_confirmed_culprit_of_a_failure_that_comes_and_goes_is_the_likeliest(
    rows: TrialLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    culprit = Culprit("kernel", "sum_1", lines=(("/a/model.py", 7),))
    finding = DescentResult((culprit,), ("it passes without", "it fails with only that"))
    monkeypatch.setattr(bisector, "descend", lambda *_: finding)
    answers = Answers(lambda plan, n: FAILED if n == 1 or plan.rung == "inductor" else PASSED)
    verdict = bisect(TrialSearch(answers, rows), BisectOptions())  # type: ignore[arg-type]
    assert (verdict.verdict, verdict.culprits) == ("flaky", ())
    assert any("the likeliest culprit is kernel sum_1 (model.py:7)" in note for note in verdict.notes)


@pytest.mark.parametrize("remarks", [True, False])
def test_a_repro_that_was_seen_to_fail_again_does_not_run_once_more(
    rows: TrialLog, monkeypatch: pytest.MonkeyPatch, *, remarks: bool
) -> None:
    finding = DescentResult((Culprit("kernel", "sum_1"),), ("it passes without", "it fails with only that"))
    monkeypatch.setattr(bisector, "descend", lambda *_: finding)
    labels: list[str] = []
    answers = Answers(lambda plan, _n: FAILED if plan.rung in (None, "inductor") else PASSED)
    search = TrialSearch(answers, rows, lambda _number, label, *_: labels.append(label))  # type: ignore[arg-type]
    verdict = bisect(search, BisectOptions(remarks=remarks))
    assert (verdict.verdict, verdict.culprits) == ("found", finding.culprits)
    assert ("as written, again" in labels) is remarks, labels


@pytest.mark.parametrize("explains", [True, False])
def test_the_rung_is_the_first_at_which_the_culprit_makes_it_fail_in_any_way(
    rows: TrialLog, monkeypatch: pytest.MonkeyPatch, explains: bool
) -> None:
    other = replace(FAILED, signature=Signature("exception", "RuntimeError", "other dtypes", cause="RuntimeError"))
    off = Switch("operator", keep=True, suffixes=())

    def answer(plan: Plan, _n: int) -> Outcome:
        if plan.rung in (None, "inductor"):
            return FAILED
        return other if plan.rung == "aot_eager" and not (explains and plan.switch("operator")) else PASSED

    def confirmed(search: TrialSearch, base: Plan, *_: object) -> DescentResult:
        plans = (replace(base, switches=(off,)),)
        return DescentResult((Culprit("operator", "tiny.route"),), ("it passes without", "it fails"), plans)

    monkeypatch.setattr(bisector, "descend", confirmed)
    verdict = bisect(TrialSearch(Answers(answer), rows), BisectOptions())  # type: ignore[arg-type]
    assert (verdict.rungs["aot_eager"], verdict.rungs["inductor"]) == ("different", "same")
    assert verdict.rung == ("aot_eager" if explains else "inductor")
    first = str(verdict).splitlines()[0]
    assert ("fails first at rung aot_eager" in first) == explains
    assert ("at rung inductor, and first at aot_eager with another error" in first) == (not explains)


def test_an_interrupted_search_has_the_verdict_that_is_known_so_far(rows: TrialLog) -> None:
    def answer(plan: Plan, _: int) -> Outcome:
        if plan.rung == "aot_eager":
            raise KeyboardInterrupt
        return PASSED if plan.rung in ("uncompiled", "eager") else FAILED

    with pytest.raises(InterruptedSearch) as interrupt:
        bisect(search_of(rows, answer), BisectOptions())
    verdict = interrupt.value.verdict
    assert (verdict.verdict, verdict.failure) == ("stopped", FAILURE)
    assert (verdict.rungs["uncompiled"], verdict.rungs["eager"], verdict.rungs["aot_eager"]) == (
        "pass",
        "pass",
        "not_run",
    )
    assert verdict.notes[0] == "interrupted: --resume continues it"


@pytest.mark.parametrize("wrong", [frozenset("c"), frozenset("ch")])
@pytest.mark.parametrize("parallel", [False, True])
def test_a_culprit_is_named_once_its_confirming_trials_were_made_however_the_budget_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: frozenset[str], parallel: bool
) -> None:
    monkeypatch.setattr(trial_search, "_TRIALS_PER_CHECK", 5)
    points = tuple(Decision("lowering", key, key, "0/0", "forward") for key in "abcdefghijklmnop")

    def answer(plan: Plan, _n: int) -> Outcome:
        switch = plan.switch("lowering")
        on = {point.key for point in points if switch is None or switch.is_on(point.key)}
        made.append(on)
        told = tuple(point for point in points if point.group in plan.record)
        return replace(FAILED if plan.rung in (None, "inductor") and wrong <= on else PASSED, points=told)

    @dataclass
    class ParallelAnswers(Answers):
        def run_many(self, plans: list[Plan]) -> list[Outcome]:
            return [self.run(plan) for plan in plans]

    everything = {point.key for point in points}
    for trials in range(1, 200):
        made: list[set[str]] = []
        log = TrialLog(tmp_path / f"{trials}.dynadiag", "program.py", ["program.py"])
        runner = ParallelAnswers(answer, runs_in_parallel=parallel)
        verdict = bisect(TrialSearch(runner, log, budget=SearchBudget(trials=trials)), BisectOptions())  # type: ignore[arg-type]
        log.discard()
        confirmed = wrong in made and everything - wrong in made
        assert (verdict.verdict == "found") == confirmed, (trials, verdict.notes)
        if verdict.verdict == "found" and not any("not " in note for note in verdict.notes):
            break
    assert {culprit.name for culprit in verdict.culprits} == wrong
    assert not any("not run" in note for note in verdict.notes)


def test_a_crash_that_shows_otherwise_in_each_run_is_searched_with_every_failure(rows: TrialLog) -> None:
    """A kernel that writes past its buffer: the program aborts, or is wrong, with and without caches."""
    kernel = Decision("kernel", "0/0/forward/sum", "sum", "0/0", "forward")
    ways = [Signature("signal", "SIGABRT", "killed by SIGABRT"), FAILURE, Signature("signal", "SIGSEGV", "killed")]

    def answer(plan: Plan, n: int) -> Outcome:
        switch = plan.switch("kernel")
        fails = plan.rung in (None, "inductor") and (switch is None or switch.is_on(kernel.key))
        way = ways[0] if plan.rung is None else ways[n % 2 + 1]
        points = (kernel,) if "kernel" in plan.record else ()
        return replace(FAILED, signature=way, points=points) if fails else replace(PASSED, points=points)

    verdict = bisect(TrialSearch(Answers(answer), rows), BisectOptions())  # type: ignore[arg-type]
    assert (verdict.verdict, verdict.rung, verdict.headline) == ("found", "inductor", ""), verdict.notes
    assert [(culprit.group, culprit.name) for culprit in verdict.culprits] == [("kernel", "sum")]
    assert any(note.startswith("it fails in more than one way (SIGABRT and ") for note in verdict.notes)


def test_a_failure_of_each_run_that_no_rung_shows_is_not_told_as_flaky(rows: TrialLog) -> None:
    other = replace(FAILED, signature=Signature("exception", "OSError", "no such folder", cause="OSError"))

    def answer(plan: Plan, _: int) -> Outcome:
        return FAILED if plan.rung is None and plan.caches else other

    verdict = bisect(TrialSearch(Answers(answer), rows), BisectOptions())  # type: ignore[arg-type]
    assert (verdict.verdict, verdict.rung) == ("flaky", None)
    assert str(verdict).startswith("it fails in each run as it is written, and in the same way at no rung\n")
