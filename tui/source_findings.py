"""Findings at their source lines: a sign for the gutter, and a short text for the end of the line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.findings import Finding
from dynadiag.recording.records import Span
from tui.styled_text import one_line


@dataclass(frozen=True, slots=True)
class SourceNote:
    """What a source line has: the sign, the role and the name of its worst finding, and the texts of all."""

    sign: str
    role: str
    text: str
    name: str = ""  # torch's id of a break, or the compile


def source_notes(explanation: Explanation, file: str) -> Mapping[int, SourceNote]:
    """Return the notes of a source file by line, from 0. Of several findings on a line the worst gives the sign."""
    found: dict[int, list[SourceNote]] = {}
    for finding in explanation.findings:
        view, label = finding.rule.view, one_line(finding.label or "")
        for span, text in _places(finding):
            if span.file == file and span.line:
                found.setdefault(span.line - 1, []).append(SourceNote(view.sign, view.role, one_line(text), label))
    return {
        line: replace(notes[0], text="  ".join(dict.fromkeys(note.text for note in notes)))
        for line, notes in found.items()
    }


def _places(finding: Finding) -> Iterator[tuple[Span, str]]:
    """The places of a finding with a short text for each: that of a recompile is where the failed guard was made."""
    guards = [fact for fact in finding.evidence if fact.span is not None]
    if finding.rule.is_recompile and guards:
        for fact in guards:
            if fact.span is not None:
                yield fact.span, fact.note or fact.text
        return
    for span in dict.fromkeys((finding.own_span, finding.span, *finding.places)):
        yield span, f"{finding.id} {finding.title}" if finding.id else finding.title
