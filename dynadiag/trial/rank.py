"""A rank of a distributed job in a trial whose program is the launcher: says which exception ends it.

A launcher, such as ``torchrun``, knows the exit codes of its ranks and nothing of why they failed.
"""

from __future__ import annotations

import atexit
import functools
import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from dynadiag.capture.run_metadata import ending_exception, exit_codes_of_ranks, job_place
from dynadiag.torch_private import spawned_ranks
from dynadiag.trial.context import TRIAL
from dynadiag.trial.events import LaunchedJob, RankEnded, RankFailed, run_facts
from dynadiag.trial.program import Program
from dynadiag.trial.rank_stacks import answer_with_stack
from dynadiag.trial.signature import Signature, signature_of, user_lines, witness_of


def report_exceptions() -> None:
    """Report the end of this process and the exception that leads to it, if it is a rank; that is printed as before."""
    rank = this_rank()
    if rank is None:
        return
    TRIAL.rank = rank
    TRIAL.send(answer_with_stack(rank, _job()))
    before = sys.excepthook

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        _report_failure(error, rank)
        before(kind, error, trace)

    sys.excepthook = report
    atexit.register(_report_end)


def _report_failure(error: BaseException, rank: int) -> None:
    failure = replace(signature_of(error, TRIAL.plan.rung), rank=rank)
    TRIAL.send(RankFailed(failure, run_facts(), witness_of(error), tuple(user_lines(error))))


def _job() -> LaunchedJob | None:
    """The job of this rank, as far as the environment and the main module tell."""
    size, main = job_place(os.environ).get("world_size"), sys.modules["__main__"]
    file, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if not isinstance(size, int) or file is None:
        return None
    name = spec.name.removesuffix(".__main__") if spec is not None else str(Path(file).absolute())
    return LaunchedJob(Program(name, tuple(sys.argv[1:]), module=spec is not None), size)


@functools.cache  # once per process
def report_spawned_ranks() -> None:
    """Have ranks that `multiprocessing` starts, as ``torch.multiprocessing.spawn`` does, report what ends them.

    The process that started them gets the exception as text only. A child of `multiprocessing` does not call
    ``sys.excepthook``, but it runs finalizers. A fork drops those of its parent, so it registers its own.
    """
    from multiprocessing import util

    spawned_ranks.keep_exit()

    def begin_fork(_: object) -> None:
        if TRIAL.reporter is not None:
            TRIAL.reporter = TRIAL.reporter.reopened()
        util.Finalize(None, _report_spawned_rank, exitpriority=0)

    util.register_after_fork(report_spawned_ranks, begin_fork)
    util.Finalize(None, _report_spawned_rank, exitpriority=0)


def _report_spawned_rank() -> None:
    from multiprocessing import parent_process

    error, rank = ending_exception(), this_rank()
    if parent_process() is not None and error is not None and rank is not None:
        with suppress(OSError):  # the supervisor has ended
            _report_failure(error, rank)


def _report_end() -> None:
    with suppress(OSError):  # the supervisor has ended
        TRIAL.send(RankEnded(run_facts()))


def this_rank() -> int | None:
    """The rank of this process, if it is part of a distributed job: by its environment, else by its process group."""
    rank = job_place(os.environ).get("rank")
    if isinstance(rank, int):
        return rank
    distributed = sys.modules.get("torch.distributed")
    joined = distributed is not None and distributed.is_available() and distributed.is_initialized()
    return int(distributed.get_rank()) if distributed is not None and joined else None


def killed_rank(error: BaseException) -> Signature | None:
    """Return the failure of the first rank that a signal ended, read from the exception of its launcher.

    The launcher is ``torchrun`` or ``torch.multiprocessing``. ``torchrun`` ends the other ranks by SIGTERM.
    """
    codes = dict(sorted(exit_codes_of_ranks(error).items()))
    if isinstance(index := getattr(error, "error_index", None), int):
        codes[index] = getattr(error, "exit_code", 0)
    for rank, code in codes.items():
        if code < 0 and -code != signal.SIGTERM:
            name = signal.Signals(-code).name
            return Signature("signal", name, f"killed by {name}", rank=rank)
    return None
