"""A call of the caller's process as a program of its own: the function and its arguments are pickled, and their modules
are imported again from a copy of the user's files, so that a change of the source is in what is called.

`dynadiag.fix` searches for fixes of such a call.
"""

from __future__ import annotations

import inspect
import io
import pickle
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dynadiag.errors import DynadiagError
from dynadiag.fixes.edits import unified_diff
from dynadiag.fixes.fix_report import FixReport
from dynadiag.fixes.fix_result import document_of
from dynadiag.fixes.fix_search import find_fixes
from dynadiag.fixes.project import Project
from dynadiag.fixes.prover import FailsUncompiled
from dynadiag.fixes.trials import Trials, runner_of
from dynadiag.trial.program import Program

_SCRIPT, _PICKLE = "dynadiag_call.py", "dynadiag_call.pickle"
_TEXT = (
    "from dynadiag.fixes.pickled_call import load_pickled\n\n\ndef call():\n    return load_pickled(__file__, {!r})\n"
)


def project_of_call(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Project:
    """The folder from which the function's module is imported, with a program that makes the call.

    Raises `DynadiagError` if the function is in no file, or the call cannot be pickled (a closure, a lambda).
    """
    file, module = _source(fn)
    try:
        pickled = pickle.dumps((fn, tuple(args), dict(kwargs)))
    except Exception as error:
        raise DynadiagError(
            f"fix({_name(fn)}): the call cannot be pickled ({error}). Put it into a file: dynadiag fix FILE.py:NAME"
        ) from error
    root = file.parents[module.count(".")]
    added = {_SCRIPT: _TEXT.format(file.stem).encode(), _PICKLE: pickled}
    return Project(Program(str(root / _SCRIPT), name="call"), root, Path.cwd(), added=added)


def load_pickled(script: str, main: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The call that was pickled beside the script. ``main`` is the module that was the caller's main program."""
    made: tuple[Any, tuple[Any, ...], dict[str, Any]]
    made = _Unpickler(Path(script).with_name(_PICKLE).read_bytes(), main).load()
    return made


class _Unpickler(pickle.Unpickler):
    """Imports what the caller's main program defines by the name of its file."""

    def __init__(self, data: bytes, main: str) -> None:
        super().__init__(io.BytesIO(data))
        self._main = main

    def find_class(self, module: str, name: str) -> Any:
        return super().find_class(self._main if module == "__main__" else module, name)


def _source(fn: Callable[..., Any]) -> tuple[Path, str]:
    """The file and the module of a function, or of the class of a module."""
    named = inspect.unwrap(fn) if hasattr(fn, "__qualname__") else type(fn)
    module = sys.modules.get(named.__module__)
    file = getattr(module, "__file__", None)
    if file is None:
        raise DynadiagError(f"fix({_name(fn)}): its source is in no file, so there is nothing to change")
    return Path(file).absolute(), named.__module__


def _name(fn: object) -> str:
    return str(getattr(fn, "__qualname__", None) or type(fn).__qualname__)


def fix_call(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> FixReport:
    """The fixes of a call. Raises `DynadiagError` if it cannot be pickled, or fails uncompiled."""
    project = project_of_call(fn, args, kwargs)
    began = time.monotonic()
    with runner_of(project.program) as runner:
        trials = Trials(project, runner, lambda *_: None)
        try:
            result = find_fixes(trials, lambda _: None)
        except FailsUncompiled as failed:
            raise DynadiagError(f"fix: the call fails uncompiled: {failed}") from failed
    document = document_of(result, project, trials.count, time.monotonic() - began)
    return FixReport(document, unified_diff({name: project.source(name) for name in result.changed}, result.changed))
