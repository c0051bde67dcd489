"""Runs a program and notes which statements ran and which values its expressions had. It runs as a separate program.

    python observer.py PROGRAM.py OBSERVED.json [SECONDS]

It ends after SECONDS with what was seen until then.
Nodes are numbered in the order of `ast.walk`. It imports nothing of ours, because it runs in the program's process.
"""

from __future__ import annotations

import ast
import contextlib
import enum
import functools
import json
import keyword
import os
import signal
import sys
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

_MAX_TEXT = 80  # characters of a literal
_MAX_VALUES = 3  # different values of one expression
_MAX_NOTES = 200  # evaluations of one expression, and calls of one function, that are looked at
_MAX_CALLS = 16  # different arguments of one function: more than a recompile limit
_MAX_CALL_TEXT = 600  # characters of the arguments of a call
_CREATED: dict[int, tuple[Callable[[], Any], str]] = {}  # references by `id`, with the arguments of `__init__`


class _Notes:
    """What was seen. Names are those that the instrumented program calls."""

    def __init__(self) -> None:
        self.ran: set[int] = set()
        self.values: dict[int, list[str]] = {}
        self.kinds: dict[int, str] = {}
        self.counts: dict[int, int] = {}
        self.calls: dict[int, list[tuple[str, str, bool]]] = {}

    def note_statement(self, number: int) -> None:
        self.ran.add(number)

    def note_value(self, number: int, value: Any) -> Any:
        if self._counts(number):
            with contextlib.suppress(Exception):
                self._note(number, value)
        return value

    def _counts(self, number: int) -> bool:
        """Whether one more evaluation of an expression, or call of a function, is looked at."""
        count = self.counts.get(number, 0)
        if count < _MAX_NOTES:
            self.counts[number] = count + 1
        return count < _MAX_NOTES

    def note_call(self, number: int, *given: Any) -> None:
        """A function was called: ``given`` are its object and name (nothing where it is no method), positional
        arguments, rest, keywords and further keywords.
        """
        known = self.calls.setdefault(number, [])
        if len(known) < _MAX_CALLS and self._counts(number):
            with contextlib.suppress(Exception):
                self._note_call(known, *given)

    def _note_call(
        self, known: list[tuple[str, str, bool]], owner: tuple[Any, ...], args: Any, rest: Any, named: Any, more: Any
    ) -> None:
        text = arguments_text((*args, *rest), named | more)
        if text is None:
            return
        if owner and owner[1] == "__init__":
            _note_creation(owner[0], text)
        made = _literal(owner[0]) if owner else ""
        if made is not None and len(made + text) <= _MAX_CALL_TEXT and (call := (made, text, _has_grad())) not in known:
            known.append(call)

    def construct(self, made_by: Any, /, *args: Any, **kwargs: Any) -> Any:
        """What a call of a class returns; it is known by these arguments from then on."""
        text = arguments_text(args, kwargs) if isinstance(made_by, type) else None  # before the call changes them
        value = made_by(*args, **kwargs)
        if text is not None and type(value) is made_by:
            with contextlib.suppress(Exception):
                _note_creation(value, text)
        return value

    def _note(self, number: int, value: Any) -> None:
        self.kinds.setdefault(number, kind_of(value))
        known = self.values.setdefault(number, [])
        if len(known) <= _MAX_VALUES and (text := literal(value)) is not None and text not in known:
            known.append(text)


def _note_creation(value: Any, text: str) -> None:
    """Note the arguments of a constructor, unless those of a subclass are known. The object lives no longer for it:
    `__del__` and weak references are what a program may print.
    """
    if _creation(value) is None:
        try:
            reference: Callable[[], Any] = weakref.ref(value)
        except TypeError:  # its class has slots
            reference = functools.partial(_itself, value)
        _CREATED[id(value)] = reference, text


def _itself(value: Any) -> Any:
    return value


def _creation(value: Any) -> str | None:
    """The arguments with which an object was made; None if they are not known."""
    reference, text = _CREATED.get(id(value), (None, None))
    return text if reference is not None and reference() is value else None


