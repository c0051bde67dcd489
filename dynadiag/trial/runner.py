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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from dynadiag.trial import worker, zygote
from dynadiag.trial.abreast import abreast, room_for
from dynadiag.trial.ending import outcome_of
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import AS_WRITTEN, Plan
from dynadiag.trial.program import Program
from dynadiag.trial.server import Server
from dynadiag.trial.supervise import Limits, kill_session, tail, watch
from dynadiag.trial.workplace import Workplace, Workplaces, environment_of
from dynadiag.trial.writes import seen, written

__all__ = ["START_LIMIT", "Runner", "Started", "forked_trial"]

# Triton reads the variable when it is imported, so this rung needs processes of its own.
_INTERPRETED = ("dynadiag.trial.interpreted", {"TRITON_INTERPRET": "1"})
START_LIMIT = 120.0  # seconds for the zygote to load torch and warm up Inductor; 16 measured at most (empty cache)


@dataclass(slots=True)
class Runner:
    """Where and how the trials of one program run.

    ``hooks`` are modules with an ``install()``, which runs in the trial's process. Where no fork can be had, all trials
    run in fresh interpreters.
    """

    program: Program
    hooks: Sequence[str] = ()
    limits: Limits = field(default_factory=lambda: Limits.default(600.0))
    fresh_caches: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)  # added to the program's own
    alone: bool = False  # two trials at once could collide in the files that the program writes
    interpret: bool = True  # run the triton rung in Triton's interpreter; off where the program uses a GPU
    _threads: int = 1
    _zygote: Server | None = None
    _warming: Server | None = None
    _checkpoint: Server | None = None
    _graph: tuple[Plan, Server | None] | None = None  # the program stopped before Inductor, and its plan
    _interpreter: Runner | None = None
    _gave_up: bool = False  # forks showed another failure, or ended
    _places: Workplaces = field(default_factory=Workplaces)
    notes: list[str] = field(default_factory=list)

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_forks()
        self._places.remove()

    @property
    def scratch(self) -> Path:
        """A temporary folder, removed with the runner."""
        return self._places.folder

    def environment_in(self, scratch: Path) -> dict[str, str]:
        """The environment of a process whose temporary folder is ``scratch``."""
        return environment_of(scratch, self.environment, fresh_caches=self.fresh_caches)

    @property
    def threads(self) -> int:
        """The number of threads that trials run with."""
        return self._threads

    @property
    def forks(self) -> bool:
        """Whether trials can be forked at present."""
        return self._zygote is not None or self._checkpoint is not None

    def fresh(self, plan: Plan = AS_WRITTEN) -> Outcome:
        """One trial in a fresh interpreter, as `python FILE.py` would run it."""
        return _fresh_trial(self._for(plan), plan)

    def run(self, plan: Plan) -> Outcome:
        """One trial, in the quickest way that shows the same failure."""
        if (other := self._forking_for(plan)) is not self:
            return other.run(plan)
        server = self._at_graph(plan) or self._checkpoint or self._zygote
        if server is None:
            return self.fresh(plan)
        request = self._request() if server is self._zygote else {}
        try:
            return forked_trial(self, server, plan, request)
        except (ConnectionError, EOFError, TimeoutError) as error:
            if self._graph is not None and server is self._graph[1]:
                self._graph = (self._graph[0], None)
                server.stop()
                return self.run(plan)
            self.notes.append(
                f"the fork server of the trials is gone ({error}); later trials run in fresh interpreters"
            )
            self.stop_forks()
            return self.fresh(plan)

    def together(self, plans: Sequence[Plan]) -> list[Outcome]:
        """The outcomes of several plans, in their order: run in parallel where that is possible, else one after
        another.
        """
        other = self._forking_for(plans[0])
        if other is not self and all(self._for(plan) is other for plan in plans):
            return other.together(plans)
        try:
            if (room := self._room()) > 1 and (servers := self._side_by_side(plans)):
                return abreast(lambda server, plan: forked_trial(self, server, plan, {}), plans, servers, room)
        except (ConnectionError, EOFError, TimeoutError):
            pass  # a server is gone: `run` finds out which one, and goes on without it
        return [self.run(plan) for plan in plans]

    @property
    def abreast(self) -> bool:
        """Whether `run_many` runs more than one trial at a time."""
        return self._room() > 1

    def _room(self) -> int:
        """How many trials of the stopped program may run at once. None of them uses a GPU: such a program is never
        stopped.
        """
        return 1 if self.alone or self._checkpoint is None else room_for(self._checkpoint, self.limits.memory)

    def _side_by_side(self, plans: Sequence[Plan]) -> list[Server]:
        """The fork server of each plan; none where they cannot all be had at the same time."""
        graphs = {plan.before_inductor() for plan in plans} - {None}
        if self._checkpoint is None or len(graphs) > 1 or any(self._for(plan) is not self for plan in plans):
            return []
        return [self._at_graph(plan) or self._checkpoint for plan in plans]

    def _forking_for(self, plan: Plan) -> Runner:
        """The runner for a plan. Starts its forks where this runner has forks too."""
        if (other := self._for(plan)) is not self and not (other.forks or other._gave_up or self._gave_up):
            other.start_forks(self._threads, checkpoint=self._checkpoint is not None)
        return other

    def _for(self, plan: Plan) -> Runner:
        """The runner whose processes can run this plan: the triton rung needs processes with Triton's interpreter."""
        if plan.rung != "triton" or not self.interpret:
            return self
        if self._interpreter is None:
            hook, environment = _INTERPRETED
            other = Runner(self.program, (hook, *self.hooks), self.limits, self.fresh_caches, interpret=False)
            other.environment, other.notes = {**self.environment, **environment}, self.notes
            self._interpreter = other
        self._interpreter.limits = self.limits
        return self._interpreter

    @contextmanager
    def on(self, program: Program) -> Iterator[Runner]:
        """A runner for another program, with the same limits and the same zygote."""
        other = Runner(program, self.hooks, self.limits, self.fresh_caches, self.environment)
        other._zygote, other._threads = self._zygote, self._threads
        try:
            yield other
        finally:
            other._zygote = None
            other.__exit__(None, None, None)

    @contextmanager
    def started(self, plan: Plan, seed: int = 0) -> Iterator[Started]:
        """Start the program with this plan and one thread, for a caller that reads its events while it runs.

        ``seed`` seeds the random number generators, for a program that does not seed them itself.
        """
        with self._places.one() as place:
            if self._zygote is not None:
                with _forked_task(self, self._zygote, plan, place, seed) as (pid, ended, wait):
                    yield Started(pid, ended, place.reading, place.output, wait)
            else:
                process = _interpreter(self, plan, place, dict.fromkeys(zygote.OWN_ENVIRONMENT, "1"))
                ended = os.pidfd_open(process.pid)
                try:
                    yield Started(process.pid, ended, place.reading, place.output, process.wait)
                finally:
                    os.close(ended)
                    kill_session(process.pid)
                    process.wait()

    def warm_up(self) -> None:
        """Start the zygote without waiting for it: loading torch takes as long as a first run."""
        if self._warming is None and self._zygote is None:
            self._warming = _start_zygote(self)

    def start_forks(self, threads: int, checkpoint: bool = True) -> str | None:
        """Make the zygote ready, and stop the program at its first compiled call where that is possible.

        Returns the reason where trials cannot be forked from the stopped program, else ``None``.
        """
        self._threads = threads
        self.warm_up()
        server, self._warming = self._zygote or self._warming, None
        if server is None or (server is not self._zygote and not server.wait(START_LIMIT).get("ready")):
            if server is not None:
                server.stop()
            return "the fork server of the trials did not start"
        self._zygote = server
        return self._start_checkpoint() if checkpoint and self._checkpoint is None else None

    def stop_forks(self) -> None:
        """End all fork servers. Later trials run in fresh interpreters."""
        self._stop_at_graph()
        for server in (self._checkpoint, self._zygote, self._warming):
            if server is not None:
                server.stop()
        self._checkpoint = self._zygote = self._warming = None
        self._gave_up = True
        if self._interpreter is not None:
            self._interpreter.__exit__(None, None, None)
            self._interpreter = None

    def _at_graph(self, plan: Plan) -> Server | None:
        """The program stopped where its first graph reaches Inductor, for a plan that matters only from there on."""
        before = plan.before_inductor()
        if self._checkpoint is None or before is None:
            return None
        if self._graph is None or self._graph[0] != before:
            self._stop_at_graph()
            server = self._checkpoint.checkpoint(self.scratch, {}, before)
            ready = server.wait(self.limits.seconds).get("ready")
            if not ready:
                server.stop()
            self._graph = (before, server if ready else None)
        return self._graph[1]

    def _stop_at_graph(self) -> None:
        if self._graph is not None and self._graph[1] is not None:
            self._graph[1].stop()
        self._graph = None

    def drop_checkpoint(self) -> bool:
        """Stop forking from the middle of the program, where that shows something else. Returns whether it was done at
        all.
        """
        if self._checkpoint is None:
            return False
        self._stop_at_graph()
        self._checkpoint.stop()
        self._checkpoint = None
        return True

    def _request(self) -> dict[str, Any]:
        return {"program": self.program.to_json(), "cwd": str(Path.cwd()), "threads": self._threads}

    def _start_checkpoint(self) -> str | None:
        assert self._zygote is not None
        server = self._zygote.checkpoint(self.scratch, self._request(), AS_WRITTEN)
        answer = server.wait(self.limits.seconds)
        if answer.get("ready"):
            self._checkpoint = server
            return None
        server.stop()
        return str(answer.get("refused", "the program ended before it compiled anything"))


