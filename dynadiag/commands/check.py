"""Compare programs, recordings or logs to a baseline and to budgets: new findings fail, known ones do not.

Each TARGET is a program (FILE.py, FILE.py:NAME, pkg.mod:NAME, or a module with -m), which is run and recorded; or a
recording (*.dynadiag), a TORCH_TRACE log, or a folder of either. Without a TARGET, those of the configuration are
checked. A program gets the arguments that the configuration has for it.

Budgets stand in dynadiag.toml or under [tool.dynadiag] of pyproject.toml, for all targets or for a pattern of them. The
baseline is a file that lists the findings that are known; --update writes it. Without a baseline every graph break and
recompile is new, unless a budget allows some.

--fixes FILE adds the changes that `dynadiag fix --json FILE` proved to the problems of the SARIF. Nothing is searched.

With --on ray the programs run as tasks of Ray, side by side, on this machine or on the cluster that RAY_ADDRESS names.

Exit code: 0 nothing is new or over budget; 1 something is; 2 usage error.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from dynadiag.check.baseline import Baseline, changes_of, read_baseline, updated_baseline
from dynadiag.check.configuration import (
    BUDGETS,
    CONFIGURATION_FILES,
    Configuration,
    find_configuration,
    parse_budgets,
    relative_seconds,
)
from dynadiag.check.measurement import Measurement, measure, peak_memory
from dynadiag.check.proved_fixes import ProvedFixes, read_fixes
from dynadiag.check.result import CheckResult, after_update, check
from dynadiag.commands import common, outputs
from dynadiag.commands.ray_sweep import SweptProgram, record_on_ray
from dynadiag.commands.report import write_report
from dynadiag.commands.target_options import RecordOptions, add_recorder_options, existing_recordings, recordings_of
from dynadiag.errors import DynadiagError
from dynadiag.recording.opening import open_recording
from dynadiag.render.check_report import annotation_commands, check_json, check_text, step_summary
from dynadiag.render.findings import finding_text
from dynadiag.render.paths import relative_path
from dynadiag.render.printer import Printer
from dynadiag.render.report import report
from dynadiag.render.sarif import sarif_json

_COUNTS = {
    "--max-breaks": "graph breaks",
    "--max-recompiles": "recompiles",
    "--max-graphs": "graphs",
    "--max-launches": "kernel calls",
}


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [OPTIONS] TARGET..."
    outputs.add_json(parser)
    outputs.add_file_option(parser, "--baseline", "the findings that are known", outputs.BASELINE)
    common.add_flag(parser, "--update", "write the baseline: all present findings become known")
    outputs.add_file_option(parser, "--sarif", "also write the problems as SARIF 2.1.0", outputs.SARIF)
    told = "a document of `dynadiag fix --json`, whose proved changes the SARIF offers"
    parser.add_argument("--fixes", type=Path, action="append", default=[], metavar="FILE", help=told)
    outputs.add_file_option(parser, "--html", "also write the recordings as one HTML page", outputs.PAGE)
    common.add_flag(parser, "--force", "overwrite an existing file that is not such a result")
    common.add_flag(parser, "--github", "also print GitHub's annotations, and append to the step's summary")
    for option, what in _COUNTS.items():
        parser.add_argument(option, type=int, metavar="N", help=f"at most N {what} in each target")
    parser.add_argument(
        "--max-compile-seconds", type=_number_or_text, metavar="S", help="seconds, or a share of the baseline's: 120%%"
    )
    parser.add_argument("--max-memory", metavar="SIZE", help="peak of memory, such as '2 GB'")
    for option, what in (("--fallback-kernel", "calls left to ATen"), ("--cache-bypass", "cache bypasses")):
        parser.add_argument(option, type=int, nargs="?", const=0, metavar="N", help=f"at most N {what} (default 0)")
    told = "nothing may be compiled after N calls of the first compiled function"
    common.add_count(parser, "--after", "calls", told)
    parser.add_argument("--on", choices=["ray"], help="run the programs as tasks of Ray (pip install 'dynadiag[ray]')")
    add_recorder_options(parser)
    parser.add_argument("-m", dest="modules", action="append", default=[], metavar="MOD", help="a module to run")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="programs, recordings, logs")


def run(args: argparse.Namespace) -> int:
    configuration, root = find_configuration(Path.cwd())
    targets = [*((name, False) for name in args.targets), *((name, True) for name in args.modules)]
    if not targets:
        targets = [(name, False) for name in configuration.targets if not set(name) & set("*?[")]
    if not targets:
        raise DynadiagError("check: name a program, a recording or a log, or list targets in dynadiag.toml")
    for name in CONFIGURATION_FILES:
        outputs.input_at(root / name)
    for output, kind in ((args.sarif, outputs.SARIF), (args.html, outputs.PAGE)):
        if output is not None:
            outputs.check_writable(output, force=args.force, kind=kind)
    if args.fixes and args.sarif is None:
        raise DynadiagError("check: --fixes needs --sarif FILE, which is where the changes stand")
    fixes = read_fixes(args.fixes)
    given = parse_budgets({name: getattr(args, name.replace("-", "_")) for name in BUDGETS}, "check")
    path = args.baseline or root / configuration.baseline
    known = _read_baseline(path, args)
    programs = [
        SweptProgram(name, module, configuration.arguments(_shown_name(name, module, root))) for name, module in targets
    ]
    runs = [
        each for program, paths in _recorded(programs, args) for each in _measured(program, paths, root, args.after)
    ]
    before = known or Baseline()
    if args.update:
        known = updated_baseline(before, runs, root, _relative(configuration, runs))
        outputs.write_file(path, known.to_json(), force=args.force, kind=outputs.BASELINE)
    result = check(runs, known, lambda run: configuration.budgets(run.names, given), root)
    if args.update and known is not None:
        result = after_update(result, changes_of(relative_path(str(path), str(Path.cwd())), before, known))
    _report(result, fixes, args)
    return 0 if result.ok else 1


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _read_baseline(path: Path, args: argparse.Namespace) -> Baseline | None:
    """The baseline. None if there is no file, unless the user named it."""
    if args.update:
        outputs.check_writable(path, force=args.force, kind=outputs.BASELINE)
    else:
        outputs.input_at(path)
    if path.exists() or (args.baseline is not None and not args.update):
        return read_baseline(path)
    return None


def _relative(configuration: Configuration, runs: Sequence[Measurement]) -> Iterator[str]:
    """The targets whose budget of seconds is a share of the baseline's."""
    nothing = parse_budgets({}, "check")
    for each in runs:
        limit = configuration.budgets(each.names, nothing).max_compile_seconds
        if limit is not None and relative_seconds(limit) is not None:
            yield each.target


