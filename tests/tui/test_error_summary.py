"""Reasons and advice in one line."""

from __future__ import annotations

from tui.error_summary import brief_error, first_sentence


def test_of_a_compilers_output_what_it_calls_an_error() -> None:
    text = "CppCompileError: C++ compile error\n\nCommand:\ng++ a.cpp -D A\n\nOutput:\na.cpp:19:33: error: no 'x'\n"
    assert brief_error(text) == "CppCompileError: C++ compile error … error: no 'x'"
    assert brief_error("one\ntwo") == "one two"
    assert brief_error("") == ""
    assert len(brief_error("x" * 1000)) == 200


def test_a_sentence_ends_at_a_full_stop_that_ends_one() -> None:
    text = "For the common pattern `if cond: x = f(x)` (e.g. a loop), use `torch.cond`. Otherwise rewrite it."
    assert first_sentence(text) == "For the common pattern `if cond: x = f(x)` (e.g. a loop), use `torch.cond`."
    assert first_sentence("Use v1. It is short.") == "Use v1. It is short."
