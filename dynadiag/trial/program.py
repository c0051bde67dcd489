"""The program under trial: parses the target that the user named, and runs it as Python would."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dynadiag.errors import DynadiagError
from dynadiag.trial.typed_json import load


class TargetError(DynadiagError):
    """The target cannot be imported, or its function returns something unusable. Exit code 2, not a failure of the
    program.
    """


@dataclass(frozen=True, slots=True)
class Program:
    """``FILE.py``, ``-m pkg.mod``, ``FILE.py:NAME``, ``pkg.mod:NAME`` or ``FILE.py::TEST``, with the program's own
    arguments.
    """

    target: str
    arguments: tuple[str, ...] = ()
    module: bool = False  # -m
    name: str | None = None  # of a function that returns (fn, args) or (fn, args, kwargs)
    test: str | None = None  # of pytest: test_name, Class::test_name or test_name[parameters]

    @classmethod
    def parse(cls, target: str, arguments: tuple[str, ...] = (), module: bool = False) -> Program:
        """The program that a target names. Raises `TargetError` if it has another form or the file is missing.

        The name of a script that a package installed, such as ``torchrun``, is the module that it runs.
        """
        if module:
            return cls(target, arguments, module=True)
        if Path(target).is_file():
            return cls(str(Path(target).absolute()), arguments)
        file, colons, test = target.partition("::")
        if colons and test and file.endswith(".py") and Path(file).is_file():
            return cls(str(Path(file).absolute()), arguments, test=test)
        place, colon, name = target.rpartition(":")
        if colon and name.isidentifier() and place.endswith(".py") and Path(place).is_file():
            return cls(str(Path(place).absolute()), arguments, name=name)
        if colon and name.isidentifier() and all(part.isidentifier() for part in place.split(".")):
            return cls(place, arguments, name=name)
        script = next(iter(importlib.metadata.entry_points(group="console_scripts", name=target)), None)
        if script is not None:
            return cls(script.module, arguments, module=True)
        raise TargetError(
            f"{target}: no such program. Give FILE.py, -m pkg.mod, FILE.py:NAME, pkg.mod:NAME or FILE.py::TEST."
        )

    @property
    def text(self) -> str:
        """The target as the user would write it."""
        inside = f":{self.name}" if self.name else f"::{self.test}" if self.test else ""
        return ("-m " if self.module else "") + self.target + inside


def run_program(program: Program) -> None:
    """Run the program in this process as ``__main__``. Raises what the program raises.

    Raises `TargetError` if a module or a factory cannot be imported, or a factory returns something other than a
    call.
    """
    if program.test is not None:
        _run_test(program)
    elif program.name is not None:
        _run_call(program)
    elif program.module:
        _run_module(program)
    else:
        sys.argv = [program.target, *program.arguments]
        sys.path.insert(0, str(Path(program.target).parent))
        _execute(Path(program.target).read_bytes(), program.target, _main_module(program.target))


def _run_test(program: Program) -> None:
    """Run one test with pytest, and raise what it raises."""
    try:
        import pytest
    except ImportError as error:
        raise TargetError(f"{program.text}: pytest is not installed.") from error
    raised: list[BaseException] = []

    class Raised:
        def pytest_exception_interact(self, call: Any) -> None:
            raised.append(call.excinfo.value)

    options = ["-q", "-x", "--assert=plain", "--capture=no", "-p", "no:cacheprovider", "-o", "addopts="]
    code = pytest.main([*options, f"{program.target}::{program.test}", *program.arguments], plugins=[Raised()])
    if raised:
        raise raised[0]
    if code != pytest.ExitCode.OK:
        raise TargetError(f"{program.text}: pytest runs no such test.")


def _main_module(file: str, spec: Any = None) -> types.ModuleType:
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=file, __builtins__=__builtins__, __spec__=spec, __cached__=None)
    if spec is not None:
        main.__package__ = spec.parent
    sys.modules["__main__"] = main
    return main


def _execute(source: bytes, file: str, main: types.ModuleType) -> None:
    code = compile(source, file, "exec", dont_inherit=True)
    exec(code, main.__dict__)  # noqa: S102 - the user asked to run this program


def _run_module(program: Program) -> None:
    sys.path.insert(0, str(Path.cwd()))
    name = program.target
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(name + ".__main__")
    except ModuleNotFoundError as error:
        raise TargetError(f"-m {name}: {error}. Run it from the folder that holds it.") from error
    if spec is None or spec.origin is None:
        raise TargetError(f"-m {name}: no such module. Run it from the folder that holds it.")
    sys.argv = [spec.origin, *program.arguments]
    _execute(Path(spec.origin).read_bytes(), spec.origin, _main_module(spec.origin, spec))


def _import_factory_module(program: Program) -> types.ModuleType:
    sys.argv = [program.target, *program.arguments]
    if not program.target.endswith(".py"):
        sys.path.insert(0, str(Path.cwd()))
        try:
            return importlib.import_module(program.target)
        except ImportError as error:
            raise TargetError(f"{program.text}: cannot import it ({error}).") from error
    path = Path(program.target)
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{program.text}: not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (ImportError, SyntaxError) as error:
        raise TargetError(f"{program.text}: cannot import it ({error}).") from error
    return module


def call_factory(program: Program) -> Any:
    """What the function that the target names returns.

    Raises `TargetError` if it cannot be imported, or needs arguments.
    """
    factory = getattr(_import_factory_module(program), program.name or "", None)
    if not callable(factory):
        raise TargetError(f"{program.text}: there is no function {program.name} in it.")
    if needed := _needed_arguments(factory):
        raise TargetError(
            f"{program.text}: {program.name} needs arguments ({', '.join(needed)}). Name a function without arguments "
            f"that returns the call, such as `def call(): return {program.name}, ({needed[0]},)`."
        )
    return factory()


def _needed_arguments(factory: Callable[..., Any]) -> list[str]:
    """The parameters without a default; none of what has no signature."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return []
    varying = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in parameters if each.default is each.empty and each.kind not in varying]


