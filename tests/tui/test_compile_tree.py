"""The tree of compiles: what a break makes of a function stays below that function."""

from __future__ import annotations

from pathlib import Path

from dynadiag.explanation.explanation import explain
from dynadiag.recording.code_origin import named_frames
from dynadiag.recording.records import Frame, Graph, Kernel
from tests.explanation.build import FILE, FakeRecording, a_break, a_compile, a_recompile
from tests.tui import build
from tests.tui.conftest import browsing, press, screen
from tui.compile_tree import CompileTree
from tui.views.compiles import CompilesView


class Nothing:
    """The artifacts of a recording without any."""

    def graphs(self, _compile_id: str) -> tuple[Graph, ...]:
        return ()

    def kernels(self, _compile_id: str) -> tuple[Kernel, ...]:
        return ()

    def payload(self, _event: int) -> str:
        return ""


def test_the_parts_of_a_function_with_thirty_breaks_are_beside_each_other() -> None:
    main, rest = Frame(FILE, 99, "<module>"), "torch_dynamo_resume_in_forward_at_{}"
    stack, compiles = [main], []
    for number in range(30):
        name = rest.format(number) if number else "forward"
        here = named_frames((*stack, Frame(FILE, number + 1, name)))
        compiles.append(a_compile(number, f"{number}/0", user_stack=here))
        stack.append(Frame(FILE, number + 1, name))
    explanation = explain(FakeRecording(compile_records=tuple(compiles)))
    roots = CompileTree(explanation, Nothing()).branches()

    def depth(branches: object) -> int:
        return 1 + max((depth(each.children()) for each in branches if each.key.startswith("call")), default=0)  # type: ignore[attr-defined]

    assert depth(roots) == 2


async def test_graphs_have_the_names_that_the_code_screen_has(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "2", "j", "l")
        text = screen(pilot)
        assert "graph, after passes" in text
        assert "post_grad" not in text


async def test_a_function_that_was_compiled_again_says_why(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "2")
        assert "↻ x.size()[0]: 4 → 5" in screen(pilot)


def test_a_compile_that_torch_gave_up_says_so_where_torch_records_a_skipped_frame() -> None:
    skipped = (a_compile(0, "0/8", outcome="skipped"), a_compile(1, "1/0", outcome="skipped"))
    again = a_recompile("n == 3", index=0, compile_id="0/8", limit_reached=True)
    explanation = explain(FakeRecording(compile_records=skipped, recompile_records=(again,)))
    tree = CompileTree(explanation, Nothing())
    heads = ["".join(text for text, _ in branch.fragments) for branch in tree.branches()]
    assert ["gave up" in head for head in heads] == [True, False]
    assert ["gave up" in tree.compile_lines(item)[0].text for item in skipped] == [True, False]


async def test_the_screen_opens_at_the_first_compile_that_failed_and_stays_where_it_is(tmp_path: Path) -> None:
    events = [*build.run_events(), *build.compile_events("0/0"), *build.compile_events("1/0")]
    events[-1][0]["compilation_metrics"].update(fail_type="E", fail_reason="no", has_guarded_code=False)
    for code, shown in ((0, "0/0"), (1, "1/0")):
        made = events[: 1 + len(build.compile_events("0/0")) * (code + 1)]
        async with browsing(build.recording(tmp_path, [*made, *build.end_events(code)], f"run{code}")) as pilot:
            await press(pilot, "2")
            view = pilot.app.query_one(CompilesView)
            assert view.location().compile_id == shown
            await press(pilot, "g", "r")
            assert view.location().compile_id is None, "the call, as before"


def test_a_compile_names_the_breaks_that_it_met() -> None:
    explanation = explain(FakeRecording(compile_records=(a_compile(0, "0/0"),), break_records=(a_break(), a_break(1))))
    (branch,) = CompileTree(explanation, Nothing()).branches()
    text = "".join(text for text, _ in branch.fragments)
    assert text.count("GB0170") == 1


def test_of_a_long_error_the_details_begin_with_its_first_lines_and_end_with_all() -> None:
    long = a_compile(0, "0/0", outcome="error", error="E", reason="\n".join(f"line {number}" for number in range(30)))
    short = a_compile(0, "0/0", outcome="error", error="E", reason="line 0\nline 1")
    for item in (long, short):
        explanation = explain(FakeRecording(compile_records=(item,)))
        tree = CompileTree(explanation, Nothing())
        texts = [line.text for line in tree.compile_lines(item)]
        assert texts.index("  line 1") < next(place for place, text in enumerate(texts) if "attempt" in text)
        assert [texts.count("  line 0"), texts.count("  line 29")] == ([2, 1] if item is long else [1, 0])


def test_the_caller_that_torch_leaves_out_is_known_from_a_break() -> None:
    """For a decorated function torch reports its own frame only. For its rest it reports those of earlier parts."""
    main, rest = Frame(FILE, 99, "main"), Frame(FILE, 3, "torch_dynamo_resume_in_forward_at_3")
    met = a_break(user_stack=(Frame(FILE, 120, "<module>"), main, Frame(FILE, 3, "forward")))
    compiles = (
        a_compile(0, "0/0", user_stack=(Frame(FILE, 2, "forward"),)),
        a_compile(
            1, "1/0", user_stack=named_frames((Frame(FILE, 120, "<module>"), main, Frame(FILE, 3, "forward"), rest))
        ),
        a_compile(2, "2/0", user_stack=(Frame(FILE, 50, "other"),)),
    )
    explanation = explain(FakeRecording(compile_records=compiles, break_records=(met,)))
    tree = CompileTree(explanation, Nothing())
    callers = [[frame.function for frame in tree.callers(item)] for item in compiles]
    assert callers == [["<module>", "main"], ["<module>", "main"], []]


def test_where_a_compile_failed_stands_before_a_message_of_many_lines() -> None:
    failed = a_compile(0, "0/0", outcome="error", error="E", reason="\n".join(f"line {n}" for n in range(30)))
    explanation = explain(FakeRecording(compile_records=(failed,)))
    tree = CompileTree(explanation, Nothing())
    texts = [line.text for line in tree.compile_lines(failed)]
    assert texts.index("  line 0") > next(n for n, text in enumerate(texts) if text.startswith("at this line of yours"))