def arguments_text(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """The arguments of a call as `(1, x=2)`; None where one has no expression."""
    positional = [_literal(value) for value in args]
    keywords = {name: _literal(value) for name, value in kwargs.items()}
    if None in positional or None in keywords.values():
        return None
    named = [_keyword(name, str(text)) for name, text in keywords.items()]
    return f"({', '.join([*map(str, positional), *named])})"


def _keyword(name: str, text: str) -> str:
    """A keyword argument. Through ``**`` a call may get one whose name is no name: `f(**{"a-b": 1})`."""
    return f"{name}={text}" if name.isidentifier() and not keyword.iskeyword(name) else f"**{{{name!r}: {text}}}"


def _has_grad() -> bool:
    """Whether gradients are on, as they are where there is no torch."""
    torch = sys.modules.get("torch")
    return torch is None or not hasattr(torch, "is_grad_enabled") or bool(torch.is_grad_enabled())


def kind_of(value: Any) -> str:
    """The name of the value's class; for a bound method, that of its object with the method."""
    if isinstance(value, types.MethodType):
        return f"{type(value.__self__).__qualname__}.{value.__func__.__name__}"
    if isinstance(value, types.FunctionType):
        return value.__qualname__
    return type(value).__qualname__


def literal(value: Any) -> str | None:
    """The value as an expression; None if it has no short one."""
    text = _literal(value)
    return text if text is not None and len(text) <= _MAX_TEXT else None


def _literal(value: Any) -> str | None:
    if value is None or value is ... or type(value) in (bool, int):
        return repr(value)
    if isinstance(value, enum.Enum):
        return _member(value)
    if type(value) is float:
        return repr(value) if value == value and abs(value) != float("inf") else f"float({str(value)!r})"
    if type(value) in (str, bytes):
        return repr(value) if len(value) < 40 else f"{value[:1]!r} * {len(value)}"
    if type(value) in (list, tuple):
        return _sequence(value)
    if type(value) is set and value:
        items = _sequence(sorted(value, key=repr))
        return items and f"{{{items[1:-1]}}}"
    if type(value) is dict:
        pairs = [(literal(k), literal(v)) for k, v in list(value.items())[:9]]
        whole = len(value) < 9 and all(k and v for k, v in pairs)
        return "{" + ", ".join(f"{k}: {v}" for k, v in pairs) + "}" if whole else None
    if isinstance(value, (range, slice)):
        return repr(value)
    if isinstance(value, (types.FunctionType, type, types.BuiltinFunctionType)):
        return _global_name(value)
    if isinstance(value, types.MethodType):
        owner = _literal(value.__self__)
        return owner and ast.unparse(ast.Attribute(ast.parse(owner, mode="eval").body, value.__name__, ast.Load()))
    if isinstance(value, functools.partial):
        name, made = _global_name(functools.partial), arguments_text((value.func, *value.args), value.keywords)
        return name and made and name + made
    return _torch_literal(value) or _numpy_literal(value) or _object(value)


def _member(value: enum.Enum) -> str | None:
    """A member of an enumeration. Several flags together have no name of their own."""
    name = _global_name(type(value))
    if name is None:
        return None
    return f"{name}.{value.name}" if str(value.name).isidentifier() and value.name else f"{name}({value.value!r})"


def _by_repr(value: Any, name: str) -> str | None:
    """An object of a library whose `repr` makes an equal one: `collections.deque([1], maxlen=2)`, `frozenset({1})`.
    ``name`` is that of its class.
    """
    head, opened, rest = repr(value).partition("(")
    text = f"{name}{opened}{rest}"
    if not opened or head.rpartition(".")[2] != type(value).__name__:
        return None
    with contextlib.suppress(Exception):
        made = eval(text, dict(vars(sys.modules["__main__"])))  # noqa: S307 - text of the user's own objects
        return text if type(made) is type(value) and bool(made == value) else None
    return None


def _object(value: Any) -> str | None:
    """An object as the call that made it."""
    name = _global_name(type(value))
    if name is None:
        return None
    if (arguments := _creation(value)) is not None:
        return name + arguments
    if type(value).__module__ != "__main__":
        return _by_repr(value, name)
    fields = getattr(value, "_fields", None) or [
        f.name for f in getattr(value, "__dataclass_fields__", {}).values() if f.init
    ]
    found = {field: _literal(getattr(value, field)) for field in fields}
    return None if None in found.values() or not found else f"{name}({', '.join(f'{f}={v}' for f, v in found.items())})"


def _sequence(value: Any) -> str | None:
    if len(value) > 12:
        return None
    parts = [literal(part) for part in value]
    if None in parts:
        return None
    inside = ", ".join(str(part) for part in parts)
    return f"[{inside}]" if type(value) is list else f"({inside}{',' * (len(parts) == 1)})"


def _global_name(value: Any) -> str | None:
    """The name by which the program reaches a function or class."""
    name, module = getattr(value, "__qualname__", ""), getattr(value, "__module__", None)
    main = sys.modules["__main__"]
    if name and getattr(main, name, None) is value:
        return str(name)
    if module == "builtins" and "." not in name:
        return str(name)
    short = getattr(value, "__name__", "")
    torch = sys.modules.get("torch")
    modules = [(n, held) for n, held in vars(main).items() if isinstance(held, types.ModuleType)]
    for prefix, holder in (
        *modules,
        ("torch", torch),
        ("torch.nn", getattr(torch, "nn", None)),
        ("math", sys.modules.get("math")),
    ):
        if short and getattr(holder, short, None) is value:
            return f"{prefix}.{short}"
    return None


def _torch_literal(value: Any) -> str | None:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "Tensor"):
        return None
    if isinstance(value, (torch.dtype, torch.Size)):
        return repr(tuple(value)) if isinstance(value, torch.Size) else repr(value)
    if not isinstance(value, torch.Tensor) or type(value) not in (torch.Tensor, torch.nn.Parameter):
        return None
    sizes = ", ".join(str(int(n)) for n in value.shape) or "()"
    options = "" if value.dtype == torch.float32 else f", dtype={value.dtype}"
    if type(value) is torch.nn.Parameter:
        return f"torch.nn.Parameter(torch.ones({sizes}{options}))"
    leaf = ", requires_grad=True" if value.requires_grad and value.is_leaf else ""
    return f"torch.ones({sizes}{options}{leaf})"


