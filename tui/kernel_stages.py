"""The IR and the machine code of a kernel, as documents linked to the lines of its source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dynadiag.kernels.generated_module import KernelCall
from dynadiag.kernels.graph_parser import split_lines
from dynadiag.kernels.line_table import Stage
from dynadiag.kernels.read_modules import kernel_calls
from dynadiag.kernels.stages import CompiledStages, make_stages
from tui.documents import Document, DocumentRef
from tui.line_links import LineKey, LineLinks
from tui.session import Session

_LANGUAGES = {"asm": "gas", "amdgcn": "gas", "ptx": "ptx", "llir": "llvm"}  # Pygments has no lexers for the others

# `nvdisasm` pads each address so widely that the instruction would be outside the pane.
_ADDRESSED = re.compile(r"^ +(/\*[0-9a-f]+\*/) +")


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """The stages of one kernel, and the call that it was compiled for."""

    call: KernelCall
    stages: CompiledStages

    @property
    def module(self) -> str:
        return f"event:{self.call.event}"


def kernel_call_at(session: Session, compile_id: str, module: str, line: int) -> KernelCall | None:
    """Return the generated kernel whose definition or call is on a line (from 0) of a module."""
    for call in kernel_calls(session.recording, compile_id):
        own = call.definition
        if (
            own is not None
            and f"event:{call.event}" == module
            and (line in (call.line - 1, own.line - 1) or own.first_line <= line + 1 <= own.last_line)
        ):
            return call
    return None


def compile_kernel(session: Session, call: KernelCall) -> CompiledKernel:
    """Compile a kernel that the user trusts, in a separate process. Raises `DynadiagError`."""
    return CompiledKernel(call, make_stages(session.recording, call, trusted=True))


def stage_documents(made: CompiledKernel, module: LineLinks) -> list[tuple[Document, LineLinks]]:
    """Return a document for each stage below the source, linked to the lines of the module."""
    found = [stage for name, stage in made.stages.stages.items() if name != "source"]
    return [(_document(made, stage), _links(made, stage, module)) for stage in found]


def line_links(made: CompiledKernel, module: LineLinks) -> LineLinks:
    """Return the links of the module with an additional key for each line of the kernel."""
    own = made.call.definition
    places: dict[int, frozenset[LineKey]] = dict(module.keys)
    for line in range(own.first_line, own.last_line + 1) if own else ():
        places[line - 1] = places.get(line - 1, frozenset()) | {(made.module, line)}
    return replace(module, keys=places)


def _document(made: CompiledKernel, stage: Stage) -> Document:
    lines = [_ADDRESSED.sub(r"\1 ", text) for text in split_lines(stage.text)]
    name = f"{stage.name} of {made.call.name} for {made.stages.target}"
    ref = DocumentRef(f"stage:{made.call.event}:{made.call.name}:{stage.name}", "stage", name, made.call.compile_id)
    return Document(ref, lines, ((0, _LANGUAGES.get(stage.name, "text")),))


def _links(made: CompiledKernel, stage: Stage, module: LineLinks) -> LineLinks:
    own = made.call.definition
    first = own.first_line if own else 1
    places: dict[int, frozenset[LineKey]] = {}
    callers: dict[int, frozenset[LineKey]] = {}
    for shown, source in stage.lines:
        line = first + source - 1
        users: Mapping[int, frozenset[LineKey]] = module.keys
        coarse = frozenset(place for place in users.get(line - 1, frozenset()) if place[0] != made.module)
        places[shown - 1] = places.get(shown - 1, frozenset()) | coarse | {(made.module, line)}
        callers[shown - 1] = callers.get(shown - 1, frozenset()) | module.callers.get(line - 1, frozenset())
    return LineLinks(places, callers=callers)
