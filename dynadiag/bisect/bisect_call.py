"""Bisects a call of this process, for `dynadiag.bisect` in Python."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dynadiag.bisect.bisector import HOOKS, BisectOptions, bisect
from dynadiag.bisect.trial_log import TrialLog
from dynadiag.bisect.trial_search import TrialSearch
from dynadiag.bisect.verdict import Verdict
from dynadiag.trial.in_process import InProcessRunner
from dynadiag.trial.supervise import Limits

__all__ = ["bisect_call"]

_ONE_THREAD = "each trial was a fork of this process, with one thread"


def bisect_call(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    accuracy: bool,
    repeat: int,
    timeout: float,
) -> Verdict:
    """The verdict on one call. ``timeout`` is in seconds. Raises `DynadiagError` if this process cannot fork."""
    with (
        tempfile.TemporaryDirectory(prefix="dynadiag-") as folder,
        InProcessRunner.of(fn, args, kwargs, HOOKS, Limits.default(timeout)) as runner,
    ):
        name = runner.program.text
        rows = TrialLog(Path(folder, "search.dynadiag"), name, [name])
        try:
            verdict = bisect(TrialSearch(runner, rows, repeat=repeat), BisectOptions(accuracy=accuracy, repeat=repeat))
        finally:
            rows.discard()
    return replace(verdict, target=name, accuracy=accuracy, notes=(*verdict.notes, _ONE_THREAD))
