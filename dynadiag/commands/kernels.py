"""List the kernels of a recording, or print one or a stage of it.

The list has a row for each call, with the source lines that it computes. It is sorted by time if --measure has timed
the kernels, otherwise by the bytes that they move. NAME prints the source of a kernel and its graph nodes. Several
calls may have that name: 'mm #2' is the second of a graph, '1/0 mm' that of compile 1/0, '1/0 backward mm #2' both.
--stage prints a later stage: ttir, ttgir, llir, ptx, sass (amdgcn for an AMD target) of a Triton kernel, asm of a C++
kernel.

Stages that the recorded run built on a GPU are in the recording. Otherwise --stage compiles source from the recording,
and --measure runs it. Without --trust, both are refused unless the code is in this machine's own compiler cache.

`dynadiag diff --stage kernel A B` compares the kernels of two recordings.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dynadiag.commands import common, outputs
from dynadiag.commands.progress import ProgressPrinter
from dynadiag.errors import DynadiagError
from dynadiag.explanation.formatting import count, list_some
from dynadiag.kernels.generated_module import KernelCall
from dynadiag.kernels.read_modules import kernel_calls
from dynadiag.kernels.stages import CompiledStages, check_stage, is_in_own_cache, make_stages
from dynadiag.kernels.timing import Roofline, measure_times, saved_times
from dynadiag.recording.opening import open_recording
from dynadiag.recording.reader import Recording
from dynadiag.render.clean import clean, clean_line
from dynadiag.render.json_document import encode
from dynadiag.render.kernels import kernel_text, kernels_document, listing_text, stage_text


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    outputs.add_json(parser)
    common.add_flag(parser, "--module", "print the whole generated module of the kernel")
    parser.add_argument(
        "--stage", metavar="S", help="print this stage of the kernel: asm, ttir, ttgir, llir, ptx, sass"
    )
    parser.add_argument(
        "--target",
        metavar="T",
        help="compile a Triton kernel for this GPU or architecture: h100, sm_90 (default), gfx942, ...",
    )
    common.add_flag(parser, "--trust", "run code from the recording, because you trust whoever made it")
    told = "operations a byte from which on a kernel is compute-bound on the device, not memory-bound"
    common.add_amount(parser, "--balance", "a number of operations a byte", "N", told)
    common.add_flag(parser, "--measure", "run the generated code here and time each kernel")
    parser.add_argument("recording", type=Path, metavar="RECORDING", help="a recording")
    parser.add_argument("name", nargs="?", metavar="NAME", help="print this kernel, or this call of it: 'addmm #2'")


def run(args: argparse.Namespace) -> int:
    for option, value in (("--stage", args.stage), ("--module", args.module)):
        if value and args.name is None:
            raise DynadiagError(f"{option} needs the NAME of a kernel; without it `dynadiag kernels` lists them")
    if args.stage and args.module:
        raise DynadiagError("--stage and --module print different texts: leave one of them out")
    if args.target is not None and args.stage is None:
        raise DynadiagError("--target is the GPU that a --stage is compiled for: add --stage, or leave it out")
    with open_recording(args.recording) as recording:
        calls = kernel_calls(recording)
        chosen = calls if args.name is None else _calls_named(args, calls)
        modules = {call.event: call for call in calls}
        if not args.measure:
            timing = saved_times(recording)
        elif args.trust or all(is_in_own_cache(recording, call) for call in modules.values()):
            with ProgressPrinter(sys.stderr) as progress:
                progress.message(f"running {count(len(modules), 'generated module')} on random inputs")
                timing = measure_times(recording, calls)
        else:
            raise DynadiagError("--measure runs code from the recording: add --trust if you trust whoever made it")
        roofline = Roofline(args.balance, timing)
        chosen = sorted(chosen, key=lambda call: _sort_key(call, roofline), reverse=True)
        stages = _stages(args, recording, chosen[0]) if args.stage else None
        document = kernels_document(recording, chosen, roofline, stages, whole=args.name is not None)
        common.write_result(args.json, encode(document), lambda _: _text(args, recording, chosen, roofline, stages))
    return 0


def _calls_named(args: argparse.Namespace, calls: Sequence[KernelCall]) -> list[KernelCall]:
    """Return the calls that NAME means: ``mm``, ``mm #2``, ``1/0 mm``, ``1/0 backward mm #2``."""
    wanted = " ".join(args.name.split())
    if found := [call for call in calls if wanted in _names_of(call)]:
        return found
    raise DynadiagError(f"{args.recording}: no kernel {args.name!r}; `dynadiag kernels {args.recording}` lists them")


def _names_of(call: KernelCall) -> set[str]:
    names = (call.name, f"{call.name} #{call.call_number}", f"{call.name}#{call.call_number}")
    leads = ("", f"{call.compile_id} ", f"{call.compile_id} {call.stage} ")
    return {lead + name for lead in leads for name in names}


def _sort_key(call: KernelCall, roofline: Roofline) -> tuple[float, int]:
    """Return the sort key of a call: its time if measured, otherwise the bytes that it moves."""
    time = roofline.time_of(call)
    return (time.seconds if time else -1.0), (-1 if call.cost.bytes_moved is None else call.cost.bytes_moved)


def _stages(args: argparse.Namespace, recording: Recording, call: KernelCall) -> CompiledStages | None:
    check_stage(call, args.stage)
    if args.stage == "source":
        return None
    trusted = args.trust or is_in_own_cache(recording, call)
    stages = make_stages(recording, call, args.target, trusted=trusted)
    if args.stage not in stages.stages:
        notes = f" ({'; '.join(stages.notes)})" if stages.notes else ""
        raise DynadiagError(
            f"{call.name} for {stages.target} has no stage {args.stage!r}: it has {', '.join(stages.stages)}{notes}"
        )
    return stages


def _text(
    args: argparse.Namespace,
    recording: Recording,
    chosen: Sequence[KernelCall],
    roofline: Roofline,
    stages: CompiledStages | None,
) -> str:
    if args.name is None:
        return listing_text(chosen, roofline, common.width_of(sys.stdout))
    same = [call for call in chosen if _has_same_text(call, chosen[0], whole_module=args.module)]
    _report_others(args, same[0], [call for call in chosen if call not in same])
    if args.module:
        return clean(recording.payload(same[0].event))
    if stages is not None:
        return stage_text(stages.stages[args.stage], stages)
    return kernel_text(same, roofline)


def _has_same_text(call: KernelCall, first: KernelCall, *, whole_module: bool) -> bool:
    """Whether the same text is printed for two calls: the module, or the source of the kernel."""
    if whole_module:
        return call.event == first.event
    sources = [one.definition.source if one.definition else None for one in (call, first)]
    return sources[0] == sources[1]


def _report_others(args: argparse.Namespace, shown: KernelCall, others: Sequence[KernelCall]) -> None:
    """Say on stderr which other calls NAME means, whose text is not printed."""
    if not others:
        return
    listed = list_some([_call_name(call) for call in others])
    text = f"{args.name!r} is the name of several kernels: this is {_call_name(shown)}; the others are {listed}"
    print(f"dynadiag: {clean_line(text)}", file=sys.stderr)  # noqa: T201 - beside the text, not in it


def _call_name(call: KernelCall) -> str:
    """Return the name of one call, as NAME takes it."""
    stage = f"{call.stage} " if call.stage else ""
    number = f" #{call.call_number}" if call.call_number > 1 else ""
    return f"'{call.compile_id} {stage}{call.name}{number}'"
