"""A hostile program in the sandbox: nothing outside is read, written, reached or left running."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag.commands.triage import _take_out
from dynadiag.triage.isolation import INSIDE, isolated, why_not_isolated

needs_bubblewrap = pytest.mark.skipif(why_not_isolated() is not None, reason=str(why_not_isolated()))
HEAD = "import ctypes, os, signal, socket, sys, pathlib\n"
REACHES_OUT = {
    "reads the home": "print(os.listdir(HOME))",
    "reads what lies beside": "print(pathlib.Path(OUTSIDE).read_text())",
    "reads accounts": "print(open('/etc/shadow').read())",
    "writes beside": "pathlib.Path(OUTSIDE).write_text('changed')",
    "removes": "os.remove(OUTSIDE)",
    "writes to the system": "open('/usr/bin/of-an-issue', 'w')",
    "writes to the root": "open('/of-an-issue', 'w')",
    "connects": "socket.create_connection(('127.0.0.1', PORT), 2)",
    "connects by name": "socket.create_connection(('example.com', 80), 2)",
    "sees processes": "os.kill(PARENT, 0); print(open(f'/proc/{PARENT}/environ').read())",
    "reads the environment": "print(os.environ['SECRET_OF_THE_USER'])",
    "mounts": "assert ctypes.CDLL(None, use_errno=True).mount(b'/', b'/sandbox', None, 4096, None) == 0",
    "changes root": "os.chroot('/proc/1/root')",
    "traces": "assert ctypes.CDLL(None).ptrace(16, PARENT, 0, 0) == 0",
    "changes this Python": "open(sys.prefix + '/of-an-issue', 'w')",
    "connects to a socket without a file": "socket.socket(socket.AF_UNIX).connect('\\0' + ABSTRACT)",
    "makes namespaces": "ctypes.CDLL(None).unshare(0x10020000); print(pathlib.Path(OUTSIDE).read_text())",
    "reads memory of others": "print(open(f'/proc/{PARENT}/mem', 'rb').read(1))",
    "asks the machine's host": "socket.create_connection(('169.254.169.254', 80), 2)",
    # Opened for writing only: where this is not refused, the setting of the machine stays as it is.
    "changes the kernel": "os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY)",
    "asks the kernel by a key": "os.open('/proc/sysrq-trigger', os.O_WRONLY)",
    "makes a device": "os.mknod('/sandbox/device', 0o60600, os.makedev(8, 0))",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "inside"
    inside.mkdir()
    return inside


def _run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = isolated([sys.executable, "-c", HEAD + code], folder, {"PATH": "/usr/bin:/bin", "HOME": str(INSIDE)})
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL)


@needs_bubblewrap
def test_a_program_runs_and_writes_into_its_folder(folder: Path) -> None:
    done = _run("import dynadiag; open('written', 'w').write(os.getcwd())", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "written").read_text() == str(INSIDE)


@needs_bubblewrap
@pytest.mark.parametrize("what", REACHES_OUT)
def test_what_reaches_out_fails_and_changes_nothing(what: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_USER", "hunter2")
    outside = folder.parent / "outside.txt"
    outside.write_text("hunter2")
    abstract = f"dynadiag-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_UNIX) as without_file:
        without_file.bind(f"\0{abstract}")
        without_file.listen()
        names = {"HOME": str(folder.parent), "OUTSIDE": str(outside), "PARENT": os.getpid()}
        names |= {"PORT": listener.getsockname()[1], "ABSTRACT": abstract}
        given = "".join(f"{name} = {value!r}\n" for name, value in names.items())
        done = _run(f"{given}{REACHES_OUT[what]}", folder)
    assert "hunter2" not in done.stdout + done.stderr
    assert done.returncode != 0
    assert outside.read_text() == "hunter2"
    assert not Path("/of-an-issue").exists()
    assert not Path("/usr/bin/of-an-issue").exists()
    assert not Path(sys.prefix, "of-an-issue").exists()


@needs_bubblewrap
def test_packages_outside_of_the_interpreters_folder_are_there_and_what_lies_beside_them_is_not(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "home" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "only_here.py").write_text("found = 1")
    (packages.parent / "secret.py").write_text("found = 2")
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages), str(tmp_path)])
    done = _run(f"sys.path.append({str(packages)!r}); import only_here; open('written', 'w')", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert _run(f"open({str(packages / 'only_here.py')!r}, 'w')", folder).returncode != 0
    assert _run(f"open({str(packages.parent / 'secret.py')!r})", folder).returncode != 0


@needs_bubblewrap
def test_its_processes_files_and_dumps_are_limited(folder: Path) -> None:
    code = "import resource as r; print(*(r.getrlimit(x)[0] for x in (r.RLIMIT_NPROC, r.RLIMIT_FSIZE, r.RLIMIT_CORE)))"
    most = min(4096, resource.getrlimit(resource.RLIMIT_NPROC)[1] % (1 << 64))  # -1 is no limit
    assert _run(code, folder).stdout.split() == [str(most), str(2 << 30), "0"]


@needs_bubblewrap
def test_what_it_starts_ends_with_it(folder: Path) -> None:
    code = "pid = os.fork()\nif pid == 0:\n    os.setsid()\n    signal.pause()\nopen('pid', 'w').write(str(pid))"
    marker = "a process that an issue left behind"
    done = _run(f"# {marker}\n{code}", folder)
    assert done.returncode == 0
    running = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if os.access(path, os.R_OK)]
    assert not any(marker.encode() in words for words in running)


def test_only_plain_files_are_taken_out(tmp_path: Path) -> None:
    scratch, folder = tmp_path / "scratch", tmp_path / "folder"
    inside = scratch / "triage"
    inside.mkdir(parents=True)
    folder.mkdir()
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    (inside / "issue.md").symlink_to(secret)
    os.link(secret, inside / "output.txt")
    os.mkfifo(inside / "repro.py")
    (inside / "report.html").mkdir()
    (inside / "triage.json").write_text("{}")
    (inside / "something else").write_text("1")
    assert _take_out(scratch, folder) == ["triage.json"]
    assert [path.name for path in folder.iterdir()] == ["triage.json"]


def test_a_link_in_the_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    scratch, folder, other = tmp_path / "scratch", tmp_path / "folder", tmp_path / "other"
    for each in (scratch, folder, other):
        each.mkdir()
    (other / "issue.md").write_text("hunter2")
    (scratch / "triage").symlink_to(other)
    assert _take_out(scratch, folder) == []
