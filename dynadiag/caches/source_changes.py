"""What changed in the source of a program between two runs: the definitions that a function reaches, or one statement.

Only syntax trees are compared, so comments, docstrings, layout and moved lines are no change. Nor are the annotations
of a function without decorators: a decorator such as `triton.jit` or `custom_op` may read them.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher, unified_diff
from pathlib import PurePath

from dynadiag.explanation.formatting import brief
from dynadiag.explanation.identity import parsed
from dynadiag.grouping import reached
from dynadiag.recording.records import Compile, Run, Span

_MAX_DIFF = 40  # lines of a diff that are shown
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_WORD = re.compile(r"\b[^\W\d]\w*\b")
_NESTED = ("body", "orelse", "finalbody", "handlers", "cases")


@dataclass(frozen=True, slots=True)
class ProgramFiles:
    """One run's program: what was started, the compile in question, and the recorded source of each file."""

    run: Run
    compile: Compile
    sources: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SourceChange:
    """A definition that changed: a sentence, its line in the second run, and the difference of a function's source."""

    text: str
    span: Span
    diff: str | None = None


_Pair = tuple[str, ast.Module, ast.Module]  # a file of the second run, its tree in the first run and in the second


def _paired_files(before: ProgramFiles, after: ProgramFiles) -> tuple[list[_Pair], bool]:
    """The files of the second run with what they were in the first, and whether no file is without a partner."""
    partners = {file: file for file in after.sources if file in before.sources}
    mains = [str(PurePath(side.run.cwd or "/", side.run.target)) for side in (before, after)]
    for was, now in ((before.compile.file, after.compile.file), mains):
        if was in before.sources and now in after.sources and was not in partners.values():
            partners.setdefault(now or "", was or "")
    left = [file for file in before.sources if file not in partners.values()]
    new = [file for file in after.sources if file not in partners]
    if len(left) == len(new) == 1:
        partners[new[0]] = left.pop()
    trees = ((now, parsed(before.sources[was]), parsed(after.sources[now])) for now, was in partners.items())
    pairs = [(now, old, new_) for now, old, new_ in trees if old is not None and new_ is not None]
    return pairs, not left and len(pairs) == len(after.sources)


def only_changed_statement(before: ProgramFiles, after: ProgramFiles) -> Span | None:
    """Return the one place where two programs differ, None if they differ in several or in none."""
    pairs, complete = _paired_files(before, after)
    found = [Span(file, line) for file, old, new in pairs for line in _changed_lines(old, new)]
    return found[0] if complete and len(found) == 1 else None


def _changed_lines(old: ast.Module, new: ast.Module) -> Iterator[int]:
    """The line of each run of statements that differ, in the new tree."""
    was, now = list(_statements(old)), list(_statements(new))
    keys = [_header(each) for each in was], [_header(each) for each in now]
    for tag, i, j, k, m in SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        if tag == "replace" and (j - i, m - k) == (1, 1):
            yield _first_difference(was[i], now[k])
        elif tag != "equal" and now:
            yield now[min(k, len(now) - 1)].lineno


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """All statements in the order of the source, without docstrings."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and not _is_text(node)]
    return iter(sorted(found, key=lambda node: (node.lineno, node.col_offset)))


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _header(node: ast.AST) -> str:
    """A statement without the statements in it."""
    fields = [value for name, value in ast.iter_fields(node) if name not in _NESTED]
    return type(node).__name__ + "|".join(map(_dumped, fields))


def _dumped(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_dumped, value))
    return ast.dump(value) if isinstance(value, ast.AST) else repr(value)


def _first_difference(was: ast.AST, now: ast.AST) -> int:
    """The line of the innermost expression in which two statements of one form differ."""
    olds, news = (
        [child for name, value in ast.iter_fields(node) if name not in _NESTED for child in _children(value)]
        for node in (was, now)
    )
    differing = [(old, new) for old, new in zip(olds, news, strict=False) if ast.dump(old) != ast.dump(new)]
    if len(olds) == len(news) and len(differing) == 1 and hasattr(differing[0][1], "lineno"):
        return _first_difference(*differing[0])
    return int(getattr(now, "lineno", 1))


def _children(value: object) -> list[ast.AST]:
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, ast.AST)]


def changed_definitions(before: ProgramFiles, after: ProgramFiles) -> list[SourceChange]:
    """Return the definitions that the compiled function reaches, in any file, and whose source differs.

    Those that are new come last: what uses them has changed.
    """
    pairs, _ = _paired_files(before, after)
    was = {(file, name): node for file, old, _ in pairs for name, node in _definitions(old).items()}
    now = {(file, name): node for file, _, new in pairs for name, node in _definitions(new).items()}
    reached = _reached(after.compile, now)
    changed = [key for key, node in now.items() if key in reached and _differs(was.get(key), node)]
    changed.sort(key=lambda key: key not in was)
    return [_definition_change(name, file, was.get((file, name)), now[file, name]) for file, name in changed]


def definition_line(source: str, function: str) -> int | None:
    """Return the line of a function's ``def``, below its decorators; None if it is not at the top or in a class."""
    tree = parsed(source)
    found = None if tree is None else _definitions(tree).get(function)
    return None if found is None else found.lineno


