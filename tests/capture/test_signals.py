"""Signals that are sent to dynadiag reach the program, once each, and its end is its own."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag.capture.launch import PASSED_ON
from tests.capture.runs import DYNADIAG, LIMIT

LISTENS = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, (wanted := {signal.Signals(int(n)) for n in sys.argv[1].split(",")}))
print("ready", flush=True)
for _ in range(int(sys.argv[2])):
    print("got", signal.sigwait(wanted).name, flush=True)
sys.exit(7)
"""


def start(folder: Path, *words: str, **options: object) -> subprocess.Popen[str]:
    (folder / "prog.py").write_text(LISTENS)
    command = [*DYNADIAG, "record", "-o", "r.dynadiag", "--force", "prog.py", *words]
    return subprocess.Popen(  # type: ignore[call-overload]  # options are keywords
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def test_each_signal_is_passed_on(tmp_path: Path) -> None:
    """Sent to our process alone, as a cluster does."""
    passed = [*PASSED_ON, signal.SIGINT, signal.SIGUSR1]
    running = start(
        tmp_path, ",".join(str(int(number)) for number in PASSED_ON), str(len(passed)), start_new_session=True
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    for number in passed:
        running.send_signal(number)
        assert running.stdout.readline() == f"got {number.name}\n"
    _, err = running.communicate(timeout=LIMIT)
    assert running.returncode == 130, err  # it was interrupted
    assert "Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGHUP, signal.SIGTERM])
def test_a_signal_that_ends_the_program(number: signal.Signals, tmp_path: Path) -> None:
    running = start(tmp_path, str(int(signal.SIGUSR2)), "1", start_new_session=True)
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    running.send_signal(number)
    running.communicate(timeout=LIMIT)
    assert running.returncode == 128 + number


def test_what_was_ignored_stays_ignored(tmp_path: Path) -> None:
    """As `nohup` and a shell's `&` leave it: nothing is counted as Ctrl-C."""

    def ignore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    running = start(tmp_path, str(int(signal.SIGUSR1)), "1", start_new_session=True, preexec_fn=ignore)
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    for _ in range(4):
        running.send_signal(signal.SIGINT)
    running.send_signal(signal.SIGUSR1)
    running.communicate(timeout=LIMIT)
    assert running.returncode == 7


def test_what_was_ignored_reaches_a_program_that_handles_it(tmp_path: Path) -> None:
    numbers = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)

    def ignore() -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)

    words = ",".join(str(int(number)) for number in numbers)
    running = start(tmp_path, words, str(len(numbers)), start_new_session=True, preexec_fn=ignore)
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    for number in numbers:
        running.send_signal(number)
        assert running.stdout.readline() == f"got {number.name}\n"
    running.communicate(timeout=LIMIT)
    assert running.returncode == 7


def test_ctrl_c_of_a_terminal_comes_once(tmp_path: Path) -> None:
    """The terminal sends it to the program itself."""
    counts = LISTENS.replace("signal.sigwait(wanted).name", "signal.sigwait(wanted).name, signal.sigpending()")
    (tmp_path / "prog.py").write_text(counts)
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        command = [*DYNADIAG, "record", "-o", "r.dynadiag", "prog.py", str(int(signal.SIGINT)), "1"]
        os.execv(sys.executable, command)
    said = b""
    while b"ready" not in said:
        said += os.read(terminal, 1000)
    os.write(terminal, b"\x03")
    while not said.partition(b"got")[2].endswith(b"\n"):
        said += os.read(terminal, 1000)
    _, status = os.waitpid(child, 0)
    assert b"got SIGINT set()" in said
    assert os.waitstatus_to_exitcode(status) == 130
    os.close(terminal)


@pytest.mark.parametrize("closed", ["1", "2", "0 1", "0 1 2"])
@pytest.mark.parametrize("command", ["record", "explain"])
def test_closed_streams(command: str, closed: str, tmp_path: Path) -> None:
    """The program finds them closed, its exit code is its own, and no file of ours has taken their place."""
    (tmp_path / "prog.py").write_text(
        "import os, sys\n"
        "def open_(n):\n    try: return bool(os.fstat(n))\n    except OSError: return False\n"
        "open('seen', 'w').write(repr([open_(n) for n in range(3)] + [sys.stdout is None]))\nsys.exit(7)\n"
    )
    seen = []
    for words in ([sys.executable, "prog.py"], [*DYNADIAG, command, "-o", "r.dynadiag", "prog.py"]):
        line = " ".join([*words, "<&- " if "0" in closed else "", *(f"{n}>&-" for n in closed.split() if n != "0")])
        done = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == 7, done.stderr
        assert "Traceback" not in done.stderr
        seen.append((tmp_path / "seen").read_text())
    assert seen[0] == seen[1]
