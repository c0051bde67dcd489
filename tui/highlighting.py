"""Syntax highlighting with Pygments, a window of lines at a time. Lines off the screen are not lexed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache

from pygments.lexer import Lexer  # type: ignore[import-untyped]  # its stubs are a package of their own
from pygments.token import (  # type: ignore[import-untyped]  # as above
    Comment,
    Generic,
    Keyword,
    Name,
    Number,
    Operator,
    String,
    _TokenType,
)

from tui.styled_text import Fragment, printable_code

LanguageRegion = tuple[int, str]  # first line (from 0) of a region, and its language

_WINDOW_LINES = 200  # lines lexed at once; takes 6 ms
_MAX_WHOLE_LINES = 600  # a shorter region is lexed as a whole, so that long strings are right; takes 18 ms
_MAX_WINDOWS = 64
_MAX_CHARS = 2000  # characters of a line; a longer line is data, and Pygments would be slow

_TOKEN_KINDS: tuple[tuple[_TokenType, str], ...] = (
    (Keyword, "keyword"),
    (Name.Builtin, "builtin"),
    (Name.Function, "name"),
    (Name.Class, "name"),
    (Name.Decorator, "decorator"),
    (Operator.Word, "keyword"),
    (String, "string"),
    (Number, "number"),
    (Comment, "comment"),
    (Generic.Inserted, "add"),
    (Generic.Deleted, "remove"),
)


class Highlighter:
    """The highlighted fragments of each line, computed on demand."""

    def __init__(self, lines: Sequence[str], regions: Sequence[LanguageRegion]) -> None:
        self._lines = lines
        self._starts = [start for start, _ in regions]
        self._languages = [language for _, language in regions]
        self._highlighted = lru_cache(_MAX_WINDOWS)(lambda first, last, language: _lex(lines[first:last], language))

    def line(self, index: int) -> list[Fragment]:
        """Return a line (from 0) as pairs of a text and its token kind."""
        region = bisect_right(self._starts, index) - 1
        if region < 0 or self._languages[region] == "text":
            return [(printable_code(self._lines[index]), "")]
        first, last = self._window(region, index)
        return self._highlighted(first, last, self._languages[region])[index - first]

    def lex_ahead(self, count: int) -> None:
        """Lex the first lines, for a worker to call: the screen does not wait for them then."""
        end = min(len(self._lines), count)
        for index in sorted({*self._starts, *range(0, end, _WINDOW_LINES)}):
            if index < end:
                self.line(index)

    def _window(self, region: int, index: int) -> tuple[int, int]:
        start = self._starts[region]
        end = self._starts[region + 1] if region + 1 < len(self._starts) else len(self._lines)
        if end - start <= _MAX_WHOLE_LINES:
            return start, end
        first = start + (index - start) // _WINDOW_LINES * _WINDOW_LINES
        return first, min(first + _WINDOW_LINES, end)


def _lex(lines: Sequence[str], language: str) -> list[list[Fragment]]:
    cut = [printable_code(line[:_MAX_CHARS]) for line in lines]
    made: list[list[Fragment]] = [[]]
    for token, value in _lexer(language).get_tokens("\n".join(cut)):
        kind = _kind(token)
        for number, piece in enumerate(value.split("\n")):
            if number:
                made.append([])
            if piece:
                made[-1].append((piece, kind))
    made = made[: len(lines)] + [[] for _ in range(len(lines) - len(made))]
    for place, line in enumerate(lines):
        if len(line) > _MAX_CHARS:
            made[place].append((printable_code(line[_MAX_CHARS:]), ""))
    return made


@lru_cache(maxsize=256)
def _kind(token: _TokenType) -> str:
    return next((kind for base, kind in _TOKEN_KINDS if token in base), "")


def import_lexers() -> None:
    """Import what the code of nearly every recording needs."""
    for language in ("python", "cpp"):
        _lexer(language)


@lru_cache(maxsize=16)
def _lexer(language: str) -> Lexer:
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]  # as above

    return get_lexer_by_name(language, stripnl=False, ensurenl=False)