def _differs(was: ast.stmt | None, now: ast.stmt) -> bool:
    return was is None or ast.dump(was) != ast.dump(now)


def _definitions(tree: ast.Module) -> dict[str, ast.stmt]:
    """Top-level functions and variables, classes without their bodies, and their methods and variables, by name."""
    found: dict[str, ast.stmt] = {}
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef):
            header = copy.copy(statement)
            header.body = []
            found[statement.name] = header
            for item in statement.body:
                found |= {f"{statement.name}.{name}": node for name, node in _defined(item)}
        else:
            found |= dict(_defined(statement))
    return found


def _defined(statement: ast.stmt) -> Iterator[tuple[str, ast.stmt]]:
    """The function or the variables that a statement defines."""
    if isinstance(statement, _FUNCTIONS):
        yield statement.name, _Essence().visit(copy.deepcopy(statement))
    elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from ((target.id, statement) for target in targets if isinstance(target, ast.Name))


class _Essence(ast.NodeTransformer):
    """Removes from functions what does not change what they compute."""

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self.generic_visit(node)
        if _is_text(node.body[0]) and len(node.body) > 1:
            node.body = node.body[1:]
        if not node.decorator_list:
            node.returns = None
            for each in ast.walk(node.args):
                if isinstance(each, ast.arg):
                    each.annotation = None
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - the name is ast's


_Name = tuple[str, str]  # the file and the name of a definition


def _reached(compiled: Compile, definitions: Mapping[_Name, ast.stmt]) -> set[_Name]:
    """The definitions that a function names, and those that these name in turn.

    Of a method, the class and its `__init__` count; of a class that is named, all that is in it. A function within
    another one, and a lambda, are found by their line.
    """
    simple = compiled.function.rpartition(".")[2]
    own = {key: node for key, node in definitions.items() if key[0] == compiled.file}
    start = [key for key in own if key[1].rpartition(".")[2] == simple]
    exact = [key for key in start if key[1] == compiled.function]
    around = [key for key, node in own.items() if compiled.line in _lines(node)]

    def named(key: _Name) -> Iterator[_Name]:
        words = {node.id for node in ast.walk(definitions[key]) if isinstance(node, ast.Name)}
        words |= {node.attr for node in ast.walk(definitions[key]) if isinstance(node, ast.Attribute)}
        owner = key[1].rpartition(".")[0]
        for other in definitions:
            of, _, name = other[1].rpartition(".")
            own_class = owner and (other[1] == owner or (of, name) == (owner, "__init__"))
            if name in words or of in words or own_class:
                yield other

    return reached(exact or start or around, named)


def _lines(node: ast.stmt) -> range:
    decorators = [each.lineno for each in getattr(node, "decorator_list", ())]
    return range(min([node.lineno, *decorators]), (node.end_lineno or node.lineno) + 1)


def _definition_change(name: str, file: str, was: ast.stmt | None, now: ast.stmt) -> SourceChange:
    if isinstance(now, (ast.Assign, ast.AnnAssign)) and isinstance(was, (ast.Assign, ast.AnnAssign)):
        values = [brief(ast.unparse(each.value), 60) if each.value else "no value" for each in (was, now)]
        return SourceChange(f"{name} went from {values[0]} to {values[1]}", Span(file, now.lineno))
    old, new = ("" if each is None else ast.unparse(each) for each in (was, now))
    lines = list(unified_diff(old.splitlines(), new.splitlines(), "before", "after", lineterm="", n=1))
    what = f"the source of {name} changed" if was is not None else f"{name} is new"
    if was is not None and (renamed := _renamed(was, now)):
        told = ", ".join(f"{one} is now called {two}" for one, two in renamed.items())
        what = f"in {name} {told}: AOTAutograd's key has the names of the graph's nodes"
    return SourceChange(what, Span(file, _first_change(was, now)), "\n".join(lines[:_MAX_DIFF]))


def _renamed(was: ast.stmt, now: ast.stmt) -> dict[str, str]:
    """The local names that alone make two functions differ, with their new names; empty if there is more to it."""
    old, new = ast.unparse(was), ast.unparse(now)
    words = _WORD.findall(old), _WORD.findall(new)
    names = {one: two for one, two in zip(*words, strict=False) if one != two}
    local = names.keys() <= _locals(was) and set(names.values()) <= _locals(now) and not names.keys() & {*words[1]}
    return names if local and _WORD.sub(lambda found: names.get(found[0], found[0]), old) == new else {}


def _locals(function: ast.stmt) -> set[str]:
    """The arguments of a function, and the names that it assigns."""
    nodes = list(ast.walk(function))
    assigned = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return assigned | {node.arg for node in nodes if isinstance(node, ast.arg)}


def _first_change(was: ast.stmt | None, now: ast.stmt) -> int:
    """The line of the first statement of a function that is not as it was."""
    if isinstance(was, _FUNCTIONS) and isinstance(now, _FUNCTIONS) and ast.dump(was.args) == ast.dump(now.args):
        for position, statement in enumerate(now.body):
            if position >= len(was.body) or ast.dump(was.body[position]) != ast.dump(statement):
                return statement.lineno
    return now.lineno
