"""Exports values of the user's program as standalone source for a repro.

A function or class is written with everything that its source names. Modules are imported, objects of torch are named,
literals and containers are written out, and other functions and classes of the program are exported too. A value that
cannot be exported raises an error that names it; nothing is approximated.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import itertools
import sys
import textwrap
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch

from dynadiag.torch_private import minify as torch_private

_REGISTERING = frozenset(("register_lowering", "register_decomposition"))  # decorators of torch
_LITERALS = (bool, int, float, complex, str, bytes, type(None))


class CannotExportError(Exception):
    """An object of the user's program cannot be written as standalone source. The message names it."""


class SourceExporter:
    """Writes expressions, and collects the imports and definitions that they need, each once, in running order.

    ``original_expression`` returns expressions for original objects of torch, ``special_expression`` for objects that a
    call can make again (patterns). Both return None for other values.
    """

    def __init__(
        self,
        original_expression: Callable[[Any], str | None] = lambda _: None,
        special_expression: Callable[[Any, SourceExporter], str | None] | None = None,
    ) -> None:
        self.imports: dict[str, None] = {}
        self.blocks: list[str] = []
        self._original_expression = original_expression
        self._special_expression = special_expression
        self._defined: dict[str, Any] = {}

    def expression(self, value: Any) -> str:
        """A Python expression for a value. Raises `CannotExportError`."""
        if isinstance(value, _LITERALS):
            return repr(value)
        if isinstance(value, (list, tuple, set, frozenset, dict)):
            return self._container(value)
        known = self._original_expression(value)
        if known is not None:
            self.import_module_of(known)
            return known
        for way in (self._of_torch, self._special, self._import, self._operator, self._user_object):
            text = way(value)
            if text is not None:
                return text
        raise CannotExportError(_describe(value))

    def import_module(self, module: str) -> None:
        """Import a module in the source."""
        self.imports[f"import {module}"] = None

    def import_module_of(self, place: str) -> None:
        """Import the module in which a dotted name is. One that no file defines, such as `torch.ops`, comes with its
        package.
        """
        names = place.partition("[")[0].split(".")
        homes = (".".join(names[:end]) for end in range(len(names), 0, -1))
        loaded = [home for home in homes if home in sys.modules]
        of_files = (home for home in loaded if getattr(sys.modules[home], "__spec__", None) is not None)
        self.import_module(next(of_files, loaded[0]))

    def variable(self, stem: str, value: Any) -> str:
        """A generated name for a value that is defined by several lines. The same value has the same name."""
        for number in itertools.count():
            name = f"_{stem}{number or ''}"
            if self._defined.setdefault(name, value) is value:
                return name
        raise AssertionError

    def defines(self, value: Any) -> bool:
        """Whether a definition of this value was written."""
        return any(defined is value for defined in self._defined.values())

    def _special(self, value: Any) -> str | None:
        return self._special_expression(value, self) if self._special_expression is not None else None

    def _container(self, value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.expression(k)}: {self.expression(v)}" for k, v in value.items()) + "}"
        inner = ", ".join(self.expression(item) for item in value)
        if isinstance(value, tuple):
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if isinstance(value, list):
            return f"[{inner}]"
        return f"{type(value).__name__}([{inner}])"

    def _of_torch(self, value: Any) -> str | None:
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return str(value)
        if isinstance(value, torch.device):
            return f'torch.device("{value}")'
        if isinstance(value, torch._ops.OpOverload):
            namespace, name = value._schema.name.split("::", 1)
            return f"torch.ops.{namespace}.{name}.{value._overloadname}"
        if isinstance(value, torch._ops.OpOverloadPacket):
            return f"torch.ops.{value!s}"
        name = value.__name__ if isinstance(value, types.BuiltinFunctionType) else ""
        return f"torch.{name}" if name and getattr(torch, name, None) is value else None

    def _import(self, value: Any) -> str | None:
        """A module, or an object that a module of torch or of Python has under the object's own name."""
        if isinstance(value, types.ModuleType):
            if not _comes_with_torch(value.__name__):
                raise CannotExportError(f"the module {value.__name__}")
            self.import_module_of(value.__name__)
            return value.__name__
        answers_all = hasattr(type(value), "__getattr__")  # Inductor's `ops` has any attribute, and warns of it
        home = getattr(value, "__module__", None)
        name = (None if answers_all else getattr(value, "__qualname__", None)) or _module_attribute_name(value)
        if not isinstance(home, str) or not isinstance(name, str) or not _comes_with_torch(home):
            return None
        if isinstance(value, types.FunctionType) and not _comes_with_torch(value.__globals__.get("__name__", "")):
            return None  # a function of the user's with a name of torch, from functools.wraps
        try:
            found = functools.reduce(getattr, name.split("."), sys.modules[home])
        except (AttributeError, KeyError):
            return None
        if found is not value:
            return None
        self.import_module(home)
        return f"{home}.{name}"

    def _operator(self, value: Any) -> str | None:
        """An operator that ``torch.library.custom_op`` made."""
        name = getattr(value, "_qualname", None) if hasattr(type(value), "_qualname") else None
        if not isinstance(name, str) or torch_private.custom_op_definition(name) is not value:
            return None
        return self.operator(name)

    def operator(self, name: str) -> str:
        """Define the custom operator ``namespace::op`` with all that is registered for it; returns its name.

        Raises `CannotExportError`.
        """
        definition = torch_private.custom_op_definition(name)
        if definition is None:
            return self._library_operator(name)
        inner = definition._init_fn
        decorated = _has_decorator(inner, "custom_op")
        variable = str(inner.__name__) if decorated else name.partition("::")[2]
        if self._defined.get(variable) is definition:
            return variable
        self._reserve_name(variable, definition)
        if decorated:
            self._write_definition(inner)
        else:
            words = [repr(name), self.function_without_decorators(inner)]
            words.append(f"mutates_args={torch_private.changed_arguments(definition)!r}")
            words += [] if inner.__annotations__ else [f"schema={definition._schema!r}"]
            self.blocks.append(f"{variable} = torch.library.custom_op({', '.join(words)})")
        fake, backward, setup = torch_private.registered_functions(definition)
        if fake is not None:
            self._register(f"{variable}.register_fake", fake)
        if backward is not None:
            self._register(f"{variable}.register_autograd", backward, self._setup(setup))
        return variable

    def _register(self, how: str, function: Any, further: str = "") -> None:
        """Write what registers a function: its decorator, or a call."""
        if not further and _has_decorator(function, how.rpartition(".")[2]):
            self._write_definition(function)
        else:
            self.blocks.append(f"{how}({self.function_without_decorators(function)}{further})")

    def _setup(self, setup: Any) -> str:
        return f", setup_context={self.function_without_decorators(setup)}" if setup is not None else ""

    def _library_operator(self, name: str) -> str:
        """Define an operator of ``torch.library.Library``."""
        defined = torch_private.find_library_operator(name)
        if defined is None:
            raise CannotExportError(f"the operator {name} (not defined in Python)")
        space, short = name.split("::")
        fake, made = torch_private.fake_function(name), f"library_{space}"
        if self._defined.setdefault(name, defined) is not defined:
            return short
        own = [
            (key, fn) for key, fn in defined.kernels if key != "Meta" or not _comes_with_torch(fn.__module__)
        ]  # of a fake
        kernels = [(key, self._registered_function(name, function)) for key, function in own]
        lines = [f'{made} = torch.library.Library("{space}", "FRAGMENT")'] if made not in self._defined else []
        self._defined[made] = made
        lines.append(f"{made}.define({defined.schema!r})")
        lines += [f'{made}.impl("{short}", {text}, "{key}")' for key, text in kernels]
        if fake is not None:
            lines.append(f'torch.library.register_fake("{name}", {self._registered_function(name, fake)})')
        if defined.gradient is not None:
            backward, setup = defined.gradient
            lines.append(
                f'torch.library.register_autograd("{name}", {self.function_without_decorators(backward)}'
                f"{self._setup(setup)})"
            )
        self.blocks.append("\n".join(lines))
        return short

    def _registered_function(self, name: str, function: Any) -> str:
        if isinstance(function, types.FunctionType) and _comes_with_torch(function.__module__):
            raise CannotExportError(f"a function that torch wrapped when it was registered for the operator {name}")
        return self.function_without_decorators(function)

    def function_without_decorators(self, function: Any) -> str:
        """A registered function without its decorators, since these would register it."""
        if not isinstance(function, types.FunctionType) or function.__name__ == "<lambda>":
            return self.expression(function)
        if self._defined.get(function.__name__) is not function:
            self._reserve_name(function.__name__, function)
            self._write_definition(function, decorated=False)
        return function.__name__

    def _user_object(self, value: Any) -> str | None:
        if isinstance(value, functools.partial):
            words = [self.expression(a) for a in value.args]
            words += [f"{k}={self.expression(v)}" for k, v in value.keywords.items()]
            self.import_module("functools")
            return f"functools.partial({', '.join([self.expression(value.func), *words])})"
        if (function := _kernel_function(value)) is not None:
            return self._kernel(value, function)
        if isinstance(value, types.FunctionType) and _innermost_function(value).__code__.co_name == "<lambda>":
            return self._lambda(value)
        if isinstance(value, (types.FunctionType, type)):
            name = value.__name__ if isinstance(value, type) else _innermost_function(value).__code__.co_name
            if self._defined.get(name) is not value:
                self._reserve_name(name, value)
                self._write_definition(value)
            return name
        if isinstance(value, types.MethodType):
            return f"{self.expression(value.__self__)}.{value.__name__}"
        return self._instance(value)

    def _kernel(self, value: Any, function: types.FunctionType) -> str:
        """A Triton kernel: its function with its decorators."""
        name = function.__name__
        if self._defined.get(name) is not value:
            self._reserve_name(name, value)
            self._write_definition(function)
        return name

    def _lambda(self, value: types.FunctionType) -> str:
        """A lambda, if it is the only one in its statement."""
        source = _source(value)
        found = [node for node in ast.walk(_parse(source)) if isinstance(node, ast.Lambda)]
        if len(found) != 1:
            raise CannotExportError(f"one of several lambdas in a statement ({source.strip()[:60]})")
        text = ast.unparse(found[0])
        self._bind_names(text, value)
        return f"({text})"

    def _instance(self, value: Any) -> str | None:
        """An object of a user's class: made without its constructor, with its state written out."""
        kind = type(value)
        if _comes_with_torch(kind.__module__):
            return None
        state = getattr(value, "__dict__", {})
        name = self.expression(kind)
        if not state and all("__init__" not in vars(c) or _comes_with_torch(c.__module__) for c in kind.__mro__):
            return f"{name}()"
        made = f"_{name.lower()}"
        lines = [f"{made} = {name}.__new__({name})", f"{made}.__dict__.update({self.expression(dict(state))})"]
        self._reserve_name(made, value)
        self.blocks.append("\n".join(lines))
        return made

    def _reserve_name(self, name: str, value: Any) -> None:
        if name in self._defined and self._defined[name] is not value:
            raise CannotExportError(f"two different objects with the name {name}")
        self._defined[name] = value

    def _write_definition(self, value: Any, *, decorated: bool = True) -> None:
        """Write the source of a function or class, after the definitions that it needs."""
        source = _source(value)
        statement = _parse(source).body[0]
        if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            raise CannotExportError(f"a function without a definition of its own ({source.strip()[:60]})")
        if not decorated:
            source = "".join(source.splitlines(keepends=True)[statement.lineno - 1 :])
        self._bind_names(source, value)
        self.blocks.append(source)

    def _bind_names(self, source: str, value: Any) -> None:
        """Define the names that the source of a function or class uses."""
        spaces = _namespace(value)
        for name in _free_names(source):
            if name in self._defined or (hasattr(builtins, name) and name not in spaces):
                continue
            if name not in spaces:
                continue  # bound at run time, or never: then the original fails in the same way
            self._bind(name, spaces[name])

    def _bind(self, name: str, value: Any) -> None:
        if name == "torch":
            self.import_module("torch")
            return
        importable = isinstance(value, types.ModuleType) and sys.modules.get(value.__name__) is value
        if importable and value.__name__ != name and _comes_with_torch(value.__name__):
            self._reserve_name(name, value)
            self.imports[f"import {value.__name__} as {name}"] = None
            return
        before = dict(self.imports)
        own = None if isinstance(value, types.ModuleType) else self._import(value)  # by the module that defines it
        text = own or self.expression(value)
        if text == name:
            return
        self._reserve_name(name, value)
        home, _, last = text.rpartition(".")
        if last == name and getattr(sys.modules.get(home), "__spec__", None) is not None:
            self.imports = before | {f"from {home} import {name}": None}
        else:
            self.blocks.append(f"{name} = {text}")


