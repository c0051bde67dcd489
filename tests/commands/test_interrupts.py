"""Ctrl-C on a terminal, and the signals of a job's time limit, in the middle of a search: what is known is told, the
recording is kept, the exit code is 130, and no process is left.
"""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAM = """
import torch

@torch.compile(backend="aot_eager")
def f(x):
    y = x.sigmoid()
    return y.add_(1) + torch.ones(3)

f(torch.ones(3, requires_grad=True))
"""
TAG = "DYNADIAG_TEST_INTERRUPT"
REACHED = {"bisect": "trial 3:", "minify": "the failing graph has", "triage": "trial 3:", "fix": "trial 1:"}
KNOWN = {
    "bisect": "the search stopped before it found the culprit",
    "minify": "interrupted",
    "triage": "bisect: interrupted",
    "fix": "interrupted after",
}


def processes_left(tag: str) -> list[str]:
    left = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and process.name != str(os.getpid()):
            try:
                if f"{TAG}={tag}".encode() in (process / "environ").read_bytes():
                    left.append((process / "cmdline").read_text())
            except OSError:
                continue
    return left


def lines_of(descriptor: int) -> Iterator[str]:
    """The lines that come from a pipe or a terminal, until it is closed."""
    text = b""
    while True:
        try:
            more = os.read(descriptor, 65536)
        except OSError:  # the other end of a terminal is closed
            more = b""
        *whole, text = (text + more).replace(b"\r", b"\n").split(b"\n")
        yield from (line.decode(errors="replace") for line in whole)
        if not more:
            return


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "how"),
    [
        ("bisect", "terminal"),
        ("bisect", "SIGTERM"),
        ("minify", "terminal"),
        ("minify", "SIGINT"),
        ("minify", "SIGHUP"),
        ("triage", "terminal"),
        ("triage", "SIGTERM"),
        ("fix", "terminal"),
    ],
)
def test_an_interrupted_search_tells_what_it_knows_and_leaves_nothing_running(
    command: str, how: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM if command != "fix" else BREAKS)
    output = {"minify": ["-o", "repro.py"], "triage": ["-o", "folder"]}.get(command, [])
    words = [sys.executable, "-m", "dynadiag", command, *output, "train.py"]
    tag = f"{command}-{how}-{os.getpid()}"
    environment = {**os.environ, TAG: tag, "XDG_STATE_HOME": str(tmp_path / "state")}
    ours, theirs = pty.openpty() if how == "terminal" else os.pipe()
    process = subprocess.Popen(
        words,
        cwd=tmp_path,
        env=environment,
        stdin=theirs if how == "terminal" else subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=_take_terminal if how == "terminal" else None,
    )
    os.close(theirs)
    printed, sent = [], False
    for line in lines_of(ours):
        printed.append(line)
        if REACHED[command] in line and not sent:
            sent = True
            if how == "terminal":
                os.write(ours, b"\x03")
            else:
                process.send_signal(getattr(signal, how))
    text = "\n".join(printed)
    assert sent, text
    assert process.wait(60) == 130, text
    assert KNOWN[command] in text, text
    assert processes_left(tag) == []
    kept = [*(tmp_path / "state").rglob("*.dynadiag"), *(tmp_path / "folder").glob("*.dynadiag")]
    assert kept, text
    assert not list(tmp_path.rglob("*.journal"))


def _take_terminal() -> None:
    """Make the terminal on stdin that of this process, so that Ctrl-C interrupts it."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


BREAKS = """
import torch

@torch.compile
def f(x):
    print("in the middle")
    return x + 1

f(torch.ones(3))
"""
