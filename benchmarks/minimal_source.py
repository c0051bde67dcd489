"""Try every single removal on finished repros of source: no statement, argument or operand may be left that can go.

    python benchmarks/minimal_source.py repro.py other_repro.py ...

It removes each statement, argument, keyword, element, parameter, decorator, base class and imported name, and replaces
each statement by its body and each expression by each of its operands. A removal counts where the rest still passes
uncompiled and fails in the same way. Exits with 1 where one does. The removals are made here; of the reducer only the
predicate is used.
"""

from __future__ import annotations

import argparse
import ast
import copy
import sys
from collections.abc import Iterator
from pathlib import Path

from source_predicate import failing_program


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repros", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0, help="of one trial")
    options = parser.parse_args()
    wrong = 0
    for path in options.repros:
        with failing_program(path, options.seconds) as trials:
            found = removals(trials.whole_text)
            still = [what for text, what in found.items() if trials.fails(text)]
        wrong += bool(still)
        print(f"{path}: {len(found)} removals, {len(still)} still fail the same way", *still, sep="\n    ")
    return 1 if wrong else 0


def removals(text: str) -> dict[str, str]:
    """Each program with one part less that compiles, and what was removed."""
    tree = ast.parse(text)
    plain = ast.unparse(tree)
    found: dict[str, str] = {}
    for number, node in enumerate(ast.walk(tree)):
        for name, index, instead in changes(node):
            changed = copy.deepcopy(tree)
            target = list(ast.walk(changed))[number]
            change(target, name, index, instead)
            try:
                candidate = ast.unparse(ast.fix_missing_locations(changed))
                compile(candidate, "candidate", "exec")
            except (SyntaxError, ValueError, AttributeError, TypeError, KeyError):  # what is left is no Python
                continue
            if candidate != plain:
                found.setdefault(candidate, f"line {getattr(node, 'lineno', 1)}: {name} {described(node, name, index)}")
    return found


Change = tuple[str, int | None, str | None]  # the field, the place in it, and the operand that stays (None: nothing)


def changes(node: ast.AST) -> Iterator[Change]:
    """The edits of a node: each removes a child, or replaces it by one of its own children."""
    for name, value in ast.iter_fields(node):
        if isinstance(value, list):
            for index, part in enumerate(value):
                yield name, index, None
                yield from ((name, index, path) for path in operands(part))
        elif isinstance(value, ast.AST):
            yield name, None, None
            yield from ((name, None, path) for path in operands(value))


def operands(part: object) -> Iterator[str]:
    """The fields of a part that can stand for it, as `field` or `field.index`: bodies and operands."""
    if not isinstance(part, ast.expr | ast.stmt) or isinstance(part, ast.FunctionDef | ast.ClassDef):
        return
    for name, value in ast.iter_fields(part):
        if isinstance(part, ast.stmt) and isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield name
        elif isinstance(part, ast.stmt):
            if isinstance(value, ast.expr):
                yield name
        elif isinstance(value, ast.expr):
            yield name
        elif isinstance(value, list):
            yield from (f"{name}.{i}" for i, inner in enumerate(value) if isinstance(inner, ast.expr))


def change(node: ast.AST, name: str, index: int | None, instead: str | None) -> None:
    """Make one change to a node."""
    value = getattr(node, name)
    part = value if index is None else value[index]
    new: list[ast.AST] = [] if instead is None else operand(part, instead)
    if index is None:
        setattr(node, name, new[0] if new else None)
        return
    value[index : index + 1] = new
    if name == "values" and isinstance(node, ast.Dict) and instead is None:
        del node.keys[index]
    if name == "body" and not value and not isinstance(node, ast.Module):
        value.append(ast.Pass())


def operand(part: ast.AST, path: str) -> list[ast.AST]:
    """What a path of `operands` names, as statements where the part is one."""
    field, _, place = path.partition(".")
    value = getattr(part, field)
    value = value[int(place)] if place else value
    if isinstance(value, list):
        return list(value)
    return [ast.Expr(value)] if isinstance(part, ast.stmt) else [value]


def described(node: ast.AST, name: str, index: int | None) -> str:
    value = getattr(node, name)
    part = value if index is None else value[index]
    return " ".join(ast.unparse(part).split())[:60] if isinstance(part, ast.AST) else ""


if __name__ == "__main__":
    sys.exit(main())
