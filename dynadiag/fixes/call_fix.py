"""`dynadiag.fix`: the search for fixes of one call of the caller's process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dynadiag.errors import DynadiagError
from dynadiag.fixes.edits import unified_diff
from dynadiag.fixes.fix_report import FixReport
from dynadiag.fixes.fix_result import document_of
from dynadiag.fixes.fix_search import find_fixes
from dynadiag.fixes.pickled_call import project_of_call
from dynadiag.fixes.prover import FailsUncompiled
from dynadiag.fixes.trials import Trials, runner_of


def fix_call(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> FixReport:
    """The fixes of a call. Raises `DynadiagError` if it cannot be pickled, or fails uncompiled."""
    project = project_of_call(fn, args, kwargs)
    began = time.monotonic()
    with runner_of(project.program) as runner:
        trials = Trials(project, runner, lambda *_: None)
        try:
            result = find_fixes(trials, lambda _: None)
        except FailsUncompiled as failed:
            raise DynadiagError(f"fix: the call fails uncompiled: {failed}") from failed
    document = document_of(result, project, trials.count, time.monotonic() - began)
    return FixReport(document, unified_diff({name: project.source(name) for name in result.changed}, result.changed))