@dataclass(frozen=True, slots=True)
class Started:
    """A running process.

    ``ended`` is a descriptor that becomes readable when it ends, ``report`` the read end of its events, ``output`` the
    file that it prints into. ``wait`` returns its exit code once it has ended.
    """

    pid: int
    ended: int
    report: int
    output: int
    wait: Callable[[], int]


def _start_zygote(runner: Runner) -> Server:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = runner.environment_in(runner.scratch)
    own = dict.fromkeys(zygote.OWN_ENVIRONMENT, "1")
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
    return Server(ours, process.pid, process)


def _interpreter(runner: Runner, plan: Plan, place: Workplace, extra: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a fresh interpreter that runs the program."""
    report = place.writing.fileno()
    request = {"program": runner.program.to_json(), "plan": plan.to_json(), "hooks": list(runner.hooks)}
    process = subprocess.Popen(
        [sys.executable, "-c", worker.BOOT, json.dumps(request), str(report)],
        env=runner.environment_in(place.scratch) | extra,
        pass_fds=[report],
        stdin=subprocess.DEVNULL,
        stdout=place.output,
        stderr=place.output,
        start_new_session=True,
    )
    place.writing.close()
    return process


def _fresh_trial(runner: Runner, plan: Plan) -> Outcome:
    looked_at = functools.partial(seen, Path.cwd(), runner._places.not_the_programs(runner.environment))
    before = looked_at()
    with runner._places.one() as place:
        process = _interpreter(runner, plan, place, {})
        ended = os.pidfd_open(process.pid)
        try:
            watched = watch(process.pid, ended, place.reading, runner.limits, place.output)
        finally:
            os.close(ended)
            kill_session(process.pid)
            code = process.wait()
        outcome = outcome_of(watched, code, process.pid, plan, tail(place.output))
    return replace(outcome, facts={**(outcome.facts or {}), "writes": written(before, looked_at())})


@contextmanager
def _forked_task(
    runner: Runner, server: Server, plan: Plan, place: Workplace, seed: int
) -> Iterator[tuple[int, int, Callable[[], int]]]:
    """(pid, descriptor that becomes readable at its end, function that waits for its exit code) of a fork of the
    zygote.
    """
    pid = _ask(server, plan, place, {**runner._request(), "threads": 1, "seed": seed})
    wait = functools.cache(lambda: int(server.expect("ended")))
    try:
        yield pid, server.channel.fileno(), wait
    finally:
        kill_session(pid)
        wait()


def forked_trial(runner: Runner, server: Server, plan: Plan, request: dict[str, Any]) -> Outcome:
    """One trial in a fork of ``server``. Raises `OSError` or `EOFError` where the server is gone."""
    with runner._places.one() as place:
        pid = _ask(server, plan, place, request)
        try:
            watched = watch(pid, server.channel.fileno(), place.reading, runner.limits, place.output)
        except BaseException:
            kill_session(pid)
            raise
        code = int(server.expect("ended"))
        return outcome_of(watched, code, pid, plan, tail(place.output))


def _ask(server: Server, plan: Plan, place: Workplace, request: dict[str, Any]) -> int:
    """Ask ``server`` for a fork with this plan. Returns its process id."""
    message = {**request, "plan": plan.to_json(), "scratch": str(place.scratch)}
    zygote.send(server.channel, message, [place.output, place.writing.fileno()])
    place.writing.close()
    return int(server.expect("pid"))
