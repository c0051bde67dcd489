"""The JSON document of ``dynadiag triage``, as types, and what a redacted one leaves out.

What stays is torch's: rungs, classes of culprits, types of exceptions that torch or Python define, places in torch,
counts and times. Messages, names, lines and paths of the program go, and so do sentences that may quote them.
"""

from __future__ import annotations

import builtins
from dataclasses import dataclass, replace

import msgspec

from dynadiag.bisection.document import BisectDocument, CulpritDocument, FailureDocument
from dynadiag.minify.minify_result import MinifyDocument
from dynadiag.render.json_document import CommandDocument, ExplainDocument

LEFT_OUT = "(left out)"
_KINDS_WITH_A_TYPE = ("exit", "signal", "hang", "wrong_result", "nan", "slow", "memory")


@dataclass(frozen=True, slots=True)
class PartDocument:
    """One part of a triage: ``explain``, ``bisect``, ``minify``, ``versions``, ``environment``, ``report``, ``issue``.

    ``status`` is ``done``, ``failed``, ``skipped`` or ``interrupted``, with the reason where it is not ``done``.
    ``files`` are those that it wrote, by their names in the folder.
    """

    name: str
    status: str
    reason: str | None
    seconds: float
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriageDocument(CommandDocument):
    """The document of a triage. A part that was not done is null, and ``parts`` says why.

    ``versions`` is the bisection over releases of torch. ``files`` has the name of each other file in the folder with
    its digest (BLAKE2b of 16 bytes), by which a later triage knows what it may replace. With ``redacted``,
    ``explain`` is null, and texts and names of the program are left out of the rest.
    """

    target: str
    reproduced: bool
    explain: ExplainDocument | None
    bisect: BisectDocument | None
    minify: MinifyDocument | None
    versions: BisectDocument | None
    issue: str | None
    report: str | None
    redacted: bool
    parts: tuple[PartDocument, ...]
    files: dict[str, str]
    seconds: float


def redacted_bisect(made: BisectDocument) -> BisectDocument:
    """The document of a bisection without names and texts of the program."""
    return replace(
        made,
        target=LEFT_OUT,
        failure=_failure(made.failure),
        culprits=tuple(map(_culprit, made.culprits)),
        notes=(),
        side_finds=(),
        confirmed=(),
        printed=(),
        reproduce=(),
        changes=(),
    )


def redacted_minify(made: MinifyDocument) -> MinifyDocument:
    """The document of a minification without names and texts of the program. The repro is left out too."""
    return replace(
        made,
        target=LEFT_OUT,
        failure=_failure(made.failure),
        symptom=_failure(made.symptom),
        repro=None,
        proof=(),
        bisected=tuple(msgspec.structs.replace(each, name=LEFT_OUT) for each in made.bisected),
        missing=(),
        notes=(),
        side_finds=(),
        versions=None,
        compared=None,
        neighbours=(),
    )


def _failure(made: FailureDocument | None) -> FailureDocument | None:
    if made is None:
        return None
    public = made.kind in _KINDS_WITH_A_TYPE or made.type.startswith("torch.") or hasattr(builtins, made.type)
    where = made.where if made.where and made.where.startswith("torch/") else None
    return FailureDocument(made.kind, made.type if public else LEFT_OUT, LEFT_OUT, where, None)


def _culprit(made: CulpritDocument) -> CulpritDocument:
    """A culprit by its class: its name may be that of a function, a module or an operator of the program."""
    return msgspec.structs.replace(made, name=LEFT_OUT, file=None, line=None, lines=(), nodes=())
