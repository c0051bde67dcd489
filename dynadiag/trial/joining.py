"""How a process takes part in a trial: our hooks in its torch, and the word to the processes that it starts.

A compile in a worker process is to be left out like any other. A worker that is a fork has our hooks already; one that
is a fresh interpreter (``spawn``, ``torchrun``, ``subprocess``) finds the trial in its environment, and joins it at the
end of its own ``import torch``.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from dynadiag.trial.plan import Plan
from dynadiag.trial.report import Reporter
from dynadiag.trial.runtime import TRIAL

__all__ = ["INVITATION", "join", "prepare"]

INVITATION = "DYNADIAG_JOIN"  # the variable that `dynadiag.autoload` looks for
_COMPILERS = "torch/_inductor/compile_worker/"  # processes of Inductor's own: they run nothing of the program's


def prepare(hooks: Sequence[str]) -> None:
    """Puts our hooks into torch. ``hooks`` are modules with an ``install()``, named by who asks for the trial."""
    importlib.import_module("dynadiag.trial.rungs").install()
    for name in hooks:
        importlib.import_module(name).install()
    TRIAL.on_start(functools.partial(_invite, hooks))


def _invite(hooks: Sequence[str]) -> None:
    report = TRIAL.reporter.path if TRIAL.reporter is not None else None
    os.environ[INVITATION] = json.dumps({"plan": TRIAL.plan.to_json(), "hooks": list(hooks), "report": report})


@functools.cache  # once a process, however often torch's entry points are called
def join() -> None:
    """Follow the plan of the trial in which this process was started, and report to its supervisor."""
    if _COMPILERS in sys.argv[0]:
        return
    asked = json.loads(os.environ[INVITATION])
    prepare(asked["hooks"])
    with suppress(OSError, TypeError):  # nobody listens, or who did is gone
        TRIAL.reporter = Reporter(os.open(asked["report"], os.O_WRONLY))
    TRIAL.start(Plan.from_json(asked["plan"]))
