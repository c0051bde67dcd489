"""The browser in a real terminal, and what happens before it gets one."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dynadiag.__main__ import main
from tests.tui import build
from tui.terminal_driver import HUNG_UP, _read

COMMAND = [sys.executable, "-m", "dynadiag", "browse"]
_COLOURS = re.compile(rb"\x1b\[[\d;]*m")
_WAIT = 60.0  # seconds that a busy machine may need


class Terminal:
    """A pseudo-terminal with the browser in it."""

    def __init__(self, master: int, slave: int, process: subprocess.Popen[bytes]) -> None:
        self.master, self.slave, self.process = master, slave, process
        self.seen = b""

    def read_until(self, text: str, wait: float = _WAIT) -> str:
        """Read what the browser draws until a text is there, in whatever colours."""
        limit = time.monotonic() + wait
        while text.encode() not in _COLOURS.sub(b"", self.seen):
            ready, _, _ = select.select([self.master], [], [], 1.0)
            if ready:
                self.seen += os.read(self.master, 65536)
            assert time.monotonic() < limit, f"{text!r} did not come: {self.seen[-2000:]!r}"
        return self.seen.decode("utf-8", "replace")

    def type(self, keys: str) -> None:
        self.seen = b""
        os.write(self.master, keys.encode())

    def ended(self) -> int:
        """Read what is drawn until the browser has ended, and its exit code. Whoever writes to a terminal that nobody
        reads waits when a few kilobytes are in the way."""
        limit = time.monotonic() + _WAIT
        while self.process.poll() is None or select.select([self.master], [], [], 0)[0]:
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 65536)
            assert time.monotonic() < limit, f"the browser did not end: {self.seen[-2000:]!r}"
        return self.process.wait()


@contextmanager
def terminal(*arguments: str, **variables: str) -> Iterator[Terminal]:
    """The browser in a terminal of 100x30."""
    with redirected(None, *arguments, **variables) as shown:
        yield shown


@contextmanager
def redirected(stderr: int | None, /, *arguments: str, **variables: str) -> Iterator[Terminal]:
    """The browser in such a terminal, with another file for standard error."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (30, 100))
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"} | variables
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave if stderr is None else stderr,
        env=environment,
        start_new_session=True,
    )
    try:
        yield Terminal(master, slave, process)
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)


def test_a_user_walks_through_and_the_terminal_is_left_as_it_was_found(program: Path) -> None:
    with terminal(str(program)) as shown:
        before = termios.tcgetattr(shown.slave)
        shown.read_until("Not one graph")
        shown.type("4")
        shown.read_until("builtin operator `print`")
        shown.type("q")
        assert shown.ended() == 0
        assert b"\x1b[?1049l" in shown.seen  # the alternate screen is left
        assert b"\x1b[?25h" in shown.seen  # the cursor is shown
        assert b"\x1b[?1000l" in shown.seen  # the mouse is the terminal's again
        assert termios.tcgetattr(shown.slave) == before


def test_it_is_shown_where_standard_error_is_no_terminal(program: Path, tmp_path: Path) -> None:
    with (tmp_path / "errors.txt").open("wb") as errors, redirected(errors.fileno(), str(program)) as shown:
        shown.read_until("Not one graph")
        shown.type("q")
        assert shown.ended() == 0
    assert (tmp_path / "errors.txt").read_bytes() == b""


