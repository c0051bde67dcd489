"""Documents, colouring, roles, places: the parts that know no screen."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.kernels.graph_parser import split_lines
from dynadiag.recording.torch_text.sources import source_components
from tests.tui.build import MODULE
from tui.colors import LINE_COLORS, THEMES, line_color
from tui.documents import kernel_regions
from tui.highlighting import Highlighter
from tui.line_actions import editor_command
from tui.location import History, Location
from tui.session import FileWatch
from tui.styled_report import RolePrinter, styled_report_lines
from tui.styled_text import line, printable_code
from tui.text_match import TextMatcher


def _languages(text: str) -> dict[str, str]:
    lines = split_lines(text)
    regions = kernel_regions(lines)
    return {
        lines[number]: next(language for start, language in reversed(regions) if start <= number)
        for number in range(len(lines))
    }


def test_each_kernel_in_a_module_has_its_own_language() -> None:
    found = _languages(MODULE)
    assert found["    auto tmp0 = in_ptr0[0];"] == "cpp"
    assert found["@triton.jit"] == "python"
    assert found["class Runner:"] == "python"


@given(st.text(alphabet="ab'\"(#\n\t\x1b\u2028é{}", max_size=300), st.sampled_from(["python", "cpp", "diff", "text"]))
def test_colouring_loses_and_adds_nothing(text: str, language: str) -> None:
    lines = split_lines(text)
    coloured = Highlighter(lines, ((0, language),))
    for number, original in enumerate(lines):
        assert "".join(part for part, _ in coloured.line(number)) == printable_code(original)


def test_of_a_long_text_only_windows_are_lexed(monkeypatch: pytest.MonkeyPatch) -> None:
    import tui.highlighting

    lexed: list[int] = []
    lex = tui.highlighting._lex
    monkeypatch.setattr(
        tui.highlighting, "_lex", lambda lines, language: (lexed.append(len(lines)), lex(lines, language))[1]
    )
    coloured = Highlighter([f"x{number} = {number}" for number in range(100_000)], ((0, "python"),))
    for number in (0, 1, 50, 99_999, 50_000):
        coloured.line(number)
    assert sum(lexed) <= 3 * 200


@given(st.text(max_size=60))
def test_what_is_shown_holds_no_control_characters(text: str) -> None:
    assert all(char.isprintable() or char == " " for char in printable_code(text.replace("\n", "")) if ord(char) < 0xA0)
    assert not set(line(text).text) & {"\n", "\t", "\x1b", "\x9b", "\r"}


def test_a_report_keeps_its_roles_and_its_text() -> None:
    style = RolePrinter(80)
    (made,) = styled_report_lines([f"a {style.paint('b', 'strong')} c{style.paint('d', 'mark')}"])
    assert made.fragments == (("a ", ""), ("b", "strong"), (" c", ""), ("d", "mark"))


def test_search_is_by_small_letters_unless_there_is_a_large_one() -> None:
    assert TextMatcher("relu").spans("ReLU relu") == [(0, 4), (5, 9)]
    assert TextMatcher("ReLU").spans("ReLU relu") == [(0, 4)]
    assert TextMatcher("").spans("relu") == []


@given(st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=20), st.data())
def test_next_match_is_the_nearest_round_the_end(lines: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(lines) - 1))
    found = TextMatcher("a").find_next(lines.__getitem__, len(lines), start, 1)
    after = [index % len(lines) for index in range(start + 1, start + len(lines) + 1)]
    wanted = next((index for index in after if lines[index] == "a"), None)
    assert found == wanted


def test_neighbours_have_different_colours() -> None:
    for palette in THEMES:
        assert len({line_color(number, palette) for number in range(LINE_COLORS)}) == LINE_COLORS


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("L['x'].size()[0]", ("L['x']", ".size()", "[0]")),
        ("L['self']._modules['up'].weight", ("L['self']", "._modules", "['up']", ".weight")),
        ("G['a.b[c]'].F", ("G['a.b[c]']", ".F")),
        ("", ()),
        ("not ( a source", ("not ( a source",)),
    ],
)
def test_a_value_is_taken_apart_at_each_step(source: str, wanted: tuple[str, ...]) -> None:
    assert source_components(source) == wanted


def test_history_goes_back_and_forward_and_a_new_jump_forgets_what_lay_ahead() -> None:
    a, b, c, d = (Location(name) for name in "abcd")
    history = History()
    history.push(a)
    history.push(b)
    assert history.back(c) == b
    assert history.back(b) == a
    assert history.back(a) is None
    assert history.forward(a) == b
    history.push(b)
    assert history.forward(d) is None


@pytest.mark.parametrize(
    ("editor", "wanted"),
    [
        ("vi", ["vi", "+7", "/x.py"]),
        ("emacs -nw", ["emacs", "-nw", "+7", "/x.py"]),
        ("code --wait", ["code", "--wait", "--goto", "/x.py:7"]),
        ("/usr/bin/hx", ["/usr/bin/hx", "/x.py:7"]),
    ],
)
def test_editors_are_told_the_line_in_their_own_way(editor: str, wanted: list[str]) -> None:
    assert editor_command(editor, Path("/x.py"), 7) == wanted


def test_a_live_file_is_seen_to_grow_and_to_go(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("a")
    watch = FileWatch(path, live=True)
    assert watch.check() is None
    path.write_text("ab")
    assert watch.check() == "grown"
    assert watch.check() is None
    path.unlink()
    assert watch.check() == "gone"
    assert watch.check() is None


def test_a_file_that_is_not_live_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("a")
    watch = FileWatch(path, live=False)
    path.write_text("ab")
    assert watch.check() is None
