"""minify that is interrupted, or has no time left: it tells the trials that it made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from dynadiag.bisection.budget import SearchBudget, SearchStoppedError
from dynadiag.bisection.failing_rung import BisectOptions, FailingRung
from dynadiag.bisection.trial_log import TrialLog
from dynadiag.bisection.trial_search import TrialSearch
from dynadiag.minify import minimizer
from dynadiag.minify.minify_result import Interrupted, MinifyResult
from dynadiag.minify.minimizer import MinifyRequest, minify
from dynadiag.minify.proof import ReproTrialLog, prove
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.program import Program
from dynadiag.trial.signature import Signature
from tests.bisection.test_budget import FAILED, Answers
from tests.minify.test_proof import Runner


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[TrialLog]:
    made = TrialLog(tmp_path / "search.dynadiag", "train.py", ["train.py"])
    yield made
    made.discard()


def test_an_interrupted_minify_tells_its_trials(rows: TrialLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def ladder(search: TrialSearch, _: object) -> None:
        search.run(Plan(rung="eager"), "eager")
        raise KeyboardInterrupt

    monkeypatch.setattr(minimizer, "find_failing_rung", ladder)
    search = TrialSearch(Answers(lambda _plan, _n: FAILED), rows, reference=FAILED.signature)  # type: ignore[arg-type]
    with pytest.raises(Interrupted) as interrupt:
        minify(search, MinifyRequest(BisectOptions(), Path("repro.py")))
    result = interrupt.value.result
    assert (result.verdict, result.trials, result.failure) == ("stopped", 1, FAILED.signature)


def test_a_reduction_that_is_interrupted_tells_its_trials(rows: TrialLog, monkeypatch: pytest.MonkeyPatch) -> None:
    best = MinifyResult("reduced", rung="eager", text="import torch\n", cached=2)

    def reduce(_minimizer: object, _located: object) -> MinifyResult:
        rows.add("candidate", Outcome(), "pass")
        raise Interrupted(best)

    monkeypatch.setattr(minimizer, "find_failing_rung", lambda *_: SimpleNamespace(torch="2.13.0", notes=["a note"]))
    monkeypatch.setattr(minimizer._Minimizer, "_after_ladder", reduce)
    search = TrialSearch(Answers(lambda _plan, _n: FAILED), rows)  # type: ignore[arg-type]
    with pytest.raises(Interrupted) as interrupt:
        minify(search, MinifyRequest(BisectOptions(), Path("repro.py")))
    result = interrupt.value.result
    assert (result.text, result.trials, result.cached) == (best.text, 1, 2)
    assert (result.torch, result.notes) == ("2.13.0", ("a note",))


def test_a_proof_without_time_is_none_and_says_so(rows: TrialLog, tmp_path: Path) -> None:
    search = TrialSearch(Runner(), rows, budget=SearchBudget(-1.0))  # type: ignore[arg-type]
    failure = Signature("exception", "ValueError", "no")
    made = MinifyResult("reduced", rung="inductor", failure=failure, text="import torch\n")
    program = Program(str(tmp_path / "repro.py"))  # its caches are beside it
    result = prove(search, program, ReproTrialLog(rows, made.text), made, {})
    assert not result.proved
    (note,) = result.notes
    assert "--budget" in note
    assert rows.count == 0


@pytest.mark.parametrize("again", [True, False])
def test_a_repro_that_passes_in_a_fresh_process_is_reduced_again_with_its_own_inputs(
    again: bool, rows: TrialLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    simple = MinifyResult("reduced", text="simple", passes_fresh=True)
    asked: list[bool] = []

    def reduce(_: object, *__: object, plain_inputs: bool = True) -> MinifyResult:
        asked.append(plain_inputs)
        return simple if plain_inputs else MinifyResult("reduced", text="own inputs", proved=again)

    monkeypatch.setattr(minimizer._Minimizer, "_reduce_and_prove", reduce)
    search = TrialSearch(Answers(lambda _plan, _n: FAILED), rows)  # type: ignore[arg-type]
    made = minimizer._Minimizer(search, MinifyRequest(BisectOptions(), Path("repro.py")))
    result = made._reduce(simple, None, None)  # type: ignore[arg-type]  # the fake asks neither
    assert asked == [True, False]
    assert result.text == ("own inputs" if again else "simple")


@pytest.mark.parametrize("source", ["proved", "not proved", "no time"])
def test_where_the_repro_of_a_graph_is_not_proved_the_source_is_reduced(
    source: str, rows: TrialLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What calls of torch.func leave behind is missing in a graph's repro, which then fails in another way."""

    def reduce_source(*_: object) -> MinifyResult:
        if source == "no time":
            raise SearchStoppedError
        return MinifyResult("reduced", text="source", proved=source == "proved")

    monkeypatch.setattr(minimizer._Minimizer, "_reduce_graph", lambda *_: MinifyResult("reduced", text="graph"))
    monkeypatch.setattr(minimizer._Minimizer, "_reduce_source", reduce_source)
    search = TrialSearch(Answers(lambda _plan, _n: FAILED), rows)  # type: ignore[arg-type]
    located = FailingRung(FAILED, "inductor", FAILED, {"inductor": "same"})
    result = minimizer._Minimizer(search, MinifyRequest(BisectOptions(), Path("repro.py")))._after_ladder(located)
    assert result.text == ("source" if source == "proved" else "graph")