def _shown_name(name: str, module: bool, root: Path) -> str:
    return f"-m {name}" if module else _relative_name(name, root)


def _recorded(
    programs: Sequence[SweptProgram], args: argparse.Namespace
) -> Iterator[tuple[SweptProgram, tuple[Path, ...]]]:
    """The recordings of each target; what is not recorded yet is run, here or by Ray."""
    if args.on is None:
        for each in programs:
            yield each, recordings_of(each.arguments, RecordOptions.of(args, each.target), module=each.module)
        return
    existing = [None if each.module else existing_recordings(each.target, None, force=False) for each in programs]
    missing = [each for each, paths in zip(programs, existing, strict=True) if not paths]
    recorded = iter(record_on_ray(missing, args) if missing else ())
    for each, paths in zip(programs, existing, strict=True):
        yield each, paths or next(recorded)


def _measured(program: SweptProgram, paths: Sequence[Path], root: Path, after: int | None) -> Iterator[Measurement]:
    """The runs of a program, one for each of its processes. The warm-up has to end in one of them."""
    runs = list(_each_measured(program, paths, root, after))
    is_warm = any(run.cold is None for run in runs)
    yield from (replace(run, cold=None) if is_warm else run for run in runs)


def _each_measured(
    program: SweptProgram, paths: Sequence[Path], root: Path, after: int | None
) -> Iterator[Measurement]:
    shown = _shown_name(program.target, program.module, root)
    for path in paths:
        with open_recording(path) as recording:
            found = report(recording)
            own = _relative_name(recording.run.target, root)
            yield measure(
                found,
                found.calls,
                shown if recording.run.is_foreign else own,
                names=(shown, program.target),
                memory=peak_memory(recording),
                recording=str(path),
                after=after,
                show=lambda item, found=found: "\n".join(finding_text(item, found, Printer(width=100))),  # type: ignore[misc]
            )


def _relative_name(name: str, root: Path) -> str:
    """A file's name from the root on, so that a target has one name wherever the command is run."""
    before, suffix, after = name.partition(".py:")  # of FILE.py:NAME or FILE.py::TEST
    file, rest = (f"{before}.py", f":{after}") if suffix else (name, "")
    if not Path(file).is_file():
        return name
    inside = os.path.relpath(Path(file).absolute(), root)
    return f"{file if inside.startswith('..') else inside}{rest}"


def _report(result: CheckResult, fixes: ProvedFixes, args: argparse.Namespace) -> None:
    """Print the result, and then write the files: it is there even if one of them cannot be written."""
    if args.json != "-":
        common.print_text(check_text(result, common.printer_for(sys.stdout)))
        if args.github:
            sys.stdout.write(annotation_commands(result))
        sys.stdout.flush()
    if args.sarif is not None:
        outputs.write_file(args.sarif, sarif_json(result, fixes), force=args.force, kind=outputs.SARIF)
    if args.html is not None:
        recordings = [Path(each.recording) for each in result.runs if each.recording]
        with outputs.writing(args.html, force=args.force, kind=outputs.PAGE) as scratch:
            write_report(recordings, scratch)
    common.write_json(args.json, check_json(result))
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if args.github and summary:
        outputs.append_text(Path(summary), step_summary(result))
