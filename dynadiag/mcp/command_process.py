"""One call of a tool: a command in a process of its own, its progress, and its end if the client cancels the call."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.text import TextReceiveStream

_GRACE = 20.0  # seconds that a cancelled command has to write what it has found
_MAX_LINE = 300  # characters of a line of progress


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """How a command ended. ``document`` is the text of its JSON, None if it wrote none."""

    exit_code: int
    printed: str
    last_line: str  # of stderr
    document: str | None


async def run_command(
    name: str, words: Sequence[str], *, has_document: bool, report: Callable[[str], Awaitable[None]]
) -> CommandEnd:
    """Run ``dynadiag NAME WORDS``, and give each line of its stderr to ``report``.

    If the call is cancelled the command is interrupted as by Ctrl-C, so that it keeps what it has found.
    """
    with tempfile.TemporaryDirectory(prefix="dynadiag-mcp-") as folder:
        document = Path(folder, "document.json")
        options = [f"--json={document}"] if has_document else []
        command = [sys.executable, "-m", "dynadiag", name, *options, *words]
        process = await anyio.open_process(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "COLUMNS": "120"},
            start_new_session=True,
        )
        printed, lines = list[str](), list[str]()

        async def read_lines() -> None:
            async for line in _lines(process.stderr):
                lines[:] = [line]
                await report(line[:_MAX_LINE])

        async def read_text() -> None:
            async for text in _text(process.stdout):
                printed.append(text)

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read_lines)
                tasks.start_soon(read_text)
                code = await process.wait()
        finally:
            await _end(process)
        written = document.read_text(encoding="utf-8") if document.exists() else None
    return CommandEnd(code, "".join(printed), lines[0] if lines else "", written)


def _text(stream: ByteReceiveStream | None) -> TextReceiveStream:
    assert stream is not None
    return TextReceiveStream(stream, errors="replace")


async def _lines(stream: ByteReceiveStream | None) -> AsyncIterator[str]:
    rest = ""
    async for text in _text(stream):
        *lines, rest = (rest + text).split("\n")
        for line in lines:
            if line.strip():
                yield line
    if rest.strip():
        yield rest


async def _end(process: Process) -> None:
    """End the command and what it started, if it still runs."""
    if process.returncode is not None:
        await process.aclose()
        return
    with anyio.CancelScope(shield=True):
        _send(process.pid, signal.SIGINT)
        with anyio.move_on_after(_GRACE):
            await process.wait()
        if process.returncode is None:
            _send(process.pid, signal.SIGKILL)
            await process.wait()
        await process.aclose()


def _send(group: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)
