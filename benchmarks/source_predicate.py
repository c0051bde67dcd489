"""The predicate of `minify` for source, for benchmarks: a candidate passes uncompiled and fails as the program does."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dynadiag.bisection.trial_log import TrialLog
from dynadiag.bisection.trial_search import TrialSearch
from dynadiag.minify.minimizer import HOOKS
from dynadiag.minify.source_program import read_program
from dynadiag.minify.source_trials import OUTPUT_DIFFERS, SourceTrials, source_trials
from dynadiag.trial.program import Program
from dynadiag.trial.runner import Runner
from dynadiag.trial.supervise import Limits

__all__ = ["failing_program"]


@contextmanager
def failing_program(path: Path, seconds: float) -> Iterator[SourceTrials]:
    """The trials of a program as one file (``whole_text``); each may take ``seconds``. Exits if it does not fail."""
    program = Program(str(path.resolve()))
    source = read_program(program)
    with tempfile.TemporaryDirectory() as folder, Runner(program, HOOKS, Limits.default(seconds)) as runner:
        refused = runner.start_forks(threads=1, checkpoint=False)
        if refused:
            raise SystemExit(f"{path}: {refused}")
        rows = TrialLog(Path(folder, "search.dynadiag"), program.text, [program.target], None, {}, False)
        with source_trials(TrialSearch(runner, rows), source.text, source.imports, None) as trials:
            if not fails(trials):
                raise SystemExit(f"{path}: as one file it passes compiled, or fails uncompiled")
            yield trials


def fails(trials: SourceTrials) -> bool:
    """Whether the whole program fails, or prints something else than uncompiled. The trials then expect that."""
    text = trials.whole_text
    if (found := trials.first_failure(text)) is not None:
        return found.kind != "hang" or trials.first_failure(text) is not None  # with a hang's limit
    trials.expected = OUTPUT_DIFFERS
    return trials.first_failure(text) is not None
