"""The ways to run a trial: in a fresh interpreter, in a fork of a fork server, or in a fork of this very process.

Each starts a process in its own session with its own output and events. Supervising it and building its outcome are the
same for all of them.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from dynadiag.trial import process, zygote
from dynadiag.trial.context import TRIAL
from dynadiag.trial.fork_server import ForkServer
from dynadiag.trial.outcome import Outcome, build_outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.program import Program
from dynadiag.trial.sandbox import Sandboxes, trial_environment
from dynadiag.trial.supervise import Limits, RunningProcess, kill_descendants, kill_session, read_tail, supervise
from dynadiag.trial.typed_json import dump
from dynadiag.trial.zygote import ForkRequest


class Executor(ABC):
    """One way to run trials."""

    __slots__ = ()

    @abstractmethod
    def start(self, plan: Plan) -> AbstractContextManager[RunningProcess]:
        """Start the process of a trial. Leaving the context ends it with everything that it started."""

    def run(self, plan: Plan, limits: Limits) -> Outcome:
        with self.start(plan) as running:
            return outcome_of(running, plan, limits)


def run_side_by_side(executors: Sequence[Executor], plan: Plan, limits: Limits) -> list[Outcome]:
    """The outcomes of one trial of each. All are started before a thread begins: forks of threads are not safe."""
    with ThreadPoolExecutor(len(executors)) as pool, ExitStack() as trials:
        running = [trials.enter_context(executor.start(plan)) for executor in executors]
        return list(pool.map(lambda process: outcome_of(process, plan, limits), running))


def outcome_of(running: RunningProcess, plan: Plan, limits: Limits) -> Outcome:
    """Wait for a trial that has started. It may run in another thread than the one that started it."""
    result = supervise(running, limits)
    return build_outcome(result, running.wait(), running.pid, plan, read_tail(running.output, limits.output))


@dataclass(frozen=True, slots=True)
class FreshInterpreter(Executor):
    """A new Python that runs the program as `python FILE.py` would.

    ``environment`` is added to the program's own, ``hooks`` are names of modules with an ``install()``. ``cwd`` is the
    program's folder, ``None`` for the current one. ``interpreter`` is the Python to start, ``None`` for our own.
    """

    program: Program
    hooks: Sequence[str]
    sandboxes: Sandboxes
    environment: Mapping[str, str] = field(default_factory=dict)
    fresh_caches: bool = False
    cwd: Path | None = None
    interpreter: Path | None = None

    @contextmanager
    def start(self, plan: Plan) -> Iterator[RunningProcess]:
        request = process.TrialRequest(self.program, plan, tuple(self.hooks))
        with self.sandboxes.create() as sandbox:
            events = sandbox.writing.fileno()
            popen = subprocess.Popen(
                [self.interpreter or sys.executable, "-c", process.BOOT, dump(request), str(events)],
                env=trial_environment(sandbox.scratch, self.environment, fresh_caches=self.fresh_caches),
                cwd=self.cwd,
                pass_fds=[events],
                stdin=subprocess.DEVNULL,
                stdout=sandbox.output,
                stderr=sandbox.output,
                start_new_session=True,
            )
            sandbox.writing.close()
            with _running(popen.pid, sandbox.reading, sandbox.output, popen.wait) as running:
                yield running


@dataclass(frozen=True, slots=True)
class ServerFork(Executor):
    """A fork of a fork server: of the zygote, which then runs the program, or of the stopped program, which continues.

    ``request`` tells the zygote the program. Starting raises `OSError` or `EOFError` where the server is gone.
    """

    server: ForkServer
    sandboxes: Sandboxes
    request: ForkRequest = field(default_factory=ForkRequest)

    @contextmanager
    def start(self, plan: Plan) -> Iterator[RunningProcess]:
        with self.sandboxes.create() as sandbox:
            request = replace(self.request, plan=plan, scratch=str(sandbox.scratch))
            zygote.send(self.server.channel, request, [sandbox.output, sandbox.writing.fileno()])
            sandbox.writing.close()
            pid = self.server.expect_pid()
            wait = functools.cache(self.server.expect_exit_code)
            try:
                yield RunningProcess(pid, self.server.channel.fileno(), sandbox.reading, sandbox.output, wait)
            except BaseException:
                kill_descendants(pid)
                raise
            finally:
                with suppress(OSError, EOFError):  # the server is gone: `run` has raised that already
                    wait()


@dataclass(frozen=True, slots=True)
class LocalFork(Executor):
    """A fork of this process that runs ``action``, so that the action works on what is in memory here.

    A crash, a hang or a memory leak of the action does not affect this process. The process must have one thread, and
    must never have run a parallel region. The action sets the thread count that it wants.
    """

    action: Callable[[], None]

    @contextmanager
    def start(self, plan: Plan) -> Iterator[RunningProcess]:
        output, name = tempfile.mkstemp(prefix="dynadiag-", suffix=".out")
        Path(name).unlink()
        reading, writing = os.pipe()
        try:
            pid = os.fork()
            if pid == 0:
                os.close(reading)
                process.become_trial(output, writing)
                TRIAL.plan = plan
                process.run_and_exit(self.action)
            os.close(writing)
            wait = functools.cache(lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            with _running(pid, reading, output, wait) as running:
                yield running
        finally:
            os.close(output)
            os.close(reading)


@contextmanager
def _running(pid: int, events: int, output: int, wait: Callable[[], int]) -> Iterator[RunningProcess]:
    """A child process of this one. It is killed and reaped at the end."""
    ended = os.pidfd_open(pid)
    try:
        yield RunningProcess(pid, ended, events, output, wait)
    except BaseException:
        kill_descendants(pid)
        raise
    finally:
        os.close(ended)
        kill_session(pid)
        wait()
