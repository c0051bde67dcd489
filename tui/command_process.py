"""Runs a command of dynadiag for the browser, in a process of its own.

A recording may come from a stranger, and most commands run the program that it names, or its generated code. So the
user first sees the command and its folder, and must confirm.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dynadiag.errors import DynadiagError
from dynadiag.recording.journal import SUFFIX
from dynadiag.recording.opening import has_recordings
from dynadiag.recording.records import Run
from dynadiag.render.paths import relative_path

SEARCH = "search"  # the slot of bisections and minifications

_DYNADIAG = (sys.executable, "-m", "dynadiag")
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_WITH_DOCUMENT = ("diff",)  # the commands whose JSON the browser reads
_WITHOUT_PROGRAM = ("kernels", "report", "diff")  # the commands that run no program
_INTERRUPTED = 130  # exit code of an interrupted search
_NOT_STARTED = 127  # exit code of a command that could not be started, as a shell gives it
_SAVE_SECONDS = 20.0  # that a search may take to keep its trials; a second interrupt before would end it at once
# Seconds that a command may take to stop when the browser quits, after each interrupt: a program that ignores
# interrupts is killed at the third one.
_SHUTDOWN_TIMEOUTS = (_SAVE_SECONDS, 1.0, 1.0)
_MAX_MESSAGES = 200  # lines of stderr kept
_LAST_WORDS_SECONDS = 5.0  # to read what is left of its output after its end
_MAX_LINE_BYTES = 16 << 20  # bytes of one line of output
_MAX_REPORT_LINES = 2000  # lines of stdout kept


@dataclass(frozen=True, slots=True)
class Command:
    """A command to run, and its folder."""

    kind: str  # the command's name: "bisect", "fix", ...
    argv: tuple[str, ...]
    folder: Path
    options: tuple[str, ...] = ()  # its options; the command contains them too
    resume: Path | None = None  # the recording of the search to resume
    output: Path | None = None  # the recording that it writes, known before it ends

    @property
    def slot(self) -> str:
        """Of what one runs at a time: a command of its kind, and of bisections and minifications one."""
        return SEARCH if self.kind in ("bisect", "minify") else self.kind

    @property
    def text(self) -> str:
        return shlex.join(["dynadiag", *self.argv[3:]])

    @property
    def brief(self) -> str:
        """The command with paths relative to its folder."""
        words = [relative_path(word, str(self.folder)) if word.startswith("/") else word for word in self.argv[3:]]
        return shlex.join(["dynadiag", *words])


def program_command(
    kind: str, run: Run, options: tuple[str, ...] = (), resume: Path | None = None, output: Path | None = None
) -> Command:
    """Return the command that runs the recorded program, or that resumes the search in `resume`.

    Raises `DynadiagError` if the program is not on this machine.
    """
    folder = Path(run.cwd or ".")
    if not folder.is_dir():
        raise DynadiagError(f"{folder}: the program's folder does not exist here")
    words = _target(run.target, folder)
    if words is None:
        name = run.target or "the recording"
        raise DynadiagError(f"{name}: this program does not exist here; run `dynadiag {kind}` on it yourself")
    again = ("--resume", str(resume.absolute())) if resume is not None else ()
    option = "--recording" if kind == "minify" else "-o"
    written = (option, str(output.absolute())) if output is not None else ()
    argv = (*_DYNADIAG, kind, *options, *again, *written, *words, *run.argv[1:])
    return Command(kind, argv, folder, options, resume, output)


def recording_command(kind: str, recording: Path, *words: str | Path) -> Command:
    """Return a command that takes a recording, after these words. It runs in the recording's folder."""
    path = recording.absolute()
    return Command(kind, (*_DYNADIAG, kind, *map(str, words), str(path)), path.parent)


def _target(target: str, folder: Path) -> list[str] | None:
    """Return the target of the command line, or ``None`` if no such program exists here."""
    module = target.removeprefix("-m ")
    place, colon, name = target.rpartition(":")
    if target.startswith("-m ") and _MODULE.fullmatch(module):
        return ["-m", module]
    if colon and name.isidentifier() and (_MODULE.fullmatch(place) or _is_program(folder / place)):
        return [target]
    return [target] if _is_program(folder / target) else None


def _is_program(path: Path) -> bool:
    return path.suffix == ".py" and path.is_file() and not path.name.startswith("-")


