"""A source file that is edited in place: positions of its syntax tree, replaced ranges of its text, the unified diff.

Edits are ranges of the original text, not changed trees, so that the rest of a file stays unchanged and edits of
several fixes can be combined.
"""

from __future__ import annotations

import bisect
import difflib
import functools
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import TypeVar

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, ParentNodeProvider, PositionProvider

from dynadiag.recording.records import Span

N = TypeVar("N", bound=cst.CSTNode)


class EditConflict(Exception):  # noqa: N818 - a conflict of two fixes, not an error of the program
    """Two edits change the same text in different ways."""


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """The text that replaces characters ``start`` to ``end`` of a file. ``file`` is relative to the project."""

    file: str
    start: int
    end: int
    text: str


def apply_edits(sources: Mapping[str, str], edits: Collection[Edit]) -> dict[str, str]:
    """The changed files with their new texts. Equal edits count once. Raises `EditConflict` if edits overlap, unless
    one only puts text around what another one changes.

    >>> apply_edits({"a.py": "x = 1"}, [Edit("a.py", 4, 5, "2")])
    {'a.py': 'x = 2'}
    """
    changed = {}
    for file in sorted({edit.file for edit in edits}):
        text, end, parts = sources[file], 0, []
        for edit in _in_order(edits, file, text):
            if edit.start < end:
                raise EditConflict(f"{file}: two fixes change the same lines")
            parts += [text[end : edit.start], edit.text]
            end = edit.end
        changed[file] = "".join([*parts, text[end:]])
    return changed


def unified_diff(sources: Mapping[str, str], changed: Mapping[str, str]) -> str:
    """The change as `patch -p1` and `git apply` read it."""
    return "".join(_file_diff(file, sources[file], changed[file]) for file in sorted(changed))


def _file_diff(file: str, old: str, new: str) -> str:
    lines = difflib.unified_diff(_lines(old), _lines(new), f"a/{file}", f"b/{file}", n=3)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _lines(text: str) -> list[str]:
    """Lines that end at a newline only: `str.splitlines` also ends them at a form feed."""
    parts = text.split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _line_starts(text: str) -> list[int]:
    return list(itertools.accumulate(map(len, _lines(text)), initial=0))


def _in_order(edits: Iterable[Edit], file: str, text: str) -> list[Edit]:
    """The edits of a file in its order. One that puts text around others is an insertion on each side."""
    own = {edit for edit in edits if edit.file == file}
    around = {edit for edit in own if any(_lies_in(other, edit) for other in own)}
    return sorted([*(own - around), *(part for edit in around for part in _sides(edit, text))], key=_place_and_text)


def _place_and_text(edit: Edit) -> tuple[int, int, bool, str]:
    """Of what is inserted at one place, helpers with their imports come before what uses them."""
    return edit.start, edit.end, not edit.text.lstrip().startswith("import "), edit.text


def _lies_in(inner: Edit, outer: Edit) -> bool:
    same = (inner.start, inner.end) == (outer.start, outer.end)
    inside = outer.start <= inner.start and inner.end <= outer.end
    return inside and not same and inner.start < outer.end and outer.start < inner.end


def _sides(edit: Edit, text: str) -> list[Edit]:
    old = text[edit.start : edit.end]
    if edit.text.count(old) != 1:
        return [edit]
    before, after = edit.text.split(old)
    return [replace(edit, end=edit.start, text=before), replace(edit, start=edit.end, text=after)]


class SourceMap:
    """Leads from places in a changed file back to places in the file without the changes."""

    def __init__(self, file: str, text: str, edits: Iterable[Edit]) -> None:
        self._edits = _in_order(edits, file, text)
        self._before = _line_starts(text)
        self._after = _line_starts(apply_edits({file: text}, self._edits).get(file, text))

    def span(self, span: Span) -> Span | None:
        """The span in the unchanged file; ``None`` if an edit wrote it."""
        if span.line is None:
            return span
        start, end = self._place(span.line, span.column), self._place(span.end_line, span.end_column)
        if start is None or (end is None and span.end_line is not None):
            return None
        columns = (None, None) if span.column is None else (start[1], end[1] if end else None)
        return Span(span.file, start[0], columns[0], end[0] if end else None, columns[1])

    def _place(self, line: int | None, column: int | None) -> tuple[int, int] | None:
        """A 1-based line and a 0-based column in the unchanged file."""
        if line is None:
            return None
        offset = self._after[line - 1] + (column or 0)
        for edit in reversed(self._edits):
            moved = edit.start + self._shift(edit)
            if offset >= moved + len(edit.text):
                offset = offset - moved - len(edit.text) + edit.end
                break
            if offset >= moved:
                return None
        found = bisect.bisect_right(self._before, offset)
        return found, offset - self._before[found - 1]

    def _shift(self, edit: Edit) -> int:
        """By how much the edits before this one move it."""
        earlier = self._edits[: self._edits.index(edit)]
        return sum(len(each.text) - (each.end - each.start) for each in earlier)


