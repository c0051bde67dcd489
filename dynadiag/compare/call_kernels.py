"""How many kernels one warm call runs: a profile of warm calls says which code ran, and the text of it what it calls.

The generated code of a recording has each call of a kernel once, for every variant that torch compiled. After a graph
break one piece of code runs several times in a call, and other pieces for other inputs do not run at all: their sum is
not what a call runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dynadiag.explanation.runtime_cost import WarmCalls
from dynadiag.grouping import grouped
from dynadiag.kernels.cpp_wrapper import parse_code
from dynadiag.kernels.module_parser import ParsedModule
from dynadiag.recording.reader import Recording


@dataclass(frozen=True, slots=True)
class CallKernels:
    """What one call runs, as means over the calls.

    ``generated`` are calls of Inductor's kernels, ``extern`` those of libraries in generated code, ``uncompiled`` the
    operators that run in Python. ``names`` are those of what libraries, and operators of the program's own, compute.
    """

    generated: float
    extern: float
    uncompiled: float
    names: tuple[str, ...] = ()

    @property
    def total(self) -> float:
        return self.generated + self.extern + self.uncompiled


def kernels_of_a_call(recording: Recording, warm: WarmCalls | None, step: str | None) -> CallKernels | None:
    """Count what one call runs. None where that is not known.

    ``step`` is that of the variant ("call", "inference" or "train"). Without a profile it is known where there is one
    piece of compiled code: then of a call of that.
    """
    modules = _modules(recording)
    if warm is None:
        is_one = len(recording.compiles()) == len(modules) == 1 and not recording.breaks()
        runs, uncompiled = dict.fromkeys(modules, 1.0) if is_one else {}, 0.0
    else:
        runs, uncompiled = _runs(warm), warm.outside_operators + sum(use.operators for use in warm.uses)
    is_unseen = step == "train" and bool(uncompiled)  # their backward is not profiled
    if is_unseen or not runs.keys() <= modules.keys() or not (runs or uncompiled):
        return None
    whole = sum(number for one, number in runs.items() if any(_is_backward(each) for each in modules[one]))
    seen = {"train": whole, "inference": 0.0}.get(step or "", whole if warm is None else warm.backwards)
    calls = [
        (call, number)
        for one, number in runs.items()
        for module in modules[one]
        for call in module.calls
        if seen or not _is_backward(module)
    ]
    if seen not in (0.0, whole) or any(call.subgraph for call, _ in calls):  # not all of it runs, or a part many times
        return None
    generated = sum(number for call, number in calls if call.is_generated)
    names = dict.fromkeys(call.kernel for call, _ in calls if not call.is_generated)
    return CallKernels(generated, sum(number for _, number in calls) - generated, uncompiled, tuple(names))


def _modules(recording: Recording) -> Mapping[str, Sequence[ParsedModule]]:
    """The generated modules of each compile that has any."""
    ids = {kernel.event: kernel.compile_id for kernel in recording.kernels()}
    return grouped(
        (ids.get(event.index) or event.compile_id or "", parse_code(recording.payload(event.index)))
        for event in recording.events("inductor_output_code")
    )


def _runs(warm: WarmCalls) -> dict[str, float]:
    """How often a call runs the graph of each piece of compiled code that has one."""
    runs = defaultdict[str, float](float)
    for use in warm.uses:
        runs[use.compile_id] += use.graphs
    return {compile_id: number for compile_id, number in runs.items() if number}


def _is_backward(module: ParsedModule) -> bool:
    return module.stage == "backward"