def _numpy_literal(value: Any) -> str | None:
    """An array of numbers as ones of its shape and type."""
    numpy = sys.modules.get("numpy")
    if numpy is None or type(value) is not getattr(numpy, "ndarray", None) or value.dtype.kind not in "biufc":
        return None
    ones, sizes = _global_name(numpy.ones), ", ".join(map(str, value.shape))
    options = "" if value.dtype == numpy.float64 else f", dtype={value.dtype.name!r}"
    return ones and f"{ones}(({sizes}{',' * (value.ndim == 1)}){options})"


class _Instrument(ast.NodeTransformer):
    def __init__(self, numbers: dict[ast.AST, int]) -> None:
        self._numbers = numbers
        self._methods = {m: c for c in numbers if isinstance(c, ast.ClassDef) for m in c.body}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        noted = ast.Expr(_call_of_function(node, self._numbers[node], node in self._methods))
        self.generic_visit(node)
        node.body.insert(0, noted)
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        number = self._numbers.get(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "pattern", "bases", "format_spec") or isinstance(node, ast.Global):
                continue
            if isinstance(value, list):
                setattr(node, name, self._list(value, is_body=name in ("body", "orelse", "finalbody")))
            elif isinstance(value, ast.AST):
                setattr(node, name, self.visit(value))
        if not isinstance(node, ast.expr) or isinstance(node, (ast.Starred, ast.Constant, ast.Slice)):
            return node
        if isinstance(node, ast.Call) and _names_class(node.func):
            node = ast.Call(ast.Name("construct_for_node", ast.Load()), [node.func, *node.args], node.keywords)
        if isinstance(getattr(node, "ctx", ast.Load()), ast.Load) and not isinstance(node, ast.FormattedValue):
            return _call("note_value_of_node", number, node)
        return node

    def _list(self, values: list[Any], *, is_body: bool) -> list[Any]:
        found: list[Any] = []
        for value in values:
            if is_body and isinstance(value, ast.stmt) and not _must_be_first(value):
                found.append(ast.Expr(_call("note_statement_of_node", self._numbers.get(value))))
            found.append(self.visit(value) if isinstance(value, ast.AST) else value)
        return found


