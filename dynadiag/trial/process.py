"""The process of a trial: becomes one, runs the program, reports how that ended, and exits.

A fresh interpreter starts with `BOOT`, a fork with `become_trial`. All of them end in `run_and_exit`.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import importlib.abc
import importlib.machinery
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import NoReturn

from dynadiag import overlay
from dynadiag.trial import program
from dynadiag.trial.child_processes import install_hooks, let_children_join
from dynadiag.trial.context import TRIAL
from dynadiag.trial.events import EventWriter, TargetUnusable, TrialEnded, run_facts
from dynadiag.trial.plan import AS_WRITTEN, Plan
from dynadiag.trial.rank import killed_rank
from dynadiag.trial.signature import Signature, signature_of, user_lines, witness_of
from dynadiag.trial.typed_json import load

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
# With -c sys.path[0] is the current folder. It is removed before our modules are imported, since the user may have a
# package of the same name there. `program` adds the folder that the program needs.
BOOT = (
    "import sys; sys.flags.safe_path or sys.path.pop(0); "
    "from dynadiag.trial.process import main; main(sys.argv[1], int(sys.argv[2]))"
)


@dataclass(frozen=True, slots=True)
class TrialRequest:
    """What a fresh interpreter is started for. ``hooks`` are modules with an ``install()``."""

    program: program.Program
    plan: Plan
    hooks: tuple[str, ...]


def main(request: str, descriptor: int) -> NoReturn:
    """The entry of a fresh interpreter. A program as written gets an unchanged torch."""
    die_with_parent()
    wanted = load(request, TrialRequest)
    os.set_inheritable(descriptor, False)
    TRIAL.reporter = EventWriter(descriptor)
    if wanted.plan != AS_WRITTEN or _torch_bisector_state_exists():
        sys.meta_path.insert(0, _HooksAfterTorchImport(wanted.hooks))
    else:
        let_children_join(None)
    TRIAL.plan = wanted.plan
    if os.environ.get(overlay.VARIABLE):
        overlay.load_named()
    run_program_and_exit(wanted.program)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when the thread that started it ends: no trial outlives its search."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def _torch_bisector_state_exists() -> bool:
    """Whether torch's own bisector left its state in the cache folder. That would silently change the backend of each
    compile.
    """
    return Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR", ""), "bisect", "bisect_status.txt").is_file()


class _HooksAfterTorchImport(importlib.abc.MetaPathFinder):
    """Installs the hooks at the end of the program's own ``import torch``, so that variables that the program sets
    before it still count.
    """

    def __init__(self, hooks: Sequence[str]) -> None:
        self._hooks = hooks

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                install_hooks(self._hooks)
                TRIAL.start(TRIAL.plan)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # changes this one object only
        return spec


def become_trial(output: int, events: int) -> None:
    """Make this fork the process of a trial: with its own session, the file ``output`` and the pipe ``events``.

    The plan is not set here, because the hooks of a process that is already a trial must not start again.
    """
    os.setsid()
    die_with_parent()
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(output)
    TRIAL.reporter = EventWriter(events)


def run_program_and_exit(target: program.Program) -> NoReturn:
    """Run the program as the trial, then end as Python does: wait for its threads, and run its exit functions."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the supervisor ignores it
    code = run_and_report(lambda: program.run_program(target))
    threading._shutdown()  # type: ignore[attr-defined]  # what Python does at its end
    atexit._run_exitfuncs()
    _exit(code)


def run_and_exit(action: Callable[[], None]) -> NoReturn:
    """Run ``action`` as the trial, and end the process at once."""
    _exit(run_and_report(action))


def run_and_report(action: Callable[[], None]) -> int:
    """Run ``action``, report how it ended, and return its exit code."""
    try:
        action()
    except SystemExit as error:
        return _report_exit(error)
    except program.TargetError as error:
        TRIAL.send(TargetUnusable(str(error)))
        return 2
    except BaseException as error:  # noqa: BLE001 - any exception is the outcome of the trial
        return _report_exception(error)
    TRIAL.send(TrialEnded(None, run_facts()))
    return 0


def _report_exit(error: SystemExit) -> int:
    code = error.code
    if code is None or code == 0:
        TRIAL.send(TrialEnded(None, run_facts()))
        return 0
    number = (code if isinstance(code, int) else 1) & 0xFF
    message = f"exit code {number}" if isinstance(code, int) else f"exit code {number}: {code}"
    if not isinstance(code, int):
        print(code, file=sys.stderr)  # noqa: T201 - as Python does
    TRIAL.send(TrialEnded(Signature("exit", str(number), message), run_facts()))
    return number


def _report_exception(error: BaseException) -> int:
    signature = killed_rank(error) or signature_of(error, TRIAL.plan.rung)
    TRIAL.send(TrialEnded(signature, run_facts(), witness_of(error), tuple(user_lines(error))))
    _print_traceback(error)
    return 1


def _print_traceback(error: BaseException) -> None:
    """Print the traceback as Python does, without our frames."""
    trace: TracebackType | None = error.__traceback__
    here = Path(__file__).parent
    while trace is not None and Path(trace.tb_frame.f_code.co_filename).parent == here:
        trace = trace.tb_next
    try:
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    except Exception:  # noqa: BLE001 - the program's own excepthook may fail; the failure is reported already
        traceback.print_exc()


def _exit(code: int) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the program closed it, or nobody reads it
            stream.flush()
    os._exit(code)
