"""Finds which function of the program a call calls, from its source and from a run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from minifier.source.observed import Seen
from minifier.source.scopes import classes, functions, method_owner

_CALL_METHODS = ("__call__", "forward")


@dataclass(frozen=True, slots=True)
class CallTarget:
    """A function, and the expression that is its ``self`` (None for a plain function)."""

    function: ast.FunctionDef
    receiver: ast.expr | None = None
    inlinable: bool = True  # not for a bound method, whose object is unknown

    @property
    def bound(self) -> int:
        """How many parameters the call itself does not pass."""
        return int(self.receiver is not None)


class Calls:
    """Resolves the calls of a tree."""

    def __init__(self, tree: ast.Module, seen: Seen) -> None:
        self._seen = seen
        self.owners = method_owner(tree)
        self.classes = {c.name: c for c in classes(tree)}
        self.plain = {f.name: f for f in functions(tree) if f not in self.owners}
        self.methods: dict[str, list[ast.FunctionDef]] = {}
        for method in self.owners:
            if isinstance(method, ast.FunctionDef):
                self.methods.setdefault(method.name, []).append(method)
        self.calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]

    def targets(self, call: ast.Call) -> Iterator[CallTarget]:
        """What a call may call, the most likely last."""
        match call.func:
            case ast.Call(args=[ast.Name(id=name), *_]) if name in self.plain:  # torch.compile(f)(...)
                yield CallTarget(self.plain[name], inlinable=False)
            case ast.Name(id=name) if name in self.plain:
                yield CallTarget(self.plain[name])
            case ast.Name(id=name) if name in self.classes:
                return
            case ast.Attribute(value=receiver, attr=name) if name in self.methods:
                for method in self._likely(self.methods[name], receiver):
                    yield from self._method(method, receiver)
            case receiver:
                yield from self._by_kind(receiver)

    def _by_kind(self, receiver: ast.expr) -> Iterator[CallTarget]:
        """What calling an expression calls, by the value that it had: an object, a function or a bound method."""
        kind = self._seen.kind(receiver)
        owner, dot, name = kind.rpartition(".")
        if kind in self.plain:
            yield CallTarget(self.plain[kind], inlinable=True)
        elif dot and owner in self.classes:
            for method in self.methods.get(name, []):
                if self.owners[method].name == owner:
                    yield CallTarget(method, receiver, inlinable=False)
        else:
            for name in _CALL_METHODS:
                for method in self._likely(self.methods.get(name, []), receiver):
                    yield CallTarget(method, receiver)

    def _likely(self, methods: list[ast.FunctionDef], receiver: ast.expr) -> list[ast.FunctionDef]:
        kind = self._seen.kind(receiver)
        if kind not in self.classes:
            return methods
        return [m for m in methods if self.owners[m].name in self._bases(kind)]

    def _bases(self, name: str) -> list[str]:
        """A class of the program and those that it inherits from, the nearest first."""
        found = [name]
        for known in found:  # which grows
            bases = map(ast.unparse, self.classes[known].bases)
            found += [base for base in bases if base in self.classes and base not in found]
        return found

    def _method(self, method: ast.FunctionDef, receiver: ast.expr) -> Iterator[CallTarget]:
        decorators = {ast.unparse(d) for d in method.decorator_list}
        if "staticmethod" in decorators:
            yield CallTarget(method)
        elif isinstance(receiver, ast.Call) and ast.unparse(receiver.func) == "super":
            yield CallTarget(method, ast.Name("self", ast.Load()))
        else:
            yield CallTarget(method, receiver)

    def constructors(self) -> Iterator[tuple[ast.Call, ast.ClassDef, ast.FunctionDef | None]]:
        """Each construction of a class of the program, with the class and its ``__init__``, which it may inherit."""
        for call in self.calls:
            if isinstance(call.func, ast.Name) and call.func.id in self.classes:
                owner = self.classes[call.func.id]
                bodies = (item for name in self._bases(owner.name) for item in self.classes[name].body)
                inits = (i for i in bodies if isinstance(i, ast.FunctionDef) and i.name == "__init__")
                yield call, owner, next(inits, None)

    def callers(self, function: ast.FunctionDef | ast.Lambda) -> list[tuple[ast.Call, int]]:
        """The calls that may call a function, constructions for an ``__init__``, and how many of its parameters they do
        not pass.
        """
        if isinstance(function, ast.Lambda):  # called itself, or as torch.compile(lambda ...)(...)
            return [(c, 0) for c in self.calls if c.func is function or _first_argument(c.func) is function]
        constructions = [(c, 1) for c, _, i in self.constructors() if i is function]
        return constructions + [(c, t.bound) for c in self.calls for t in self.targets(c) if t.function is function]


def _first_argument(node: ast.expr) -> ast.expr | None:
    return node.args[0] if isinstance(node, ast.Call) and node.args else None
