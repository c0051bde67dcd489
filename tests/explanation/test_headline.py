"""Whether it is one graph, and why nothing was compiled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

import dynadiag
from dynadiag.explanation.explanation import explain
from dynadiag.explanation.headline import Headline
from dynadiag.explanation.rules import Rule
from dynadiag.recording.records import FULL, Break, Compile, Frame, Graph, Recompile, Run, SkippedFrame, Span
from tests.explanation.build import FILE, RUN, FakeRecording, a_break, a_compile, a_graph, a_recompile, a_run


def judge(
    *,
    run: Run = RUN,
    compiles: tuple[Compile, ...] = (),
    graphs: tuple[Graph, ...] = (),
    roots: tuple[Break, ...] = (),
    skipped: tuple[SkippedFrame, ...] = (),
    recompiles: tuple[Recompile, ...] = (),
    counts: dict[str, int] | None = None,
) -> Headline:
    return explain(
        FakeRecording(
            run=run,
            compile_records=compiles,
            graph_records=graphs,
            break_records=roots,
            skipped_records=skipped,
            recompile_records=recompiles,
            event_counts=counts or {},
        )
    ).headline


def test_one_function_without_breaks_is_one_graph_in_any_number_of_variants() -> None:
    compiles = (a_compile(0, "0/0"), a_compile(1, "0/1"))
    found = judge(compiles=compiles, graphs=(a_graph(0), a_graph(1, "0/1")))
    assert (found.severity, found.sentence) == ("good", "All that was compiled is one graph, in 2 variants.")
    alone = judge(compiles=compiles[:1], graphs=(a_graph(0),))
    assert alone.sentence == "All that was compiled is one graph."


def test_what_a_size_limit_hides_is_not_known() -> None:
    full = replace(RUN, notes=(FULL,))
    assert judge(run=full).sentence.startswith("The recording reached its size limit: what was compiled later is not")
    found = judge(run=full, compiles=(a_compile(),), graphs=(a_graph(),))
    assert (found.severity, found.sentence) == (
        "warning",
        "All that was compiled is one graph. The recording reached its size limit before the end (`--limit GB`).",
    )
    cut = judge(run=full, compiles=(a_compile(outcome="error"),))  # in the first compile
    assert cut.sentence.startswith("The recording reached its size limit: what was compiled later is not known.")
    broken = judge(run=full, compiles=(a_compile(),), roots=(a_break(),))
    assert broken.sentence.startswith("No graph was compiled: 1 graph break")
    assert broken.sentence.endswith("The recording reached its size limit before the end (`--limit GB`).")
    failed = judge(run=replace(full, exit_code=3))
    assert failed.sentence.startswith("The program ended with exit code 3. The recording reached its size limit:")


def test_several_whole_functions() -> None:
    compiles = (a_compile(0, "0/0"), a_compile(1, "1/0", function="loss"))
    found = judge(compiles=compiles, graphs=(a_graph(0), a_graph(1, "1/0")))
    assert (found.severity, found.sentence) == ("good", "No graph break: each of 2 compiled functions is one graph.")
    again = (*compiles, a_compile(2, "0/1"))
    found = judge(compiles=again, graphs=tuple(a_graph(i, item.compile_id) for i, item in enumerate(again)))
    assert found.sentence.endswith("is one graph, in 3 variants together.")


def test_a_function_that_torch_gave_up_is_not_whole() -> None:
    given_up = a_recompile("n == 3", limit_reached=True)
    found = judge(compiles=(a_compile(),), graphs=(a_graph(),), recompiles=(given_up,))
    assert found.severity == "warning"
    assert found.sentence.endswith("torch gave up compiling 1 function, after too many recompiles.")


def test_breaks_of_torchs_own_are_counted_apart() -> None:
    elsewhere = (Frame(FILE, 20, "train"),)
    mine = a_break()
    torchs = a_break(1, span=Span("/env/site-packages/torch/optim/optimizer.py", 79), user_stack=elsewhere)
    found = judge(compiles=(a_compile(),), graphs=(a_graph(),), roots=(mine, torchs))
    assert found.sentence == "Not one graph: 1 graph break (and 1 of torch's own) in the way."
    found = judge(compiles=(a_compile(),), graphs=(a_graph(),), roots=(torchs,))
    assert found.sentence == "Not one graph: 1 graph break of torch's own in the way."


def test_a_break_of_torchs_own_that_costs_nothing_does_not_take_the_graph_apart() -> None:
    torchs = a_break(span=Span("/env/site-packages/torch/optim/optimizer.py", 79), compile_id="1/0")
    found = judge(compiles=(a_compile(),), graphs=(a_graph(),), roots=(torchs,))
    assert found.severity == "good"
    assert "Not one graph" not in found.sentence


def test_an_exception_does_not_hide_the_other_breaks() -> None:
    others = (a_break(1, span=Span(FILE, 4)), a_break(2, span=Span(FILE, 5)))
    found = judge(compiles=(a_compile(),), graphs=(a_graph(),), roots=(a_break(fatal=True), *others))
    assert found.severity == "error"
    assert found.sentence.endswith("Elsewhere: 2 graph breaks.")


def test_a_break_splits_and_a_fatal_one_fails() -> None:
    assert judge(compiles=(a_compile(),), graphs=(a_graph(),), roots=(a_break(),)).severity == "warning"
    assert judge(compiles=(a_compile(outcome="error"),), roots=(a_break(fatal=True),)).severity == "error"


def test_breaks_that_left_nothing_are_named_as_the_reason() -> None:
    found = judge(compiles=(a_compile(outcome="break"),), roots=(a_break(),))
    assert (found.severity, "1 graph break left nothing" in found.sentence) == ("warning", True)


def test_a_function_left_to_python_leads_where_what_it_calls_is_compiled(tmp_path: Path) -> None:
    def step(v: torch.Tensor) -> torch.Tensor:
        return v * 2

    def loop(v: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            v = step(v)
            if v.sum() > 100:
                v = v - 1
        return v

    torch._dynamo.reset()
    with dynadiag.record(tmp_path / "run.dynadiag"):
        torch.compile(loop, backend="eager")(torch.ones(3))
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        sentence = explain(recording).headline.sentence
    assert "loop itself is compiled, only what it calls: Data-dependent branching; in a loop" in sentence
    assert sentence.startswith("Nothing of ")


def test_what_stands_in_the_same_line_is_not_called_by_a_function_left_to_python(tmp_path: Path) -> None:
    def whole(v: torch.Tensor) -> torch.Tensor:
        return v * 2

    def loop(v: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            if v.sum() > 100:
                v = v - 1
        return v

    torch._dynamo.reset()
    first, second = torch.compile(whole, backend="eager"), torch.compile(loop, backend="eager")
    with dynadiag.record(tmp_path / "run.dynadiag"):
        first(torch.ones(3)), second(torch.ones(3))
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        sentence = explain(recording).headline.sentence
    assert "loop is compiled: Data-dependent branching" in sentence


def test_nothing_compiled_says_why() -> None:
    cases = [
        (judge(run=a_run(torch=None)), "never imported torch"),
        (judge(run=a_run(torch=None), counts={"dynadiag_trial": 24}), "recording of a search"),
        (judge(), "no event at all"),
        (judge(counts={"artifact": 3}), "No call reached"),
        (judge(counts={"dynadiag_run": 1}), "no event at all"),
        (judge(skipped=(SkippedFrame(FILE, 1, "f", "skip by disable"),) * 2), "skip by disable (2 frames)"),
        (judge(compiles=(a_compile(outcome="skipped", reason="no tensor ops"),)), "no tensor ops"),
        (judge(compiles=(a_compile(outcome="skipped"),)), "No frame held a tensor operation"),
    ]
    for found, words in cases:
        assert found.sentence.endswith(" was compiled.")
        assert words in " ".join(found.why)


def test_a_note_of_the_recorder_stands_alone() -> None:
    assert not judge(run=a_run(notes=("compiling was disabled",))).why


def test_a_failed_compile_leads_whatever_else_broke() -> None:
    failed = replace(
        a_compile(1, "1/0", outcome="error", function="loss"),
        error="BackendCompilerFailed",
        reason="backend='mine' raised:\nValueError: no such thing\n\nmore",
    )
    found = judge(compiles=(a_compile(), failed), graphs=(a_graph(),), roots=(a_break(),))
    assert (found.severity, found.sentence) == (
        "error",
        "Compiling loss failed in the backend `mine`: ValueError: no such thing. Elsewhere: 1 graph break.",
    )


def test_an_exception_without_words_leaves_no_colon() -> None:
    failed = replace(
        a_compile(outcome="error"), error="LoweringException", reason="LoweringException: AssertionError: "
    )
    assert judge(compiles=(failed,)).sentence.endswith(": LoweringException: AssertionError.")


def test_compiles_that_failed_alike_are_told_once() -> None:
    failed = replace(a_compile(outcome="error"), error="AssertionError", reason="maxlen must be a constant\nmore")
    again = replace(failed, index=1, compile_id="0/1")
    other = replace(failed, index=2, compile_id="1/0", function="other")
    assert judge(compiles=(failed, again)).sentence == "Compiling forward failed in Dynamo: maxlen must be a constant."
    assert judge(compiles=(failed, again, other)).sentence.endswith(" 1 more failed.")


def test_a_compile_that_was_under_way_at_the_end_did_not_fail() -> None:
    cut_short = a_compile(outcome="error", error=None, reason="the recording ends during this compile")
    found = judge(compiles=(cut_short,), graphs=(a_graph(),))
    assert (found.severity, found.sentence) == (
        "warning",
        "forward was still being compiled at the end of the recording.",
    )


def test_a_method_of_what_torch_compile_returned_is_not_compiled() -> None:
    source = "net = torch.compile(Net())\nnet.eval()\nfor x in data:\n    net.encode(x)\n"
    (why,) = explain(FakeRecording(sources={FILE: source})).headline.why
    assert why.startswith("`net.encode` is called (prog.py:4), and never `net(...)`")
    (why,) = explain(FakeRecording(sources={FILE: source + "net(x)\n"})).headline.why
    assert "no event at all" in why


def test_a_limit_that_was_raised_in_another_thread_is_named() -> None:
    source = "import torch\ntorch._dynamo.config.recompile_limit = 64\n"
    assert _limits(source) == ["torch gave up compi"]  # a test or a notebook calls it
    limit, other = _limits(source + "Thread(target=serve).start()\n")
    assert limit == "1 in this thread: t"
    assert other == "torch gave up compi"


def _limits(source: str) -> list[str]:
    recording = FakeRecording(
        sources={FILE: source},
        compile_records=(a_compile(user_stack=(Frame(FILE, 9, "serve"),)),),
        recompile_records=(a_recompile("L['n'] == 1", compile_id="0/0", limit_reached=True),),
    )
    (found,) = (finding for finding in explain(recording).findings if finding.rule == Rule.RECOMPILE_LIMIT)
    return [fact.text[:19] for fact in found.evidence if fact.label == "limit"]
