"""Runs the trials of a program in one of three ways: a fresh interpreter, a fork of the zygote, or a fork of the
program stopped at its first compiled call or graph.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dynadiag.trial import zygote
from dynadiag.trial.executors import FreshInterpreter, ServerFork, outcome_of
from dynadiag.trial.fork_server import ForkServer, parallel_forks, run_parallel
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import AS_WRITTEN, Plan
from dynadiag.trial.program import Program
from dynadiag.trial.sandbox import Sandboxes, changed_files, snapshot, trial_environment
from dynadiag.trial.supervise import Limits, RunningProcess
from dynadiag.trial.zygote import ForkRequest

# Triton reads the variable when it is imported, so this rung needs processes of its own.
_TRITON_INTERPRETER = ("dynadiag.trial.triton_interpreter", {"TRITON_INTERPRET": "1"})
START_TIMEOUT = 120.0  # seconds for the zygote to load torch and warm up Inductor; 16 measured at most (empty cache)


def default_jobs() -> int:
    """How many trials run side by side unless the user says otherwise: all cores but one, and two of two, where a
    search with one at a time takes twice as long.
    """
    cores = len(os.sched_getaffinity(0))
    return max(min(cores, 2), cores - 1)


@dataclass(slots=True)
class Runner:
    """Where and how the trials of one program run.

    ``hooks`` are modules with an ``install()``, which runs in the trial's process. If the program cannot be forked, all
    trials run in fresh interpreters.
    """

    program: Program
    hooks: Sequence[str] = ()
    limits: Limits = field(default_factory=lambda: Limits.default(600.0))
    fresh_caches: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)  # added to the program's own
    one_at_a_time: bool = False  # two trials at once could collide in the files that the program writes
    interpret: bool = True  # run the triton rung in Triton's interpreter; off where the program uses a GPU
    cwd: Path | None = None  # where the program runs; None for the current folder
    jobs: int = field(default_factory=default_jobs)  # how many trials may run side by side
    seed: int | None = None  # of a fork's random number generators; None gives each fork its own numbers
    threads: int = field(default=1, init=False)
    _zygote: ForkServer | None = None
    _shared_zygote: ForkServer | None = None  # of another runner, which ends it
    _warming: ForkServer | None = None
    _checkpoint: ForkServer | None = None
    _graph_checkpoint: tuple[Plan, ForkServer | None] | None = None  # the program stopped before Inductor, and its plan
    _triton_runner: Runner | None = None
    _forks_failed: bool = False  # forks showed another failure, or ended
    _sandboxes: Sandboxes = field(default_factory=Sandboxes)
    _started: dict[Plan, Future[Outcome]] = field(default_factory=dict)  # the trials of `start_fresh`
    _ending: ExitStack = field(default_factory=ExitStack)
    notes: list[str] = field(default_factory=list)

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *error: Any) -> None:
        self._ending.__exit__(*error)
        self.stop_forks()
        self._sandboxes.remove()

    @property
    def scratch(self) -> Path:
        """A temporary folder, removed with the runner."""
        return self._sandboxes.folder

    def environment_in(self, scratch: Path) -> dict[str, str]:
        """The environment of a process whose temporary folder is ``scratch``."""
        return trial_environment(scratch, self.environment, fresh_caches=self.fresh_caches)

    @property
    def has_forks(self) -> bool:
        return self._zygote is not None or self._checkpoint is not None

    def run_fresh(self, plan: Plan = AS_WRITTEN) -> Outcome:
        """One trial in a fresh interpreter, as `python FILE.py` would run it. The files it changes are a fact, unless
        `start_fresh` has started it.
        """
        if plan in self._started:
            return self._started.pop(plan).result()
        runner = self._runner_for(plan)
        files = functools.partial(snapshot, Path.cwd(), runner._sandboxes.own_folders(runner.environment))
        before = files()
        outcome = runner._interpreter().run(plan, runner.limits)
        return replace(outcome, facts=replace(outcome.facts, writes=tuple(changed_files(before, files()))))

    def start_fresh(self, plans: Sequence[Plan]) -> None:
        """Start trials in fresh interpreters. `run_fresh` waits for them; the end of this runner ends them."""
        pool = self._ending.enter_context(ThreadPoolExecutor(max(1, len(plans))))
        for plan in plans:
            running = self._ending.enter_context(self._interpreter().start(plan))
            self._started[plan] = pool.submit(outcome_of, running, plan, self.limits)

    def run(self, plan: Plan) -> Outcome:
        """Run one trial, in the fastest way that still shows the failure."""
        if (other := self._forking_runner_for(plan)) is not self:
            return other.run(plan)
        server = self._graph_server_for(plan) or self._checkpoint or self._zygote
        if server is None:
            return self.run_fresh(plan)
        try:
            return self._fork_of(server).run(plan, self.limits)
        except (ConnectionError, EOFError, TimeoutError) as error:
            if self._graph_checkpoint is not None and server is self._graph_checkpoint[1]:
                self._graph_checkpoint = (self._graph_checkpoint[0], None)
                server.stop()
                return self.run(plan)
            self.notes.append(
                f"the fork server of the trials is gone ({error}); later trials run in fresh interpreters"
            )
            self.stop_forks()
            return self.run_fresh(plan)

    def run_many(self, plans: Sequence[Plan]) -> list[Outcome]:
        """The outcomes of several plans, in their order. The trials run in parallel where that is possible."""
        other = self._forking_runner_for(plans[0])
        if other is not self and all(self._runner_for(plan) is other for plan in plans):
            return other.run_many(plans)
        try:
            if (room := self._max_parallel()) > 1 and (servers := self._servers_for(plans)):
                return run_parallel(
                    lambda server, plan: self._fork_of(server).run(plan, self.limits), plans, servers, room
                )
        except (ConnectionError, EOFError, TimeoutError):
            pass  # a server is gone: `run` finds out which one, and continues without it
        return [self.run(plan) for plan in plans]

    def run_programs(self, plan: Plan, places: Sequence[tuple[Program, Path]]) -> list[Outcome]:
        """The outcomes of programs, each in its folder, with one plan: in parallel where trials are forked."""
        if (zygote := self._zygote) is not None and (room := min(self.jobs, len(places))) > 1:
            with suppress(ConnectionError, EOFError, TimeoutError):  # it is gone: `run` notes it
                return run_parallel(
                    lambda server, place: self._fork_of(server, *place).run(plan, self.limits),
                    places,
                    [zygote] * len(places),
                    room,
                )
        outcomes = []
        for self.program, self.cwd in places:
            outcomes.append(self.run(plan))
        return outcomes

    def _interpreter(self, environment: Mapping[str, str] | None = None) -> FreshInterpreter:
        more = {**self.environment, **(environment or {})}
        return FreshInterpreter(self.program, self.hooks, self._sandboxes, more, self.fresh_caches, self.cwd)

    def _fork_of(self, server: ForkServer, program: Program | None = None, cwd: Path | None = None) -> ServerFork:
        """A fork for trials. The zygote and its replicas have to be told the program; the stopped program is one."""
        own = self._program_request() if program is not None or server is self._zygote else ForkRequest()
        request = replace(own, program=program, cwd=str(cwd)) if program is not None else own
        return ServerFork(server, self._sandboxes, request)

    @property
    def runs_in_parallel(self) -> bool:
        """Whether `run_many` runs more than one trial at a time."""
        return self._max_parallel() > 1

    def _max_parallel(self) -> int:
        """How many trials of the stopped program may run at once. Such a program does not use a GPU."""
        if self.one_at_a_time or self._checkpoint is None:
            return 1
        return parallel_forks(self._checkpoint.leader, self.limits.memory, self.jobs)

    def _servers_for(self, plans: Sequence[Plan]) -> list[ForkServer]:
        """The fork server of each plan; an empty list if they cannot all exist at the same time."""
        graphs = {plan.prefix_before_inductor() for plan in plans} - {None}
        if self._checkpoint is None or len(graphs) > 1 or any(self._runner_for(plan) is not self for plan in plans):
            return []
        return [self._graph_server_for(plan) or self._checkpoint for plan in plans]

    def _forking_runner_for(self, plan: Plan) -> Runner:
        """The runner for a plan. Starts its forks where this runner has forks too."""
        if (other := self._runner_for(plan)) is not self and not (
            other.has_forks or other._forks_failed or self._forks_failed
        ):
            other.start_forks(self.threads, checkpoint=self._checkpoint is not None)
        return other

    def _runner_for(self, plan: Plan) -> Runner:
        """The runner whose processes can run this plan: the triton rung needs processes with Triton's interpreter."""
        if plan.rung != "triton" or not self.interpret:
            return self
        if self._triton_runner is None:
            hook, environment = _TRITON_INTERPRETER
            other = Runner(
                self.program, (hook, *self.hooks), self.limits, self.fresh_caches, interpret=False, jobs=self.jobs
            )
            other.environment, other.notes = {**self.environment, **environment}, self.notes
            self._triton_runner = other
        self._triton_runner.limits = self.limits
        return self._triton_runner

    @contextmanager
    def for_program(self, program: Program, cwd: Path | None = None, imports: Sequence[str] = ()) -> Iterator[Runner]:
        """A runner for another program, in the folder ``cwd``, with the same limits and the same zygote.

        With ``imports`` it has a replica of the zygote that has run these import statements.
        """
        other = Runner(
            program,
            self.hooks,
            self.limits,
            self.fresh_caches,
            self.environment,
            cwd=cwd,
            jobs=self.jobs,
            seed=self.seed,
        )
        own = self._zygote.with_imports(imports) if imports and self._zygote is not None else None
        other._shared_zygote = None if own is not None else self._zygote
        other._zygote, other.threads = own or self._zygote, self.threads
        with other:
            yield other

    def start_process(self, plan: Plan, seed: int = 0) -> AbstractContextManager[RunningProcess]:
        """Start the program with this plan and one thread, for a caller that reads its events while it runs.

        ``seed`` seeds the random number generators, for a program that does not seed them itself.
        """
        if self._zygote is not None:
            request = replace(self._program_request(), threads=1, seed=seed)
            return ServerFork(self._zygote, self._sandboxes, request).start(plan)
        return self._interpreter(dict.fromkeys(zygote.ZYGOTE_VARIABLES, "1")).start(plan)

    def warm_up(self) -> None:
        """Start the zygote without waiting for it: loading torch takes as long as a first run."""
        if self._warming is None and self._zygote is None:
            self._warming = _start_zygote(self)

    def start_forks(self, threads: int, checkpoint: bool = True) -> str | None:
        """Make the zygote ready, and stop the program at its first compiled call where that is possible.

        Returns the reason where trials cannot be forked from the stopped program, else ``None``.
        """
        self.threads = threads
        self.warm_up()
        server, self._warming = self._zygote or self._warming, None
        if server is None or (server is not self._zygote and not server.wait_until_ready(START_TIMEOUT).ready):
            if server is not None:
                server.stop()
            return "the fork server of the trials did not start"
        self._zygote = server
        return self._start_checkpoint() if checkpoint and self._checkpoint is None else None

    def stop_forks(self) -> None:
        """End all fork servers. Later trials run in fresh interpreters."""
        self._stop_graph_server()
        for server in (self._checkpoint, self._zygote, self._warming):
            if server is not None and server is not self._shared_zygote:
                server.stop()
        self._checkpoint = self._zygote = self._warming = None
        self._forks_failed = True
        if self._triton_runner is not None:
            self._triton_runner.__exit__(None, None, None)
            self._triton_runner = None

    def _graph_server_for(self, plan: Plan) -> ForkServer | None:
        """The program stopped where its first graph reaches Inductor, for a plan that takes effect only there and
        later.
        """
        before = plan.prefix_before_inductor()
        if self._checkpoint is None or before is None:
            return None
        if self._graph_checkpoint is None or self._graph_checkpoint[0] != before:
            self._stop_graph_server()
            server = self._checkpoint.checkpoint(ForkRequest(before, str(self.scratch)))
            ready = server.wait_until_ready(self.limits.seconds).ready
            if not ready:
                server.stop()
            self._graph_checkpoint = (before, server if ready else None)
        return self._graph_checkpoint[1]

    def _stop_graph_server(self) -> None:
        if self._graph_checkpoint is not None and self._graph_checkpoint[1] is not None:
            self._graph_checkpoint[1].stop()
        self._graph_checkpoint = None

    def drop_checkpoint(self) -> bool:
        """Stop forking from the middle of the program, because such forks show another failure. Returns whether they
        were used.
        """
        if self._checkpoint is None:
            return False
        self._stop_graph_server()
        self._checkpoint.stop()
        self._checkpoint = None
        return True

    def _program_request(self) -> ForkRequest:
        cwd = str(self.cwd or Path.cwd())
        return ForkRequest(program=self.program, cwd=cwd, threads=self.threads, seed=self.seed)

    def _start_checkpoint(self) -> str | None:
        assert self._zygote is not None
        server = self._zygote.checkpoint(replace(self._program_request(), scratch=str(self.scratch)))
        reply = server.wait_until_ready(self.limits.seconds)
        if reply.ready:
            self._checkpoint = server
            return None
        server.stop()
        return reply.refused or "the program ended before it compiled anything"


def _start_zygote(runner: Runner) -> ForkServer:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = runner.environment_in(runner.scratch)
    own = dict.fromkeys(zygote.ZYGOTE_VARIABLES, "1")
    before = {name: os.environ.get(name) for name in own}
    settings = {"hooks": list(runner.hooks), "environment": before}
    process = subprocess.Popen(
        [sys.executable, "-c", zygote.BOOT, str(theirs.fileno()), json.dumps(settings)],
        env=environment | own,
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    theirs.close()
    return ForkServer(ours, process.pid, process)
