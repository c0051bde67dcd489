"""Our hooks in torch, in the process of a trial and in the processes that it starts.

A compile in a child process has to be switched like any other. A forked child has our hooks already. A fresh
interpreter (``spawn``, ``torchrun``, ``subprocess``) finds the trial in its environment and joins it at the end of its
own ``import torch``.

What needs torch is imported by the functions, since the command's own process loads this module without torch.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from dynadiag.trial.context import TRIAL
from dynadiag.trial.events import EventWriter
from dynadiag.trial.plan import Plan
from dynadiag.trial.rank import report_exceptions, report_spawned_ranks
from dynadiag.trial.typed_json import dump, load

JOIN_VARIABLE = "DYNADIAG_JOIN"  # `dynadiag.autoload` looks for this variable
_COMPILE_WORKERS = "torch/_inductor/compile_worker/"  # Inductor's compile workers run no code of the program


@dataclass(frozen=True, slots=True)
class _JoinRequest:
    """What a child process of the program needs to join the trial. ``report`` is the path of the trial's events.

    Where ``hooks`` is None the child has an unchanged torch.
    """

    plan: Plan
    hooks: tuple[str, ...] | None
    report: str | None


def install_hooks(hooks: Sequence[str]) -> None:
    """Install our hooks in torch. ``hooks`` are names of modules with an ``install()``."""
    from dynadiag.trial import rungs

    rungs.install()
    for name in hooks:
        importlib.import_module(name).install()
    TRIAL.on_start(functools.partial(let_children_join, hooks))


def let_children_join(hooks: Sequence[str] | None) -> None:
    """Have the processes that this one starts join its trial, with these hooks in torch or with an unchanged torch."""
    report_spawned_ranks()
    report = TRIAL.reporter.path if TRIAL.reporter is not None else None
    os.environ[JOIN_VARIABLE] = dump(_JoinRequest(TRIAL.plan, None if hooks is None else tuple(hooks), report))


@functools.cache  # torch may call its entry points several times
def join() -> None:
    """Join the trial whose environment this process has: follow its plan and report to its supervisor. Runs once per
    process.
    """
    if _COMPILE_WORKERS in sys.argv[0]:
        return
    wanted = load(os.environ[JOIN_VARIABLE], _JoinRequest)
    if wanted.hooks is not None:
        install_hooks(wanted.hooks)
    with suppress(OSError, TypeError):  # no supervisor, or it has ended
        TRIAL.reporter = EventWriter(os.open(wanted.report, os.O_WRONLY))  # type: ignore[arg-type]  # None: TypeError
    TRIAL.start(wanted.plan)
    report_exceptions()
    report_spawned_ranks()
