"""What ends a process that ``torch.multiprocessing.spawn`` started.

torch's function of that process, ``_wrap``, writes the user's exception to a file as text and raises ``SystemExit``.
While finalizers of `multiprocessing` ran in ``_bootstrap`` that was the current exception. Python 3.13 runs them
later, and by then it is gone. There ``_wrap`` is replaced by a function that calls it and keeps the ``SystemExit``.
No traceback of the user's exception has a frame of ours: it begins in ``_wrap``. Read in torch 2.11.0 to 2.15.0.
"""

from __future__ import annotations

import functools
import importlib
from multiprocessing.process import BaseProcess
from typing import Any

_kept: list[SystemExit] = []


@functools.cache  # once per process
def keep_exit() -> None:
    """From now on keep what ends a process, where it is gone when finalizers run."""
    if "_exit_function" in getattr(BaseProcess, "_bootstrap").__code__.co_names:  # noqa: B009 - not in the type stubs
        return
    spawn: Any = importlib.import_module("torch.multiprocessing.spawn")
    run = spawn._wrap

    @functools.wraps(run)  # it is pickled by its name
    def run_and_keep(*arguments: Any) -> None:
        try:
            run(*arguments)
        except SystemExit as ended:
            _kept.append(ended)
            raise

    spawn._wrap = run_and_keep


def kept_exit() -> SystemExit | None:
    """Return what ended this process, None if nothing was kept."""
    return _kept[-1] if _kept else None
