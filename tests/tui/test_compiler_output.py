"""A failed compile: what the compiler said, the generated line and yours, and not eleven lines of its command."""

from __future__ import annotations

from pathlib import Path

from dynadiag.recording.torch_text.failures import parse_compiler_output
from tests.tui import build
from tests.tui.conftest import browsing, press, screen, settle
from tui.app import Browser
from tui.widgets.code_pane import CodePane

COMMAND = "g++ /tmp/main.cpp " + "-D SOMETHING " * 40
REASON = f"""CppCompileError: C++ compile error

Command:
{COMMAND}

Output:
/tmp/main.cpp: In function 'void kernel(const float*)':
/tmp/main.cpp:17:38: error: 'fours' was not declared; did you mean 'four'?
   17 |     auto tmp0 = in_ptr0[0];
      |                 ^~~~
/tmp/main.cpp:20:1: error: expected '}}'
   20 | return
      | ^~~~
"""


def test_the_first_error_its_line_the_others_and_the_command() -> None:
    found = parse_compiler_output(REASON)
    assert found is not None
    assert found.error == "'fours' was not declared; did you mean 'four'?"
    assert (found.code, found.more) == ("auto tmp0 = in_ptr0[0];", ("expected '}'",))
    assert found.command == COMMAND.strip()
    assert parse_compiler_output("LoweringException: an error: no") is None


async def test_a_failed_compile_leads_from_the_compilers_line_to_the_generated_one(tmp_path: Path) -> None:
    events = build.compile_events("0/0")
    events[-1][0]["compilation_metrics"].update(
        fail_type="torch._inductor.exc.InductorError", fail_reason=REASON, has_guarded_code=False
    )
    path = build.recording(
        tmp_path, [*build.run_events(), *build.source_events(), *events, *build.end_events(1)], "failed"
    )
    async with browsing(path) as pilot:
        await press(pilot, "2", "G")
        text = screen(pilot)
        assert "'fours' was not declared" in text
        assert "of the generated code" in text
        assert "made of" not in text, "which lines of a graph one generated line is of is not known here"
        assert "SOMETHING" not in text.partition("auto tmp0")[0]
        assert isinstance(pilot.app, Browser)
        pane = pilot.app.current.query_one("#compiles-detail")
        pane.focus()
        await settle(pilot)
        lines = pilot.app.focused_lines
        assert lines is not None
        assert "-D SOMETHING" in lines.full_text()
        lines.search("auto tmp0")
        await press(pilot, "enter")
        code = pilot.app.focused
        assert isinstance(code, CodePane)
        assert code.text_of(code.cursor).strip() == "auto tmp0 = in_ptr0[0];"
