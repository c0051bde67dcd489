"""A fork that replaces an interpreter behaves for its program like a real one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interpreters import DYNADIAG, warm

SHOWS = """
import atexit, os, signal, sys
print(__name__, __file__ if "__file__" in globals() else None, sys.argv, sys.path, os.getcwd(), os.environ["MINE"])
print(os.getppid() == int(os.environ["PARENT"]), os.getsid(0) == os.getpid(), signal.getsignal(signal.SIGINT))
print(sys.stdin.read(), "torch" in sys.modules, "torch.nn" in sys.modules, os.path.exists(sys.argv[1]))
atexit.register(print, "at the end")
"""
IMPORTS = """
from torch.nn import functional
import torch
print(torch.get_num_threads(), torch._dynamo.config.recompile_limit, functional.relu.__name__)
"""
ENDS = {
    "returns": IMPORTS,
    "a number": "sys.exit(7)",
    "an exception": "def inner():\n    raise KeyError('mine')\ninner()",
    "a signal": "os.kill(os.getpid(), signal.SIGKILL)",
    "an interruption": "os.kill(os.getpid(), signal.SIGINT)\nsignal.pause()",
}


def _ran(words: list[str], folder: Path, descriptor: int) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, *words, f"/proc/self/fd/{descriptor}"],
        cwd=folder,
        env={**os.environ, "MINE": "1", "PARENT": str(os.getpid()), "PYTHONPATH": f"{folder}/one:two"},
        input="typed",
        capture_output=True,
        text=True,
        pass_fds=[descriptor],
        start_new_session=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("ending", ENDS)
def test_a_program_sees_and_shows_the_same(ending: str, tmp_path: Path) -> None:
    text = SHOWS + ENDS[ending]
    (tmp_path / "program.py").write_text(text)
    ways = {"returns": ["-c", text], "a number": ["-m", "program"]}
    words = ways.get(ending, ["program.py"])
    with (tmp_path / "open").open("w") as file:
        real = _ran(words, tmp_path, file.fileno())
        with warm():
            forked = _ran(words, tmp_path, file.fileno())
    assert forked == real
    assert "typed False False True" in real[1]


def test_a_process_that_has_imported_torch_and_another_setting_of_torchs_get_a_real_one() -> None:
    asks = "import sys; print('tests.interpreters' in sys.modules)"
    starts = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {asks!r}])"
    with warm():
        forked = subprocess.check_output([sys.executable, "-c", starts], text=True)
        after = subprocess.check_output([sys.executable, "-c", f"import torch\n{starts}"], text=True)
        other = subprocess.check_output([sys.executable, "-c", asks], text=True, env={**os.environ, "TORCH_LOGS": ""})
        bare = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
        waits = subprocess.check_output([sys.executable, "-c", asks], text=True, env=bare)
    assert [forked, after, other, waits] == ["True\n", "False\n", "False\n", "True\n"]


def test_a_recorded_program_is_a_fork_too_and_its_children_are_recorded(tmp_path: Path) -> None:
    ours = "[name for name in os.environ if 'DYNADIAG' in name or name == 'PYTHONPATH']"
    shows = f"import os, sys; print(sys.argv, sys.path, {ours}, '_dynadiag_start' in sys.modules)"
    child = "import sys; print('tests.interpreters' in sys.modules, '_dynadiag_start' in sys.modules)"
    program = tmp_path / "program.py"
    program.write_text(
        f"{shows}\nprint('tests.interpreters' in sys.modules, flush=True)\nimport subprocess\n"
        f"subprocess.run([sys.executable, '-c', {child!r}])"
    )
    command = [str(DYNADIAG), "explain", "--force", "-o", str(tmp_path / "run.dynadiag"), str(program)]
    shown = []
    for way in (contextlib.nullcontext(), warm()):
        with way:
            shown.append(subprocess.check_output(command, text=True).splitlines()[:3])
    real, forked = shown
    assert real[0] == forked[0]
    assert [*real[1:], *forked[1:]] == ["False", "False True", "True", "False True"]


def test_it_is_a_child_that_can_be_waited_for_and_killed() -> None:
    with warm():
        process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    assert process.poll() is None
    process.kill()
    assert process.wait(60) == -signal.SIGKILL


def test_signals_that_were_blocked_when_the_server_started_are_not_blocked_in_a_fork() -> None:
    shown = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
    program = (
        "import signal, subprocess, sys\n"
        "from tests.interpreters import warm\n"
        "with warm():\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\n"
        f"    subprocess.run([sys.executable, '-c', {shown!r}], check=True)\n"
    )
    root = Path(__file__).parents[1]
    done = subprocess.run(["env", sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
