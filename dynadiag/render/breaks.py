"""The graph breaks of an explanation as text."""

from __future__ import annotations

import re

from dynadiag.explain.explanation import Explanation
from dynadiag.explain.impact import Impact
from dynadiag.render.clean import clean_line
from dynadiag.render.paths import fit, place, stack
from dynadiag.render.pieces import fact, help_, lead_of, where
from dynadiag.render.snippet import snippet, source_lines
from dynadiag.render.style import Style
from dynadiag.render.words import count, some
from dynadiag.render.wrap import cut, hanging

__all__ = ["WORST", "breaks_section"]

_ID = 16  # columns of an id; torch's have six
_ADDRESS = re.compile(r" at 0x[0-9a-f]+(?=>)")  # of an object's default repr: it tells a reader nothing
WORST = 10  # breaks that a report shows without --all


def breaks_section(explanation: Explanation, style: Style, all_: bool) -> list[str]:
    """Each root cause, the worst first; ten of them unless all are asked for."""
    impacts = explanation.impacts
    shown = impacts if all_ else impacts[:WORST]
    lines: list[str] = []
    for impact in shown:
        lines += [*_diagnostic(impact, explanation, style), ""]
    hidden = len(impacts) - len(shown)
    if hidden:
        lines += [style.paint(f"... and {count(hidden, 'more graph break')}; --all shows them", "dim"), ""]
    return lines


def _diagnostic(impact: Impact, explanation: Explanation, style: Style) -> list[str]:
    item = impact.root
    return [
        *_head(impact, style),
        where(place(item.span.file, item.span.line, item.span.column, explanation.run.cwd), style),
        *snippet(explanation.sources.get(item.span.file or ""), item.span, style),
        *_facts(impact, explanation, style),
        *(line for hint in item.hints for line in help_(hint, style)),
    ]


def _head(impact: Impact, style: Style) -> list[str]:
    item = impact.root
    word = "error" if item.fatal else "break"
    label = f"{word}[{cut(clean_line(item.gb_id), _ID)}]" if item.gb_id else word
    first, *rest = hanging(f"{label}: ", item.gb_type or "graph break of unknown type", style.columns)
    lead = style.paint(first[: len(label)], word) + style.paint(first[len(label) :], "strong")
    return [lead, *(style.paint(line, "strong") for line in rest)]


def _facts(impact: Impact, explanation: Explanation, style: Style) -> list[str]:
    item = impact.root
    facts = {
        "why": _ADDRESS.sub("", item.explanation or item.reason),
        "in": f"{item.function} (compile {item.compile_id})",
        "led to": _consequences(impact),
    }
    lines = [line for name, text in facts.items() if text for line in fact(name, text, style)]
    if not _has_line(explanation, impact):
        lines += fact("note", "the source of this line was not recorded", style)
    return [*lines, *_stack(impact, explanation.run.cwd, style)]


def _has_line(explanation: Explanation, impact: Impact) -> bool:
    span = impact.root.span
    source = explanation.sources.get(span.file or "")
    return source is not None and 1 <= (span.line or 0) <= len(source_lines(source))


def _stack(impact: Impact, cwd: str | None, style: Style) -> list[str]:
    """The way to the break, where it is more than the line itself."""
    root = impact.root
    above = [frame for frame in root.user_stack if (frame.file, frame.line) != (root.span.file, root.span.line)]
    frames = stack(above, cwd)
    if not frames:
        return []
    lead = lead_of("called")
    first, *rest = (fit(frame, style.columns - len(lead)) for frame in frames)
    return [*fact("called", first, style), *(" " * len(lead) + line for line in rest)]


def _consequences(impact: Impact) -> str:
    """In words: what the break did to the program."""
    if impact.root.fatal:
        return "an exception instead of a split: this had to be one graph (fullgraph=True, torch.cond, ...)"
    parts = [f"{count(impact.graphs, 'graph')} ended here"] if impact.graphs else []
    if impact.met > 1:
        parts.append(f"met {count(impact.met, 'time')}, in compiles {some(impact.compile_ids)}")
    if len(impact.functions) > 1:
        parts.append(f"it split the frames of {some(impact.functions)}")
    if impact.recompiles:
        parts.append(f"recompiles among them: {some(impact.recompiles)}")
    return "; ".join(parts)
