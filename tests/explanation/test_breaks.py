"""What a break led to, and which breaks are one finding."""

from __future__ import annotations

from dynadiag.explanation.breaks import break_findings
from dynadiag.explanation.findings import Finding, ranked
from dynadiag.explanation.headline import headline
from dynadiag.recording.records import Break, BreakFacts, Frame, Graph, Recompile, SkippedFrame, Span
from tests.explanation.build import FILE, a_break, a_compile, a_graph, a_recompile, records


def at(line: int) -> Span:
    return Span(FILE, line, 0, line, 4)


def found(
    breaks: tuple[Break, ...], graphs: tuple[Graph, ...] = (), recompiles: tuple[Recompile, ...] = ()
) -> tuple[Finding, ...]:
    return ranked(break_findings(records(breaks=breaks, graphs=graphs, recompiles=recompiles)))


def evidence(item: Finding, label: str) -> list[str]:
    return [fact.text for fact in item.evidence if fact.label == label]


def test_a_cause_gathers_its_reports() -> None:
    breaks = (
        a_break(0),
        a_break(1, cause=0, compile_id="0/1"),
        a_break(2, cause=0, compile_id="1/0", function="helper"),
    )
    graphs = (a_graph(0), a_graph(1, "0/1"), a_graph(2, "0/1", stage="forward"))
    (one,) = found(breaks, graphs, (a_recompile(compile_id="0/1"),))
    assert one.records == (0, 1, 2)
    assert one.compile_ids == ("0/0", "0/1", "1/0")
    assert one.cost.graphs == 2
    assert evidence(one, "led to") == [
        "2 graphs ended here; met 3 times, in compiles 0/0, 0/1, 1/0; it split the frames of forward, helper; "
        "recompiles among them: 0/1"
    ]


def test_lines_of_one_function_that_break_for_one_reason_are_one_finding() -> None:
    breaks = (
        a_break(0, span=at(2), explanation="Cannot trace `print` with ['str']"),
        a_break(1, span=at(3), explanation="Cannot trace `print` with ['int']", compile_id="1/0"),
        a_break(2, span=at(4), explanation="Cannot trace `open` with ['str']", compile_id="2/0"),
        a_break(3, span=at(5), explanation="Cannot trace `print` with ['str']", compile_id="3/0", function="other"),
    )
    printed, opened, other = found(breaks)
    assert [span.line for span in printed.places] == [2, 3]
    assert [fact.span for fact in printed.evidence if fact.label == "also"] == [at(3)]
    assert ([span.line for span in opened.places], other.function) == ([4], "other")


def test_a_line_is_listed_once_and_a_branch_has_a_short_cause() -> None:
    listing = "Detected data-dependent branching.\n\n  The branch condition involves a tensor computed as follows:"
    branching = {"gb_type": "Data-dependent branching", "explanation": listing}
    spans = (at(2), Span(FILE, 3, 3, 3, 8), Span(FILE, 3, 12, 3, 16), at(2))
    breaks = (a_break(i, span=each, compile_id=f"{i}/0", **branching) for i, each in enumerate(spans))
    (one,) = found(tuple(breaks))
    assert [fact.span.line for fact in one.evidence if fact.label == "also" and fact.span] == [3]
    assert one.cause == "The values of a tensor decide a branch, and tracing has none."


def test_what_torch_gave_up_is_not_told_in_its_words() -> None:
    rest = SkippedFrame(FILE, 2, "torch_dynamo_resume_in_forward_at_2", "compilation failed with a custom strategy")
    gave_up = a_recompile(compile_id="1/8", line=2, function="torch_dynamo_resume_in_forward_at_2", limit_reached=True)
    broken = a_break(0, span=at(2), user_stack=(Frame(FILE, 2, "forward"),))
    (one,) = break_findings(records(breaks=(broken,), skipped=(rest,), recompiles=(gave_up,)))
    assert evidence(one, "led to") == [
        "what follows in forward ran uncompiled (torch gave it up after too many recompiles)"
    ]


def test_the_worst_stands_first() -> None:
    ids = ("9/0", "0/0", "8/0", "8/0", "7/0")
    breaks = tuple(
        a_break(i, span=at(min(i, 2) if i != 4 else 4), compile_id=id_, function=f"f{i}", fatal=i == 4)
        for i, id_ in enumerate(ids)
    )
    breaks = (*breaks[:3], a_break(3, span=at(2), compile_id="8/0", cause=2), breaks[4])
    assert [item.records[0] for item in found(breaks, (a_graph(0, "0/0"),))] == [4, 1, 2, 0]