def load_call(program: Program) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The call (fn, args, kwargs) that the factory returns. Raises what the factory raises.

    Raises `TargetError` if the factory cannot be imported or returns something other than a call.
    """
    made = call_factory(program)
    if not _is_call(made):
        raise TargetError(
            f"{program.name}() must return (fn, args) or (fn, args, kwargs), args a tuple and kwargs a dict, "
            f"not {_type_text(made)}."
        )
    return made[0], tuple(made[1]), made[2] if len(made) == 3 else {}


def _is_call(made: Any) -> bool:
    return (
        isinstance(made, tuple)
        and len(made) in (2, 3)
        and callable(made[0])
        and isinstance(made[1], (tuple, list))
        and (len(made) == 2 or isinstance(made[2], dict))
    )


def _type_text(made: Any) -> str:
    """The types of what a factory returned, for a message."""
    if isinstance(made, tuple):
        return f"({', '.join(type(part).__name__ for part in made)})"
    return type(made).__name__


def _run_call(program: Program) -> None:
    fn, args, kwargs = load_call(program)
    import torch  # not earlier: the program may set torch's environment variables first

    torch.compile(fn)(*args, **kwargs)


def main(request: str, refusal: str, gpu: str = "") -> int:
    """Run the program in ``request`` (JSON), in a process of its own: one that Python alone cannot start.

    If the target cannot be used, write the reason to the file ``refusal`` and return 2. With ``gpu``, generate its code
    for that GPU, which this machine does not have.
    """
    try:
        if gpu:
            importlib.import_module("dynadiag.torch_private.gpu_target").generate_for_gpu(gpu)  # imports torch
        run_program(load(request, Program))
    except DynadiagError as error:
        sys.stdout.flush()
        Path(refusal).write_text(str(error), errors="backslashreplace")
        return 2
    return 0
