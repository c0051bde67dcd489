"""The user's line with the exact span underlined."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dynadiag.recording.records import Span
from dynadiag.render.printer import Printer
from dynadiag.render.wrap import width

PRINTER = Printer()


def underlined(lines: list[str]) -> str:
    """What stands over the carets, by columns of a terminal (for text in which each character takes one)."""
    code, marks = lines[1], lines[2]
    return "".join(char for char, mark in zip(code, marks, strict=False) if mark == "^")


def test_the_span_is_underlined_exactly() -> None:
    lines = PRINTER.snippet("a = 1\n    if x.sum() > 0:\n", Span("f", 2, 7, 2, 18))
    assert lines == [
        "     |",
        "   2 |     if x.sum() > 0:",
        "     |        ^^^^^^^^^^^",
        "     |",
    ]


def test_tabs_and_wide_characters_shift_the_carets() -> None:
    lines = PRINTER.snippet("\tx = f('日本', y)\n", Span("f", 1, 13, 1, 14))
    assert lines[1] == "   1 |     x = f('日本', y)"
    assert width(lines[2][: lines[2].index("^")]) == width(lines[1][: lines[1].index("y")])


def test_a_span_of_several_lines_is_underlined_on_each() -> None:
    source = "y = f(\n    a,\n    b)  # why\n"
    lines = PRINTER.snippet(source, Span("f", 1, 4, 3, 6))
    assert [line for line in lines if "^" in line] == ["     |     ^^", "     |     ^^", "     |     ^^"]


def test_the_middle_of_a_long_span_is_left_out() -> None:
    lines = PRINTER.snippet("f(\n" + "  a,\n" * 20 + ")\n", Span("f", 1, 0, 22, 1))
    assert "..." in lines
    assert len(lines) == 15
    assert lines[-3].startswith("  22 |")


def test_a_long_line_is_cut_around_its_span() -> None:
    text = " + ".join(f"layer{i}(x)" for i in range(60))
    start = text.index("layer40")
    lines = PRINTER.snippet(text, Span("f", 1, start, 1, start + 10))
    assert underlined(lines) == "layer40(x)"
    assert all(width(line) <= 80 for line in lines)
    assert lines[1].count("…") == 2


def test_without_columns_the_line_is_shown_bare() -> None:
    assert PRINTER.snippet("a\nb\n", Span("f", 2)) == ["     |", "   2 | b", "     |"]


def test_without_the_source_or_the_line_there_is_nothing_to_show() -> None:
    assert PRINTER.snippet(None, Span("f", 1)) == []
    assert PRINTER.snippet("a\n", Span("f", 9)) == []
    assert PRINTER.snippet("a\n", Span("f", None)) == []
    assert PRINTER.snippet("", Span("f", 1)) == []


def test_escapes_in_source_are_shown_and_counted() -> None:
    lines = PRINTER.snippet("x = '\x1b[31m' + y", Span("f", 1, 14, 1, 15))
    assert underlined(lines) == "y"
    assert "\x1b" not in "".join(lines)


def test_lines_are_numbered_as_python_does() -> None:
    lines = PRINTER.snippet("a\x0cb\r\nc\u2028d\ne\n", Span("f", 3, 0, 3, 1))
    assert lines[1] == "   3 | e"


_number = st.one_of(st.none(), st.integers(-3, 200))


@given(
    st.text(max_size=400),
    st.builds(Span, st.just("f"), _number, _number, _number, _number),
    st.integers(80, 130),
)
def test_whatever_the_span_says_the_picture_fits(source: str, span: Span, columns: int) -> None:
    lines = Printer(columns).snippet(source, span)
    assert all(width(line) <= columns for line in lines)