@dataclass(slots=True, eq=False)
class CommandProcess:
    """A command that runs or has run, started on the recording ``subject``.

    It calls ``on_change`` whenever there is something new.

    Its report is as wide as ``columns``, where they are given and no program would see them in its environment.
    """

    command: Command
    subject: Path
    on_change: Callable[[], None]
    columns: int | None = None
    messages: deque[str] = field(default_factory=lambda: deque(maxlen=_MAX_MESSAGES))
    report: deque[str] = field(default_factory=lambda: deque(maxlen=_MAX_REPORT_LINES))  # what it printed last
    document: dict[str, Any] = field(default_factory=dict)  # its JSON, once written
    exit_code: int | None = None  # the exit code, once known
    finished: bool = False  # it has ended and its document has been read
    started: float = field(default_factory=time.monotonic)
    _process: asyncio.subprocess.Process | None = None
    _interrupted: float | None = None  # when it was interrupted last, as `time.monotonic` tells

    @property
    def running(self) -> bool:
        return self._process is not None and self.exit_code is None

    @property
    def stopping(self) -> bool:
        """Whether it was interrupted and has not ended."""
        return self._interrupted is not None and not self.finished

    @property
    def stopped(self) -> bool:
        """Whether the command was interrupted. A search can then be resumed."""
        return self.exit_code == _INTERRUPTED

    @property
    def recording(self) -> Path | None:
        """The recording that it writes, or the folder with recordings; ``None`` until there is one.

        If the command line does not name it, the last line on stderr does.
        """
        path = self.command.output or self.command.resume
        if path is None and self.messages and self.exit_code is not None:
            path = Path(self.messages[-1])
        return path if path and ((path.suffix == SUFFIX and path.is_file()) or has_recordings(path)) else None

    def belongs_to(self, recording: Path) -> bool:
        """Whether it was started on this recording, or writes it. A search that goes on with one writes that."""
        written = (self.command.output, None if self.finished else self.command.resume)
        return recording == self.subject or any(path is not None and path.resolve() == recording for path in written)

    async def run(self) -> None:
        """Run the command until it ends or `stop` is called."""
        with tempfile.TemporaryDirectory(prefix="dynadiag-") as scratch:
            document = Path(scratch, "document.json")
            try:
                await self._run(document)
            except OSError as error:  # its folder is gone, or there is no room for another process
                self.messages.append(f"{self.command.folder}: {error.strerror}")
                self.exit_code = _NOT_STARTED
            self.document = _read_document(document)
        self.finished = True
        self.on_change()

    async def _run(self, document: Path) -> None:
        asked = ("--json", str(document)) if self.command.kind in _WITH_DOCUMENT else ()
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        wide = self.columns is not None and self.command.kind in _WITHOUT_PROGRAM
        self._process = await asyncio.create_subprocess_exec(
            *self.command.argv[:4],
            *asked,
            *self.command.argv[4:],
            stdin=null,
            stdout=pipe,
            stderr=pipe,
            cwd=self.command.folder,
            env=os.environ | ({"COLUMNS": str(self.columns)} if wide else {}),
            start_new_session=True,
            limit=_MAX_LINE_BYTES,
        )
        self.on_change()
        try:
            errors, out = self._process.stderr, self._process.stdout
            reading = asyncio.gather(self._read(errors, self.messages), self._read(out, self.report))
            exit_code = await self._process.wait()
            try:
                await asyncio.wait_for(reading, _LAST_WORDS_SECONDS)
            except TimeoutError:  # a program that it has started goes on, and holds the pipes open
                self._process._transport.close()  # type: ignore[attr-defined]
            self.exit_code = exit_code
        finally:
            self.stop()

    def stop(self) -> None:
        """Interrupt the command as Ctrl-C does. What it has recorded is kept: a search is given the time for that."""
        last = self._interrupted
        if last is None or self.command.slot != SEARCH or time.monotonic() - last >= _SAVE_SECONDS:
            self._interrupt()

    def _interrupt(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._interrupted = time.monotonic()
            self._process.send_signal(signal.SIGINT)

    async def shut_down(self) -> None:
        """Interrupt the command and wait for its end. asyncio kills what still runs when the browser ends."""
        process, told = self._process, self._interrupted is not None
        for seconds in _SHUTDOWN_TIMEOUTS:
            if process is not None and process.returncode is None:
                if not told:
                    self._interrupt()
                told = False
                with suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), seconds)

    async def _read(self, stream: asyncio.StreamReader | None, into: deque[str]) -> None:
        while stream is not None:
            try:
                line = await stream.readline()
            except ValueError:  # it is longer than we keep: as a progress bar's that goes on for hours
                continue
            if not line:
                return
            into.append(line.decode("utf-8", "replace").rstrip("\n"))
            self.on_change()


def _read_document(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # it ended without one; the exit code is shown
        return {}
    return found if isinstance(found, dict) else {}
