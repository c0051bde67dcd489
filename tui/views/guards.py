"""The Guards screen: the conditions under which the code of one compile is used again."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from dynadiag.explanation.formatting import count
from dynadiag.recording.records import Guard, Span
from dynadiag.recording.torch_text.guards import CHANGING_KINDS, MARK_KIND, tensor_check
from dynadiag.recording.torch_text.sources import is_global, source_components, source_text
from dynadiag.render.paths import source_location
from tui.key_bindings import footer_key, hidden_key
from tui.location import Location, source_place
from tui.overview import guard_change_fragments
from tui.styled_report import RolePrinter, styled_report_lines
from tui.styled_text import Fragment, Line, line, one_line
from tui.views.listing import ListingView
from tui.widgets.lines import Lines
from tui.widgets.styled_lines import MARK_WIDTH, StyledLines
from tui.widgets.table import Column, Row, Table
from tui.widgets.tree import Branch, Tree

_MAX_REPEATED = 8  # characters of a value that its condition repeats
_MAX_EXPANDED = 40  # with more guards, branches start closed


def condition_text(guard: Guard) -> str:
    """The condition of a guard on one line. Of a tensor the type and the shape come first, which calls differ in.

    The value stands beside it and is not repeated. torch prints no condition for the second and later values of a check
    that covers several.
    """
    check = tensor_check(guard.expression)
    if check is None:
        text = one_line(source_text(guard.expression))
        value = re.escape(_value(guard))
        text = re.sub(rf"^{value}(?= (?:[=!<>]=?|is|in|not) )", "", text).lstrip()
        return re.sub(rf"\b{value}(?!\w)", "…", text) if len(value) > _MAX_REPEATED else text or "-"
    size, stride = (f"[{', '.join(values)}]" for values in (check.size, check.stride))
    return one_line(
        f"{check.dtype.removeprefix('torch.')}, size={size}, stride={stride}, requires_grad={check.requires_grad}, "
        f"device={check.device}, DispatchKeySet({check.dispatch_keys})"
    )


@dataclass(slots=True)
class _SourceNode:
    children: dict[str, _SourceNode] = field(default_factory=dict)
    guards: list[Guard] = field(default_factory=list)

    def guard_count(self) -> int:
        return len(self.guards) + sum(child.guard_count() for child in self.children.values())


def _child_branches(value: _SourceNode, path: str, cwd: str | None, *, is_open: bool) -> list[Branch]:
    return [
        *(_guard_branch(guard, cwd) for guard in value.guards),
        *(_source_branch(step, child, f"{path}\n{step}", cwd, is_open) for step, child in value.children.items()),
    ]


def _source_branch(step: str, value: _SourceNode, path: str, cwd: str | None, is_open: bool) -> Branch:
    """Return the branch of a value. A value with a single child and no guard shares one line with it."""
    name = step
    while not value.guards and len(value.children) == 1:
        ((step, value),) = value.children.items()
        name += step
        path = f"{path}\n{step}"
    named = source_text(name) or name
    parts: tuple[Fragment, ...] = ((one_line(named), "strong"), (f"  {count(value.guard_count(), 'guard')}", "dim"))
    return Branch(
        f"value{path}", parts, None, lambda: _child_branches(value, path, cwd, is_open=is_open), expanded=is_open
    )


def _guard_branch(guard: Guard, cwd: str | None) -> Branch:
    at = f"  {source_location(guard.file, guard.line, None, cwd)}" if guard.file else ""
    parts = (one_line(guard.kind), "key"), (f"  {condition_text(guard)[:300]}", ""), (at, "dim")
    return Branch(f"guard/{guard.index}", parts)


_FAILED = "no guard was made: this compile failed before that"
GuardRows = tuple[tuple[Guard, ...], list[Row], list[Branch]]


class GuardsView(ListingView):
    """The guards of one compile, as a list or as a tree of the values that they check."""

    NOTHING: ClassVar[str] = "no guard was recorded for this compile"
    COLUMNS: ClassVar[Sequence[Column]] = (
        Column("value", max_width=40, is_path=True),
        Column("kind", max_width=17, spare=1),
        Column("where", max_width=32, is_path=True),
        Column("condition", max_width=200, min_last_width=36),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        footer_key("v", "form", "tree, list", "guards.form", "show the guards as a tree of values, or as a list"),
        footer_key("J", "compile(1)", "compile", "guards.next", "show the guards of the next compile", display="J/K"),
        hidden_key("K", "compile(-1)", "previous compile", "guards.previous"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._compile: str | None = None
        self._guards: dict[int, Guard] = {}
        self._failed: Mapping[str, int] = {}  # the value of each guard that failed, and the first recompile for it
        self._title = ""

    def compose(self) -> ComposeResult:
        yield Table(self.COLUMNS, id="guards-list")
        yield Tree(id="guards-tree")
        yield StyledLines(id="guards-detail", classes="detail", wrap=True)

    def on_mount(self) -> None:
        self.tree_.display = False

    @property
    def tree_(self) -> Tree:
        return self.query_one(Tree)

    @property
    def lines(self) -> Lines:
        return self.tree_ if self.tree_.display else self.table

    def nothing(self, words: str) -> str:
        item = self.session.compile(self._compile or "-")
        return super().nothing(_FAILED if item is not None and item.outcome == "error" else words)

    def offers(self, action: str) -> bool:
        """Whether there are guards to be shown in another form, and another compile."""
        number = len(self.session.known_explanation.compiles) if self.session.known_explanation else 0
        needed = {"form": bool(self._guards), "compile(1)": number > 1}
        return super().offers(action) and needed.get(action, True)

    def action_form(self) -> None:
        """Switch between list and tree. The cursor stays on the same guard."""
        key = self.key
        self.table.display, self.tree_.display = self.tree_.display, self.table.display
        self.lines.focus()
        if isinstance(key, int) and self.tree_.display:
            steps = source_components(self._guards[key].source)
            above = ("".join(f"\n{step}" for step in steps[: number + 1]) for number in range(len(steps)))
            self.tree_.go_to_key(f"guard/{key}", {f"value{path}" for path in above})
        elif isinstance(key, int):
            self.table.go_to_key(key)
        self.cursor_moved(self.lines)

    def action_compile(self, by: int) -> None:
        ids = [item.compile_id for item in self.session.explanation().compiles]
        if ids:
            here = ids.index(self._compile) if self._compile in ids else 0
            self._compile = ids[(here + by) % len(ids)]
            self.load()

    def go_to(self, place: Location) -> None:
        if place.compile_id is not None and place.compile_id != self._compile:
            self._compile = place.compile_id
            self.load()
        super().go_to(place)

    def location(self) -> Location:
        key = self.key
        return Location(self.NAME, compile_id=self._compile, item=key if isinstance(key, int) else None)

    def load(self) -> None:
        self.fetch("rows", self._read_guards, self._show_guards)

    def _read_guards(self) -> GuardRows:
        explanation = self.session.explanation()
        if self._compile is None:
            guarded = [item for item in explanation.compiles if item.guards]
            self._compile = next((item.compile_id for item in guarded or explanation.compiles), "-")
        cwd = explanation.run.cwd
        failed = {
            value: item.index
            for item in reversed(explanation.recompiles)
            for reason in item.reasons
            if reason.source and reason.against == self._compile
            for value in (reason.subject, reason.source)
            if value
        }
        self._failed = failed
        guards = sorted(self.session.guards(self._compile), key=lambda item: _rank(item, failed))
        rows = [_row(item, cwd, failed=_failed(item, failed)) for item in guards]
        root = _SourceNode()
        for guard in guards:
            here = root
            for step in source_components(guard.source):
                here = here.children.setdefault(step, _SourceNode())
            here.guards.append(guard)
        return tuple(guards), rows, _child_branches(root, "", cwd, is_open=len(guards) <= _MAX_EXPANDED)

    def _show_guards(self, found: GuardRows) -> None:
        guards, rows, branches = found
        self._guards = {item.index: item for item in guards}
        self.tree_.show(branches)
        self._show(rows)
        item = self.session.compile(self._compile or "-")
        named = f" of {one_line(item.compile_id)} {one_line(item.function)} · {len(guards):,}" if item else ""
        self._title = f"{self.TITLE}{named}"
        for lines in (self.table, self.tree_):
            lines.border_title = self._title
        self._show_title()
        self.table.border_subtitle = ""

    async def screen_shown(self) -> None:
        self._show_title()

    def _show_title(self) -> None:
        """Show the title in the status line, because a small screen has no frames."""
        self.show_status(self._title, "")

    @property
    def key(self) -> int | str | None:
        if not self.tree_.display:
            return self.table.key
        branch = self.tree_.branch
        kind, _, number = (branch.key if branch else "").partition("/")
        return int(number) if kind == "guard" else None

    def line_chosen(self, lines: Lines) -> None:
        if lines is self.details and self.details.target is None:
            lines = self.lines  # the line that made the guard
        if lines is self.tree_ and self.key is None:
            self.tree_.action_toggle_branch()
        else:
            super().line_chosen(lines)

    def detail(self, key: int | str) -> Sequence[Line]:
        guard = self._guards.get(int(key))
        if guard is None:  # those of another compile have been read meanwhile
            return []
        printer = RolePrinter(self.detail_columns - MARK_WIDTH)  # one line may lead to a recompile
        cwd = self.session.run.cwd
        at = source_location(guard.file, guard.line, None, cwd) if guard.file else "the line that made it is not known"
        text = self.session.recording.source(guard.file) if guard.file else None
        recompiles = self.session.explanation().recompiles if _failed(guard, self._failed) else ()
        again = next((item for item in recompiles if item.index == self._failed.get(guard.source)), None)
        target = Location("recompiles", item=again.index) if again else None
        of_it = (guard.source, guard.compile_id)  # the guard, or one on a part of its tensor
        reasons = again.reasons if again else ()
        changed = [each for each in reasons if of_it in ((each.source, each.against), (each.subject, each.against))]
        words = [("↻ it failed: ", "recompile"), *guard_change_fragments(again, changed)] if again else []
        return [
            line((one_line(guard.kind), "key"), f"  {one_line(_value(guard))}"),
            line(one_line(guard.expression) or "torch prints no condition of its own for this value"),
            *([line(*words, to=target)] if again else []),
            Line(),
            line(("    --> ", "gutter"), at),
            *styled_report_lines(printer.snippet(text, Span(guard.file, guard.line))),
        ]

    def target_of(self, key: int | str) -> Location | None:
        guard = self._guards.get(int(key))
        if guard is None or not guard.file:
            return None
        return source_place(guard.file, guard.line, guard.compile_id)


def _value(item: Guard) -> str:
    """The value that a guard checks, as the program writes it."""
    return source_text(item.source) if item.source else "-"


def _failed(item: Guard, failed: Container[str]) -> bool:
    """Whether a guard is on a value for which the code did not fit a later call."""
    return item.kind in CHANGING_KINDS and item.source in failed


def _rank(item: Guard, failed: Container[str]) -> int:
    """What can change comes first: guards that failed, values of the call, their attributes, all else, then marks."""
    if _failed(item, failed):
        return 0
    if item.kind in CHANGING_KINDS and not is_global(item.source):
        return 1
    if item.kind == MARK_KIND:
        return 4
    return 2 if item.source.startswith("L[") else 3


def _row(item: Guard, cwd: str | None, *, failed: bool) -> Row:
    where = source_location(item.file, item.line, None, cwd) if item.file else "-"
    cells = (one_line(_value(item)), one_line(item.kind), where, condition_text(item))
    return Row((f"{cells[0]} ↻", *cells[1:]) if failed else cells, item.index, "recompile" if failed else "")
