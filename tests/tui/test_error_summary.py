"""Reasons and advice in one line."""

from __future__ import annotations

from tui.styled_report import brief_error, first_sentence


def test_of_a_compilers_output_what_it_calls_an_error() -> None:
    text = "CppCompileError: C++ compile error\n\nCommand:\ng++ a.cpp -D A\n\nOutput:\na.cpp:19:33: error: no 'x'\n"
    assert brief_error(text) == "CppCompileError: C++ compile error … error: no 'x'"
    assert brief_error("one\ntwo") == "one two"
    assert brief_error("") == ""
    assert len(brief_error("x" * 1000)) == 200
    assert brief_error("x" * 1000 + "\ny") == "x" * 199 + " …"


def test_a_line_that_does_not_fit_is_left_out_where_little_of_it_would_be_seen() -> None:
    lines = [
        "not close!",
        "Greatest absolute difference: " + "0" * 130,
        "Greatest relative difference: 0.009 at index 0",
    ]
    assert brief_error("\n".join(lines)) == f"{lines[0]} {lines[1]} …"
    assert brief_error("\n".join(["InductorError:", "x" * 300])) == f"InductorError: {'x' * 184}…"


def test_a_sentence_ends_at_a_full_stop_that_ends_one() -> None:
    text = "For the common pattern `if cond: x = f(x)` (e.g. a loop), use `torch.cond`. Otherwise rewrite it."
    assert first_sentence(text) == "For the common pattern `if cond: x = f(x)` (e.g. a loop), use `torch.cond`."
    assert first_sentence("Use v1. It is short.") == "Use v1. It is short."
