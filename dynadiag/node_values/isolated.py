"""Runs a function in a fork of the program, which it cannot disturb.

The fork has the program's memory as it is at that moment. The function runs there in a new thread: the threads of
OpenMP do not survive a fork, and only a thread that was not their master can start new ones. How many it starts belongs
to each thread of OpenMP: the new thread takes the program's number, because Inductor's kernels have arrays as long.
Nothing of what the function prints is shown, no handler of the program's signals runs, and the fork ends without the
program's exit functions.
"""

from __future__ import annotations

import contextlib
import contextvars
import gc
import os
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator

import torch

_LIMIT = 600.0  # seconds
_BLOCK = 1 << 16
_replaced = list[object]()  # what the program printed to: kept to the end of the fork
_GOOD, _BAD = b"+", b"-"  # the first byte of what the fork writes: a result or an error


class ForkFailed(Exception):  # noqa: N818 - it says what is wrong
    """The fork ended without a result. The message says how."""


def run_in_fork(function: Callable[[], bytes], limit: float = _LIMIT) -> bytes:
    """Return what ``function()`` returns in a fork. Raises `ForkFailed`, also where no process can be made."""
    threads = torch.get_num_threads()
    reading, writing = os.pipe()
    with _child_signal_kept():
        try:
            with warnings.catch_warnings(), _no_collection():
                warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forking with threads
                pid = os.fork()
                if pid == 0:
                    _run_as_child(function, threads, reading, writing)
        except OSError as error:
            os.close(reading)
            os.close(writing)
            raise ForkFailed(f"the process cannot be forked: {error.strerror}") from error
        os.close(writing)
        try:
            result, ended = _read(reading, limit)
        except BaseException:
            _end(pid)
            raise
        finally:
            os.close(reading)
        if not ended:
            _end(pid)
            raise ForkFailed(f"its fork was ended after {limit:g} seconds")
        return _result(result, _status_of(pid))


def _result(written: bytes, status: int | None) -> bytes:
    """The result in what a fork wrote before it ended with ``status``. Raises `ForkFailed`."""
    code, result = written[:1], written[1:]
    if status is not None and status < 0:
        name = signal.Signals(-status).name
        raise ForkFailed(f"its fork was ended by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}")
    if code != _GOOD or status:
        ended = "without a result" if status is None else f"with code {status}"
        raise ForkFailed(result.decode(errors="replace") or f"its fork ended {ended}")
    return result


@contextlib.contextmanager
def _child_signal_kept() -> Iterator[None]:
    """Keep the end of the fork from the program's handler of SIGCHLD.

    A handler can be changed in the main thread only: in another one the program's handler runs. A child of the program
    that ends meanwhile is reported to the handler afterwards.
    """
    handler = signal.getsignal(signal.SIGCHLD)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or handler is None or handler is signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, handler)
        if callable(handler) and _has_ended_child():
            os.kill(os.getpid(), signal.SIGCHLD)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Collect no garbage of the program: in the fork its finalizers would run a second time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _has_ended_child() -> bool:
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _status_of(pid: int) -> int | None:
    """The exit code of the fork, negative for a signal. None where the program has taken it."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:  # it waits for any child in another thread, or ignores SIGCHLD
        return None


def _read(reading: int, limit: float) -> tuple[bytes, bool]:
    """What the fork wrote, and whether it ended in time."""
    parts, deadline = list[bytes](), time.monotonic() + limit
    while select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(reading, _BLOCK)
        if not part:
            return b"".join(parts), True
        parts.append(part)
    return b"", False


def _end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    _status_of(pid)


def _run_as_child(function: Callable[[], bytes], threads: int, reading: int, writing: int) -> None:
    """Run in the fork. Never returns."""
    try:
        os.close(reading)
        gc.freeze()  # what the program left is garbage of its own process
        gc.enable()
        _leave_program_alone()
        context = contextvars.copy_context()  # torch keeps its configuration in it
        thread = threading.Thread(target=context.run, args=(_write_result, function, threads, writing))
        thread.start()
        thread.join()
    except BaseException as error:  # noqa: BLE001 - the fork cannot even begin: the message says why
        _write_all(writing, _BAD + _text_of(error))
    finally:
        os._exit(1)


def _leave_program_alone() -> None:
    """Print nowhere, and run no signal handler of the program."""
    null = open(os.devnull, "w")  # noqa: PTH123, SIM115 - it stays open to the end of the fork
    for descriptor in (1, 2):
        os.dup2(null.fileno(), descriptor)
    # The program may have put other files there. One that nothing else refers to would write its buffer as it is freed.
    _replaced.extend((sys.stdout, sys.stderr))
    sys.stdout = sys.stderr = null
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)


def _write_result(function: Callable[[], bytes], threads: int, writing: int) -> None:
    """Write the result to the pipe, or the error, and end the fork."""
    code = _GOOD
    try:
        torch.set_num_threads(threads)
        result = function()
    except BaseException as error:  # noqa: BLE001 - whatever the graph raises is said in the recording
        result, code = _text_of(error), _BAD
    _write_all(writing, code + result)
    os._exit(0)


def _text_of(error: BaseException) -> bytes:
    return f"{type(error).__name__}: {error}".encode(errors="replace")


def _write_all(writing: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(writing, view) :]
