"""dynadiag from Python: record a block, explain one call."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dynadiag.capture.process import run_footer, run_header
from dynadiag.capture.recorder import Recorder
from dynadiag.errors import DynadiagError
from dynadiag.recording.journal import Journal
from dynadiag.recording.opening import fold_in_place, open_any
from dynadiag.recording.reader import Recording
from dynadiag.render.report import Report, report

__all__ = ["explain", "open", "record"]


@contextmanager
def record(path: str | Path, *, force: bool = False, source: bool = True) -> Iterator[Path]:
    """Record whatever torch compiles inside the block into ``path``.

    ``source=False`` leaves the text of your files out. An exception in the block goes on, and what was recorded is
    kept.
    Raises `DynadiagError` where ``path`` exists and ``force`` is not given.
    """
    import torch  # noqa: F401 - the recorder's probes need it loaded

    path = Path(path).absolute()
    if path.exists() and not force:
        raise DynadiagError(f"{path} exists: give another name, or force=True to overwrite it")
    path.unlink(missing_ok=True)
    began, pid = time.time(), os.getpid()
    recorder = Recorder(lambda: _open(path), source=source)
    recorder.journal()
    recorder.start()
    code: int | None = 1
    try:
        yield path
        code = 0
    finally:
        if os.getpid() == pid:
            recorder.journal().append({"dynadiag_end": run_footer(began)}, past_limit=True)
            recorder.journal().append({"dynadiag_exit": {"code": code}}, past_limit=True)
            recorder.stop()
            fold_in_place(path)


def _open(path: Path) -> Journal:
    own = path if not path.exists() else path.with_name(f"{path.stem}-{os.getpid()}{path.suffix}")
    journal = Journal.create(own)
    journal.append({"dynadiag_run": run_header(None)})
    return journal


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    """Compile ``fn`` (a function or a module), call it once, and say what torch.compile did.

    What is compiled already is called as it is. Where the call raises, the explanation says so and ``exit_code`` is 1.
    """
    import torch

    compiled = fn if hasattr(fn, "_torchdynamo_orig_callable") else torch.compile(fn)
    failure: Exception | None = None
    with tempfile.TemporaryDirectory(prefix="dynadiag-") as folder:
        path = Path(folder, "call.dynadiag")
        try:
            with record(path):
                compiled(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the user's program may raise anything: it is what is explained
            failure = error
        with open(path) as recording:
            made = report(recording)
    if failure is None:
        return made
    return replace(made, notes=(*made.notes, f"the call raised {type(failure).__name__}: {failure}"))


def open(path: str | Path) -> Recording:  # noqa: A001 - `dynadiag.open`, as `gzip.open` is
    """Open a recording, or a journal that is not folded yet. Raises `dynadiag.UnreadableInput`."""
    return open_any(Path(path))