class ParsedSource:
    """A file of the user's: its text and its syntax tree with positions. ``imported`` are packages that it has without
    an import of its own, as a cell of a notebook does. Raises `libcst.ParserSyntaxError`.
    """

    def __init__(self, name: str, text: str, imported: Set[str] = frozenset()) -> None:
        self.name, self.text = name, text
        self._imported = imported
        self._given: set[str] = set()
        self._names: dict[tuple[cst.CSTNode, tuple[str, ...]], str] = {}
        self._wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
        self.module = self._wrapper.module
        self._ranges: Mapping[cst.CSTNode, CodeRange] = self._wrapper.resolve(PositionProvider)
        self._parents: Mapping[cst.CSTNode, cst.CSTNode] = self._wrapper.resolve(ParentNodeProvider)

    @functools.cached_property
    def _line_starts(self) -> list[int]:
        return _line_starts(self.text)

    def offset(self, line: int, column: int) -> int:
        """The position in the text of a 1-based line and a 0-based column."""
        return self._line_starts[line - 1] + column

    def range(self, node: cst.CSTNode) -> tuple[int, int]:
        """Where a node stands in the text, with its parentheses."""
        start, end = self._inner_range(node)
        for _ in node.lpar if isinstance(node, cst.BaseExpression) else ():
            start, end = self.text.rindex("(", 0, start), self.text.index(")", end) + 1
        return start, end

    def _inner_range(self, node: cst.CSTNode) -> tuple[int, int]:
        """Where a node stands without its parentheses, as Python counts positions."""
        found = self._ranges[node]
        return self.offset(found.start.line, found.start.column), self.offset(found.end.line, found.end.column)

    def line(self, node: cst.CSTNode) -> int:
        """The 1-based line on which a node begins."""
        return self._ranges[node].start.line

    def end_line(self, node: cst.CSTNode) -> int:
        """The 1-based line on which a node ends."""
        return self._ranges[node].end.line

    def holds(self, node: cst.CSTNode, line: int | None) -> bool:
        """Whether a 1-based line is one of a node's, from where it begins to where it ends; False for no line."""
        return line is not None and self.line(node) <= line <= self.end_line(node)

    def code(self, node: cst.CSTNode) -> str:
        """The text of a node as the user wrote it."""
        start, end = self.range(node)
        return self.text[start:end]

    def replace(self, node: cst.CSTNode, text: str) -> Edit:
        """The edit that puts ``text`` in the place of a node."""
        return Edit(self.name, *self.range(node), text)

    def insert_line(self, line: int, text: str) -> Edit:
        """The edit that puts lines in front of a 1-based line."""
        start = self._line_starts[min(line, len(self._line_starts)) - 1]
        return Edit(self.name, start, start, text)

    def replace_lines(self, first: cst.CSTNode, last: cst.CSTNode, text: str) -> Edit:
        """The edit that puts ``text`` in the place of the whole lines of two statements and all between them."""
        end = self._line_starts[min(self._ranges[last].end.line, len(self._line_starts) - 1)]
        return Edit(self.name, self._line_starts[self.line(first) - 1], end, text)

    def remove(self, line: cst.SimpleStatementLine) -> Edit:
        """The edit that takes a statement away, with the comments right above it, which are about it."""
        block, text = self.parent(line), ""
        if isinstance(block, cst.IndentedBlock) and len(block.body) == 1:
            text = f"{self.indent(line)}pass{self.newline}"
        above = next(
            (n for n, each in enumerate(line.leading_lines[::-1]) if not each.comment), len(line.leading_lines)
        )
        edit = self.replace_lines(line, line, text)
        return replace(edit, start=self._line_starts[self.line(line) - 1 - above])

    def indent(self, node: cst.CSTNode) -> str:
        """The white space in front of the line on which a node begins."""
        start = self._line_starts[self.line(node) - 1]
        line = self.text[start : self.text.find("\n", start) % (len(self.text) + 1)]
        return line[: len(line) - len(line.lstrip())]

    @property
    def indent_unit(self) -> str:
        """One step of indentation, as most of the file has it."""
        return self.module.default_indent

    @property
    def newline(self) -> str:
        """The line end of the file."""
        return self.module.default_newline

    def nodes(self, kind: type[N], inside: cst.CSTNode | None = None) -> Iterator[N]:
        """All nodes of a kind, in the order of the text."""
        found = [node for node in self._ranges if isinstance(node, kind)]
        bounds = self.range(inside) if inside is not None else (0, len(self.text))
        kept = [(self.range(node), node) for node in found]
        inner = [pair for pair in kept if bounds[0] <= pair[0][0] and pair[0][1] <= bounds[1]]
        yield from (node for _, node in sorted(inner, key=lambda pair: (pair[0][0], -pair[0][1])))

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The node that holds a node."""
        return self._parents.get(node)

    def enclosing(self, node: cst.CSTNode, *kinds: type[cst.CSTNode]) -> cst.CSTNode | None:
        """The innermost node of these kinds around a node."""
        found = self.parent(node)
        while found is not None and not isinstance(found, kinds):
            found = self.parent(found)
        return found

    def statement(self, node: cst.CSTNode) -> cst.CSTNode:
        """The statement that a node is in: a simple statement's line, or a compound statement."""
        here: cst.CSTNode = node
        while not isinstance(here, (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
            above = self.parent(here)
            if above is None:
                return here
            here = above
        return here

    def at(self, span: Span, kind: type[N]) -> N | None:
        """The node of a kind at a span: exactly there, else the outermost inside it, else the innermost around it."""
        if span.line is None:
            return None
        if span.column is None or span.end_line is None or span.end_column is None:
            return next((n for n in self.nodes(kind) if self.line(n) == span.line), None)
        wanted = self.offset(span.line, span.column), self.offset(span.end_line, span.end_column)
        nodes = [(self._inner_range(node), node) for node in self.nodes(kind)]
        exact = [node for place, node in nodes if place == wanted]
        inside = [node for place, node in nodes if wanted[0] <= place[0] and place[1] <= wanted[1]]
        around = [(place, node) for place, node in nodes if place[0] <= wanted[0] and wanted[1] <= place[1]]
        if exact or inside:
            return (exact or inside)[0]
        return min(around, key=lambda pair: pair[0][1] - pair[0][0])[1] if around else None

    def free_name(self, *wanted: str, inside: cst.CSTNode | None = None, of: cst.CSTNode | None = None) -> str:
        """The first of these names that nothing uses, else the last with underscores. Without ``inside`` nothing in the
        file uses it, and no name is given twice, but again for what it is the name ``of``: several changes of one file
        are made together.
        """
        if of is not None and (of, wanted) in self._names:
            return self._names[of, wanted]
        used = {node.value for node in self.nodes(cst.Name, inside)} | (set() if inside else self._given)
        longer = itertools.accumulate(itertools.repeat("_"), str.__add__, initial=wanted[-1])
        name = next(name for name in itertools.chain(wanted, longer) if name not in used)
        if inside is None:
            self._given.add(name)
        if of is not None:
            self._names[of, wanted] = name
        return name

    def imports(self, package: str) -> bool:
        """Whether an import at the top of the file gives a package its own name. `import torch.nn` does."""
        return package in self._imported or any(
            _binds(name, package) for statement in self.module.body for name in _plain_imports(statement)
        )

    def imports_around(self, package: str, place: int) -> bool:
        """Whether the function around a place of the text has imported a package in front of it."""
        around = [each for each in self.nodes(cst.FunctionDef) if self.range(each)[0] <= place < self.range(each)[1]]
        lines = (line for function in around for line in self.nodes(cst.SimpleStatementLine, function))
        above = (line for line in lines if self.range(line)[1] <= place)
        return any(_binds(name, package) for line in above for name in _plain_imports(line))

    def line_above(self, node: cst.CSTNode) -> int:
        """The line of the statement of the module that a node is in, with its decorators and comments."""
        top = node
        while (above := self.parent(top)) is not None and above is not self.module:
            top = above
        decorators = top.decorators if isinstance(top, (cst.FunctionDef, cst.ClassDef)) else ()
        line, lines = self.line(decorators[0] if decorators else top), self.text.splitlines()
        while line > 1 and lines[line - 2].startswith("#"):
            line -= 1
        return line

    def first_import(self) -> int:
        """The line in front of which an import goes: that of the first one that is not from `__future__`."""
        for statement in self.module.body:
            if _is_import(statement) and not self.code(statement).lstrip().startswith("from __future__"):
                return self._ranges[statement].start.line
        return self.after_imports()

    def after_imports(self) -> int:
        """The line in front of which a line of configuration goes: behind the last import at the top of the file."""
        last = 0
        for statement in self.module.body:
            if _is_import(statement):
                last = self._ranges[statement].end.line
        return last + 1


def _is_import(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and any(
        isinstance(part, (cst.Import, cst.ImportFrom)) for part in statement.body
    )


def _plain_imports(statement: cst.CSTNode) -> Iterator[cst.ImportAlias]:
    if isinstance(statement, cst.SimpleStatementLine):
        for part in statement.body:
            yield from part.names if isinstance(part, cst.Import) else ()


def _binds(name: cst.ImportAlias, package: str) -> bool:
    if name.asname is not None:
        return name.evaluated_name == package == name.evaluated_alias
    return name.evaluated_name.partition(".")[0] == package


def callee_name(call: cst.Call) -> str | None:
    """The name of the function or method that is called: ``item`` of `x.item()`. ``None`` if it has no name."""
    if isinstance(call.func, cst.Attribute):
        return call.func.attr.value
    return call.func.value if isinstance(call.func, cst.Name) else None
