"""Is it one graph, and if nothing was compiled, why."""

from __future__ import annotations

from dataclasses import replace

from dynadiag.explain.verdict import Verdict, verdict
from dynadiag.recording.records import Break, Compile, Graph, Run, SkippedFrame, Span
from tests.explain.build import FILE, RUN, a_break, a_compile, a_graph, a_run


def judge(
    *,
    run: Run = RUN,
    compiles: tuple[Compile, ...] = (),
    graphs: tuple[Graph, ...] = (),
    roots: tuple[Break, ...] = (),
    skipped: tuple[SkippedFrame, ...] = (),
    counts: dict[str, int] | None = None,
) -> Verdict:
    return verdict(run, compiles, graphs, roots, skipped, counts or {})


def test_one_function_without_breaks_is_one_graph_in_any_number_of_variants() -> None:
    compiles = (a_compile(0, "0/0"), a_compile(1, "0/1"))
    found = judge(compiles=compiles, graphs=(a_graph(0), a_graph(1, "0/1")))
    assert (found.kind, found.sentence) == ("one_graph", "All that was compiled is one graph, in 2 variants.")
    alone = judge(compiles=compiles[:1], graphs=(a_graph(0),))
    assert alone.sentence == "All that was compiled is one graph."


def test_several_whole_functions() -> None:
    compiles = (a_compile(0, "0/0"), a_compile(1, "1/0", function="loss"))
    found = judge(compiles=compiles, graphs=(a_graph(0), a_graph(1, "1/0")))
    assert (found.kind, found.sentence) == ("whole", "No graph break: each of 2 compiled functions is one graph.")
    again = (*compiles, a_compile(2, "0/1"))
    found = judge(compiles=again, graphs=tuple(a_graph(i, item.compile_id) for i, item in enumerate(again)))
    assert found.sentence.endswith("is one graph, in 3 variants together.")


def test_a_function_that_torch_gave_up_is_not_whole() -> None:
    found = verdict(RUN, (a_compile(),), (a_graph(),), (), (), {}, given_up=1)
    assert found.kind == "given_up"
    assert found.sentence.endswith("torch gave up compiling 1 function, after too many recompiles.")


def test_breaks_of_torchs_own_are_counted_apart() -> None:
    mine, torchs = a_break(), a_break(1, span=Span("/env/site-packages/torch/optim/optimizer.py", 79))
    found = judge(compiles=(a_compile(),), graphs=(a_graph(),), roots=(mine, torchs))
    assert found.sentence == "Not one graph: 1 graph break (and 1 of torch's own) in the way."
    found = judge(compiles=(a_compile(),), graphs=(a_graph(),), roots=(torchs,))
    assert found.sentence == "Not one graph: 1 graph break of torch's own in the way."


def test_an_exception_does_not_hide_the_other_breaks() -> None:
    found = judge(compiles=(a_compile(),), graphs=(a_graph(),), roots=(a_break(fatal=True), a_break(1), a_break(2)))
    assert found.kind == "failed"
    assert found.sentence.endswith("Elsewhere: 2 graph breaks.")


def test_a_break_splits_and_a_fatal_one_fails() -> None:
    assert judge(compiles=(a_compile(),), graphs=(a_graph(),), roots=(a_break(),)).kind == "split"
    assert judge(compiles=(a_compile(),), graphs=(a_graph(),), roots=(a_break(fatal=True),)).kind == "failed"


def test_a_fatal_break_before_any_graph_is_named_as_the_failure() -> None:
    assert judge(compiles=(a_compile(outcome="error"),), roots=(a_break(fatal=True),)).kind == "failed"


def test_breaks_that_left_nothing_are_named_as_the_reason() -> None:
    found = judge(compiles=(a_compile(outcome="break"),), roots=(a_break(),))
    assert (found.kind, "1 graph break left nothing" in found.sentence) == ("split", True)


def test_nothing_compiled_says_why() -> None:
    cases = [
        (judge(run=a_run(torch=None)), "never imported torch"),
        (judge(run=a_run(torch=None), counts={"dynadiag_trial": 24}), "recording of a search"),
        (judge(), "no event at all"),
        (judge(run=a_run(notes=("compiling was disabled",))), "notes"),
        (judge(counts={"artifact": 3}), "No call reached"),
        (judge(counts={"dynadiag_run": 1}), "no event at all"),
        (judge(skipped=(SkippedFrame(FILE, 1, "f", "skip by disable"),) * 2), "skip by disable (2 frames)"),
        (judge(compiles=(a_compile(outcome="error", error="RuntimeError"),)), "RuntimeError"),
        (judge(compiles=(a_compile(outcome="skipped", reason="no tensor ops"),)), "no tensor ops"),
        (judge(compiles=(a_compile(outcome="skipped"),)), "No frame held a tensor operation"),
    ]
    for found, words in cases:
        assert found.kind == "nothing"
        assert words in " ".join(found.why)


def test_a_compile_that_failed_says_what_was_raised() -> None:
    failed = replace(a_compile(outcome="error"), error="AssertionError", reason="maxlen must be a constant\nmore")
    found = judge(compiles=(failed, replace(failed, index=1, compile_id="1/0")))
    assert found.why == ("2 compiles failed: AssertionError: maxlen must be a constant.",)


def test_a_graph_that_the_backend_failed_on_is_not_called_whole() -> None:
    failed = replace(
        a_compile(outcome="error"),
        error="BackendCompilerFailed",
        reason="backend='mine' raised:\nValueError: no backend\n\nmore",
    )
    found = judge(compiles=(failed,), graphs=(a_graph(),))
    assert (found.kind, found.sentence) == (
        "failed",
        "1 compile failed: BackendCompilerFailed: backend='mine' raised: ValueError: no backend.",
    )
    cut_short = replace(failed, error=None, reason="the recording ends during this compile")
    assert judge(compiles=(cut_short,), graphs=(a_graph(),)).kind == "one_graph"
