"""The Python that a trial runs in, where that is not our own: another environment, with another release of torch.

dynadiag need not be installed there. A folder with links to our package goes on its path, and torch finds the recorder
there as it finds an installed one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import dynadiag
from dynadiag.errors import DynadiagError

_OLDEST_PYTHON = (3, 11)
_PROBE_TIMEOUT = 60.0  # seconds; it imports nothing of torch
_PROBE = """
import importlib.metadata, importlib.util, json, sys
try:
    torch = importlib.metadata.version("torch")
except importlib.metadata.PackageNotFoundError:
    torch = None
has_msgspec = importlib.util.find_spec("msgspec") is not None
print(json.dumps([torch, sys.implementation.cache_tag, list(sys.version_info[:2]), has_msgspec]))
"""
_METADATA = "Metadata-Version: 2.1\nName: dynadiag\nVersion: {version}\n"
_ENTRY_POINTS = "[torch.backends]\ndynadiag = dynadiag.autoload:start\n"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python with torch. ``torch`` is the release that is installed there, with its build (``2.13.0+cpu``).

    ``path`` is a folder that goes on its path, ``None`` for our own interpreter.
    """

    python: Path
    torch: str
    path: Path | None = None

    def environment(self) -> dict[str, str]:
        """Variables that a process of this interpreter needs to find our package."""
        if self.path is None:
            return {}
        return {"PYTHONPATH": os.pathsep.join(filter(None, [str(self.path), os.environ.get("PYTHONPATH")]))}


def probe(python: Path, folder: Path) -> Interpreter:
    """What an interpreter has. The links to our package are made in ``folder``, once for all interpreters.

    Raises `DynadiagError` if it cannot be run, is too old, has no torch, or cannot load our package.
    """
    try:
        done = subprocess.run(
            [python, "-c", _PROBE], capture_output=True, text=True, timeout=_PROBE_TIMEOUT, check=False, cwd="/"
        )
        torch, tag, version, has_msgspec = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise DynadiagError(f"{python}: not a Python interpreter that runs; name one (bin/python of a venv)") from error
    if tuple(version) < _OLDEST_PYTHON:
        raise DynadiagError(f"{python}: Python {version[0]}.{version[1]}; dynadiag needs Python 3.11 or newer")
    if torch is None:
        raise DynadiagError(f"{python}: it has no torch; name an interpreter of an environment with torch")
    if not has_msgspec and tag != sys.implementation.cache_tag:
        raise DynadiagError(f"{python}: it needs the package msgspec, which dynadiag loads: pip install it there")
    return Interpreter(python, torch, link_dynadiag(folder, with_msgspec=not has_msgspec))


def link_dynadiag(folder: Path, *, with_msgspec: bool) -> Path:
    """A folder for the path of another interpreter: our package, how torch finds it, and msgspec if that is missing."""
    path = folder / ("with-msgspec" if with_msgspec else "dynadiag")
    if not path.exists():
        info = path / f"dynadiag-{dynadiag.__version__}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(_METADATA.format(version=dynadiag.__version__))
        (info / "entry_points.txt").write_text(_ENTRY_POINTS)
        for name in ("dynadiag", "msgspec") if with_msgspec else ("dynadiag",):
            (path / name).symlink_to(_package_folder(name))
    return path


def _package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
