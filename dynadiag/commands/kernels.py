"""List the kernels of a recording, or print the source of one.

A kernel that only a library has (`extern`) has no source here: its call stands in the generated module (--module).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dynadiag import __version__
from dynadiag.commands import common
from dynadiag.errors import DynadiagError
from dynadiag.kernels import kernel_source
from dynadiag.recording.opening import open_any
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Kernel
from dynadiag.render import encode
from dynadiag.render.clean import clean, clean_line


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    common.add_json(parser)
    parser.add_argument("--module", action="store_true", help="print the whole generated module that has the kernel")
    parser.add_argument("recording", type=Path, metavar="RECORDING", help="a recording")
    parser.add_argument("name", nargs="?", metavar="NAME", help="print this kernel")


def run(args: argparse.Namespace) -> int:
    with open_any(args.recording) as recording:
        kernels = recording.kernels()
        chosen = [kernel for kernel in kernels if args.name in (None, kernel.name)]
        if args.name is not None and not chosen:
            raise DynadiagError(
                f"{args.recording}: no kernel {args.name!r}; `dynadiag kernels {args.recording}` lists them"
            )
        common.write_json(args.json, encode(_document(recording, chosen)))
        if args.json != "-":
            text = _listing(kernels) if args.name is None else _source(recording, chosen[0], whole=args.module)
            sys.stdout.write(text)
    return 0


def _listing(kernels: Sequence[Kernel]) -> str:
    if not kernels:
        return "No kernel was generated: nothing was compiled by Inductor.\n"
    rows = [(kernel.compile_id, kernel.language, clean_line(kernel.name)) for kernel in kernels]
    return "".join(f"{compile_id:<8} {language:<8} {name}\n" for compile_id, language, name in rows)


def _source(recording: Recording, kernel: Kernel, *, whole: bool) -> str:
    if kernel.event is None:
        raise DynadiagError(f"{recording.path}: the source of {kernel.name} was not recorded")
    module = recording.payload(kernel.event)
    source = module if whole else kernel_source(module, kernel.name)
    if source is None:
        raise DynadiagError(
            f"{kernel.name} is called from a library, not generated: --module prints the generated code that calls it"
        )
    return clean(source)


def _document(recording: Recording, kernels: Sequence[Kernel]) -> dict[str, object]:
    listed = [{"compile_id": kernel.compile_id, "name": kernel.name, "language": kernel.language} for kernel in kernels]
    return {"schema": 1, "dynadiag": __version__, "torch": recording.run.torch, "kernels": listed}
