"""What stands on the overview."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import dynadiag
from dynadiag.explanation.explanation import explain
from dynadiag.explanation.rules import Rule
from dynadiag.explanation.timing import PARTS, PhaseShare
from dynadiag.recording.records import GuardFailure, SkippedFrame, Span
from dynadiag.recording.torch_text.guards import completed
from dynadiag.render import report
from tests.explanation.build import FILE, FakeRecording, a_break, a_compile, a_graph, a_recompile
from tests.tui import build
from tests.tui.conftest import browsing, press, screen, settle
from tui import overview
from tui.location import Location
from tui.run_header import run_lines
from tui.session import Session
from tui.views.overview import MIN_DETAILED
from tui.widgets.styled_lines import StyledLines, wrap_lines
from tui.widgets.table import Table


def test_every_part_of_the_compiler_has_a_word_and_a_colour() -> None:
    """A compile whose code came from the cache ended the browser: its part had neither."""
    assert set(overview.PARTS) == set(report._PARTS) == set(PARTS)
    shares = tuple(PhaseShare(part, 1.0) for part in PARTS)
    drawn = overview._bar(shares, float(len(PARTS)), 12, pad=False)
    assert [style for _, style in drawn] == [overview.PARTS[part][1] for part in PARTS]


def test_recompiles_and_a_live_run_have_no_green_headline(tmp_path: Path) -> None:
    events = [*build.run_events(), *build.source_events(), *build.compile_events("0/0")]
    again = [*build.recompile_events("0/1", "4", "5"), *build.compile_events("0/1")]
    for name, more, live, green in (
        ("once", [], False, True),
        ("live", [], True, False),
        ("again", again, False, False),
    ):
        with Session.open(build.recording(tmp_path, [*events, *more, *build.end_events()], name)) as session:
            lines = list(overview._headline(session.explanation(), 0, 0, live=live))
        assert ("good" in {role for _, role in lines[0].fragments}) == green, name


def shown(recording: FakeRecording) -> list[str]:
    return [item.text for item in overview.overview_lines(explain(recording), 0, 0, live=False)]


def test_findings_stand_in_the_order_of_the_explanation_and_have_their_help_once() -> None:
    changed = tuple(
        a_recompile("n == 3", index=i, compile_id=f"0/{i + 1}", function="f", line=1, limit_reached=i == 2)
        for i in range(3)
    )
    texts = shown(FakeRecording(break_records=(a_break(span=Span(FILE, 3)),), recompile_records=changed))
    (title,) = (number for number, text in enumerate(texts) if text.startswith("Findings"))
    heads = [text.split()[0] for text in texts[title + 1 :] if text.strip() and not text.startswith(" ")]
    assert heads == ["0/3", "GB0170"], "what used up the limit stands where torch gave up"
    assert "torch gave up on it  f: n changed" in texts[title + 1]
    assert texts[title + 2].lstrip().startswith("help: ")


def test_a_break_says_how_many_graphs_ended_there_and_not_that_none_did() -> None:
    breaks = (a_break(0), a_break(1, cause=0, compile_id="0/1"))
    (bare,) = (text for text in shown(FakeRecording(break_records=breaks[:1])) if "GB0170" in text)
    assert "ended" not in bare
    graphs = (a_graph(0), a_graph(1, "0/1"))
    (whole,) = (text for text in shown(FakeRecording(break_records=breaks, graph_records=graphs)) if "GB0170" in text)
    assert whole.endswith("  2 graphs ended here, met 2 times")


def test_a_failed_compile_leads_and_says_why() -> None:
    failed = a_compile(1, "1/0", outcome="error", error="InductorError", reason="LoweringException: boom\nmore")
    texts = shown(FakeRecording(compile_records=(a_compile(), failed), break_records=(a_break(),)))
    assert (
        "Compiling forward failed in Inductor's lowering: LoweringException: boom. Elsewhere: 1 graph break." in texts
    )
    (title,) = (number for number, text in enumerate(texts) if text.startswith("Findings"))
    assert texts[title + 1].startswith("1/0 ")
    assert texts[title + 2].strip() == "LoweringException: boom"


async def test_a_failure_says_what_to_do_next(tmp_path: Path) -> None:
    async with browsing(build.recording(tmp_path, [*build.run_events(), *build.end_events(1)])) as pilot:
        assert "B finds the part of the compiler at fault (bisect)" in screen(pilot)
        await press(pilot, "enter")
        assert "this recording has no search" in screen(pilot)


def test_breaks_that_say_the_same_of_a_file_are_one_line() -> None:
    same = tuple(a_break(index=number, span=Span(FILE, 3 + number)) for number in range(3))
    (row,) = (text for text in shown(FakeRecording(break_records=same)) if text.startswith("GB0170"))
    assert "x 3: lines 3, 4, 5" in row
    assert "met 3 times" in row


def test_the_recompiles_of_a_function_are_one_line() -> None:
    again = [
        a_recompile("n == 3", index=number, compile_id=f"0/{number + 1}", function="f", line=1) for number in range(3)
    ]
    other = a_recompile("n == 3", index=3, compile_id="1/1", function="g", line=7)
    texts = shown(FakeRecording(recompile_records=(*again, other)))
    assert [text.split()[0] for text in texts if "recompile of" in text] == ["0/1", "1/1"]
    assert sum("3 times" in text for text in texts) == 1


def test_a_cause_that_the_title_has_is_not_told_twice() -> None:
    said = "a and b must have same reduction dim"
    item = explain(FakeRecording(break_records=(a_break(),))).findings[0]
    failed = replace(item, rule=Rule.FAILED_COMPILE, title=f"compiling f failed: RuntimeError: {said}.")
    for cause, told in ((f"Dynamo failed to run a node: RuntimeError('{said}')", False), ("the sizes differ", True)):
        explanation = replace(explain(FakeRecording()), findings=(replace(failed, cause=cause),))
        texts = [
            line.text for line in overview._findings(explanation, [explanation.findings], 1, beside=True, wide=False)
        ]
        assert any(cause in text for text in texts) == told


def test_the_overview_lists_as_many_findings_as_there_is_room_for() -> None:
    breaks = tuple(a_break(index=number, span=Span(f"{number}.py", 3)) for number in range(30))
    explanation = explain(FakeRecording(break_records=breaks))
    for rows, listed in ((0, 8), (24, 12), (200, 30)):
        lines = overview.overview_lines(explanation, 0, 0, live=False, beside=True, columns=90, rows=rows)
        assert sum("GB0170" in item.text for item in lines) == listed, rows
        assert not rows or len(wrap_lines(lines, 90)) <= rows
        assert (f"and {30 - listed} more" in [item.text for item in lines]) == (listed < 30)
    nine = explain(FakeRecording(break_records=breaks[:9]))
    lines = overview.overview_lines(nine, 0, 0, live=False, beside=True, columns=90, rows=60)
    assert "more" not in lines[-1].text, "the last one takes the line of 'and 1 more'"


async def test_a_tall_terminal_lists_more_kernels(tmp_path: Path) -> None:
    compiles = [event for number in range(10) for event in build.compile_events(f"{number}/0")]
    path = build.recording(tmp_path, [*build.run_events(), *build.source_events(), *compiles, *build.end_events()])
    async with browsing(path, (120, 40)) as pilot:
        assert (screen(pilot).count("inference "), "and 9 more" in screen(pilot)) == (11, True)
        await pilot.resize_terminal(120, 60)
        await settle(pilot)
        assert (screen(pilot).count("inference "), "more" in screen(pilot)) == (20, False)


async def test_beside_the_details_of_a_finding_nothing_is_told_twice(program: Path) -> None:
    async with browsing(program) as pilot:
        assert "help: The size changes" not in screen(pilot)
        assert screen(pilot).count("help:") == 1, "of the selected finding"
        await pilot.resize_terminal(80, 40)
        await settle(pilot)
        assert "help: The size changes" in screen(pilot)


def test_a_changed_value_is_told_once_however_many_compiles_it_did_not_fit() -> None:
    def failure(source: str, was: str) -> GuardFailure:
        return completed(GuardFailure("", source, was, "9", "0/0", None, None))

    reasons = (*(failure("L['n']", str(was)) for was in range(5)), failure("L['x'].size()[0]", "4"))
    again = replace(a_recompile("n == 0"), reasons=reasons)
    assert "".join(text for text, _ in overview.guard_change_fragments(again)) == "n: 0, … → 9  and 1 more guard"


def test_a_recompile_is_told_by_what_kept_the_nearest_compile_from_being_used() -> None:
    """Not by what other compiles failed by too, nor by a stride that follows from a size: the report says the same."""
    size = completed(GuardFailure("", "L['x'].size()[1]", "8", "12", "0/0", None, None))
    stride = completed(GuardFailure("", "L['x'].stride()[0]", "8", "12", "0/0", None, None))
    other = completed(GuardFailure("", "L['x'].dtype", "torch.bfloat16", "torch.float32", "0/1", None, None))
    again = replace(a_recompile(""), reasons=(other, replace(size, against="0/1"), size, stride))

    def told(*reasons: GuardFailure) -> str:
        return "".join(text for text, _ in overview.guard_change_fragments(again, reasons or None))

    freed = completed(GuardFailure("", "L['self']", "alive", "deallocated", "0/0", None, None))
    (fragment,) = overview.guard_change_fragments(replace(again, reasons=(freed,)))
    assert fragment[0] == "self was freed"
    assert told() == told(size, stride) == "x.size()[1]: 8 → 12"
    assert told(other) == "x.dtype: torch.bfloat16 → torch.float32"


def test_a_part_that_takes_next_to_nothing_has_no_cell() -> None:
    shares = (PhaseShare("dynamo", 0.549), PhaseShare("backend", 0.004))
    assert [(len(text), style) for text, style in overview._bar(shares, 1.0, 10)] == [(6, overview.PARTS["dynamo"][1])]


async def test_without_findings_the_kernels_are_told(program: Path, tmp_path: Path) -> None:
    """What matters then is where the time goes from now on."""
    async with browsing(program) as pilot:
        assert "Kernels, those" not in screen(pilot)
    events = [*build.run_events(), *build.source_events(), *build.compile_events("0/0"), *build.end_events()]
    async with browsing(build.recording(tmp_path, events)) as pilot:
        assert "Kernels, those that move most bytes first  1 generated, 1 of a library, 2 calls" in screen(pilot)
        await press(pilot, "G", "enter")
        assert pilot.app.query_one("#kernels-list", Table).key is not None


def test_a_log_that_names_no_program_says_so() -> None:
    run = replace(FakeRecording().run, target="?")
    assert run_lines(run, live=False)[0].text == "a program that is not named"


def test_a_compile_of_a_long_name_is_one_line_beside_the_details() -> None:
    name = "a_function_with.<locals>.a_name_that_is_long"
    item = a_compile(0, "0/0", function=name)
    texts = shown(FakeRecording(compile_records=(item,)))
    (told,) = (text for text in texts if text.startswith("0/0 "))
    assert told.endswith("…>.a_name_that_is_long")
    assert len(told) <= MIN_DETAILED // 2 - 6, "frame, mark and scrollbar take the rest"
    explanation = explain(FakeRecording(compile_records=(item,)))
    wider = overview.overview_lines(explanation, 0, 0, live=False, columns=74)
    (told,) = (each.text for each in wider if each.text.startswith("0/0 "))
    assert (told.endswith(f"  {name}"), len(told) <= 74) == (True, True)


def test_advice_that_nobody_has_checked_is_a_hint() -> None:
    texts = shown(FakeRecording(break_records=(a_break(gb_id="GB9999", hints=("It may fail. Try it without.",)),)))
    assert any(text.strip() == "hint: It may fail. Try it without." for text in texts)
    assert not any("help: " in text for text in texts)


@pytest.mark.parametrize(("stage", "told"), [(None, "■ backend"), ("aot_inference_graph", "■ AOTAutograd")])
async def test_only_a_backend_with_later_graphs_is_said_to_run_autograd(
    stage: str | None, told: str, tmp_path: Path
) -> None:
    events = [
        event for event in build.compile_events("0/0") if not {"artifact", "inductor_output_code"} & event[0].keys()
    ]
    events[-1][0]["compilation_metrics"].update(inductor_compile_time_s=None, code_gen_time_s=None)
    later = [({stage: {}, **build.at("0/0")}, build.POST_GRAD)] if stage else []
    made = build.recording(tmp_path, [*build.run_events(), *events[:3], *later, *events[3:], *build.end_events()])
    async with browsing(made) as pilot:
        assert told in screen(pilot)


def test_recompiles_of_a_function_for_different_reasons_are_different_rows() -> None:
    again = tuple(
        a_recompile(guard, index=number, compile_id=f"0/{number + 1}", function="f", line=1)
        for number, guard in enumerate(("n == 3", "mode == 'a'", "mode == 'b'"))
    )
    texts = [text for text in shown(FakeRecording(recompile_records=again)) if "recompile of f" in text]
    assert len(texts) == 2, texts
    assert ["2 times" in text for text in texts] == ["mode" in text for text in texts]


@pytest.mark.parametrize(("code", "offered"), [(-15, False), (143, False), (-9, False), (1, True), (-11, True)])
def test_a_search_is_offered_for_a_failure_of_the_program_itself(code: int, offered: bool, tmp_path: Path) -> None:
    path = build.recording(tmp_path, [*build.run_events(), *build.source_events(), *build.end_events(code)])
    with Session.open(path) as session:
        lines = [item.text for item in overview.overview_lines(session.explanation(), 0, 0, live=False)]
    assert any("bisect" in text for text in lines) == offered


def test_skipped_frames_are_listed_with_their_reasons() -> None:
    skipped = tuple(SkippedFrame(FILE, number, f"f{number}", "dynamo tracing is disabled") for number in range(6))
    texts = shown(FakeRecording(skipped_records=skipped, break_records=(a_break(),)))
    assert any("f0" in text and "dynamo tracing is disabled" in text for text in texts)
    assert "and 2 more" in texts


async def test_down_goes_from_item_to_item(tmp_path: Path) -> None:
    compiles = [event for number in range(4) for event in build.compile_events(f"{number}/0", seconds=5.0 - number)]
    events = [*build.run_events(), *build.source_events(), *build.break_events("0/0"), *compiles, *build.end_events()]
    async with browsing(build.recording(tmp_path, events)) as pilot:
        lines = pilot.app.focused
        assert isinstance(lines, StyledLines)
        assert lines.target == Location("breaks", item=0)
        await press(pilot, "j")
        assert lines.target == Location("compiles", compile_id="0/0"), "past advice, title and legend"
        await press(pilot, "j", "k", "k")
        assert lines.target == Location("breaks", item=0)


def _asks_for_a_value(x: torch.Tensor) -> torch.Tensor:
    return x.relu() if x.sum() > 0 else x


async def test_where_nothing_was_compiled_a_finding_leads_to_its_line_and_code_opens_there(tmp_path: Path) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return _asks_for_a_value(x)

    with dynadiag.record(tmp_path / "run.dynadiag"), pytest.raises(Exception, match="data-dependent"):
        torch.export.export(Module(), (torch.ones(3),))
    line = f"line {_asks_for_a_value.__code__.co_firstlineno + 1:,} of "
    for keys in (["enter"], ["3"]):
        async with browsing(tmp_path / "run.dynadiag") as pilot:
            await press(pilot, *keys)
            assert line in screen(pilot)
            assert "nothing was compiled" in screen(pilot)
