"""What stays the same of a finding from one run, version or commit to the next.

An identity is made of the rule, torch's id, the function and the source text of the place. The text is taken from the
syntax tree with its local names replaced by numbers, so that neither moved lines nor renamed variables change it.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from dynadiag.recording.records import Span

_MAX_TEXT = 200  # characters of source in an identity; of more there is a digest
_MAX_SOURCE = 2_000_000  # characters of a file that is parsed
_Node = TypeVar("_Node", bound=ast.AST)
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SCOPES = (*_FUNCTIONS, ast.ClassDef)
_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)
_BODIES = ("body", "orelse", "finalbody", "handlers", "cases", "decorator_list")


def identity(
    rule: str, id_: str | None, function: str, places: Iterable[Span], sources: Mapping[str, str], cause: str = ""
) -> str:
    """The identity of a finding at these places. ``cause`` tells apart what the other parts do not."""
    texts = sorted({place_text(sources.get(place.file or ""), place) for place in places})
    return " ".join(part for part in (rule, id_, f"{function}:", cause, _short("; ".join(texts))) if part)


def place_text(source: str | None, span: Span) -> str:
    """The source at a place with its local names made alike; empty where the source was not kept.

    >>> place_text("def f(x):\\n    return g(x + 1)", Span("f.py", 2))
    'return g(_0 + 1)'
    >>> place_text("def f():\\n    class A:\\n        pass", Span("f.py", 2))
    'class A:'
    """
    if source is None or span.line is None:
        return ""
    index = _file_index(source)
    found = None if index is None else _at(index, span)
    if index is None or not found:
        return line_of(source, span.line)
    return _with_numbered_locals(found, index.local_names_at(span.line))


def local_number(source: str | None, line: int | None, name: str) -> str:
    """The number that stands for a local name of the function that begins at a line; the name where it has none there.

    >>> local_number("def f(x, y):\\n    return x", 1, "y")
    '_1'
    """
    index = None if source is None else _file_index(source)
    function = enclosing_function(source, line)
    if index is None or line is None or function is None:
        return name
    order = _order_of_appearance(function, index.local_names_at(line))
    return f"_{order.index(name)}" if name in order else name


def enclosing_function(source: str | None, line: int | None) -> Function | None:
    """The innermost function of a file that a line is in; None where there is none, or the source is not known."""
    index = None if source is None else _file_index(source)
    if index is None or line is None:
        return None
    return max(index.functions_at(line), key=_innermost, default=None)


def _order_of_appearance(function: ast.AST, local: frozenset[str]) -> list[str]:
    """The local names in a function: its arguments, then all others where they first stand."""
    own = [node for node in ast.walk(function) if isinstance(node, (ast.arg, ast.Name))]
    own.sort(key=lambda node: (isinstance(node, ast.Name), node.lineno, node.col_offset))
    names = dict.fromkeys(node.arg if isinstance(node, ast.arg) else node.id for node in own)
    return [name for name in names if name in local]


def computed_names(source: str | None, line: int | None) -> frozenset[str]:
    """The local names, without the parameters, of the function that a line is in the body of.

    Of a resume function, which begins at the line after a break, these are the names of what was computed before it.

    >>> sorted(computed_names("def f(x):\\n    y = x + 1\\n    return y", 3))
    ['y']
    >>> sorted(computed_names("def f(x):\\n    y = x + 1\\n    return y", 1))
    []
    """
    function = enclosing_function(source, line)
    if function is None or isinstance(function, ast.Lambda) or function.body[0].lineno > (line or 0):
        return frozenset()
    parameters = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    return frozenset(_bound(function) - parameters)


def _short(text: str) -> str:
    if len(text) <= _MAX_TEXT:
        return text
    return f"{text[: _MAX_TEXT - 17]} {hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:16]}"


@lru_cache(maxsize=16)
def parsed(source: str) -> ast.Module | None:
    """Return the syntax tree of a file, None for what this Python cannot parse."""
    if len(source) > _MAX_SOURCE:
        return None
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError, SystemError):
        try:
            return ast.parse(source)
        except SystemError:  # CPython took another thread's depth for its own (its issue 106905)
            return ast.parse(source)
    return None


def nodes_of(source: str | None, *kinds: type[_Node]) -> list[_Node]:
    """Return the nodes of some kinds in a file, as `ast.walk` orders them; none for what this Python cannot parse."""
    index = None if source is None else _file_index(source)
    if index is None:
        return []
    if kinds not in index.nodes:
        index.nodes[kinds] = [node for node in index.nodes[ast.AST,] if isinstance(node, kinds)]
    return index.nodes[kinds]


def segment(source: str | None, node: ast.expr) -> str:
    """The text of an expression in a file, from kept lines. `ast.get_source_segment` splits the file each time.

    >>> segment("é = f(x)", ast.parse("é = f(x)").body[0].value)
    'f(x)'
    """
    index = None if source is None else _file_index(source)
    lines = [] if index is None else index.lines[node.lineno - 1 : node.end_lineno]
    if not lines:
        return ""
    lines[-1] = lines[-1].encode()[: node.end_col_offset].decode()
    lines[0] = lines[0].encode()[node.col_offset :].decode()
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _FileIndex:
    """The lines and the nodes of a file. Its statements and functions have their first and last line.

    It is made once a file: a walk of the syntax tree for each place would take seconds.
    """

    lines: list[str]
    nodes: dict[tuple[type[ast.AST], ...], list[Any]]  # those of some kinds, as they are asked for
    statements: list[tuple[int, int, ast.stmt]]
    functions: list[tuple[int, int, Function]]
    names: dict[Function, set[str]]  # what each function binds

    def statement_at(self, line: int) -> ast.stmt | None:
        """The innermost statement that a line is in."""
        around = (node for first, last, node in self.statements if first <= line <= last)
        return max(around, key=_innermost, default=None)

    def functions_at(self, line: int) -> list[Function]:
        """The functions around a line."""
        return [node for first, last, node in self.functions if first <= line <= last]

    def local_names_at(self, line: int) -> frozenset[str]:
        """The names that are local to the functions around a line."""
        return frozenset(name for function in self.functions_at(line) for name in self.names[function])


@lru_cache(maxsize=16)
def _file_index(source: str) -> _FileIndex | None:
    tree = parsed(source)
    if tree is None:
        return None
    nodes = list(ast.walk(tree))
    functions = [node for node in nodes if isinstance(node, _FUNCTIONS)]
    return _FileIndex(
        lines=source.split("\n"),
        nodes={(ast.AST,): nodes},
        statements=[(_first_line(node), _last_line(node), node) for node in nodes if isinstance(node, ast.stmt)],
        functions=[(_first_line(node), _last_line(node), node) for node in functions],
        names={node: _bound(node) for node in functions},
    )


def _first_line(node: ast.stmt | ast.expr) -> int:
    """Of a decorated function the line of the first decorator, by which Python numbers it."""
    return min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", ()))])


def _last_line(node: ast.stmt | ast.expr) -> int:
    return node.end_lineno or node.lineno


def _innermost(node: ast.stmt | ast.expr) -> tuple[int, int]:
    """The key of the innermost of some nodes around a line: it begins last, and ends first."""
    return node.lineno, -(node.end_lineno or 0)


def line_of(source: str, number: int) -> str:
    """A line of a source, without its indentation; empty where there is none of that number."""
    lines = source.splitlines()
    return " ".join(lines[number - 1].split()) if 1 <= number <= len(lines) else ""


def _at(index: _FileIndex, span: Span) -> list[ast.AST] | None:
    """The smallest expression that holds the span, or the innermost statement on its line, without its body."""
    statement = index.statement_at(span.line or 0)
    if statement is None:
        return None
    if span.column is not None and (inner := _expression(statement, index.lines, span)) is not None:
        return [inner]
    return [statement] if not hasattr(statement, "body") else list(_head(statement))


def _expression(statement: ast.stmt, lines: list[str], span: Span) -> ast.AST | None:
    """The smallest expression of a statement that holds all of the span."""
    start = (span.line or 0, _bytes(lines, span.line, span.column))
    last = span.end_line or span.line
    end = start if span.end_column is None else (last or 0, _bytes(lines, last, span.end_column))
    around = [node for node in ast.walk(statement) if isinstance(node, ast.expr) and _covers(node, start, end)]
    return min(around, key=_extent, default=None)


def _bytes(lines: list[str], line: int | None, column: int | None) -> int:
    """A column of characters as a column of bytes, which the syntax tree counts."""
    text = lines[(line or 1) - 1 : line or 1]
    return len(text[0][: column or 0].encode("utf-8", "replace")) if text else 0


def _covers(node: ast.expr, start: tuple[int, int], end: tuple[int, int]) -> bool:
    last = (node.end_lineno or node.lineno, node.end_col_offset or 0)
    return (node.lineno, node.col_offset) <= start and end <= last


def _extent(node: ast.expr) -> tuple[int, int]:
    lines = (node.end_lineno or node.lineno) - node.lineno
    return lines, (node.end_col_offset or 0) - node.col_offset


def _head(statement: ast.stmt) -> Iterator[ast.AST]:
    """The parts of a compound statement that are not in its body: a condition, a loop's target, a signature."""
    for name, value in ast.iter_fields(statement):
        if name not in _BODIES:
            yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, ast.AST))