def _module_attribute_name(value: Any) -> str | None:
    """The name of an object in the module of its class, or None."""
    module = sys.modules.get(type(value).__module__)
    return next((name for name, held in vars(module).items() if held is value), None) if module is not None else None


def _comes_with_torch(module: str) -> bool:
    """Whether every installation of torch has this module."""
    top = module.partition(".")[0]
    return top in ("torch", "functorch", "triton", "numpy", "sympy") or (
        top in sys.stdlib_module_names and top != "__main__"
    )


def _describe(value: Any) -> str:
    kind = type(value)
    return f"{getattr(value, '__qualname__', None) or f'a {kind.__module__}.{kind.__qualname__}'}"


def _innermost_function(function: types.FunctionType) -> types.FunctionType:
    """The innermost function of the user's under its decorators; other functions unchanged."""
    inner = inspect.unwrap(function)
    own = isinstance(inner, types.FunctionType) and not _comes_with_torch(inner.__globals__.get("__name__", ""))
    return inner if own else function


def _kernel_function(value: Any) -> types.FunctionType | None:
    """The Python function of a Triton kernel; None for anything else."""
    interface = getattr(sys.modules.get("triton.runtime.jit"), "KernelInterface", None)
    if interface is None or not isinstance(value, interface):
        return None
    while not isinstance(value, types.FunctionType):
        value = value.fn
    return value