def test_no_text_is_wrapped_to_a_narrow_column_before_the_screen_is_laid_out(program: Path) -> None:
    """A text is drawn once before it has a size."""
    with terminal(str(program)) as shown:
        shown.read_until("Not one graph")
        drawn = re.findall(rb"torch 2\.13\.0, Python.{7}", _COLOURS.sub(b"", shown.seen))
        assert set(drawn) == {b"torch 2.13.0, Python 3.11.7"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was_found_too(number: signal.Signals, program: Path) -> None:
    with terminal(str(program)) as shown:
        before = termios.tcgetattr(shown.slave)
        shown.read_until("Not one graph")
        shown.process.send_signal(number)
        assert shown.ended() == 128 + number
        assert b"\x1b[?1049l" in shown.seen
        assert b"\x1b[?1000l" in shown.seen
        assert termios.tcgetattr(shown.slave) == before


def test_a_browser_that_was_suspended_goes_on(program: Path) -> None:
    with terminal(str(program)) as shown:
        before = termios.tcgetattr(shown.slave)
        shown.read_until("Not one graph")
        shown.type("\x1a")
        os.waitid(os.P_PID, shown.process.pid, os.WSTOPPED)
        assert termios.tcgetattr(shown.slave) == before  # the shell's, while it is suspended
        shown.process.send_signal(signal.SIGCONT)
        shown.read_until("Not one graph")
        shown.type("4")
        shown.read_until("builtin operator `print`")
        shown.type("q")
        assert shown.ended() == 0
        assert termios.tcgetattr(shown.slave) == before


def test_an_editor_that_is_not_there_gives_the_terminal_back(program: Path) -> None:
    with terminal(str(program), VISUAL="", EDITOR="no-such-editor") as shown:
        shown.read_until("Not one graph")
        shown.type("3")
        shown.read_until("y = x.sin()")
        shown.type("e")
        shown.read_until("no-such-editor: No such")
        shown.type("4")
        shown.read_until("builtin operator `print`")


@pytest.mark.parametrize("drawn", ["", "\x1b[?1049h", "Not one graph"])
def test_the_browser_ends_with_its_terminal(drawn: str, program: Path) -> None:
    """Whatever it has done by then: nothing, the alternate screen, its first screen."""
    with terminal(str(program)) as shown:
        shown.read_until(drawn)
        empty = os.open(os.devnull, os.O_RDWR)
        os.dup2(empty, shown.slave)  # nobody holds the terminal any longer, as when its window is closed
        os.dup2(empty, shown.master)
        os.close(empty)
        assert shown.process.wait(_WAIT) == HUNG_UP


def test_a_read_that_fails_is_the_end_of_the_terminal() -> None:
    """It fails for a moment, before it is an end of file."""
    master, slave = pty.openpty()
    os.close(slave)
    assert _read(master) == b""
    os.close(master)


def test_a_terminal_that_drops_a_byte_of_a_key_does_not_end_it(program: Path) -> None:
    """Of what is typed faster than it is read the terminal keeps only some bytes; not all send UTF-8, either."""
    with terminal(str(program)) as shown:
        shown.read_until("Not one graph")
        os.write(shown.master, b"\xc3" + b"9")
        shown.read_until("every kind")
        os.write(shown.master, b"q\xc3")
        assert shown.ended() == 0


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": "xterm", "COLORTERM": ""}])
def test_it_works_without_colours(program: Path, variables: dict[str, str]) -> None:
    """The last theme has the terminal's own colours."""
    with terminal(str(program), **variables) as shown:
        shown.read_until("Not one graph")
        shown.type("3")
        shown.read_until("import")
        shown.type("tt9")
        shown.read_until("every kind")
        shown.type("q")
        assert shown.ended() == 0


def test_no_torch_is_loaded(program: Path) -> None:
    code = (
        "import sys, asyncio\n"
        "from pathlib import Path\n"
        "from tui.app import Browser\n"
        "from tui.session import Session\n"
        "async def main():\n"
        "    with Session.open(Path(sys.argv[1])) as session:\n"
        "        app = Browser(session)\n"
        "        async with app.run_test() as pilot:\n"
        "            for key in '123456789':\n"
        "                await pilot.press(key)\n"
        "                await pilot.pause()\n"
        "asyncio.run(main())\n"
        "print(sorted({'torch', 'triton', 'numpy'} & set(sys.modules)))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(program)], capture_output=True, text=True, timeout=120)
    assert ran.stdout.strip() == "[]", ran.stderr


def _bad_inputs(folder: Path) -> dict[str, tuple[Path, str]]:
    whole = build.recording(folder, build.program(), "whole")
    cut = folder / "cut.dynadiag"
    cut.write_bytes(whole.read_bytes()[:-9000])
    newer = folder / "newer.dynadiag"
    data = bytearray(whole.read_bytes())
    data[60:64] = (999).to_bytes(4, "big")  # SQLite's user_version
    newer.write_bytes(data)
    empty = folder / "empty.dynadiag"
    empty.touch()
    text = folder / "text.dynadiag"
    text.write_text("hello\n" * 100)
    pipe = folder / "pipe.dynadiag"
    os.mkfifo(pipe)
    program = folder / "train.py"
    program.write_text("import torch\n")
    nothing = folder / "nothing"
    nothing.mkdir()
    return {
        "pipe": (pipe, "not a file"),
        "missing": (folder / "no.dynadiag", "No such file"),
        "folder": (nothing, "no recording in this folder"),
        "cut": (cut, "damaged"),
        "newer": (newer, "newer dynadiag"),
        "empty": (empty, "not a recording: the file is empty"),
        "text": (text, "not a recording"),
        "program": (program, "a program, not a recording (`dynadiag explain` runs and records it)"),
    }


@pytest.mark.parametrize("kind", ["pipe", "missing", "folder", "cut", "newer", "empty", "text", "program"])
def test_bad_input_is_one_clear_line(kind: str, tmp_path: Path) -> None:
    path, words = _bad_inputs(tmp_path)[kind]
    with terminal(str(path)) as shown:
        shown.read_until(words)
        assert shown.ended() == 2
    text = shown.seen.decode()
    assert len(text.strip().splitlines()) == 1
    assert text.startswith("dynadiag: ")
    assert "Traceback" not in text
    assert "\x1b" not in text


def test_without_a_terminal_it_says_what_to_do_instead(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["browse", str(program)]) == 2
    assert "dynadiag explain" in capsys.readouterr().err


def test_alone_it_says_that_there_is_no_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main(["browse"]) == 2
    assert "no recording here yet" in capsys.readouterr().err


def test_alone_it_opens_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "dynadiag"
    state.mkdir()
    older = build.recording(state, [*build.run_events("older.py"), *build.end_events()], "older")
    build.recording(state, [*build.run_events("newer.py"), *build.end_events()], "newer")
    os.utime(older, (1, 1))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with terminal() as shown:
        shown.read_until("newer.py")
