"""The entry point that torch calls at the end of ``import torch`` (group ``torch.backends``).

If this process is not to be recorded and takes no part in a trial, it returns after a few lookups and loads nothing
else of dynadiag.
"""

from __future__ import annotations

import os
import sys


def start() -> None:
    """Load overlays, record this process, or make it take part in a trial, as the environment asks.

    Never raises: an error becomes one line on stderr.
    """
    if os.environ.get("DYNADIAG_OVERLAY"):
        _call_or_report("changed by its overlay", "dynadiag.overlay", "load_named")
    if os.environ.get("DYNADIAG_RECORD") or "_dynadiag_start" in sys.modules:
        _call_or_report("recorded", "dynadiag.capture.process", "record_this_process")
    if os.environ.get("DYNADIAG_JOIN"):
        _call_or_report("part of the trial", "dynadiag.trial.child_processes", "join")


def _call_or_report(what: str, module: str, function: str) -> None:
    try:
        import importlib

        getattr(importlib.import_module(module), function)()
    except Exception as error:  # noqa: BLE001 - `import torch` would fail otherwise
        from dynadiag.errors import say

        say(f"process {os.getpid()} is not {what}", error)
