"""The report as text."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynadiag.explanation.explanation import explain
from dynadiag.explanation.registry import specific_hints
from dynadiag.recording.records import Frame, GuardFailure, Seconds, SkippedFrame, Span, Symbol
from dynadiag.render.printer import Printer
from dynadiag.render.report import explanation_text
from dynadiag.render.wrap import width
from tests.explanation.build import FILE, FakeRecording, a_break, a_compile, a_failure, a_graph, a_recompile, a_run
from tests.render.samples import EVIL, SOURCE, evil, full

_ESCAPE = re.compile(r"\x1b\[[\d;]*m")


def test_the_answer_stands_first_and_the_next_command_last() -> None:
    lines = explanation_text(full(), recording="runs/a b.dynadiag").splitlines()
    assert lines[0].startswith("Compiling forward failed: Unsupported Tensor.item() call")
    assert lines[2] == "dynadiag 0.1.0, torch 2.13.0, cpu: prog.py"
    assert lines[3].startswith("2 graphs, 1 graph break (met 2 times), 2 recompiles, 3 compiles, 1 kernel")
    assert lines[-1] == "next: dynadiag browse 'runs/a b.dynadiag'"


def test_a_long_fact_ends_in_an_ellipsis() -> None:
    lines = Printer().fact("why", "\n".join(f"line {i}" for i in range(20)))
    assert [lines[0], lines[-2], lines[-1]] == ["     = why: line 0", " " * 12 + "line 12", " " * 12 + "..."]
    assert Printer().fact("why", "one\ntwo") == ["     = why: one", " " * 12 + "two"]


def test_a_break_is_shown_in_the_manner_of_rustc() -> None:
    text = explanation_text(full())
    assert (
        "break[GB0170]: Data-dependent branching\n"
        "    --> prog.py:3:8\n"
        "     |\n"
        "   3 |     if x.sum() > 0:\n"
        "     |        ^^^^^^^^^^^\n"
        "     |\n"
        "     = why: The values of a tensor decide a branch, and tracing has none.\n"
        "     = in: forward (compile 0/0)\n"
        "     = led to: 2 graphs ended here; met 2 times, in compiles 0/0, 0/1;\n"
        "               recompiles among them: 0/1\n"
        "     = called: prog.py:9 in <module>\n"
        "help: Where both sides are cheap"
    ) in text


def test_a_fatal_break_is_an_error_and_stands_first() -> None:
    text = explanation_text(full())
    assert text.index("error[GB0124]") < text.index("break[GB0170]")
    assert "fullgraph=True" in text


def test_a_recompile_names_what_changed_where_and_what_to_do() -> None:
    text = explanation_text(full())
    assert (
        "recompile[0/1]: forward: x.size()[0] changed\n"
        "    --> prog.py:1\n"
        "     = guard: x.size()[0] was 4, now 5 (guard of 0/0)\n"
        "              at prog.py:3\n"
        "              if x.sum() > 0:\n"
        "help: The size changes: call `torch._dynamo.mark_dynamic(x, 0)`"
    ) in text
    assert "torch recorded no reason" in text


def test_advice_is_given_once() -> None:
    each = tuple(a_recompile("m == 'a'", compile_id=f"{i}/1", function=f"f{i}") for i in (0, 2))
    text = explanation_text(explain(FakeRecording(recompile_records=each)))
    assert text.count("is a constant of the code") == 1
    assert "help: as for recompile[0/1], f0" in text


def test_a_change_seen_from_several_entries_is_said_once() -> None:
    failures = tuple(a_failure("rank", source="L['x'].dim()", was="1", now="2", against=f"0/{i}") for i in (0, 1))
    text = explanation_text(explain(FakeRecording(recompile_records=(a_recompile(reasons=failures),))))
    assert "guard: x.dim() was 1, now 2 (guard of 0/0, 0/1)" in text


def sized(was: int, now: int, against: str) -> tuple[GuardFailure, GuardFailure]:
    """A length that changed, and the stride that changed with it."""
    length = a_failure("g", source="L['x'].size()[1]", was=str(was), now=str(now), against=against)
    stride = a_failure("g", source="L['x'].stride()[0]", was=str(was * 16), now=str(now * 16), against=against)
    return length, stride


def test_one_size_is_one_line_whatever_the_number_of_entries_it_failed() -> None:
    reasons = tuple(failure for was, i in ((89, 3), (55, 2), (34, 1)) for failure in sized(was, 144, f"0/{i}"))
    made = explain(FakeRecording(recompile_records=(a_recompile(reasons=reasons),)))
    text = explanation_text(made)
    assert "= guard: x.size()[1] was 89, 55, 34, now 144 (guard of 0/3, 0/2, 0/1)\n" in text
    assert "stride" not in text


def test_the_symbol_that_a_size_became_is_named() -> None:
    symbol = Symbol("0/1", "s77", "83", "L['x'].size()[1]", "created", None, ())
    other = Symbol("0/2", "s1", "83", "L['x'].size()[1]", "created", None, ())
    recompiles = (a_recompile(reasons=sized(82, 83, "0/0")),)
    text = explanation_text(explain(FakeRecording(recompile_records=recompiles, symbol_records=(other, symbol))))
    assert "= guard: x.size()[1] was 82, now 83, then a symbol, s77 (guard of 0/0)\n" in text


def test_recompiles_of_one_function_for_one_change_are_told_together() -> None:
    recompiles = tuple(a_recompile(index=i, compile_id=f"0/{i}", reasons=sized(i, i + 1, "0/0")) for i in range(2, 6))
    made = explain(FakeRecording(recompile_records=recompiles))
    text = explanation_text(made)
    assert re.findall(r"(?m)^recompile\[(.*?)\]", text) == ["0/2"]
    assert "= again: in 0/3, 0/4, 0/5, for the same reason (then 4, 5, 6)\n" in text
    whole = explanation_text(made, Printer(all_=True))
    assert re.findall(r"(?m)^recompile\[(.*?)\]", whole) == ["0/2"]
    assert "= 0/4: x.size()[1] was 4, now 5 (guard of 0/0)\n" in whole


THROUGH_OUTER = (Frame(FILE, 9, "<module>"), Frame(FILE, 2, "outer"))


@pytest.mark.parametrize(
    ("name", "was", "now", "told"),
    [("y.size()[1]", "4", "5", True), ("y.size()[1]", "4", "6", False), ("y.dtype", "4", "5", False)],
)
def test_one_change_in_one_call_is_advised_on_once(name: str, was: str, now: str, told: bool) -> None:
    text = changed_twice((*THROUGH_OUTER, Frame(FILE, 3, "inner")), name, was, now)
    assert (f"{FOLLOWS}\n    prog.py:1 in inner: see recompile[0/1] at line 1" in text) == told
    assert text.count("help: ") == 2 - told


@pytest.mark.parametrize(
    ("stack", "told"),
    [
        ((*THROUGH_OUTER, Frame(FILE, 3, "inner")), True),
        ((Frame(FILE, 9, "<module>"), Frame(FILE, 3, "inner")), False),
        ((Frame(FILE, 10, "<module>"), Frame(FILE, 3, "inner")), False),
        ((Frame(FILE, 3, "inner"),), False),
        ((), False),
    ],
)
def test_the_same_change_in_another_call_has_its_own_advice(stack: tuple[Frame, ...], told: bool) -> None:
    assert (FOLLOWS in changed_twice(stack)) == told


def test_the_function_that_a_call_begins_with_has_no_callers() -> None:
    inner = (Frame(FILE, 9, "<module>"), Frame(FILE, 2, "outer"), Frame(FILE, 3, "inner"))
    assert FOLLOWS in changed_twice(inner, outer=(Frame(FILE, 1, "outer"),))
    assert FOLLOWS not in changed_twice(inner, outer=(Frame(FILE, 1, "another"),))


FOLLOWS = "recompiles that follow from another: 1"


def changed_twice(
    inner: tuple[Frame, ...],
    name: str = "y.size()[1]",
    was: str = "4",
    now: str = "5",
    outer: tuple[Frame, ...] = (Frame(FILE, 9, "<module>"), Frame(FILE, 1, "outer")),
) -> str:
    """The report on two recompiles: a size of ``outer`` from 4 to 5, then something of ``inner``."""
    first = a_failure("g", source="L['x'].size()[0]", was="4", now="5")
    then = a_failure("g", source=f"L['{name[0]}']{name[1:]}", was=was, now=now, against="1/0")
    recording = FakeRecording(
        compile_records=(a_compile(0, "0/1", user_stack=outer), a_compile(1, "1/1", user_stack=inner)),
        recompile_records=(
            a_recompile(reasons=(first,), function="outer"),
            a_recompile(index=1, compile_id="1/1", reasons=(then,), function="inner"),
        ),
    )
    return explanation_text(explain(recording))


def test_what_torch_gave_up_stands_first_and_is_not_called_a_recompile() -> None:
    last = a_recompile("n == 3", compile_id="1/8", limit_reached=True, function="static")
    made = explain(FakeRecording(break_records=(a_break(),), recompile_records=(a_recompile("n == 3"), last)))
    text = explanation_text(made)
    assert text.index("gave up[1/8]: static") < text.index("break[GB0170]") < text.index("recompile[0/1]: forward")
    assert "recompile[1/8]" not in text


def test_of_conditions_on_the_same_sizes_the_first_is_shown() -> None:
    texts = [f"(L['x'].size()[1] // {n}) == 4" for n in (2, 3, 4)]
    reasons = tuple(a_failure(text, source="L['x'].size()[1]", was=text, now="8") for text in texts)
    made = explain(FakeRecording(recompile_records=(a_recompile(reasons=reasons),)))
    text = explanation_text(made)
    assert "= guard: `(x.size()[1] // 2) == 4` does not hold: x.size()[1] is now 8" in text
    assert "and 2 more guards for the same change, which --all shows" in " ".join(text.split())
    assert "--all" not in str(made.findings)  # a page and the browser show them
    assert "// 3)" in explanation_text(made, Printer(all_=True))


def test_an_object_that_is_gone_is_said_to_be() -> None:
    gone = tuple(a_failure("g", source="L['self']", was="alive", now="deallocated", against=f"3/{i}") for i in range(2))
    text = explanation_text(explain(FakeRecording(recompile_records=(a_recompile(reasons=gone),))))
    assert "= guard: self of 3/0, 3/1 was freed\n" in text


@pytest.mark.parametrize(
    ("failure", "shown"),
    [
        (a_failure("n == 3"), "n is no longer 3"),
        (a_failure("GLOBAL_STATE changed: grad_mode"), "GLOBAL_STATE changed: grad_mode"),
        (a_failure("2 <= L['x'].size()[0]", source="L['x'].size()[0]", now="1"), "`2 <= x.size()[0]` does not hold"),
        (a_failure("x is y"), "x and y were one object, and are two now"),
        (a_failure("___check_obj_id(f, 12)", source="L['f']", now="g (function)"), "f is another object than before"),
        (a_failure(""), "a guard of unknown text"),
    ],
)
def test_a_guard_is_put_in_words(failure: object, shown: str) -> None:
    text = explanation_text(explain(FakeRecording(recompile_records=(a_recompile(reasons=(failure,)),))))
    assert shown in text


def test_long_lists_are_cut_and_the_flag_is_named() -> None:
    breaks = tuple(a_break(i, span=Span(FILE, i + 1, 0, i + 1, 3), function=f"f{i}") for i in range(14))
    recompiles = tuple(a_recompile("n == 3", compile_id=f"{i}/1", function=f"f{i}") for i in range(13))
    made = explain(FakeRecording(break_records=breaks, recompile_records=recompiles))
    short, long = explanation_text(made), explanation_text(made, Printer(all_=True))
    assert "... and 4 more graph breaks; --all shows them" in short
    assert "... and 3 more recompiles; --all shows them" in short
    assert (short.count("\nbreak[GB"), long.count("\nbreak[GB")) == (10, 14)
    assert "--all" not in long


def test_nothing_compiled_is_explained() -> None:
    text = explanation_text(explain(FakeRecording(run=a_run(torch=None))))
    assert "Nothing was compiled." in text
    assert "why: The program never imported torch." in text


def test_how_the_program_ended_is_said_where_it_was_not_well() -> None:
    endings = {0: None, 1: "exit code 1", -9: "signal 9", None: "cut short"}
    for code, words in endings.items():
        text = explanation_text(explain(FakeRecording(run=a_run(exit_code=code, complete=code is not None))))
        assert words is None or words.lower() in text.lower()
        assert ("note:" in text) == (code is None)  # else the first line says it


OPTIMIZER = Span("/env/lib/python3.11/site-packages/torch/optim/optimizer.py", 79)
WAY = (Frame(FILE, 9, "<module>"), Frame(FILE, 3, "train"), Frame(OPTIMIZER.file or "", 79, "_use_grad"))


def test_what_torch_breaks_in_its_own_code_is_a_line_at_the_end() -> None:
    breaks = (a_break(0, span=OPTIMIZER, gb_id="GB0025", user_stack=WAY, compile_id="1/0"), a_break(1))
    made = explain(FakeRecording(break_records=breaks, graph_records=(a_graph(),), sources={FILE: SOURCE}))
    text = explanation_text(made)
    assert text.index("break[GB0170]") < text.index("graph breaks at no cost, nothing to do: 1\n")
    assert "/optim/optimizer.py:79 in forward:\n        torch's own break, by design\n" in text
    assert "break[GB0025]" not in text
    assert "break[GB0025]" in explanation_text(made, Printer(all_=True))


def test_a_break_of_torchs_own_that_ends_a_graph_names_the_call_that_can_be_changed() -> None:
    breaks = (a_break(0, span=OPTIMIZER, user_stack=WAY),)
    text = explanation_text(explain(FakeRecording(break_records=breaks, graph_records=(a_graph(),))))
    assert "--> prog.py:3\n" in text
    assert "= in: torch: what you can change is the line above" in text
    assert "was not recorded" not in text


def test_a_request_for_a_bug_report_is_no_help_beside_another() -> None:
    asking = "Please report an issue to PyTorch."
    text = explanation_text(
        explain(FakeRecording(break_records=(a_break(gb_id=None, gb_type="New", hints=("Use f.", asking)),)))
    )
    assert "hint: Use f. (torch's own, unchecked)\n" in text
    assert asking not in text
    assert specific_hints((asking,)) == (asking,)


def test_a_missing_source_is_said() -> None:
    text = explanation_text(explain(FakeRecording(break_records=(a_break(),))))
    assert "note: the source of this line was not recorded" in text


def test_colour_only_where_it_was_asked_for() -> None:
    plain, colored = explanation_text(full()), explanation_text(full(), Printer(80, color=True))
    assert "\x1b" not in plain
    assert "\x1b[" in colored
    assert _ESCAPE.sub("", colored) == plain


@pytest.mark.parametrize("columns", [20, 60, 80, 97, 120, 200])
def test_no_line_is_wider_than_asked_for(columns: int) -> None:
    text = explanation_text(full(), Printer(columns), recording="/r.dynadiag")
    assert max(map(width, text.split("\n"))) <= max(columns, 60)


def test_a_hostile_recording_prints_harmlessly() -> None:
    text = explanation_text(evil(EVIL), Printer(80), recording="r.dynadiag")
    unsafe = {char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert unsafe == {"\n"}
    assert "\\x1b[31mred" in text


def test_very_long_texts_are_cut() -> None:
    for anything in ("x" * 100_000, "word " * 20_000, "/folder" * 10_000):
        assert len(explanation_text(evil(anything))) < 60_000


@settings(max_examples=40)
@given(st.text(st.characters(codec=None), max_size=40))
def test_any_text_is_laid_out_within_the_columns(anything: str) -> None:
    for columns in (60, 80):
        text = explanation_text(evil(anything), Printer(columns), recording="r.dynadiag")
        *lines, command, _ = text.split("\n")
        assert max(map(width, lines)) <= columns
        assert command.startswith("next: ")
    text.encode("utf-8")


def test_paths_are_relative_to_where_the_program_ran() -> None:
    breaks = (
        a_break(0),
        a_break(1, span=Span("/home/user/lib.py", 1), gb_type="b"),
        a_break(2, span=Span("/usr/x.py", 1), gb_type="c"),
        a_break(3, span=Span("<string>", 1), gb_type="d"),
        a_break(4, span=Span(None, None), gb_type="e"),
    )
    text = explanation_text(explain(FakeRecording(break_records=breaks, sources={FILE: SOURCE})))
    for shown in ("--> prog.py:3:8\n", "--> ../lib.py:1\n", "--> /usr/x.py:1\n", "--> <string>:1\n", "--> <unknown>\n"):
        assert shown in text


def test_the_slowest_compiles_are_named() -> None:
    compiles = tuple(a_compile(i, f"{i}/0") for i in range(8))
    text = explanation_text(explain(FakeRecording(compile_records=compiles)))
    assert "time: 8.0 s compiling: code generation 30%" in text
    assert "and 3 more compiles, 3.0 s" in text


LIMIT = "Dynamo recompile limit exceeded: Dynamo attempted to recompile the code object too many times."


def test_a_frame_that_was_left_is_a_line_and_names_what_above_tells_why() -> None:
    frames = (
        SkippedFrame(FILE, 1, "torch_dynamo_resume_in_forward_at_3", "Data-dependent branching: Detected some."),
        SkippedFrame(FILE, 5, "static", LIMIT),
        SkippedFrame(FILE, 8, "log", "Attempted to trace this: it is not meant to be."),
        SkippedFrame(FILE, 8, "log", "Attempted to trace this: it is not meant to be."),
    )
    made = explain(
        FakeRecording(
            compile_records=(a_compile(outcome="skipped"), a_compile(1, "1/0", line=8, function="log")),
            break_records=(a_break(), a_break(1, compile_id="1/0", span=Span(FILE, 8))),
            recompile_records=(a_recompile("n == 3", compile_id="1/8", line=5, function="static", limit_reached=True),),
            skipped_records=frames,
        )
    )
    text = explanation_text(made)
    assert (
        "functions left to Python: 3\n"
        "    prog.py:1 in forward: see break GB0170 at line 3\n"
        "    prog.py:5 in static: see gave up[1/8] at line 5\n"
        "    prog.py:8 in log: Attempted to trace this\n"
    ) in text
    assert "too many times" not in text
    assert "too many times" in explanation_text(made, Printer(all_=True))


def test_of_many_frames_that_were_left_few_are_listed() -> None:
    frames = tuple(SkippedFrame(FILE, line, "f", "") for line in range(14))
    made = explain(FakeRecording(skipped_records=frames, graph_records=(a_graph(),)))
    assert "    ... and 4 more; --all shows them\n" in explanation_text(made)
    assert explanation_text(made, Printer(all_=True)).count(" in f: no reason was recorded\n") == 14


def test_where_nothing_was_compiled_each_function_that_was_left_has_a_paragraph() -> None:
    text = explanation_text(explain(FakeRecording(skipped_records=(SkippedFrame(FILE, 8, "log", "not meant to be"),))))
    assert "uncompiled: not meant to be\n    --> prog.py:8\n" in text


def test_a_listing_of_torchs_stays_lines() -> None:
    code = "y = x.sum() * 2 + something_long(x, x, x, x) - something_else_that_is_long(x, x)"
    said = (
        "Detected data-dependent branching.\n\n  The condition was computed so:\n"
        f'    # File "{FILE}", line 3, in forward, code: if x.sum() > 0:\n    gt = gt(sum_1, 0)\n    {code}'
    )
    text = explanation_text(
        explain(FakeRecording(break_records=(a_break(gb_id=None, gb_type="Other", explanation=said),)))
    )
    assert (
        "     = why: Detected data-dependent branching.\n"
        "            The condition was computed so:\n"
        "              # prog.py:3: if x.sum() > 0:\n"
        "              gt = gt(sum_1, 0)\n"
    ) in text
    assert re.search(r"\n {14}y = x\.sum\(\) \* 2 .*…\n     = in", text)


def test_code_from_the_cache_is_said_to_be() -> None:
    warm = a_compile(cache="hit", seconds=Seconds(10, 1, 9, None, None))
    text = explanation_text(explain(FakeRecording(compile_records=(warm,))))
    assert "time: 10.0 s compiling: backend (code from the cache) 90%, Dynamo (tracing) 10%\n" in text
    assert "      the code of 1 compile came from the FX graph cache\n" in text


def test_a_line_of_a_slow_compile_keeps_to_the_columns_and_to_the_functions_name() -> None:
    name = "MambaForCausalLM.forward"
    changed = a_failure("g", source="L['input_ids'].size()[1]", was="8", now="12")
    made = explain(
        FakeRecording(
            compile_records=tuple(
                a_compile(i, f"0/{i}", function=name, seconds=Seconds(9, 8, 1, None, None)) for i in range(2)
            ),
            recompile_records=(a_recompile(function=name, reasons=(changed,)),),
        )
    )
    narrow, wide = explanation_text(made), explanation_text(made, Printer(120))
    assert "0/1    MambaForCausalLM.forward  recompile: input_ids.size()[1]\n" in narrow
    assert "0/1    MambaForCausalLM.forward  recompile: input_ids.size()[1] (Dynamo (tracing))\n" in wide
    assert max(map(width, narrow.splitlines())) <= 80