def _source(value: Any) -> str:
    written = _innermost_function(value).__code__ if isinstance(value, types.FunctionType) else value
    try:
        return textwrap.dedent(inspect.getsource(written)).rstrip() + "\n"
    except (OSError, TypeError) as error:
        raise CannotExportError(f"{_describe(value)} (its source cannot be read)") from error


def _namespace(value: Any) -> Mapping[str, Any]:
    """The values of the names in the source of a function or class: globals and captured variables."""
    functions = [value] if isinstance(value, types.FunctionType) else []
    if isinstance(value, type):
        functions = [m for m in vars(value).values() if isinstance(m, types.FunctionType)]
        module = sys.modules.get(value.__module__)
        spaces = dict(vars(module)) if module is not None else {}
    else:
        spaces = {}
    for function in functions:
        spaces |= function.__globals__
        code, cells = function.__code__, function.__closure__ or ()
        spaces |= {n: c.cell_contents for n, c in zip(code.co_freevars, cells, strict=True) if _has_contents(c)}
    return spaces


def _has_contents(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - reading an empty cell raises
    except ValueError:
        return False
    return True


def _parse(source: str) -> ast.Module:
    """Parse the lines of a function. Raises `CannotExportError` if they are no complete statement."""
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise CannotExportError(f"a function in the middle of a statement ({source.strip()[:60]})") from error


def registers_itself(function: Any, operator: str) -> bool:
    """Whether a decorator of a function registers it for an operator of torch, ``torch.ops.aten.relu.default``."""
    calls = (each for each in _decorators(function) if isinstance(each, ast.Call) and each.args)
    named = [ast.unparse(call.args[0]) for call in calls if ast.unparse(call.func).rpartition(".")[2] in _REGISTERING]
    return any(operator.endswith(f".{name.removeprefix('torch.ops.')}") for name in named)


def _has_decorator(function: Any, name: str) -> bool:
    """Whether the source of a function has a decorator whose last name is this: ``@torch.library.custom_op(...)``."""
    return any(ast.unparse(each).partition("(")[0].rpartition(".")[2] == name for each in _decorators(function))


def _decorators(function: Any) -> list[ast.expr]:
    if not isinstance(function, types.FunctionType) or _innermost_function(function).__code__.co_name == "<lambda>":
        return []
    return getattr(_parse(_source(function)).body[0], "decorator_list", [])


def _free_names(source: str) -> list[str]:
    """The names that a definition reads and does not bind."""
    tree = _parse(source)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return list(dict.fromkeys(node.id for node in names if node.id not in bound))
