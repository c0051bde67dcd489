"""The cell magic ``%%dynadiag``: run a cell, and show what torch.compile did in it."""

from __future__ import annotations

import asyncio
import shlex
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import dynadiag
from dynadiag.capture.run_metadata import after_cell
from dynadiag.errors import DynadiagError
from dynadiag.render.report import Report

_USAGE = "%%dynadiag [--live] [FILE.dynadiag]"


def register(shell: Any) -> None:
    """Add the magic to a shell of IPython."""

    def run_cell(line: str, cell: str) -> None:
        """Run the cell, and show what torch.compile did in it.

        %%dynadiag [--live] [FILE.dynadiag]

        FILE keeps the recording, and is overwritten when the cell runs again. With --live a line is printed as each
        compile begins, breaks, recompiles, ends or gives up.
        """
        from IPython.core.error import UsageError
        from IPython.display import display

        try:
            report, failure = _run_cell(shell, line, cell)
        except DynadiagError as error:
            raise UsageError(f"{error}") from error
        is_terminal = "text/html" not in shell.display_formatter.active_types  # it would show one line
        (print if is_terminal else display)(report)  # what the cell itself returns stays the notebook's `_`
        if failure is not None:
            _show_no_more(shell, failure)
            raise failure

    shell.register_magic_function(run_cell, "cell", "dynadiag")


def _show_no_more(shell: Any, failure: BaseException) -> None:
    """Let the shell show nothing of an exception that it has shown. It is raised, so that no cell below is run."""
    show = shell.showtraceback

    def show_other(*args: Any, **options: Any) -> None:
        if sys.exc_info()[1] is not failure:
            show(*args, **options)

    shell.showtraceback = show_other
    after_cell(shell, lambda _: setattr(shell, "showtraceback", show))


def _run_cell(shell: Any, line: str, cell: str) -> tuple[Report, BaseException | None]:
    """Run the cell. Return its report, and what it raised, which the shell has shown."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise DynadiagError(f"{line}: {error} ({_USAGE})") from None
    live, files = "--live" in words, [word for word in words if word != "--live"]
    if len(files) > 1 or any(word.startswith("-") for word in files):
        raise DynadiagError(f"usage: {_USAGE}")
    if files and not files[0].endswith(".dynadiag"):
        raise DynadiagError(f"{files[0]}: a recording is named FILE.dynadiag ({_USAGE})")
    if _awaits(shell, cell):
        raise DynadiagError(
            "the cell was not run: it awaits, and no magic can do that here. Leave the magic's line out, and put the "
            'code into `with dynadiag.record("run.dynadiag"):`'
        )
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dynadiag-"))
        path = Path(files[0]) if files else Path(folder, "cell.dynadiag")
        if live:
            stack.enter_context(dynadiag.watch())
        failure = _record_cell(shell, path, cell)
        with dynadiag.open(path) as recording:
            report = recording.report()
        return report if files else replace(report, path=None), failure


def _awaits(shell: Any, cell: str) -> bool:
    """Whether the cell needs the event loop that runs this magic, and so cannot get it."""
    try:
        asyncio.get_running_loop()
        return bool(shell.should_run_async(cell, transformed_cell=shell.transform_cell(cell)))
    except (RuntimeError, SyntaxError):  # no loop runs, or the shell will show what is wrong in the cell
        return False


def _record_cell(shell: Any, path: Path, cell: str) -> BaseException | None:
    failure = None
    try:
        with dynadiag.record(path, force=True):
            failure = _run_as_same_cell(shell, cell)
            if failure is not None:
                raise failure
    except BaseException as error:
        if error is not failure:
            raise  # else the shell has shown it, and what was recorded is explained
    return failure


def _run_as_same_cell(shell: Any, cell: str) -> BaseException | None:
    """Run the code with the number and the line numbers that the notebook shows. Return what it raised."""
    before = shell.execution_count
    shell.execution_count = len(shell.user_ns["In"]) - 1  # some versions of IPython have counted on by now
    try:
        is_magic = cell.lstrip().startswith("%%")  # the shell knows such a line in the first place only
        result = shell.run_cell(cell if is_magic else f"# the magic's line\n{cell}")
    finally:
        shell.execution_count = before
    failure: BaseException | None = result.error_before_exec or result.error_in_exec
    return failure
