"""Runs trials of a call in forks of this process, so that its function and arguments need no file and no pickle.

This process forks once. That fork, with our hooks and one thread, is the fork server of the trials. So a function from
a notebook, a closure, or a model that took an hour to load can be tried as it is, and a trial leaves no trace here. The
price is the threads: a process that has run a parallel region cannot use its thread pool after a fork, so trials run
with one thread.
"""

from __future__ import annotations

import faulthandler
import functools
import os
import socket
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from dynadiag.errors import DynadiagError
from dynadiag.trial import process, zygote
from dynadiag.trial.child_processes import install_hooks
from dynadiag.trial.executors import ServerFork
from dynadiag.trial.fork_server import ForkServer
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import AS_WRITTEN, Plan
from dynadiag.trial.program import Program
from dynadiag.trial.runner import START_TIMEOUT, Runner
from dynadiag.trial.supervise import Limits


@dataclass(slots=True, kw_only=True)
class InProcessRunner(Runner):
    """Runs trials of ``call``, each in a fork of this process, the first one too."""

    call: Callable[[], None]

    @classmethod
    def of(
        cls,
        fn: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        hooks: Sequence[str],
        limits: Limits,
    ) -> InProcessRunner:
        """A runner whose trials compile ``fn`` and call it. A callable that is compiled already is called as it is."""
        name = str(getattr(fn, "__qualname__", None) or type(fn).__qualname__)
        call = functools.partial(_compile_and_call, fn, tuple(args), dict(kwargs))
        return cls(Program(name), hooks, limits, call=call)

    def run_fresh(self, plan: Plan = AS_WRITTEN) -> Outcome:
        """The same as `run`, because a fresh interpreter does not have this call."""
        return self.run(plan)

    def run(self, plan: Plan) -> Outcome:
        """One trial in a fork of this process. Raises `DynadiagError` if this process cannot be forked."""
        if self._zygote is None:
            self._zygote = self._fork()
        try:
            return ServerFork(self._zygote, self._sandboxes).run(plan, self.limits)
        except (ConnectionError, EOFError) as error:
            raise DynadiagError(f"{self.program.text}: the fork server of the trials is gone ({error})") from error

    def warm_up(self) -> None:
        """Does nothing: torch is loaded in this process."""

    def start_forks(self, threads: int, checkpoint: bool = True) -> str | None:
        """Does nothing: every trial is a fork of this process."""
        del threads, checkpoint
        return None

    def stop_forks(self) -> None:
        """Does nothing: there is no other way to run these trials. Leaving the context stops them."""

    def __exit__(self, *error: Any) -> None:
        server, self._zygote = self._zygote, None
        if server is not None:
            server.stop()
            with suppress(ChildProcessError):  # the program has reaped it already
                os.waitpid(server.leader, 0)
        self._sandboxes.remove()

    def _fork(self) -> ForkServer:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = self.environment_in(self.scratch)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forking with threads
            pid = os.fork()
        if pid == 0:
            ours.close()
            _fork_server(theirs, self.call, self.hooks, environment)
        theirs.close()
        server = ForkServer(ours, pid)
        if not server.wait_until_ready(START_TIMEOUT).ready:
            server.stop()
            os.waitpid(pid, 0)
            raise DynadiagError(
                f"{self.program.text}: a fork of this process hangs, probably because its threads hold locks. "
                "Put the call into a file and use: dynadiag bisect FILE.py:NAME"
            )
        return server


def _fork_server(
    channel: socket.socket, call: Callable[[], None], hooks: Sequence[str], env: Mapping[str, str]
) -> NoReturn:
    """The fork server's process. `zygote.serve_forks` returns only in its forks, which are the trials."""
    try:
        os.setsid()
        process.die_with_parent()
        _redirect_streams()
        os.environ.update(env)
        _use_one_thread()
        install_hooks(hooks)
        zygote.send(channel, zygote.ForkReply(ready=True))
        zygote.start_trial(*zygote.serve_forks(channel))
        process.run_and_exit(call)
    except BaseException:  # noqa: BLE001 - a fork of the user's process must end here in any case
        os._exit(1)


def _redirect_streams() -> None:
    """Send prints to the descriptors 1 and 2, whatever replaced the streams (a notebook, pytest)."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    sys.stdout, sys.stderr = (open(d, "w", buffering=1, errors="replace", closefd=False) for d in (1, 2))  # noqa: SIM115
    if faulthandler.is_enabled():
        faulthandler.enable(sys.stderr)


def _compile_and_call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    import torch

    from dynadiag.torch_private.capture import is_compiled
    from dynadiag.torch_private.trial import rewrap
    from dynadiag.trial.rungs import at_planned_rung

    compiled = rewrap(fn, at_planned_rung) if is_compiled(fn) else torch.compile(fn)
    compiled(*args, **kwargs)


def _use_one_thread() -> None:
    import torch

    from dynadiag.torch_private import trial as torch_private

    torch.set_num_threads(1)
    torch_private.compile_in_this_process()
    torch_private.reset()
