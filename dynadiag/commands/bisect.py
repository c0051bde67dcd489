"""Find the part of the compiler that is at fault: the rung, graph, pass, pattern, lowering, fusion or kernel.

The program is run as it is first. If it fails, it is run again with less and less of the compiler, each time in a
process of its own, until the smallest part is found that makes it fail when on and pass when off.

--torch A..B finds between which two releases of torch the failure came or was mended instead.

TARGET is FILE.py, -m pkg.mod, FILE.py:NAME or pkg.mod:NAME. Options come before it; words after it belong to the
program. Exit code: 0 found, 3 it does not fail, 4 it fails uncompiled too, 5 it fails but no culprit is sure (not every
time, or the search stopped), 2 usage error.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from dynadiag.bisection.bisector import HOOKS, bisect
from dynadiag.bisection.budget import SearchBudget
from dynadiag.bisection.trial_log import TrialLog
from dynadiag.bisection.trial_search import TrialSearch
from dynadiag.bisection.verdict import InterruptedSearch, Verdict
from dynadiag.commands import bisect_releases, common, outputs
from dynadiag.commands.progress import ProgressPrinter
from dynadiag.commands.search_options import SearchOptions, add_resume, add_search_options, linked_file
from dynadiag.commands.target_options import add_target, parse_program
from dynadiag.errors import DynadiagError
from dynadiag.explanation.formatting import count
from dynadiag.trial.decision_kinds import REPORTED_KINDS
from dynadiag.trial.plan import RUNGS, Plan
from dynadiag.trial.program import Program
from dynadiag.trial.ray_runner import RayRunner
from dynadiag.trial.ray_session import load_ray, ray_session
from dynadiag.trial.runner import Runner
from dynadiag.trial.supervise import Limits
from dynadiag.trial.typed_json import load


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    outputs.add_json(parser)
    outputs.add_output(parser, "the recording of the search")
    add_search_options(parser)
    add_resume(parser)
    parser.add_argument(
        "--candidate", metavar="JSON", help="run one trial, copied from a report of bisect, and print how it ends"
    )
    bisect_releases.add_release_options(parser)
    add_target(parser)


def run(args: argparse.Namespace) -> int:
    if bisect_releases.bisects_releases(args):
        return bisect_releases.run(args)
    if args.prune and not args.target:
        return bisect_releases.prune()
    program = parse_program(args)
    if args.candidate is not None:
        return _one_trial(program, args.candidate, SearchOptions.of(args))
    options = SearchOptions.of(args)
    resumed = args.output is None and args.resume is not None
    output = linked_file(args.resume) if resumed else outputs.new_recording(args.output, program.text, force=args.force)
    log = new_trial_log("bisect", program, options, output)
    try:
        with ProgressPrinter(sys.stderr) as progress, common.interrupted_by_signals():
            verdict, code = find_culprits_of(program, options, log, progress), None
    except InterruptedSearch as interrupt:
        verdict, code = interrupt.verdict, common.INTERRUPTED
    common.write_result(args.json, verdict.to_json().encode(), verdict.text)
    common.print_path(log.kept)
    return verdict.exit_code if code is None else code


def find_culprits_of(
    program: Program,
    options: SearchOptions,
    log: TrialLog,
    progress: ProgressPrinter,
    hooks: Sequence[str] = HOOKS,
    record: Sequence[str] = REPORTED_KINDS,
) -> Verdict:
    """Search, and complete the recording of the search. ``record`` is what each rung reports, by these ``hooks``.

    Raises `DynadiagError` if the target is not a program, and `InterruptedSearch` with what is known after Ctrl-C: then
    the recording has the trials so far.
    """
    try:
        with trial_search(program, options, log, progress, hooks) as search:
            asked = replace(options.of_bisection, record=tuple(record))
            verdict = replace(bisect(search, asked), **_report_fields(program))
    except InterruptedSearch as interrupt:
        progress.message(f"interrupted after {count(log.count, 'trial')}; resume with --resume {log.output}")
        raise InterruptedSearch(replace(interrupt.verdict, **_report_fields(program))) from None
    log.add_verdict(verdict.to_json())
    log.finish(verdict.exit_code, force=True)
    return verdict


@contextmanager
def trial_search(
    program: Program, options: SearchOptions, log: TrialLog, progress: ProgressPrinter, hooks: Sequence[str] = HOOKS
) -> Iterator[TrialSearch]:
    """A search.

    After Ctrl-C its recording has the trials so far. If the target is not a program, there is no recording.
    """
    first_run = progress.first_run(options.timeout)
    with _runner(program, options, hooks) as runner, log.kept_after_interrupt(), first_run:
        budget = SearchBudget(options.budget)
        yield TrialSearch(runner, log, progress.on_trial, progress.message, options.repeat, budget=budget)


@contextmanager
def _runner(program: Program, options: SearchOptions, hooks: Sequence[str] = HOOKS) -> Iterator[Runner]:
    """What runs the trials: this machine, or Ray."""
    limits = Limits.default(options.timeout)
    if options.on is None:
        with Runner(program, hooks, limits, fresh_caches=options.fresh, jobs=options.jobs) as runner:
            yield runner
        return
    ray = load_ray()
    with (
        contextlib.redirect_stdout(sys.stderr),  # Ray says on stdout that a worker died
        ray_session(ray),
        RayRunner(program, hooks, limits, fresh_caches=options.fresh, ray=ray) as runner,
    ):
        yield runner


def new_trial_log(command: str, program: Program, options: SearchOptions, output: Path) -> TrialLog:
    words = [program.target, *program.arguments]
    return TrialLog(output, program.text, words, options.resume, options.words(command), options.force)


def _report_fields(program: Program) -> dict[str, Any]:
    """The fields of the verdict that name the program: for a reader, and for a shell."""
    words = [*program.text.split(" ", 1 if program.module else 0), *program.arguments]
    return {"target": program.text, "command": shlex.join(words)}


def _one_trial(program: Program, candidate: str, options: SearchOptions) -> int:
    """Run one trial in a fresh interpreter, print its output, and report how it ended."""
    try:
        plan = load(candidate, Plan)
        if unknown := json.loads(candidate).keys() - {field.name for field in fields(Plan)}:
            raise ValueError(f"no field {min(unknown)!r}")
        if plan.rung not in (None, *RUNGS):
            raise ValueError(f"no rung {plan.rung!r}")
    except ValueError as error:
        raise DynadiagError(f"--candidate: not a candidate ({error}); copy it from a report of bisect") from error
    with _runner(program, options) as runner:
        outcome = runner.run_fresh(plan)
    common.print_text(outcome.tail)
    ended = "passes" if outcome.passed else f"fails: {outcome.signature.type if outcome.signature else outcome.invalid}"
    sys.stderr.write(f"{ended}, exit code {outcome.exit_code}, {outcome.seconds:.1f} s\n")
    return 3 if outcome.passed else 0
