"""Does compiling pay? Time one function uncompiled and compiled in several ways, each in a process of its own.

TARGET is FILE.py:NAME or pkg.mod:NAME, a function without arguments that returns (fn, args) or (fn, args, kwargs).
Options come before it; words after it belong to the program. All variants are set up first and then measured in turn,
so that a machine that slows down affects all of them alike. The uncompiled call is always measured.

A and B are two recordings instead: what they were given that differs, their step time, peak memory and launches, and
the first stage of compiling that differs, where the profiles agree that it explains them. Step times are in the
recordings that this command writes; nothing is run.

Each variant writes a recording into a folder (-o). `dynadiag explain` and `dynadiag browse` show what was compiled,
`browse` also the times.
Exit code: 0 if a variant was measured, 1 if every variant failed, 2 usage error, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import suppress
from pathlib import Path

from dynadiag.commands import common, outputs, state
from dynadiag.commands.progress import ProgressPrinter
from dynadiag.commands.target_options import add_target, names_recording, parse_program
from dynadiag.compare.comparison import ComparisonOptions, compare
from dynadiag.compare.comparison_report import compare_document, comparison_text
from dynadiag.compare.recorded import compare_recorded, recorded_document, recorded_text
from dynadiag.compare.variant import AMP, DYNAMIC, MODES, variants
from dynadiag.errors import DynadiagError
from dynadiag.recording.opening import COMPARISON_NAME, open_recording
from dynadiag.render.json_document import encode
from dynadiag.trial.program import TargetError
from dynadiag.trial.supervise import Limits

# Options on what is run and measured.
_MEASURES = (
    *((name, f"--{name}") for name in ("modes", "backends", "amp", "dynamic", "also", "inputs", "repeat", "timeout")),
    *(("fresh", "--fresh"), ("force", "--force"), ("output", "-o"), ("step", "--train, --inference")),
)
_DEFAULT_MODES = ("eager", "default", "reduce-overhead", "max-autotune")


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    outputs.add_json(parser)
    outputs.add_folder_option(parser, "folder for the recordings of the variants")
    common.add_flag(parser, "--force", "overwrite the recordings of an earlier comparison")
    _add_variants(parser)
    common.add_count(parser, "--repeat", "rounds", "rounds of measurement (default 5)", 5)
    told = "limit of a variant's first calls, and of a round, in seconds"
    common.add_amount(parser, "--timeout", "a number of seconds", "S", told, 600.0)
    common.add_flag(parser, "--fresh", "use empty compiler caches for each variant")
    add_target(parser)


def _add_variants(parser: argparse.ArgumentParser) -> None:
    modes, amp = common.names_among(MODES, "mode"), common.names_among(AMP, "dtype")
    dynamic, shapes = common.names_among(DYNAMIC, "setting"), ", ".join(DYNAMIC)
    for option, names, default, told in (
        ("--modes", modes, _DEFAULT_MODES, f"compile modes: {', '.join(MODES)}; eager always runs"),
        ("--backends", common.split_names, (), "values of torch.compile(backend=...)"),
        ("--amp", amp, ("none",), f"autocast dtypes: {', '.join(AMP)}"),
        ("--dynamic", dynamic, ("none",), f"values of torch.compile(dynamic=...): {shapes}"),
        ("--also", common.split_names, (), "more functions of the same file"),
    ):
        parser.add_argument(option, type=names, default=default, metavar="A,B", help=told)
    parser.add_argument(
        "--inputs",
        metavar="NAME",
        help="a function of the same file that returns a list of args; counts the recompiles that they cause",
    )
    step = parser.add_mutually_exclusive_group()
    step.add_argument("--train", dest="step", action="store_const", const="train", help="time forward and backward")
    without = "time the call without gradients (torch.no_grad)"
    step.add_argument("--inference", dest="step", action="store_const", const="inference", help=without)
    parser.set_defaults(step="call")


def run(args: argparse.Namespace) -> int:
    if not args.module and args.target and names_recording(args.target):
        return _compare_recordings(args)
    program = parse_program(args)
    if program.name is None:
        raise TargetError(
            f"{program.text}: compare times one function. Give FILE.py:NAME or pkg.mod:NAME, NAME a function without "
            "arguments that returns (fn, args)"
        )
    names = (str(program.name), *args.also)
    chosen = variants(names, args.modes, args.backends, args.amp, args.dynamic, args.step)
    stem = f"compare-{Path(program.target).stem}-{program.name}-{time.strftime('%Y%m%d-%H%M%S')}-{len(chosen)}"
    folder = (args.output or state.state_folder() / stem).absolute()
    try:
        if folder.exists() and not folder.is_dir():
            raise DynadiagError(f"{folder} is a file: name a folder")
        if folder.is_dir() and any(folder.iterdir()) and not args.force:
            raise DynadiagError(f"{folder} is not empty: name another folder, or --force to replace recordings in it")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DynadiagError(f"cannot write {folder}: {error.strerror}; name a folder with -o") from error
    options = ComparisonOptions(args.repeat, limits=Limits.default(args.timeout), fresh=args.fresh, inputs=args.inputs)
    try:
        with outputs.set_aside(folder, lambda: _recordings(folder)), ProgressPrinter(sys.stderr) as progress:
            comparison = compare(program, chosen, folder, options, progress.on_trial)
    except DynadiagError:
        with suppress(OSError):  # the folder has other files
            folder.rmdir()
        raise
    document = encode(compare_document(comparison, program.text))
    outputs.write_file(folder / COMPARISON_NAME, document, force=True)
    common.write_result(args.json, document, lambda printer: comparison_text(comparison, program.text, printer))
    common.print_path(folder)
    if comparison.interrupted:
        return common.INTERRUPTED
    return 0 if any(result.rounds for result in comparison.results) else 1


def _compare_recordings(args: argparse.Namespace) -> int:
    """Compare two recordings. Raises `DynadiagError` if not two are named."""
    if len(args.arguments) != 1 or not names_recording(args.arguments[0]):
        raise DynadiagError(f"compare: {args.target[:200]} is a recording: name a second one beside it")
    parser = argparse.ArgumentParser()
    prepare_parser(parser)
    if unused := [option for name, option in _MEASURES if getattr(args, name) != parser.get_default(name)]:
        raise DynadiagError(f"compare: {', '.join(unused)}: two recordings are only read, nothing is run; leave it out")
    names = (args.target, args.arguments[0])
    with open_recording(Path(names[0])) as a, open_recording(Path(names[1])) as b:
        found = compare_recorded(a, b)
        document, cwd = recorded_document(found, names, b.run.torch), b.run.cwd
    common.write_result(args.json, encode(document), lambda printer: recorded_text(found, names, cwd, printer))
    return 0


def _recordings(folder: Path) -> list[Path]:
    """What a comparison writes into its folder, by the names."""
    return [*folder.glob("[0-9][0-9]-*.dynadiag"), folder / COMPARISON_NAME]
