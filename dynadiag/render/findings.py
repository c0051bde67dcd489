"""Findings as text, in the manner of rustc. Their order and severity say what leads and what is left out."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.findings import Advice, Fact, Finding
from dynadiag.explanation.formatting import count
from dynadiag.recording.records import Span
from dynadiag.render.clean import clean_line
from dynadiag.render.components import fact_lines, fact_prefix, help_lines, labelled_lines, location_line
from dynadiag.render.paths import fit_path, short_stack, source_location
from dynadiag.render.runtime_cost import cost_text
from dynadiag.render.snippet import snippet, source_lines
from dynadiag.render.style import Style
from dynadiag.render.wrap import truncate_end, truncate_middle, width, wrap_indented

__all__ = ["finding_text", "findings_section"]

_MAX_SHOWN = 10  # findings of one rule that a report shows without --all
_MAX_PLACES = 10  # further places of one finding that it shows without --all
_MAX_LABEL = 32  # columns of an id
_MAX_TITLE = 60  # columns of a title in a list
_LISTED_FRAME = re.compile(r'# File "(?P<file>[^"\n]{1,500})", line (?P<line>\d{1,9}), in [^,\n]{1,200}, code: ')
_WORDS = {  # rule -> what a paragraph begins with, one in a count
    "failed-compile": ("error", "failed compile"),
    "failed-program": ("error", "failed program"),
    "divergence": ("divergence", "divergence"),
    "break": ("break", "graph break"),
    "recompile": ("recompile", "recompile"),
    "recompile-limit": ("gave up", "function that torch gave up"),
    "uncompiled": ("uncompiled", "skipped function"),
    "cache-bypass": ("cache bypass", "cache bypass"),
}
_ROLES = {
    "failed-compile": "error",
    "failed-program": "error",
    "divergence": "error",
    "recompile-limit": "error",
    "recompile": "recompile",
}  # others are breaks
_NOTE_TITLES = {  # rule -> what a list of its notes begins with
    "break": "graph breaks at no cost, nothing to do",
    "recompile": "recompiles that follow from another",
    "uncompiled": "functions left to Python",
}


def findings_section(explanation: Explanation, style: Style, all_: bool) -> list[str]:
    """A paragraph for each finding, the most important first, then lists of the notes.

    Ten of each rule are shown without ``all_``. Advice that was given before is not repeated.
    """
    lines: list[str] = []
    advised: dict[str, Finding] = {}
    hidden: dict[str, int] = {}
    shown: dict[str, int] = {}
    for item in explanation.findings:
        if item.severity == "note" and not (all_ and item.rule != "uncompiled"):
            continue
        shown[item.rule] = shown.get(item.rule, 0) + 1
        if all_ or shown[item.rule] <= _MAX_SHOWN:
            lines += [*finding_text(item, explanation, style, all_=all_, advised=advised), ""]
        else:
            hidden[item.rule] = hidden.get(item.rule, 0) + 1
    for rule, number in hidden.items():
        lines += [style.paint(f"... and {count(number, f'more {_WORDS[rule][1]}')}; --all shows them", "dim"), ""]
    for rule in _NOTE_TITLES:
        lines += _notes(rule, explanation, style, all_)
    return lines


def finding_text(
    item: Finding, explanation: Explanation, style: Style, *, all_: bool, advised: dict[str, Finding] | None = None
) -> list[str]:
    """One finding in full. ``advised`` maps advice that was given above to the finding that it was given for."""
    cwd = explanation.run.cwd
    return [
        *_head(item, style),
        location_line(source_location(item.span.file, item.span.line, item.span.column, cwd), style),
        *_source(item, explanation, style),
        *_facts(item, explanation, style, all_),
        *_call_stack(item, cwd, style),
        *_helps(item, {} if advised is None else advised, style),
    ]


def _head(item: Finding, style: Style) -> list[str]:
    word = _WORDS[item.rule][0]
    label = f"{word}[{truncate_middle(clean_line(item.label), _MAX_LABEL)}]" if item.label else word
    first, *rest = wrap_indented(f"{label}: ", item.title, style.columns)
    role = _ROLES.get(item.rule, "break")
    lead = style.paint(first[: len(label)], role) + style.paint(first[len(label) :], "strong")
    return [lead, *(style.paint(line, "strong") for line in rest)]


def _source(item: Finding, explanation: Explanation, style: Style) -> list[str]:
    """The source of a finding. A function that was compiled again is not shown: its name says enough."""
    if item.rule not in ("break", "failed-compile", "failed-program", "divergence"):
        return []
    return snippet(explanation.sources.get(item.span.file or ""), item.span, style)


def _facts(item: Finding, explanation: Explanation, style: Style, all_: bool) -> list[str]:
    cwd = explanation.run.cwd
    lines = fact_lines("why", _shorten_places(item.cause, cwd), style) if item.cause and _shows_cause(item) else []
    if item.caused_by is not None:
        lines += fact_lines("because of", _name(explanation.findings[item.caused_by]), style)
    also = 0
    for each in item.evidence:
        also += each.label == "also"
        if all_ or not (each.detail or (each.label == "also" and also > _MAX_PLACES)):
            lines += _fact(each, explanation, style)
    if not all_ and also > _MAX_PLACES:
        lines += fact_lines("and", f"{count(also - _MAX_PLACES, 'more line')}; --all shows them", style)
    if item.cost.call and explanation.warm:
        lines += fact_lines("costs", cost_text(item.cost.call, explanation.warm), style)
    return lines


def _shows_cause(item: Finding) -> bool:
    """Whether the cause says more than the facts do. The facts of a guard have its old and its new value."""
    return item.rule in ("break", "failed-compile", "divergence")


def _shorten_places(text: str, cwd: str | None) -> str:
    """torch's explanation with the places in its listings written as elsewhere in the report."""
    return _LISTED_FRAME.sub(lambda found: f"# {source_location(found['file'], int(found['line']), None, cwd)}: ", text)


