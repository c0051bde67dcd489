"""The IR and the machine code of a kernel, as documents linked to the lines of its source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dynadiag.kernels import KernelCall, Stage, Stages, make_stages
from dynadiag.kernels.stages import is_ours
from tui.documents import Document, Ref, split
from tui.links import Links, Place, links_of
from tui.session import Session
from tui.unitlinks import calls_of

__all__ = ["Made", "add_stages", "call_at", "fine", "made_of", "needs_consent"]

_LANGUAGES = {"asm": "gas", "amdgcn": "gas", "ptx": "ptx", "llir": "llvm"}  # Pygments has no lexers for the others

# `nvdisasm` pads each address so widely that the instruction would be outside the pane.
_ADDRESSED = re.compile(r"^ +(/\*[0-9a-f]+\*/) +")


@dataclass(frozen=True, slots=True)
class Made:
    """The stages of one kernel, and the call that it was compiled for."""

    call: KernelCall
    stages: Stages

    @property
    def module(self) -> str:
        """The key of the generated module's document."""
        return f"event:{self.call.event}"


def call_at(session: Session, compile_id: str, module: str, line: int) -> KernelCall | None:
    """Return the generated kernel whose definition or call is on a line (from 0) of a module."""
    for call in calls_of(session, compile_id):
        own = call.definition
        if (
            own is not None
            and f"event:{call.event}" == module
            and (line in (call.line - 1, own.line - 1) or own.first <= line + 1 <= own.last)
        ):
            return call
    return None


def needs_consent(session: Session, call: KernelCall) -> bool:
    """Whether making the stages compiles source, or disassembles a binary, that may be a stranger's."""
    return not is_ours(session.recording, call)


def made_of(session: Session, call: KernelCall) -> Made:
    """Compile a kernel that the user trusts, in a separate process. Raises `DynadiagError`."""
    return Made(call, make_stages(session.recording, call, trusted=True))


def add_stages(made: Made, module: Links) -> list[tuple[Document, Links]]:
    """Return a document for each stage below the source, linked to the lines of the module."""
    found = [stage for name, stage in made.stages.stages.items() if name != "source"]
    return [(_document(made, stage), _links(made, stage, module)) for stage in found]


def fine(made: Made, module: Links) -> Links:
    """Return the links of the module with an additional key for each line of the kernel."""
    own = made.call.definition
    places: dict[int, frozenset[Place]] = dict(module.places)
    for line in range(own.first, own.last + 1) if own else ():
        places[line - 1] = places.get(line - 1, frozenset()) | {(made.module, line)}
    return links_of(places, module.guessed, module.defined)


def _document(made: Made, stage: Stage) -> Document:
    lines = [_ADDRESSED.sub(r"\1 ", text) for text in split(stage.text)]
    name = f"{stage.name} of {made.call.name} for {made.stages.target}"
    ref = Ref(f"stage:{made.call.event}:{made.call.name}:{stage.name}", "stage", name, made.call.compile_id)
    return Document(ref, lines, ((0, _LANGUAGES.get(stage.name, "text")),))


def _links(made: Made, stage: Stage, module: Links) -> Links:
    own = made.call.definition
    first = own.first if own else 1
    places: dict[int, frozenset[Place]] = {}
    for shown, source in stage.lines:
        line = first + source - 1
        users: Mapping[int, frozenset[Place]] = module.places
        coarse = frozenset(place for place in users.get(line - 1, frozenset()) if place[0] != made.module)
        places[shown - 1] = places.get(shown - 1, frozenset()) | coarse | {(made.module, line)}
    return links_of(places)
