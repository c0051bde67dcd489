"""The calls of the kernels of a compile: what each computes, moves (estimated) and takes (if measured).

This needs the generated code, so it is read on request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from dynadiag.explanation.source import package_files
from dynadiag.kernels.document_links import NodeOrigin, read_origins
from dynadiag.kernels.generated_module import GeneratedModule, KernelCall
from dynadiag.kernels.read_modules import generated_modules
from dynadiag.kernels.timing import Roofline, saved_times
from dynadiag.recording.code_origin import is_user_file
from dynadiag.recording.package_files import PackageFiles
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Frame
from dynadiag.render.clean import clean_line
from dynadiag.render.fusion_text import refusal_texts, share_text
from dynadiag.render.paths import short_chain, source_location

MAX_AUTOMATIC = 60  # with more kernels, costs are read only for the screen that shows them
_MAX_NODES = 100_000  # with more nodes in its graphs, the generated code of a compile is not read


@dataclass(frozen=True, slots=True)
class KernelCost:
    """One call of a kernel or of a library. Its texts have no control characters.

    ``bytes_moved`` counts bytes read and written, or is ``None`` if unknown. ``seconds`` is its time, ``peak_share``
    the fraction of the device's peak; both are ``None`` unless ``dynadiag kernels --measure`` has measured them.
    """

    number: int  # of the calls of its kernel in the module, from 1
    line: int  # of the call in the module, from 1
    stage: str = ""  # "forward", "backward" or "inference"
    shape: str = ""  # of what it computes: "f32[64, 384]"
    modules: tuple[str, ...] = ()  # the innermost module of each node: "transformer.h.0.attn.c_attn"
    lines: tuple[str, ...] = ()  # of the program, as ``file:line``, with a question mark if inferred from the code
    chain: str = ""  # the calls that led to its first node, the innermost first
    bytes_moved: int | None = None
    flops: int | None = None
    seconds: float | None = None
    peak_share: float | None = None
    operators: tuple[str, ...] = ()
    fusion: tuple[str, ...] = ()  # how far the module was fused, and what this call was not fused with

    @property
    def where(self) -> str:
        """The first of the lines, and how many more there are; empty without lines."""
        more = f" +{len(self.lines) - 1}" if len(self.lines) > 1 else ""
        return f"{self.lines[0]}{more}" if self.lines else ""

    @property
    def module(self) -> str:
        """The module; of several what all are in, such as ``transformer.h.0.*``, or the first and how many more."""
        if len(self.modules) < 2:
            return "".join(self.modules)
        parts = zip(*(name.split(".") for name in self.modules), strict=False)
        common = [names[0] for names in takewhile(lambda names: len(set(names)) == 1, parts)]
        return f"{'.'.join(common)}.*" if common else f"{self.modules[0]} +{len(self.modules) - 1}"


KernelCosts = dict[tuple[int | None, str], list[KernelCost]]  # by the event of the module and the kernel's name


def read_kernel_costs(
    recording: Recording, compile_ids: Iterable[str], callers_of: Callable[[str], Sequence[Frame]]
) -> KernelCosts:
    """Return the calls of the kernels of these compiles, in the order of the code.

    ``callers_of`` gives the frames that led to the compiled function.
    """
    found: KernelCosts = {}
    scale, packages = Roofline(times=saved_times(recording)), package_files(recording)
    for compile_id in compile_ids:
        graphs = recording.graphs(compile_id)
        if sum(graph.nodes for graph in graphs) > _MAX_NODES:
            continue
        above = callers_of(compile_id)
        traced = [graph for graph in graphs if graph.stage == "dynamo"]
        origins = {name: origin for graph in traced for name, origin in read_origins(recording, graph).items()}
        for module in generated_modules(recording, compile_id):
            share = f"{text} in this graph" if (text := share_text(module.calls)) else ""
            for call in module.calls:
                made = [origins[name] for name in call.dynamo_nodes if name in origins]
                lines = _lines(call, made, above, packages, recording.run.cwd)
                cost = _cost(module, call, scale, made, above, lines)
                cost = replace(cost, fusion=tuple(map(clean_line, filter(None, (share, *refusal_texts(call))))))
                found.setdefault((call.event, call.name), []).append(cost)
    return found


def _cost(
    module: GeneratedModule,
    call: KernelCall,
    scale: Roofline,
    made: Sequence[NodeOrigin],
    above: Sequence[Frame],
    lines: tuple[str, ...],
) -> KernelCost:
    tensor = module.graph.nodes[call.nodes[-1]].tensor if call.nodes and call.nodes[-1] in module.graph.nodes else None
    time = scale.time_of(call)
    return KernelCost(
        number=call.call_number,
        line=call.line,
        stage=call.stage or "",
        shape=f"{tensor.dtype}[{', '.join(tensor.sizes)}]" if tensor is not None else "",
        modules=tuple(dict.fromkeys(clean_line(origin.modules[-1]) for origin in made if origin.modules)),
        lines=lines,
        chain=short_chain([*above, *made[0].frames]) if made else "",
        bytes_moved=call.cost.bytes_moved,
        flops=call.cost.flops,
        seconds=time.seconds if time is not None else None,
        peak_share=scale.peak_share(call),
        operators=call.ops,
    )


def _lines(
    call: KernelCall, origins: Sequence[NodeOrigin], above: Sequence[Frame], packages: PackageFiles, cwd: str | None
) -> tuple[str, ...]:
    """The lines that a call computes: the program's own, that called a library, where the frames are known."""
    own = [_own_frame([*above, *origin.frames], packages) for origin in origins]
    places = [(frame.file, frame.line) for frame in own if frame is not None]
    places = places or [(place.file, place.line) for place in call.source_lines]
    guess = "?" if call.evidence == "dataflow" else ""
    return tuple(dict.fromkeys(f"{source_location(file, line, None, cwd)}{guess}" for file, line in places))


def _own_frame(frames: Sequence[Frame], packages: PackageFiles) -> Frame | None:
    """The innermost frame of the program's own, not of a library; of code of a library alone its innermost one."""
    users = [frame for frame in frames if is_user_file(frame.file)]
    own = [frame for frame in users if packages.inside(frame.file) is None] or users
    return own[-1] if own else None
