"""Running a sample, bare and under `dynadiag explain`, each in a process of its own."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.interpreters import DYNADIAG, warm
from tests.shared import shared_folder

SAMPLES = Path(__file__).parents[2] / "samples"
TORCH = ".".join(version("torch").split(".")[:2])


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended, and every file that it left in the folders that it was given."""

    code: int
    stdout: str
    stderr: str
    left: list[str]


@dataclass(frozen=True, slots=True)
class Explained:
    """A program that ran under the recorder: what it printed is the head of `ended.stdout`, the report the rest."""

    path: Path
    ended: Ended
    document: dict[str, Any]
    recording: Path

    @property
    def roots(self) -> list[dict[str, Any]]:
        return [item for item in self.document["breaks"] if item["cause"] is None]

    def recompiles(self, function: str) -> list[dict[str, Any]]:
        return [item for item in self.document["recompiles"] if item["function"] == function]

    def graphs(self, function: str, stage: str = "dynamo") -> list[dict[str, Any]]:
        """The graphs of one stage that were made of a function."""
        positions = {at for item in self.document["compiles"] if item["function"] == function for at in item["graphs"]}
        return [
            self.document["graphs"][at] for at in sorted(positions) if self.document["graphs"][at]["stage"] == stage
        ]


def bare(path: Path) -> Ended:
    """Run a program as `python FILE.py`."""
    with tempfile.TemporaryDirectory() as folder:
        return _run([sys.executable, str(path)], Path(folder))


@functools.cache
def explained(path: Path) -> Explained:
    """Run a program under `dynadiag explain`; once for each program."""
    with shared_folder(f"{path.parent.name}-{path.stem}") as kept:
        document, recording, ending = (kept / name for name in ("explained.json", f"{path.stem}.dynadiag", "ended"))
        if not ending.exists():
            words = ["explain", "--force", "--json", str(document), "-o", str(recording), str(path)]
            with tempfile.TemporaryDirectory() as folder:
                ended = _run([str(DYNADIAG), *words], Path(folder))
            assert document.exists(), ended.stderr
            ending.write_text(json.dumps(asdict(ended)))
        ended = Ended(**json.loads(ending.read_text()))
        return Explained(path, ended, json.loads(document.read_text()), recording)


def _run(command: list[str], folder: Path) -> Ended:
    # When garbage is collected decides which of its optimizers are gone by the time that the next one is compiled.
    with contextlib.nullcontext() if command[-1].endswith("kfold_regression.py") else warm():
        return _run_in(command, folder)


def _run_in(command: list[str], folder: Path) -> Ended:
    places = {name: folder / name.lower() for name in ("HOME", "TMPDIR", "XDG_STATE_HOME")}
    here = folder / "here"
    for place in (*places.values(), here):
        place.mkdir()
    process = subprocess.run(
        command,
        cwd=here,
        env=_environment(places),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    left = sorted(str(path) for path in files if ".nv" not in path.parts)  # the driver's cache on a GPU
    return Ended(process.returncode, process.stdout, process.stderr, left)


def _environment(places: Mapping[str, Path]) -> dict[str, str]:
    """The tests' own, with every place that a program may write to replaced but for the compiler's caches.

    Reports are as wide as on the pages that show them.
    """
    cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir(), "dynadiag-tests-inductor")))
    own = {"TORCHINDUCTOR_CACHE_DIR": cache, "COLUMNS": "100"}
    return {**os.environ, **{name: str(place) for name, place in places.items()}, **own}


def line_of(path: Path, text: str) -> int:
    """The number of the one line that holds `text`."""
    found = [number for number, line in enumerate(path.read_text().splitlines(), 1) if text in line]
    assert len(found) == 1, f"{text!r} is on lines {found} of {path}"
    return found[0]


def span_text(item: Mapping[str, Any]) -> str:
    """What the span of a break holds."""
    line = Path(item["file"]).read_text().splitlines()[item["line"] - 1]
    return line[item["column"] : item["end_column"] if item["end_line"] == item["line"] else None]