def test_what_left_a_whole_function_to_python_stands_before_what_ended_graphs() -> None:
    breaks = (a_break(0, compile_id="0/0"), a_break(1, compile_id="1/0", function="g", span=at(9)))
    run = records(
        breaks=breaks,
        graphs=(a_graph(0, "0/0"),),
        compiles=(a_compile(), a_compile(1, "1/0", outcome="skipped", function="g")),
    )
    first, second = ranked(break_findings(run))
    assert (first.function, first.cost.functions_uncompiled, second.function) == ("g", 1, "forward")
    assert evidence(first, "led to") == ["all of g ran uncompiled"]


def test_what_torch_splits_in_its_own_code_is_an_aside_only_where_it_costs_nothing() -> None:
    optimizer = Span("/env/lib/python3.11/site-packages/torch/optim/optimizer.py", 79)
    breaks = (
        a_break(0, span=optimizer, compile_id="0/0"),
        a_break(1, span=at(2), compile_id="9/0"),
        a_break(2, span=optimizer, gb_type="other", fatal=True, compile_id="8/0"),
        a_break(3, span=optimizer, gb_type="idle", compile_id="7/0"),
    )
    told = [(item.records[0], item.rule, item.severity) for item in found(breaks, (a_graph(0, "0/0"),))]
    assert told == [
        (2, "failed-compile", "error"),
        (0, "break", "warning"),
        (1, "break", "warning"),
        (3, "break", "note"),
    ]


LIBRARY = "/env/lib/python3.11/site-packages/edgelib/pool.py"


def test_a_line_of_a_library_has_its_owner_and_the_users_line_that_leads_there() -> None:
    stack = (Frame(FILE, 9, "<module>"), Frame(FILE, 3, "forward"), Frame(LIBRARY, 7, "pool"))
    (item,) = found((a_break(span=Span(LIBRARY, 7), user_stack=stack),))
    assert (item.owner, item.entry, item.span) == ("edgelib", Span(FILE, 3), Span(LIBRARY, 7))
    assert [each.key for each in item.advice] == ["branch.inside"]  # nothing that edits the library


def test_a_second_attempt_is_no_second_graph() -> None:
    (item,) = found((a_break(),), (a_graph(0), a_graph(1)))
    assert item.cost.graphs == 1


def test_torchs_own_break_around_an_optimizer_is_an_aside() -> None:
    facts = BreakFacts(subject="SGD.step", subject_file="/env/site-packages/torch/optim/lr_scheduler.py")
    (item,) = found((a_break(gb_id="GB0007", gb_type="Attempted to call function marked as skipped", facts=facts),))
    assert (item.is_free, item.advice) == (True, ())


def test_of_a_function_that_ends_with_the_break_nothing_is_left() -> None:
    rest = SkippedFrame(FILE, 3, "torch_dynamo_resume_in_step_at_3", "no tensor-related objects found in frame")
    ends = "def step():\n    x = 1\n    go(x)\n"
    for source, left in ((ends, 0), (f"{ends}    go(x)\n", 1)):
        run = records(breaks=(a_break(),), skipped=(rest,), sources={FILE: source})
        (item,) = break_findings(run)
        assert item.cost.functions_uncompiled == left


def test_ddp_beside_another_function_is_not_called_compiled() -> None:
    ddp = "/env/site-packages/torch/nn/parallel/distributed.py"
    call = (Frame(FILE, 9, "<module>"),)
    run = records(
        breaks=(a_break(span=Span(ddp, 1757), user_stack=call, compile_id="1/0"),),
        compiles=(
            a_compile(user_stack=(Frame(FILE, 5, "<module>"),)),
            a_compile(1, "1/0", user_stack=call, function="DistributedDataParallel.forward", outcome="break"),
        ),
        graphs=(a_graph(0),),
    )
    items = break_findings(run)
    assert [(item.severity, "nothing in it was compiled" in item.title) for item in items] == [("warning", True)]
    assert headline(run, items, {}).sentence.startswith("Nothing of DistributedDataParallel.forward is compiled")
