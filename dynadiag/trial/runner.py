"""Runs trials: fresh interpreters, forks of a zygote, forks of the program at its first compiled call."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from dynadiag.trial import worker, zygote
from dynadiag.trial.outcome import Outcome, Point
from dynadiag.trial.plan import AS_WRITTEN, Plan
from dynadiag.trial.program import Program, TargetError
from dynadiag.trial.signature import Signature
from dynadiag.trial.supervise import Limits, Watched, kill_session, tail, watch

__all__ = ["Runner"]

_START_LIMIT = 120.0  # seconds for a zygote to load torch and warm Inductor; 16 were the most seen (empty cache)


@dataclass(slots=True)
class Runner:
    """Where and how trials of one program run. ``hooks`` are modules with an ``install()`` for the trial's process.

    ``fork`` is given up (and fresh interpreters go on) as soon as a fork cannot be had.
    """

    program: Program
    hooks: Sequence[str] = ()
    limits: Limits = field(default_factory=lambda: Limits.default(600.0))
    fresh_caches: bool = False
    _threads: int = 1
    _zygote: _Server | None = None
    _warming: _Server | None = None
    _checkpoint: _Server | None = None
    _scratch: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="dynadiag-")))
    notes: list[str] = field(default_factory=list)

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_forks()
        shutil.rmtree(self._scratch, ignore_errors=True)

    @property
    def forks(self) -> bool:
        return self._zygote is not None or self._checkpoint is not None

    def fresh(self, plan: Plan = AS_WRITTEN) -> Outcome:
        """One trial in a fresh interpreter, as `python FILE.py` would run it."""
        return _fresh_trial(self, plan)

    def run(self, plan: Plan) -> Outcome:
        """One trial in whatever way is quickest and still shows the same failure."""
        server = self._checkpoint or self._zygote
        if server is None:
            return self.fresh(plan)
        request = {} if server is self._checkpoint else self._request()
        try:
            return _forked_trial(self, server, plan, request)
        except (ConnectionError, EOFError, TimeoutError) as error:
            self.notes.append(f"the process that forks trials is gone ({error}); fresh interpreters go on")
            self.stop_forks()
            return self.fresh(plan)

    def warm_up(self) -> None:
        """Starts the zygote and does not wait for it: loading torch takes as long as a first run."""
        if self._warming is None and self._zygote is None:
            self._warming = _start_zygote(self)

    def start_forks(self, threads: int, checkpoint: bool = True) -> str | None:
        """Has a zygote ready, and where possible a checkpoint. Returns why there is none, where there is none."""
        self._threads = threads
        self.warm_up()
        server, self._warming = self._warming, None
        if server is None or not server.wait(_START_LIMIT).get("ready"):
            if server is not None:
                server.stop()
            return "no process to fork trials from could be started"
        self._zygote = server
        return self._start_checkpoint() if checkpoint else None

    def stop_forks(self) -> None:
        for server in (self._checkpoint, self._zygote, self._warming):
            if server is not None:
                server.stop()
        self._checkpoint = self._zygote = self._warming = None

    def drop_checkpoint(self) -> bool:
        """Fork from before the program instead, where forking in its middle shows something else.

        Returns whether there was one to drop.
        """
        if self._checkpoint is None:
            return False
        self._checkpoint.stop()
        self._checkpoint = None
        return True

    def _request(self) -> dict[str, Any]:
        return {"program": self.program.to_json(), "cwd": str(Path.cwd()), "threads": self._threads}

    def _start_checkpoint(self) -> str | None:
        assert self._zygote is not None
        server = _Server.checkpoint(self._zygote, self._scratch, self._request())
        answer = server.wait(self.limits.seconds)
        if answer.get("ready"):
            self._checkpoint = server
            return None
        server.stop()
        return str(answer.get("refused", "the program ended before it compiled anything"))


@dataclass(slots=True)
class _Server:
    """A process that forks trials: the zygote, or the program stopped at its first compiled call."""

    channel: socket.socket
    leader: int
    process: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        self.channel.close()
        kill_session(self.leader)
        if self.process is not None:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(10)

    def wait(self, seconds: float) -> dict[str, Any]:
        self.channel.settimeout(seconds)
        try:
            return zygote.receive(self.channel)[0]
        except TimeoutError:
            return {}
        finally:
            self.channel.settimeout(None)

    def expect(self, key: str) -> Any:
        answer = zygote.receive(self.channel)[0]
        if key not in answer:
            raise EOFError("it ended unexpectedly")
        return answer[key]

    @classmethod
    def checkpoint(cls, parent: _Server, scratch: Path, request: dict[str, Any]) -> _Server:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        report = os.open(os.devnull, os.O_WRONLY)
        output = os.open(os.devnull, os.O_WRONLY)
        message = {**request, "plan": AS_WRITTEN.to_json(), "scratch": str(scratch), "checkpoint": True}
        zygote.send(parent.channel, message, [output, report, theirs.fileno()])
        theirs.close()
        os.close(report)
        os.close(output)
        return cls(ours, int(parent.expect("pid")))


def _environment(runner: Runner, scratch: Path) -> dict[str, str]:
    """The program's own environment, with what a trial adds: a mark, and a temporary folder of its own.

    Inductor's cache folder hangs off the temporary folder unless it is named; it stays where the program has it.
    """
    environment = {**os.environ, "DYNADIAG_TRIAL": "1", "TMPDIR": str(scratch)}
    environment.setdefault("TORCHINDUCTOR_CACHE_DIR", _default_cache())
    environment.pop("DYNADIAG_RECORD", None)
    if runner.fresh_caches:
        environment |= {
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
            "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_LOCAL_PGO": "0",
        }
    return environment


def _default_cache() -> str:
    import getpass
    import re

    user = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
    return str(Path(tempfile.gettempdir()) / f"torchinductor_{user}")


def _start_zygote(runner: Runner) -> _Server:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = _environment(runner, runner._scratch)
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
    return _Server(ours, process.pid, process)


@contextmanager
def _workplace(runner: Runner) -> Iterator[tuple[Path, int, int, int]]:
    """(scratch folder, output file, report's reading end, its writing end), gone afterwards."""
    scratch = Path(tempfile.mkdtemp(dir=runner._scratch))
    output = os.open(scratch.with_suffix(".out"), os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600)
    reading, writing = os.pipe()
    try:
        yield scratch, output, reading, writing
    finally:
        os.close(output)
        os.close(reading)
        with suppress(OSError):
            os.close(writing)
        scratch.with_suffix(".out").unlink(missing_ok=True)
        shutil.rmtree(scratch, ignore_errors=True)


def _fresh_trial(runner: Runner, plan: Plan) -> Outcome:
    with _workplace(runner) as (scratch, output, reading, writing):
        request = {"program": runner.program.to_json(), "plan": plan.to_json(), "hooks": list(runner.hooks)}
        process = subprocess.Popen(
            [sys.executable, "-c", worker.BOOT, json.dumps(request), str(writing)],
            env=_environment(runner, scratch),
            pass_fds=[writing],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        os.close(writing)
        ended = os.pidfd_open(process.pid)
        try:
            seen = watch(process.pid, ended, reading, runner.limits, output)
        finally:
            os.close(ended)
            kill_session(process.pid)
            code = process.wait()
        return _outcome(seen, code, process.pid, plan, tail(output))


def _forked_trial(runner: Runner, server: _Server, plan: Plan, request: dict[str, Any]) -> Outcome:
    with _workplace(runner) as (scratch, output, reading, writing):
        message = {**request, "plan": plan.to_json(), "scratch": str(scratch)}
        zygote.send(server.channel, message, [output, writing])
        os.close(writing)
        pid = int(server.expect("pid"))
        try:
            seen = watch(pid, server.channel.fileno(), reading, runner.limits, output)
        except BaseException:
            kill_session(pid)
            raise
        code = int(server.expect("ended"))
        return _outcome(seen, code, pid, plan, tail(output))


def _outcome(seen: Watched, code: int, pid: int, plan: Plan, printed: str) -> Outcome:
    """Puts together what the process reported and how it ended."""
    end = next((e for e in seen.events if e["event"] == "end"), {})
    unusable = next((str(e["message"]) for e in seen.events if e["event"] == "unusable"), None)
    if unusable is not None:
        raise TargetError(unusable)
    return Outcome(
        signature=_signature(seen, end, code, plan),
        seconds=seen.seconds,
        pid=pid,
        exit_code=code,
        invalid="out of memory" if seen.stopped == "memory" else None,
        witness=_witness(seen),
        lines=tuple((str(file), int(line)) for file, line in end.get("lines", ())),
        points=tuple(Point.from_json(e) for e in seen.events if e["event"] == "point"),
        facts=_merged_facts(seen, end),
        notes=_notes(seen, end, plan),
        tail=printed,
    )


def _witness(seen: Watched) -> tuple[str, ...]:
    """What the failure names: the node that was being lowered first, then what stands in its text."""
    nodes = [str(e["name"]) for e in seen.events if e["event"] == "witness"]
    told = [str(name) for e in seen.events for name in e.get("witness", ())]
    return tuple(dict.fromkeys([*nodes[:1], *told]))


def _merged_facts(seen: Watched, end: dict[str, Any]) -> dict[str, Any]:
    backends = [str(e["name"]) for e in seen.events if e["event"] == "backend"]
    facts = dict(end.get("facts") or {})
    return {**facts, "backends": [*facts.get("backends", ()), *backends]}


def _notes(seen: Watched, end: dict[str, Any], plan: Plan) -> tuple[str, ...]:
    notes = [str(e["text"]) for e in seen.events if e["event"] == "note"]
    if plan.accuracy and end.get("failure"):
        message = str(end["failure"]["message"]).strip().splitlines()
        notes.append(f"the program itself ended with {end['failure']['type']}: {''.join(message[:1])}")
    return tuple(notes)


def _signature(seen: Watched, end: dict[str, Any], code: int, plan: Plan) -> Signature | None:
    rung = plan.rung
    if seen.stopped == "hang":
        return Signature("hang", "timeout", "did not end in time", rung=rung)
    if seen.stopped == "memory":
        return Signature("memory", "memory", "used more memory than the machine has free", rung=rung)
    wrong = next((e for e in seen.events if e["event"] == "wrong"), None)
    if wrong is not None:
        return Signature.from_json({**wrong["failure"], "rung": rung})
    if code < 0:
        return Signature("signal", signal.Signals(-code).name, f"killed by {signal.Signals(-code).name}", rung=rung)
    if plan.accuracy and end:
        return None  # the program's own comparisons are reported, not obeyed
    if end.get("failure"):
        return Signature.from_json({**end["failure"], "rung": rung})
    if code != 0:
        return Signature("exit", str(code), f"exit code {code}", rung=rung)
    return None
