"""A fixture that bisects a program with a planted fault."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from dynadiag.bisection.bisector import HOOKS, bisect
from dynadiag.bisection.failing_rung import BisectOptions
from dynadiag.bisection.trial_log import TrialLog
from dynadiag.bisection.trial_search import TrialSearch
from dynadiag.bisection.verdict import Verdict
from dynadiag.trial.program import Program
from dynadiag.trial.runner import Runner
from dynadiag.trial.supervise import Limits
from tests.interpreters import warm

Bisected = Callable[..., Verdict]


@pytest.fixture
def bisected(tmp_path: Path) -> Bisected:
    """``bisected(source, **options)`` returns the verdict on a program given as text."""

    def run(
        source: str, *, timeout: float = 120.0, resume: Path | None = None, repeat: int = 1, **options: object
    ) -> Verdict:
        path = tmp_path / "program.py"
        path.write_text(source)
        program = Program.parse(str(path))
        log = io.StringIO()
        rows = TrialLog(tmp_path / "search.dynadiag", program.text, [program.target], resume, {"command": "bisect"})

        def tell(number: int, label: str, status: str, seconds: float) -> None:
            log.write(f"{number} {label} {status} {seconds}\n")

        with warm(), Runner(program, HOOKS, Limits.default(timeout), jobs=2) as runner:
            search = TrialSearch(runner, rows, tell, repeat=repeat)
            verdict = bisect(search, BisectOptions(repeat=repeat, **options))  # type: ignore[arg-type]
        rows.finish(verdict.exit_code, force=True)
        print(log.getvalue())  # noqa: T201 - shown where the test fails
        return verdict

    return run
