"""The process of one variant, seen from its parent: it starts once, answers requests, has time and memory limits."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dynadiag.capture.settings import Settings
from dynadiag.compare.variant import EAGER, Variant
from dynadiag.compare.variant_worker import BOOT, VariantRequest
from dynadiag.recording.journal import Journal
from dynadiag.recording.records import UNCOMPILED_NOTE
from dynadiag.trial.events import parse_lines
from dynadiag.trial.program import Program, TargetError
from dynadiag.trial.signature import Signature
from dynadiag.trial.supervise import Limits, exceeded_limit, kill_session, read_tail
from dynadiag.trial.typed_json import dump, typed

_POLL = 0.1  # seconds between looks at the clock
_EXIT_TIMEOUT = 10.0  # seconds that a process gets to exit by itself, so that its recording is complete


class VariantFailedError(Exception):
    """The variant raised, crashed, hung or took too much memory. Its process has ended."""

    def __init__(self, signature: Signature) -> None:
        super().__init__(signature.message)
        self.signature = signature


class VariantProcess:
    """A variant's process. It writes a recording, which also gets the process's output when it ends.

    ``limits.seconds`` applies to each request.
    """

    def __init__(
        self,
        program: Program,
        variant: Variant,
        recording: Path,
        limits: Limits,
        environment: Mapping[str, str],
    ) -> None:
        self.recording = recording
        self._limits, self._variant = limits, variant
        self._target = program.text
        self._output = os.open(recording.with_suffix(".out"), os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_TRUNC, 0o600)
        recording.with_suffix(".out").unlink()
        self._began = time.time()
        requests, self._requests = os.pipe()
        self._replies, replies = os.pipe()
        settings = Settings(target=self._target, journal=str(recording), parent=os.getpid())
        request = dump(VariantRequest(program, variant))
        self._process = subprocess.Popen(
            [sys.executable, "-c", BOOT, request, str(requests), str(replies)],
            env={**environment, **settings.environment(str(recording.parent))},
            pass_fds=[requests, replies],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
        )
        os.close(requests)
        os.close(replies)
        self._buffer = bytearray()
        self._events: list[tuple[str, dict[str, Any]]] = []

    def add_event(self, kind: str, data: dict[str, Any]) -> None:
        """Add an event to the recording when the process has ended. ``data`` is its payload."""
        self._events.append((kind, data))

    def request(self, kind: str, **arguments: Any) -> dict[str, Any]:
        """Send a request and return the reply.

        Raises `VariantFailedError` if the variant fails, and `TargetError` if the target provides no call.
        """
        with suppress(BrokenPipeError):  # the process has ended: `_reply` finds out how
            os.write(self._requests, (json.dumps({"do": kind, **arguments}) + "\n").encode())
        try:
            reply = self._reply()
        except VariantFailedError as failed:
            self.kill(failed.signature.message)
            raise
        except BaseException:
            self.kill("the comparison was interrupted")
            raise
        if reply["event"] == "done":
            return reply
        self.end()
        if reply["event"] == "unusable":
            raise TargetError(str(reply["message"]))
        raise VariantFailedError(typed(reply["failure"], Signature))

    def end(self) -> None:
        """Let the process exit, then kill what remains of its session."""
        if self._process.returncode is None:
            self._close(self._requests)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_EXIT_TIMEOUT)
            self.kill(f"it had not exited {_EXIT_TIMEOUT:g} s after its last measurement")

    def kill(self, why: str) -> None:
        """Kill the process at once. The recording stays, with the exit code, or with why we ended it."""
        code = self._process.poll()
        kill_session(self._process.pid)
        if self._output >= 0:
            self._process.wait()
            self._record_end(code, why)
            for descriptor in (self._requests, self._replies, self._output):
                self._close(descriptor)
            self._output = -1

    def _reply(self) -> dict[str, Any]:
        """Wait for a reply. Raises `VariantFailedError` if the process ends or exceeds a limit."""
        start = time.monotonic()
        poll = 0
        while True:
            readable, _, _ = select.select([self._replies], [], [], _POLL)
            if readable:
                chunk = os.read(self._replies, 1 << 16)
                self._buffer += chunk
                if not chunk:
                    raise self._failure_at_end()
                if self._buffer.endswith(b"\n"):
                    found = list(parse_lines(bytes(self._buffer)))
                    self._buffer.clear()
                    return found[-1]
            self._check(time.monotonic() - start, poll)
            poll += 1

    def _check(self, seconds: float, poll: int) -> None:
        reason = exceeded_limit(self._process.pid, self._limits, seconds, poll)
        if reason == "hang":
            message = f"did not finish in {self._limits.seconds:g} s (--timeout)"
            raise VariantFailedError(Signature("hang", "timeout", message))
        if reason == "memory":
            raise VariantFailedError(Signature("memory", "memory", "used more memory than the machine has free"))

    def _failure_at_end(self) -> VariantFailedError:
        """The failure of a process that closed the pipe without a reply: it crashed, or the program called exit."""
        code = self._process.wait()
        if code >= 0:
            return VariantFailedError(Signature("exit", str(code), f"exited with code {code}"))
        name, last_lines = signal.Signals(-code).name, " ".join(read_tail(self._output).split("\n")[-2:]).strip()
        message = f"killed by {name}" + (f": {last_lines}" if last_lines else "")
        return VariantFailedError(Signature("signal", name, message))

    def _record_end(self, code: int | None, why: str) -> None:
        """Add to the recording what the program printed, and its exit code; without one, why we ended it."""
        if not self.recording.exists():  # it ended before `import torch` was done
            return
        journal = Journal.reopen(self.recording)
        for kind, data in self._events:
            journal.append({kind: {}}, json.dumps(data))
        journal.append({"dynadiag_output": {}}, read_tail(self._output))
        seconds = time.time() - self._began
        notes = [UNCOMPILED_NOTE] if self._variant.mode == EAGER and not self._variant.compiles else []
        notes += [f"dynadiag ended the process: {why}"] if code is None else []
        journal.append({"dynadiag_exit": {"code": code, "seconds": seconds, "notes": notes}})
        journal.close()

    @staticmethod
    def _close(descriptor: int) -> None:
        with suppress(OSError):
            os.close(descriptor)
