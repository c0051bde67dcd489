"""A recording explained as a whole."""

from __future__ import annotations

from dynadiag.explanation.explanation import explain
from dynadiag.explanation.registry import Registry
from tests.explanation.build import FILE, FakeRecording, a_break, a_compile, a_failure, a_graph, a_recompile, a_run


def test_counts_are_those_of_the_contract() -> None:
    made = explain(
        FakeRecording(
            break_records=(a_break(0), a_break(1, compile_id="0/1")),
            graph_records=(a_graph(0), a_graph(1, stage="joint"), a_graph(2, "1/0")),
            recompile_records=(a_recompile("n == 3"), a_recompile("n == 4", index=1)),
        )
    )
    assert (made.break_count, made.graph_count, made.recompile_count) == (1, 2, 2)
    assert [len(item.records) for item in made.findings] == [2, 2]


def test_an_empty_recording_is_explained() -> None:
    made = explain(FakeRecording(run=a_run(torch=None, notes=("x",))))
    assert (made.break_count, made.findings, made.timing, made.notes) == (0, (), None, ("x",))


def test_functions_carry_the_name_the_user_wrote() -> None:
    resumed = "torch_dynamo_resume_in_forward_at_3"
    made = explain(
        FakeRecording(
            break_records=(a_break(function=resumed),),
            compile_records=(a_compile(function=resumed),),
            recompile_records=(a_recompile(function=resumed),),
        )
    )
    assert {made.breaks[0].function, made.compiles[0].function, made.recompiles[0].function} == {"forward"}


def test_guards_are_completed_from_their_text() -> None:
    made = explain(FakeRecording(recompile_records=(a_recompile("0/0: n == 3   # x + n"),)))
    (reason,) = made.recompiles[0].reasons
    assert (reason.guard, reason.source, reason.was) == ("n == 3", "n", "3")


def test_only_the_sources_that_a_view_quotes_are_read() -> None:
    reason = a_failure("n == 3", file="/other.py", line=1)
    texts = {FILE: "a", "/other.py": "b", "/unused.py": "c"}
    made = explain(
        FakeRecording(break_records=(a_break(),), recompile_records=(a_recompile(reasons=(reason,)),), sources=texts)
    )
    assert made.sources == {FILE: "a", "/other.py": "b"}


def test_without_torchs_registry_everything_else_is_explained() -> None:
    made = explain(FakeRecording(break_records=(a_break(gb_id=None, hints=()),)), Registry({}))
    assert made.breaks[0].gb_id is None
    assert made.findings[0].advice
