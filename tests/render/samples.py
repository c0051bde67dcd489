"""Explanations of recordings built by hand."""

from __future__ import annotations

from dynadiag.explanation.explanation import Explanation, explain
from dynadiag.recording.records import Frame, Guard, Kernel, SkippedFrame, Span
from tests.explanation.build import FILE, FakeRecording, a_break, a_compile, a_failure, a_graph, a_recompile, a_run

SOURCE = "import torch\ndef forward(x):\n    if x.sum() > 0:\n        return x * 2\n    return helper(x)\n"

# What a stranger's recording may hold: escapes, overrides, markup, line ends, wide and combining characters,
# half a surrogate pair.
EVIL = "\x1b[31mred\x1b[0m\x9b2J\r\n\x07\u202egpj.exe\u2066[bold]x[/bold]<b>日本\u0301\ud800\x00\u2028end"


def full_recording() -> FakeRecording:
    """One of everything."""
    changed = a_failure("check_tensor(...)", source="L['x'].size()[0]", was="4", now="5", file=FILE, line=3)
    return FakeRecording(
        run=a_run(notes=("provenance was off",), exit_code=1),
        compile_records=(a_compile(0, outcome="break"), a_compile(1, "0/1"), a_compile(2, "1/0", function="helper")),
        break_records=(
            a_break(0),
            a_break(1, compile_id="0/1"),
            a_break(2, span=Span(FILE, 5, 11, 5, 20), gb_id="GB0124", gb_type="item", fatal=True),
        ),
        recompile_records=(a_recompile(reasons=(changed,)), a_recompile(compile_id="0/2", limit_reached=True)),
        skipped_records=(SkippedFrame(FILE, 8, "log", "skipped by a rule"),),
        graph_records=(a_graph(0), a_graph(1, "0/1"), a_graph(2, "0/1", stage="forward")),
        guard_records=(Guard(0, "0/0", "TENSOR_MATCH", "L['x']", "check_tensor(...)", FILE, 3),),
        kernel_records=(Kernel(0, "0/0", "cpp_fused_mul_0", "cpp", None),),
        sources={FILE: SOURCE},
    )


def full() -> Explanation:
    return explain(full_recording())


def evil(text: str) -> Explanation:
    """A recording in which every text is this one."""
    place = Span(text, 1, 0, 1, 3)
    return explain(
        FakeRecording(
            run=a_run(target=text, cwd=text, torch=text, device=text, notes=(text,)),
            compile_records=(a_compile(function=text, file=text, reason=text, error=text),),
            break_records=(
                a_break(
                    gb_id=text,
                    gb_type=text,
                    reason=text,
                    explanation=text,
                    hints=(text,),
                    span=place,
                    function=text,
                    user_stack=(Frame(text, 2, text), Frame(text, None, text)),
                ),
            ),
            recompile_records=(
                a_recompile(
                    function=text,
                    file=text,
                    reasons=(a_failure(text, source=text, was=text, now=text, against=text, file=text, line=1),),
                ),
            ),
            skipped_records=(SkippedFrame(text, 1, text, text),),
            graph_records=(a_graph(stage=text),),
            kernel_records=(Kernel(0, "0/0", text, text, None),),
            sources={text: text},
        )
    )