def _names_class(node: ast.expr) -> bool:
    """Whether an expression is written as classes are: `Linear`, `torch.nn.Linear`. It is one that `_note` wraps."""
    while isinstance(node, ast.Call) and node.args:
        node = node.args[-1]
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name[:1].isupper()


def _must_be_first(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _call(name: str, number: int | None, *more: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), [ast.Constant(number), *more], [])


def _call_of_function(node: ast.FunctionDef, number: int, is_method: bool) -> ast.Call:
    """The call that notes the arguments of a function, where it begins."""
    spec = node.args
    names = [a.arg for a in [*spec.posonlyargs, *spec.args]]
    decorators = {getattr(d, "id", "") for d in node.decorator_list}
    first = names.pop(0) if is_method and names and "staticmethod" not in decorators else ""
    has_owner = bool(first) and "classmethod" not in decorators
    owner: list[ast.expr] = [ast.Name(first, ast.Load()), ast.Constant(node.name)] if has_owner else []
    keywords = [a.arg for a in spec.kwonlyargs]
    return _call(
        "note_call_of_node",
        number,
        ast.Tuple(owner, ast.Load()),
        ast.Tuple([ast.Name(n, ast.Load()) for n in names], ast.Load()),
        ast.Name(spec.vararg.arg, ast.Load()) if spec.vararg else ast.Tuple([], ast.Load()),
        ast.Dict([ast.Constant(n) for n in keywords], [ast.Name(n, ast.Load()) for n in keywords]),
        ast.Name(spec.kwarg.arg, ast.Load()) if spec.kwarg else ast.Dict([], []),
    )


def fill_memory() -> None:
    """Let memory that a program takes and does not set hold other bytes than usual, where the C library can do so.

    A value that comes from there is then another one, so that no repro rests on it. The bytes are those of ordinary
    numbers: -6.02 in float32.
    """
    import ctypes

    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):
        set_option(-6, 0xC0)  # M_PERTURB of glibc


def main(program: str, output: str, seconds: float = 0) -> None:
    """Run the program, and write what was seen even if it raises, or after ``seconds`` (0: whenever it ends)."""
    text = Path(program).read_text(encoding="utf-8")
    tree = ast.parse(text)
    numbers = {node: number for number, node in enumerate(ast.walk(tree))}
    code = compile(ast.fix_missing_locations(_Instrument(numbers).visit(tree)), program, "exec")
    notes = _Notes()
    sys.modules["__main__"] = types.ModuleType("__main__")  # of its own: its names are not those of this module
    space = sys.modules["__main__"].__dict__
    space["__file__"], sys.argv = program, [program]
    space["note_value_of_node"], space["note_statement_of_node"] = notes.note_value, notes.note_statement
    space["note_call_of_node"], space["construct_for_node"] = notes.note_call, notes.construct

    def write() -> None:
        seen = {"ran": sorted(notes.ran), "values": notes.values, "kinds": notes.kinds, "calls": notes.calls}
        Path(output).write_text(json.dumps(seen), encoding="utf-8")

    def end(*_: Any) -> None:
        write()
        os._exit(0)

    if seconds:
        signal.signal(signal.SIGALRM, end)
        signal.setitimer(signal.ITIMER_REAL, seconds)
    fill_memory()
    try:
        exec(code, space)  # noqa: S102 - the program of the user
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        write()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(float, sys.argv[3:4]))
