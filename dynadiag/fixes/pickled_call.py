"""A call of the caller's process as a program of its own: the function and its arguments are pickled, and their modules
are imported again from a copy of the user's files, so that a change of the source is in what is called.

`dynadiag.fix` searches for fixes of such a call.
"""

from __future__ import annotations

import inspect
import io
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from dynadiag.capture.run_metadata import running_shell
from dynadiag.errors import DynadiagError
from dynadiag.fixes.edits import unified_diff
from dynadiag.fixes.fix_report import FixReport
from dynadiag.fixes.fix_result import document_of
from dynadiag.fixes.fix_search import find_fixes
from dynadiag.fixes.notebook_cells import MODULE, CallPickler, CallUnpickler, imported_packages, write_cells
from dynadiag.fixes.project import Project
from dynadiag.fixes.prover import NothingToProve
from dynadiag.fixes.trials import OnOutcome, Trials, runner_of
from dynadiag.trial.program import Program

_SCRIPT, _PICKLE = "dynadiag_call.py", "dynadiag_call.pickle"
_TEXT = (
    "from dynadiag.fixes.pickled_call import load_pickled\n\n\ndef call():\n    return load_pickled(__file__, {!r})\n"
)


def project_of_call(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], cells: Path) -> Project:
    """The folder from which the function's module is imported, with a program that makes the call.

    The cells of a notebook are written into the folder ``cells``. Raises `DynadiagError` if the function is in neither
    a file nor a cell, or the call cannot be pickled (a closure, a lambda).
    """
    file, module = _source(fn)
    stream = io.BytesIO()
    pickler = CallPickler(stream)
    try:
        pickler.dump((fn, tuple(args), dict(kwargs)))
    except Exception as error:
        raise DynadiagError(
            f"fix({_name(fn)}): the call cannot be pickled ({error}). Put it into a file: dynadiag fix FILE.py:NAME"
        ) from error
    if file is None:
        root, main, written, imported = cells, MODULE, write_cells(cells, pickler.names), imported_packages()
    else:
        root, main, written, imported = file.parents[module.count(".")], file.stem, {}, set()
    added = {**written, _SCRIPT: _TEXT.format(main).encode(), _PICKLE: stream.getvalue()}
    return Project(Program(str(root / _SCRIPT), name="call"), root, Path.cwd(), added=added, imported=imported)


def load_pickled(script: str, main: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The call that was pickled beside the script. ``main`` is the module that was the caller's main program."""
    made: tuple[Any, tuple[Any, ...], dict[str, Any]]
    made = CallUnpickler(Path(script).with_name(_PICKLE).read_bytes(), main).load()
    return made


def _source(fn: Callable[..., Any]) -> tuple[Path | None, str]:
    """The file and the module of a function, or of the class of a module. In a notebook there is no file."""
    named = inspect.unwrap(fn) if hasattr(fn, "__qualname__") else type(fn)
    module = sys.modules.get(named.__module__)
    file = getattr(module, "__file__", None)
    if file is None and not (named.__module__ == "__main__" and running_shell() is not None):
        raise DynadiagError(f"fix({_name(fn)}): its source is in no file, so there is nothing to change")
    return file and Path(file).absolute(), named.__module__


def _name(fn: object) -> str:
    return str(getattr(fn, "__qualname__", None) or type(fn).__qualname__)


def fix_call(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], on_outcome: OnOutcome
) -> FixReport:
    """The fixes of a call. Raises `DynadiagError` if it cannot be pickled, fails uncompiled, or is made in a trial."""
    if "DYNADIAG_TRIAL" in os.environ:
        raise DynadiagError(
            f"fix({_name(fn)}): each trial imports the file that makes this call: "
            'put it below `if __name__ == "__main__":`'
        )
    began = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dynadiag-cells-")))
        project = project_of_call(fn, args, kwargs, folder)
        runner = stack.enter_context(runner_of(project.program))
        trials = Trials(project, runner, on_outcome)
        try:
            result = find_fixes(trials, lambda _: None)
        except NothingToProve as refused:
            raise DynadiagError(f"fix: {refused}") from refused
        document = document_of(result, project, trials.count, time.monotonic() - began)
        sources = {name: project.source(name) for name in result.changed}
    return _with_cells_named(FixReport(document, unified_diff(sources, result.changed)), folder)


def _with_cells_named(report: FixReport, folder: Path) -> FixReport:
    """The report with cells in place of files: ``<In[3]>`` as a place, ``In[3]`` in a sentence or a diff."""
    text = msgspec.json.encode(report).decode()
    text = re.sub(rf"{re.escape(str(folder))}/(In\[\d+\])\.py", r"<\1>", text)
    return msgspec.json.decode(re.sub(r"(In\[\d+\])\.py\b", r"\1", text), type=FixReport)
