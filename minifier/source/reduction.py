"""Tries the edits of a pass, many at once if possible, and keeps the smallest program that still fails.

The size of a program is its lines with code and its tokens. Layout and comments do not count.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from minifier.source.observed import Observed, Seen
from minifier.source.trees import Edit, Replacement, apply_edit, render
from minifier.source.validity import can_run, makes_unset_tensor

Fails = Callable[[str], bool]
Size = tuple[int, int, int]
Proposals = Callable[[ast.Module, Seen], Iterable[Sequence[Edit]]]
_LAYOUT = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
)
_STRING_UNIT = 12  # characters of a string that count as one more token: data hidden in text is not small


@dataclass(frozen=True, slots=True)
class SourceReduction:
    """The result: ``minimal`` says that no pass finds anything more."""

    text: str
    minimal: bool


@dataclass(slots=True)
class Candidates:
    """The program so far, and the candidates that were tried. ``fails`` runs one.

    ``stop`` says that the time is over. ``observe`` runs a program uncompiled and says what it saw. ``failed`` has the
    edits that did not work: they are not proposed again, unless ``thorough``, while the nodes that they change are the
    same. ``on_fault`` gets the name of a pass that raised, and what it raised. ``ahead`` gets the texts that may be
    tried next, up to ``width`` of them, and may run them side by side: they are tried one after the other all the same.
    """

    text: str
    fails: Fails
    observe: Callable[[str], Observed]
    stop: Callable[[], bool] = lambda: False
    on_step: Callable[[str, int], None] = lambda _name, _tokens: None
    on_fault: Callable[[str, Exception], None] = lambda _name, _error: None
    ahead: Callable[[Sequence[str]], None] = lambda _texts: None
    width: int = 1
    tried: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    thorough: bool = False
    name: str = ""
    limit: Size = (0, 0, 0)
    growing: bool = False

    def is_open(self, text: str | None) -> bool:
        """Whether a text was not tried yet, and is below the limit of this pass."""
        return text is not None and text not in self.tried and measure(text) < self.limit

    def try_text(self, text: str) -> bool:
        """Try a text. It becomes the program if it fails."""
        self.tried.add(text)
        if not self.fails(text):
            return False
        self.text = text
        if not self.growing:
            self.limit = measure(text)
        self.on_step(self.name, count_tokens(text))
        return True

    def replace(self, text: str) -> bool:
        """Try a text that is another form of the program, of whatever size."""
        return text != self.text and not self.stop() and can_run(text) and self.try_text(text)


@functools.lru_cache(1000)
def measure(text: str) -> Size:
    """The size of a program: tokens, lines, characters."""
    return count_tokens(text), count_lines(text), len(text)


@functools.lru_cache(1000)
def _unset_tensors(text: str) -> int:
    return sum(map(makes_unset_tensor, ast.walk(ast.parse(text))))


def text_of(tree: ast.Module, before: str) -> str | None:
    """The tree as text. None if it cannot run, or has more tensors whose memory is not set than the text ``before``."""
    try:
        text = render(tree)
    except (SyntaxError, ValueError, AttributeError, TypeError, RecursionError):  # a node lacks what it needs
        return None
    return text if can_run(text) and _unset_tensors(text) <= _unset_tensors(before) else None


def run_pass(candidates: Candidates, name: str, proposals: Proposals, *, may_grow: int = 0) -> bool:
    """Run one pass. Each of its groups of edits is tried as a whole, then in halves. Returns whether one was taken.

    The program may grow by up to ``may_grow`` tokens.
    """
    before = candidates.text
    tokens, lines, length = measure(before)
    candidates.name, candidates.limit, candidates.growing = name, (tokens + may_grow, lines, length), may_grow > 0
    tree = ast.parse(before)
    accepted: dict[ast.AST, Replacement] = {}
    groups = _proposed(candidates, proposals, tree)
    while not candidates.stop() and (next_groups := list(islice(groups, candidates.width))):
        _take_each(candidates, tree, accepted, next_groups)
    return candidates.text != before


def _proposed(candidates: Candidates, proposals: Proposals, tree: ast.Module) -> Iterator[Sequence[Edit]]:
    """The new edits that a pass proposes. A pass that raises proposes no more: a fault of one does not end the
    reduction.
    """
    seen = candidates.observe(candidates.text).of(tree)
    try:
        for group in proposals(tree, seen):
            yield [edit for edit in group if _is_new(candidates, edit)]
    except Exception as error:  # noqa: BLE001 - whatever a pass does not expect of some program
        candidates.on_fault(candidates.name, error)


def _is_new(candidates: Candidates, edit: Edit) -> bool:
    return candidates.thorough or _key(edit) not in candidates.failed


def _take_each(
    candidates: Candidates, tree: ast.Module, accepted: dict[ast.AST, Replacement], groups: Sequence[Sequence[Edit]]
) -> None:
    """Take as many edits of each group as possible."""
    if candidates.width > 1:
        texts = dict.fromkeys(_with_edits(candidates, tree, accepted, group)[0] for group in groups if group)
        candidates.ahead([text for text in texts if text is not None and candidates.is_open(text)])
    for group in groups:
        _take(candidates, tree, accepted, group)


def _take(
    candidates: Candidates, tree: ast.Module, accepted: dict[ast.AST, Replacement], edits: Sequence[Edit]
) -> None:
    """Take as many of the edits as possible, in as few trials as possible."""
    if not edits or candidates.stop():
        return
    text, together = _with_edits(candidates, tree, accepted, edits)
    if text == candidates.text:
        return
    if text is not None and candidates.is_open(text):
        if candidates.try_text(text):
            accepted |= together
            return
        if len(edits) == 1:
            candidates.failed.add(_key(edits[0]))
    if middle := len(edits) // 2:
        _take_each(candidates, tree, accepted, (edits[:middle], edits[middle:]))


def _with_edits(
    candidates: Candidates, tree: ast.Module, accepted: Mapping[ast.AST, Replacement], edits: Sequence[Edit]
) -> tuple[str | None, dict[ast.AST, Replacement]]:
    """The program with these edits too, None where it cannot run, and all its edits."""
    together = dict(accepted)
    for edit in edits:
        together |= edit
    return text_of(apply_edit(tree, together), candidates.text), together


def _key(edit: Edit) -> str:
    """An edit as text: what it changes, and to what."""
    return "; ".join(f"{_text(node)} -> {_text(found)}" for node, found in edit.items())


def _text(found: Replacement) -> str:
    parts = [found] if isinstance(found, ast.AST) else found
    with contextlib.suppress(ValueError, AttributeError, TypeError, RecursionError):
        return ", ".join(map(render, parts))
    return "?"


def count_lines(text: str) -> int:
    """Lines that are neither blank nor a comment."""
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in text.splitlines())


def count_tokens(text: str) -> int:
    """Tokens of Python, and one more for every twelve characters of a string. Raises if it is not Python."""
    found = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in _LAYOUT]
    return len(found) + sum(len(t.string) // _STRING_UNIT for t in found if t.type == tokenize.STRING)
