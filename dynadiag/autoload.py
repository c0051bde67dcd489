"""What torch calls at the end of ``import torch`` (entry point group ``torch.backends``).

Where neither variable of ours is set this returns at once: two look-ups, and nothing else of
dynadiag is loaded.
"""

from __future__ import annotations

import os


def start() -> None:
    """Record this process, or have it join a trial, if its environment asks for it.

    Never raises: a failure is one line on stderr.
    """
    if os.environ.get("DYNADIAG_RECORD"):
        _attempt("recorded", "dynadiag.capture.process", "record_this_process")
    if os.environ.get("DYNADIAG_JOIN"):
        _attempt("part of the trial", "dynadiag.trial.joining", "join")


def _attempt(what: str, module: str, function: str) -> None:
    try:
        import importlib

        getattr(importlib.import_module(module), function)()
    except Exception as error:  # noqa: BLE001 - torch would refuse to be imported, and the program could not run
        from dynadiag.stderr import say

        say(f"process {os.getpid()} is not {what}", error)