def _fact(each: Fact, explanation: Explanation, style: Style) -> list[str]:
    """A label and a text, and below them a place with its line of source."""
    lines = fact_lines(each.label, each.text, style) if each.text else []
    if each.span is None or each.span.file is None or each.span.line is None:
        return lines
    at = source_location(each.span.file, each.span.line, None, explanation.run.cwd)
    code = _line(explanation.sources, each.span)
    if not each.text:
        return fact_lines(each.label, f"{at}: {code}" if code else at, style)
    lead = " " * len(fact_prefix(each.label))
    room = style.columns - len(lead)
    lines.append(f"{lead}{fit_path(f'at {at}', room)}")
    return [*lines, f"{lead}{style.paint(truncate_end(code, room), 'dim')}"] if code else lines


def _line(sources: Mapping[str, str], span: Span) -> str:
    lines = source_lines(sources.get(span.file or "", ""))
    return clean_line(lines[(span.line or 0) - 1]) if 1 <= (span.line or 0) <= len(lines) else ""


def _call_stack(item: Finding, cwd: str | None, style: Style) -> list[str]:
    """The calls that lead to the place, if there are any."""
    frames = short_stack(item.called, cwd)
    if not frames:
        return []
    lead = fact_prefix("called")
    first, *rest = (fit_path(frame, style.columns - len(lead)) for frame in frames)
    return [*fact_lines("called", first, style), *(" " * len(lead) + line for line in rest)]


def _helps(item: Finding, advised: dict[str, Finding], style: Style) -> list[str]:
    """The advice. If all advice of an earlier finding is among it, that finding is named instead."""
    if item.caused_by is not None:
        return []
    earlier = next(iter(advised[each.text] for each in item.advice if each.text in advised), None)
    if earlier is not None and {each.text for each in earlier.advice} <= {each.text for each in item.advice}:
        fresh = [each for each in item.advice if each not in earlier.advice]
        again = help_lines(f"as for {_WORDS[earlier.rule][0]}[{earlier.label}], {earlier.function}", style)
    else:
        fresh, again = list(item.advice), []
    advised |= {each.text: item for each in item.advice if each.text not in advised}
    return [*(line for each in fresh for line in _advice(each, style)), *again]


def _advice(each: Advice, style: Style) -> list[str]:
    """Advice that fits the case is help. Unchecked advice is a hint, which says where it comes from."""
    if each.checked != "unchecked":
        tried = f" (Tried on torch {', '.join(each.elsewhere)}.)" if each.elsewhere else ""
        return help_lines(f"{each.text.rstrip()}{tried}", style)
    whose = "torch's own, unchecked" if each.source == "torch" else "unchecked"
    return labelled_lines("hint", "help", f"{each.text.rstrip()} ({whose})", style)


def _name(item: Finding) -> str:
    """How a report refers to a finding: by what its paragraph begins with, and its line."""
    named = f"{_WORDS[item.rule][0]} {item.id}" if item.id else f"{_WORDS[item.rule][0]}[{item.label}]"
    return f"{named} at line {item.span.line}" if item.span.line else named


def _notes(rule: str, explanation: Explanation, style: Style, all_: bool) -> list[str]:
    """A list of the notes of a rule, a line each. They follow from other findings, or cost nothing."""
    found = [item for item in explanation.findings if item.severity == "note" and item.rule == rule]
    if rule == "break":  # the paragraph of a break has those that follow from it
        found = [item for item in found if item.is_free]
    if not found or (all_ and rule != "uncompiled"):
        return []
    shown = found if all_ else found[:_MAX_SHOWN]
    lines = [style.paint(f"{_NOTE_TITLES[rule]}: {len(found)}", "strong")]
    for item in shown:
        lines += _note(item, explanation, style, all_)
    if len(shown) < len(found):
        lines.append(style.paint(f"    ... and {len(found) - len(shown)} more; --all shows them", "dim"))
    return [*lines, ""]


def _note(item: Finding, explanation: Explanation, style: Style, all_: bool) -> list[str]:
    """``    prog.py:37 in train: see break GB0008 at line 43``."""
    at = f"{source_location(item.span.file, item.span.line, None, explanation.run.cwd)} in {clean_line(item.function)}"
    reason = item.title if item.caused_by is None else f"see {_name(explanation.findings[item.caused_by])}"
    why = truncate_middle(clean_line(reason), min(_MAX_TITLE, style.columns // 2))
    lines = [f"    {fit_path(at, style.columns - width(why) - 6)}: {why}"]
    return (
        [*lines, *wrap_indented("        ", item.evidence[0].text, style.columns)] if all_ and item.evidence else lines
    )
