"""10,000 random keys in a real terminal that is resized on the way: the browser goes on, and leaves in order."""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
import subprocess
import tempfile
import termios
import time
from pathlib import Path

import pytest

from tests.tui.test_fuzz import recordings
from tests.tui.test_terminal import COMMAND, Terminal

# As a terminal sends them. `q`, ctrl+c and ctrl+z end or suspend what is to be tried.
KEYS = [
    *"123456789000jjjkkkllhhgGnNsSfyYvdJKLHtr?<>BMRFCOWDmxcaz&:.,pe[]/'vvo-*nnNVV(){}",
    *("\r", "\r", "\x1b", "\x1b", "\t", "\t", "\x1b[Z", "\x7f", " ", "\x10", "\x04", "\x15", "\x0f"),
    *("\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D", "\x1b[H", "\x1b[F", "\x1b[5~", "\x1b[6~"),
    *("\x1b[<0;10;5M\x1b[<0;10;5m", "\x1b[<65;10;5M", "relu", "é", "日本", "+"),
    *("frelu\r", "/sin\r", "0relu\r", "3\t\tjJ", "2v+-sz\x1b", "7jjj\r", "m note\r", "fx\x1b"),  # bursts, in one packet
]
SIZES = [(24, 80), (40, 120), (60, 200), (10, 40), (6, 20)]
RESIZE = 0.01  # of the keys
PAUSE = 0.04  # of the keys: those between come at once, as pasted ones do
QUIET = 0.1  # seconds without output after which the browser has handled what came
KEPT = 100_000  # bytes of output that are kept for a report
PATIENCE = 300.0  # seconds that the browser may take to handle the keys that wait, and to end
LEAVE = ["\x1b"] * 6 + ["q"]
LEFT = "\x1b[?1049l"  # leaves the alternate screen, which may show a traceback of the recording
ESCAPE_ALONE = 0.2  # seconds after which an escape is a key of its own and not the begin of a longer one


def walk(path: Path, seed: int, count: int) -> int:
    """Press keys in browsers over a recording, a new one whenever one was left. Return how many were started.

    Each has a copy of the recording, or of the folder of them, since there are keys that delete one.
    Fails where a browser ends with another code than 0, or with a traceback.
    """
    chosen = random.Random(seed)
    started = pressed = 0
    while pressed < count:
        started += 1
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder, path.name)
            shutil.copytree(path, copy) if path.is_dir() else shutil.copy(path, copy)
            pressed += _one(copy, chosen, count - pressed)
    return started


def _one(path: Path, chosen: random.Random, count: int) -> int:
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, SIZES[0])
    folder = path.parent
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment |= {"TERM": "xterm-256color", "EDITOR": "true"}
    environment |= {"XDG_CONFIG_HOME": str(folder / "config"), "XDG_STATE_HOME": str(folder / "state")}
    process = subprocess.Popen(
        [*COMMAND, str(path)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
        cwd=folder,
        start_new_session=True,
        preexec_fn=_own_terminal,
    )
    shown, history = Terminal(master, slave, process), list[str]()
    try:
        while len(history) < count and process.poll() is None:
            if chosen.random() < RESIZE:
                termios.tcsetwinsize(slave, chosen.choice(SIZES))
            if chosen.random() < PAUSE:
                _settle(shown)
            key = chosen.choice(KEYS)
            history.append(key)
            _send(shown, key)
        _leave(shown)
        said = shown.seen.decode("utf-8", "replace").rpartition(LEFT)[2]
        assert (process.wait(), "Traceback" in said) == (0, False), f"after {history[-40:]}: {said[-5000:]}"
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)
    return len(history)


def _own_terminal() -> None:
    """Make the terminal that of the process, so that the kernel tells it of a new size."""
    import fcntl

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _send(shown: Terminal, key: str) -> None:
    """Send a key as soon as the terminal takes it, and read meanwhile."""
    while shown.process.poll() is None:
        _resume(shown)
        readable, writable, _ = select.select([shown.master], [shown.master], [], 1.0)
        if readable:
            _take(shown)
        elif writable:
            os.write(shown.master, key.encode())
            time.sleep(0.002)
            return


def _resume(shown: Terminal) -> None:
    """Let a browser go on that was suspended by the palette's action, as `fg` does in a shell."""
    if os.waitid(os.P_PID, shown.process.pid, os.WSTOPPED | os.WNOHANG) is not None:
        shown.process.send_signal(signal.SIGCONT)


def _take(shown: Terminal) -> None:
    shown.seen = (shown.seen + os.read(shown.master, 65536))[-KEPT:]


def _read(shown: Terminal, seconds: float) -> None:
    """Read for some seconds."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if shown.process.poll() is not None:
            return
        if select.select([shown.master], [], [], left)[0]:
            _take(shown)


def _settle(shown: Terminal) -> None:
    """Read until nothing more is drawn. A browser that is left forgets the keys that wait, so there must be few."""
    limit = time.monotonic() + PATIENCE
    while shown.process.poll() is None and select.select([shown.master], [], [], QUIET)[0]:
        _take(shown)
        assert time.monotonic() < limit, f"it draws without end: {shown.seen[-3000:]!r}"


def _leave(shown: Terminal) -> None:
    limit = time.monotonic() + PATIENCE
    while shown.process.poll() is None:
        for key in LEAVE:
            _send(shown, key)
            _read(shown, ESCAPE_ALONE)
        assert time.monotonic() < limit, f"it does not end: {shown.seen[-3000:]!r}"
    while select.select([shown.master], [], [], 0)[0]:
        shown.seen += os.read(shown.master, 65536)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["empty", "program", "failed", "search"])
def test_ten_thousand_keys_in_a_terminal(name: str, tmp_path: Path) -> None:
    walk(recordings(tmp_path)[name], 0, 10_000)
