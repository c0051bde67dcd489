"""The JSON document of ``dynadiag triage``, as types."""

from __future__ import annotations

from dataclasses import dataclass

from dynadiag.bisection.document import BisectDocument
from dynadiag.minify.minify_result import MinifyDocument
from dynadiag.render.json_document import CommandDocument, ExplainDocument

__all__ = ["PartDocument", "TriageDocument"]


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

    ``versions`` is the bisection over releases of torch. With ``redacted``, ``explain`` is null, and texts and names of
    the program are left out of the rest.
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
    seconds: float
