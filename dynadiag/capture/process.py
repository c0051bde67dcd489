"""Record the current process: started by our commands, or by anything with ``DYNADIAG_RECORD`` set."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from dynadiag.capture import settings as settings_
from dynadiag.capture.exports import describe_ending_failure
from dynadiag.capture.later_imports import LaterImports
from dynadiag.capture.recorder import Recorder
from dynadiag.capture.run_metadata import (
    ending_exception,
    exit_codes_of_ranks,
    job_place,
    recording_stems,
    run_footer,
    run_header,
)
from dynadiag.capture.startup import sitecustomize
from dynadiag.errors import DynadiagError
from dynadiag.recording.journal import SUFFIX, Journal, journal_stem
from dynadiag.torch_private import capture as torch_private
from dynadiag.torch_private import spawned_ranks


@functools.cache  # once a process, however often torch's entry points are called
def record_this_process() -> None:
    """Start the recorder of this process, and stop it when the interpreter ends.

    The main process of one of our commands has its journal from the start. Any other process gets one at its first
    event, so that workers which never compile leave no file. Raises whatever prevents recording.
    """
    variables = settings_.recorder_variables()
    folder = Path(variables[settings_.FOLDER_VARIABLE]).absolute()
    settings = settings_.from_environment(variables)
    if settings.parent is not None:
        sitecustomize.take()  # it has, unless Python ran without `site`, or without its variables
    if settings.coverage is not None:
        _count_operators(settings.coverage, settings)
        return
    if settings.options:
        import_module("dynadiag.torch_private.caches").set_options(settings.options)
    if not settings.codegen:
        torch_private.leave_out_code_generation()
    began = time.time()
    recorder = Recorder(lambda: _open_journal(folder, settings), source=settings.source)
    if settings.parent is not None and settings.parent == os.getppid():
        recorder.journal()
        if settings.stop_after is not None:
            stop_after(settings.stop_after, lambda: recorder.note("stopped", {"calls": settings.stop_after}))
        if settings.after is not None:
            _mark_after(settings.after)
        if settings.stop_seconds is not None:
            _stop_after_seconds(settings.stop_seconds, recorder, began)
    recorder.start()
    if settings.values is not None:
        _watch_values(recorder, settings.values)
    if settings.live:
        _watch()
    if settings.imports:
        recorder.later_imports = LaterImports()
        recorder.later_imports.start()
    atexit.register(_end_recording, recorder, began)
    _end_with_multiprocessing_worker(recorder, began)


def _watch() -> None:
    """Write a line as each compile of this process begins, breaks, recompiles or ends."""
    from dynadiag.capture.live import Watcher

    rank = job_place(os.environ).get("rank")
    Watcher(lead="" if rank is None else f"[rank {rank}] ").start()


def _watch_values(recorder: Recorder, options: dict[str, Any]) -> None:
    """Record the values of compiled calls. What does so stands above the recorder, so it is loaded by its name."""
    from dynadiag.capture.settings import ValueOptions

    import_module("dynadiag.node_values.watch").watch(recorder, ValueOptions(**options))


def _count_operators(folder: str, settings: settings_.Settings) -> None:
    """Count the operator calls of this process, recording nothing."""
    from dynadiag.capture.operator_counts import count_this_process

    count_this_process(folder)
    if settings.stop_after is not None and settings.parent == os.getppid():
        stop_after(settings.stop_after)


def _open_journal(folder: Path, settings: settings_.Settings) -> Journal:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise DynadiagError(
            f"cannot make the folder {folder}: it is a file; let {settings_.FOLDER_VARIABLE} name a folder"
        ) from None
    except OSError as error:
        raise DynadiagError(f"cannot make the folder {folder}: {error.strerror}") from error
    journal = _create_journal(folder, settings)
    journal.append({"dynadiag_run": run_header(settings.target, settings.parent) | {"codegen": settings.codegen}})
    return journal


def _create_journal(folder: Path, settings: settings_.Settings) -> Journal:
    if (own := _claimed_journal(settings)) is not None:
        return own
    for path in _candidate_paths(folder, settings):
        try:
            return Journal.create(path, settings.limit)
        except DynadiagError:
            if not path.exists():
                raise
    raise DynadiagError(f"{folder}: no name is left for a recording; empty the folder")


def _claimed_journal(settings: settings_.Settings) -> Journal | None:
    """The journal that the command made for its main process. None in any other process, and if it is in use."""
    if settings.journal is None or settings.claim is None or settings.parent != os.getppid():
        return None
    try:
        status = os.stat(settings.journal)  # noqa: PTH116 - one call, before anything is opened
        if [status.st_dev, status.st_ino, status.st_size] != settings.claim:
            return None  # removed, replaced, or written by what this process was before an exec
        return Journal.reopen(Path(settings.journal), settings.limit, (status.st_dev, status.st_ino))
    except (OSError, DynadiagError):
        return None


def _candidate_paths(folder: Path, settings: settings_.Settings) -> Iterator[Path]:
    """The paths for this process's recording, of which the first free one is taken."""
    if settings.journal is not None and settings.claim is None and settings.parent == os.getppid():
        yield Path(settings.journal)
    lead = journal_stem(Path(settings.journal)) if settings.journal else socket.gethostname()
    yield from (folder / f"{stem}{SUFFIX}" for stem in recording_stems(lead, os.environ))


