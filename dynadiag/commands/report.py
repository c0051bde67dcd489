"""Write recordings as one HTML page, to be opened offline or sent.

RECORDING is a recording (*.dynadiag), a TORCH_TRACE log, or a folder of either. The page has the findings with their
source, recompiles, compiles with their time, graphs and generated code. If you name several recordings, the first is
compared with each of the others, as `dynadiag diff` does. It is one file that loads nothing from elsewhere.
`FILE.html#break-3` and `FILE.html#line=train.py:41` lead to a place in it.

--assembly also compiles the kernels that this machine generated, and shows their machine code beside their source. A
recording has it already where `dynadiag kernels --stage` or a GPU made it.

--redact leaves out everything that the program's author wrote: source, names, messages, values, paths.

Exit code: 0; 2 usage error.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dynadiag.commands import common, outputs
from dynadiag.commands.progress import ProgressPrinter
from dynadiag.commands.target_options import existing_recordings
from dynadiag.errors import UnreadableInput
from dynadiag.explanation.formatting import count
from dynadiag.render.clean import clean_line
from dynadiag.render.page.page import write_page
from dynadiag.render.page.stages import KernelStages, Redaction


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    outputs.add_output(parser, "the page to write")
    common.add_flag(parser, "--redact", "leave out source, names, messages, values and paths")
    common.add_flag(parser, "--assembly", "compile this machine's own kernels for their assembly")
    parser.add_argument("recordings", nargs="+", metavar="RECORDING", help="recordings, logs, or folders of either")


def run(args: argparse.Namespace) -> int:
    if args.output is not None:
        outputs.check_writable(args.output, force=args.force)
    paths = [path for name in args.recordings for path in _recordings(name)]
    output = args.output or outputs.new_recording(None, Path(args.recordings[0]).name, force=False).with_suffix(".html")
    with ProgressPrinter(sys.stderr) as progress:
        stages = KernelStages(args.assembly and not args.redact, progress.message)
        with outputs.writing(output, force=args.force) as scratch:
            write_report(paths, scratch, redact=args.redact, compare=len(args.recordings) > 1, stages=stages)
        if args.assembly and stages.missing:
            progress.message(f"no assembly of {count(len(stages.missing), 'kernel')}: {clean_line(stages.missing[0])}")
    common.print_path(output)
    return 0


def write_report(
    paths: list[Path],
    output: Path,
    *,
    redact: bool = False,
    compare: bool = False,
    stages: KernelStages | None = None,
) -> None:
    """Write the page of these recordings to a new file. With ``compare`` it has what `diff` finds."""
    with output.open("x", encoding="utf-8", errors="backslashreplace") as file:
        write_page(paths, file, Redaction(redact), compare=compare, stages=stages)


def _recordings(name: str) -> tuple[Path, ...]:
    found = existing_recordings(name, None, force=False)
    if found is None:
        raise UnreadableInput(f"{name[:200]}: no recording or log; `dynadiag record` makes one of a program")
    return found
