"""What the page makes of an explanation, before any markup, and how it marks code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dynadiag.diff.difference import COMPILED_STAGES, Difference
from dynadiag.explanation.explanation import explain
from dynadiag.recording.records import Frame, Kernel, Span
from dynadiag.render.page.model import CodeLine, PageSection, _comparison_headline, _snippet, page_section
from dynadiag.render.page.page import _coded
from dynadiag.render.page.stages import Redaction, compile_documents
from tests.explanation.build import FILE, FakeRecording, a_break, a_compile, a_failure, a_graph, a_recompile, a_run

SOURCE = "def forward(x, n):\n    y = x + n\n    if y.sum() > 0:\n        print(y)\n    return y\n"


def a_view(**changes: object) -> PageSection:
    recording = FakeRecording(run=a_run(), compile_records=(a_compile(), a_compile(1, "0/1")), sources={FILE: SOURCE})
    return page_section(explain(replace(recording, **changes)), "", Redaction())  # type: ignore[arg-type]


def test_a_value_that_failed_several_guards_is_one_row() -> None:
    """Torch tells each guard of each earlier compile: eight compiles of one counter would be 28 rows."""
    reasons = [a_failure("", source="L['n']", was=str(was), now="3", against=f"0/{was}") for was in (2, 1, 0)]
    reasons.append(a_failure("", source="L['x'].size()[0]", was="4", now="5", against="0/0"))
    rows = a_view(recompile_records=(a_recompile(compile_id="0/3", reasons=tuple(reasons)),)).recompiles
    assert [(row.rows, row.source, row.was, row.now, row.against) for row in rows] == [
        (2, "n", "2, 1, 0", "3", "0/2, 0/1, 0/0"),
        (0, "x.size()[0]", "4", "5", "0/0"),
    ]


@pytest.mark.parametrize("stage", COMPILED_STAGES)
def test_two_runs_may_differ_first_in_any_stage(stage: str) -> None:
    first = Difference(stage, ("0/0", "0/0"), None, None, "text")
    assert _comparison_headline(first).startswith("The runs differ, first in ")


def test_a_line_without_columns_is_marked_from_its_first_letter() -> None:
    (finding,) = a_view(break_records=(a_break(span=Span(FILE, 3)),)).findings
    (marked,) = (line for line in finding.code if line.marked)
    assert (marked.before, marked.marked) == ("    ", "if y.sum() > 0:")


def test_what_a_fact_says_is_not_said_twice() -> None:
    (finding,) = a_view(break_records=(a_break(),)).findings
    assert "in" in [fact.label for fact in finding.facts]
    assert finding.function == ""


def test_a_redacted_page_says_that_a_compile_failed_only_if_one_did() -> None:
    run = a_run(exit_code=1)
    recording = FakeRecording(run=run, compile_records=(a_compile(),), graph_records=(a_graph(),))
    assert page_section(explain(recording), "", Redaction(active=True)).headline == "The program failed."
    failed = replace(recording, compile_records=(a_compile(outcome="error", error="InductorError", reason="boom"),))
    assert page_section(explain(failed), "", Redaction(active=True)).headline == "A compile failed."


def test_code_between_backticks_is_marked_as_code_and_stays_text() -> None:
    assert _coded("use `torch.cond`, not `<b>`") == "use <code>torch.cond</code>, not <code>&lt;b&gt;</code>"
    assert _coded("a ` alone, <i>") == "a ` alone, &lt;i&gt;"


def test_generated_code_is_called_by_its_direction() -> None:
    stages = ("dynamo", "joint", "forward", "backward", "post_grad", "post_grad")
    graphs = [replace(a_graph(index, stage=stage), event=2 * index) for index, stage in enumerate(stages)]
    kernels = [Kernel(index, "0/0", "k", "cpp", event) for index, event in enumerate((9, 11))]
    found = compile_documents(a_compile(), graphs, kernels, frozenset(), "", "")
    assert [each.title for each in found if each.kind == "module"] == [
        "generated code, forward",
        "generated code, backward",
    ]
    late = [replace(kernel, event=20 + index) for index, kernel in enumerate(kernels)]
    found = compile_documents(a_compile(), graphs, late, frozenset(), "", "")
    assert [each.title for each in found if each.kind == "module"] == ["generated code"] * 2


def test_only_what_is_known_of_the_run_is_told() -> None:
    ended = dict(a_view(run=a_run(exit_code=1, seconds=2.04)).run)
    assert (ended["exit code"], ended["seconds"]) == ("1", "2.0")
    assert {"exit code", "seconds"}.isdisjoint(dict(a_view(run=a_run(exit_code=None, seconds=None)).run))


def test_the_marked_part_of_a_line_ends_where_its_span_does() -> None:
    two_lines = "y = f(\n    x.item(), 2)\n"
    shown = _snippet({FILE: two_lines}, Span(FILE, 1, 4, 2, 12))
    assert shown == (CodeLine(1, "y = ", "f(", ""), CodeLine(2, "    ", "x.item()", ", 2)"))


def test_a_line_that_is_not_in_the_recording_has_no_code() -> None:
    (finding,) = a_view(break_records=(a_break(),), sources={}).findings
    assert (finding.place, finding.code) == ("prog.py:3", ())


def test_a_finding_in_a_package_has_the_line_of_the_program_and_says_whose_its_own_is() -> None:
    library = "/env/lib/python3.11/site-packages/boxes/ops.py"
    stack = (Frame(FILE, 2, "forward"), Frame(library, 7, "nms"))
    (finding,) = a_view(break_records=(a_break(span=Span(library, 7), user_stack=stack),)).findings
    assert finding.place == "prog.py:2"
    assert [line.marked for line in finding.code if line.marked] == ["y = x + n"]
    owner = next(fact for fact in finding.facts if fact.label == "in")
    assert owner.text == "boxes: what you can change is the line above"
    assert owner.place.endswith("boxes/ops.py:7")
