"""How a process takes part in a trial: it installs our hooks in its torch, and passes the trial on to its own children.

A compile in a worker process has to be switched like any other. A forked worker has our hooks already. A fresh
interpreter (``spawn``, ``torchrun``, ``subprocess``) finds the trial in its environment and joins it at the end of its
own ``import torch``.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from dynadiag.trial.context import TRIAL
from dynadiag.trial.events import EventWriter
from dynadiag.trial.plan import Plan

__all__ = ["JOIN_VARIABLE", "install_hooks", "join"]

JOIN_VARIABLE = "DYNADIAG_JOIN"  # `dynadiag.autoload` looks for this variable
_COMPILE_WORKERS = "torch/_inductor/compile_worker/"  # Inductor's compile workers run no code of the program


def install_hooks(hooks: Sequence[str]) -> None:
    """Install our hooks in torch. ``hooks`` are names of modules with an ``install()``."""
    importlib.import_module("dynadiag.trial.rungs").install()
    for name in hooks:
        importlib.import_module(name).install()
    TRIAL.on_start(functools.partial(_set_join_variable, hooks))


def _set_join_variable(hooks: Sequence[str]) -> None:
    report = TRIAL.reporter.path if TRIAL.reporter is not None else None
    os.environ[JOIN_VARIABLE] = json.dumps({"plan": TRIAL.plan.to_json(), "hooks": list(hooks), "report": report})


@functools.cache  # torch may call its entry points several times
def join() -> None:
    """Follow the plan of the trial whose environment this process has, and report to its supervisor. Runs once per
    process.
    """
    if _COMPILE_WORKERS in sys.argv[0]:
        return
    asked = json.loads(os.environ[JOIN_VARIABLE])
    install_hooks(asked["hooks"])
    with suppress(OSError, TypeError):  # no supervisor, or it has ended
        TRIAL.reporter = EventWriter(os.open(asked["report"], os.O_WRONLY))
    TRIAL.start(Plan.from_json(asked["plan"]))