def _end_with_multiprocessing_worker(recorder: Recorder, began: float) -> None:
    """Stop with a `multiprocessing` child: it skips `atexit` and runs finalizers. A fork begins with none."""
    from multiprocessing import util  # torch has loaded it

    spawned_ranks.keep_exit()

    def finalize(recorder: Recorder) -> None:
        util.Finalize(None, _end_recording, (recorder, began), exitpriority=0)

    finalize(recorder)
    util.register_after_fork(recorder, finalize)


@functools.cache  # the main process runs finalizers of `multiprocessing` after `atexit`
def _end_recording(recorder: Recorder, started: float) -> None:
    try:
        error = ending_exception()
        is_of_job = error is not None and ("rank" in job_place(os.environ) or exit_codes_of_ranks(error))
        if recorder.has_journal or is_of_job or describe_ending_failure(error) is not None:
            recorder.record_kernels()
            recorder.record_collectives()
            recorder.record_later_calls()
            recorder.record_exception(error)
            footer = run_footer(started, error, source=recorder.keeps_source)
            if recorder.later_imports is not None:
                footer["imports"] = recorder.later_imports.spans
            for frame in footer["stack"][-1:]:
                recorder.record_source(frame["file"], {})
            recorder.record_program()
            recorder.record_packages()
            recorder.note("end", footer)  # the last event: from then on others may fold the journal
        recorder.stop()
    except Exception as error:  # noqa: BLE001 - the interpreter would print a traceback of ours at the program's end
        recorder.give_up(error)


def _mark_after(calls: int) -> None:
    """Mark the warm-up as over when the first compiled function that is called is called for the time after these.

    The end of the last call before has a mark too: a program may make no other.
    """
    made = itertools.count(1)
    first: list[object] = []

    def count(callback: object) -> None:
        first[:] = first or [callback]
        number = next(made) if callback is first[0] else 0
        if number == calls + 1:
            torch_private.mark_warm(calls)
        elif number == calls:
            ended = functools.partial(torch_private.mark_warm, calls, torch_private.LAST_WARM_CALL)
            torch_private.call_at_end_of_call(sys._getframe(1), ended)

    torch_private.call_before_compiled_calls(count)


def _stop_after_seconds(seconds: float, recorder: Recorder, began: float) -> None:
    """End this process after some seconds, whatever it does then. What was recorded is complete."""

    def end() -> None:
        recorder.note("stopped", {"seconds": seconds})
        _end_recording(recorder, began)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or none
                stream.flush()
        os._exit(0)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


class StoppedAfterCalls(SystemExit):
    """The program has made the requested number of calls."""


def stop_after(calls: int, note: Callable[[], None] = lambda: None) -> None:
    """Let this process make ``calls`` calls of compiled functions. End it at the next one, after ``note()``."""
    numbers = itertools.count(1)

    def count(_callback: object) -> None:
        if next(numbers) > calls:
            note()
            raise StoppedAfterCalls(0)

    torch_private.call_before_compiled_calls(count)