def _bound(function: ast.AST) -> set[str]:
    """The names that a function binds, without those that it takes from outside."""
    bound: set[str] = set()
    outer: set[str] = set()
    for node in _own(function):
        if isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, (*_NAMED, ast.MatchAs, ast.MatchStar)) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            outer.update(node.names)
    return bound - outer


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, of functions and classes inside it only the definition itself."""
    stack = list(ast.iter_child_nodes(function))
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, _SCOPES):
            stack += ast.iter_child_nodes(node)


def _with_numbered_locals(nodes: Iterable[ast.AST], local: frozenset[str]) -> str:
    """The code of the nodes, each local name replaced by its number in the order of appearance."""
    numbers: dict[str, str] = {}
    renamed = (_Renaming(local, numbers).visit(_copy(node)) for node in nodes)
    return " ".join(_unparsed(node) for node in renamed)


def _copy(node: ast.AST) -> ast.AST:
    """A node of its own, so that the cached tree stays as it is."""
    values = {name: _copied(value) for name, value in ast.iter_fields(node)}
    return ast.copy_location(type(node)(**values), node)


def _copied(value: object) -> object:
    if isinstance(value, list):
        return [_copied(each) for each in value]
    return _copy(value) if isinstance(value, ast.AST) else value


def _unparsed(node: ast.AST) -> str:
    try:
        return " ".join(ast.unparse(node).split())
    except (ValueError, AttributeError, RecursionError):
        return type(node).__name__


class _Renaming(ast.NodeTransformer):
    """Replaces local names, and names of arguments, by numbers."""

    def __init__(self, local: frozenset[str], numbers: dict[str, str]) -> None:
        self._local, self._numbers = local, numbers

    def _number(self, name: str) -> str:
        return self._numbers.setdefault(name, f"_{len(self._numbers)}") if name in self._local else name

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self._number(node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = self._number(node.arg)
        self.generic_visit(node)
        return node
