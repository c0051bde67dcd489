"""Runs a command that is not trusted: without network, home or any file of the user's, by bubblewrap.

The command sees the system's programs and libraries and this Python, all read-only, and one folder that it may write.
Its processes end with it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

INSIDE = Path("/sandbox")  # where the command finds the folder that it may write
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_SETTINGS = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "os-release")  # of /etc
_TEMPORARY = ("--size", str(1 << 30), "--tmpfs", "/tmp")  # bytes
_PROC = ("--proc", "/proc", "--remount-ro", "/proc")  # root may write the settings of the kernel there
_PACKAGES = ("dynadiag", "minifier", "tui")
_SITES = ("site-packages", "dist-packages")
_MAX_FILE = 2 << 30  # bytes of a file that it writes
# Processes and threads. Linux counts those of the sandbox alone, and does not hold root to it.
_MAX_PROCESSES = 4096
_PROCESSES = f"{{ ulimit -u {_MAX_PROCESSES} || ulimit -p {_MAX_PROCESSES}; }} 2>/dev/null"  # -u is -p in dash
_LIMITED = f'ulimit -c 0; ulimit -f {_MAX_FILE >> 9}; {_PROCESSES}; exec "$@"'  # blocks of 512 bytes
_PROBE_TIMEOUT = 20.0  # seconds


def isolated(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> list[str]:
    """The command line that runs ``command`` apart. It starts in ``folder``, which is `INSIDE` for it."""
    return [*_bubblewrap(), *_mounts(folder), *_variables(environment), "--", "/bin/sh", "-c", _LIMITED, "sh", *command]


@cache
def why_not_isolated() -> str | None:
    """Why a command cannot be run apart here; ``None`` if it can."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed (the command bwrap)"
    probe = [*_bubblewrap(), *(word for path in _SYSTEM for word in ("--ro-bind-try", path, path)), "--", "/bin/true"]
    try:
        done = subprocess.run(probe, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_TIMEOUT, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"bubblewrap cannot be run: {error}"
    said = done.stderr.decode(errors="replace").strip()
    return f"bubblewrap cannot make namespaces here: {said}" if done.returncode else None


def _bubblewrap() -> list[str]:
    apart = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"]
    return ["bwrap", *apart, "--hostname", "sandbox", *_PROC, "--dev", "/dev", *_TEMPORARY]


def _mounts(folder: Path) -> Iterator[str]:
    for path in (*_SYSTEM, *(f"/etc/{name}" for name in _SETTINGS), *_python_folders()):
        yield from ("--ro-bind-try", path, path)
    yield from ("--bind", str(folder), str(INSIDE), "--remount-ro", "/", "--chdir", str(INSIDE))


def _python_folders() -> list[str]:
    """The folders that this Python, its packages and dynadiag are made of. What else is on `sys.path` may be the user's
    folder.
    """
    sites = (path for path in sys.path if Path(path).name in _SITES)  # also in the home, or named by another's .pth
    found = [sys.prefix, sys.base_prefix, *sites, *(str(Path(path).resolve()) for path in _packages())]
    outside = [path for path in dict.fromkeys(found) if not path.startswith(_SYSTEM)]
    return [path for path in outside if not any(path.startswith(f"{other}{os.sep}") for other in outside)]


def _packages() -> Iterator[str]:
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        yield from (spec.submodule_search_locations or ()) if spec is not None else ()


def _variables(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        yield from ("--setenv", name, value)
