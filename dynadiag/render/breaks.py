"""The graph breaks of an explanation as text."""

from __future__ import annotations

from dynadiag.explain.explanation import Explanation
from dynadiag.explain.impact import Impact
from dynadiag.render.clean import clean_line
from dynadiag.render.paths import place, stack
from dynadiag.render.snippet import snippet
from dynadiag.render.style import Style
from dynadiag.render.wrap import cut, hanging, width, wrap

__all__ = ["WORST", "breaks_section"]

WORST = 10  # breaks that a report shows without --all
_LISTED = 6  # compile ids or functions named in one line


def breaks_section(explanation: Explanation, style: Style, all_: bool) -> list[str]:
    """Each root cause, the worst first; ten of them unless all are asked for."""
    impacts = explanation.impacts
    shown = impacts if all_ else impacts[:WORST]
    lines: list[str] = []
    for impact in shown:
        lines += [*_diagnostic(impact, explanation, style), ""]
    hidden = len(impacts) - len(shown)
    if hidden:
        lines += [style.paint(f"... and {hidden} more graph breaks; --all shows them", "dim"), ""]
    return lines


def _diagnostic(impact: Impact, explanation: Explanation, style: Style) -> list[str]:
    item = impact.root
    cwd = explanation.run.cwd
    arrow = style.paint("-->", "gutter")
    where = cut(place(item.span, cwd), style.columns - 6)
    return [
        *_head(impact, style),
        f"  {arrow} {where}",
        *snippet(explanation.sources.get(item.span.file or ""), item.span, style),
        *_facts(impact, explanation, style),
        *_helps(impact, style),
    ]


def _head(impact: Impact, style: Style) -> list[str]:
    item = impact.root
    word = "error" if item.fatal else "break"
    label = f"{word}[{item.gb_id}]" if item.gb_id else word
    lines = hanging(f"{clean_line(label)}: ", item.gb_type or "graph break of unknown type", style.columns)
    lead = width(clean_line(label))
    return [
        style.paint(lines[0][:lead], word) + style.paint(lines[0][lead:], "strong"),
        *(style.paint(line, "strong") for line in lines[1:]),
    ]


def _facts(impact: Impact, explanation: Explanation, style: Style) -> list[str]:
    item = impact.root
    facts = [("why", item.explanation or item.reason), ("in", f"{item.function} (compile {item.compile_id})")]
    facts.append(("led to", _consequences(impact)))
    lines = [line for name, text in facts if text for line in _fact(name, text, style)]
    frames = stack(item.user_stack, explanation.run.cwd)
    if len(frames) > 1:
        lines += _fact("called", "", style)
        lines += [f"       {line}" for frame in frames for line in wrap(frame, style.columns - 7)]
    if explanation.sources.get(item.span.file or "") is None:
        lines += _fact("note", "the source of this file was not recorded", style)
    return lines


def _fact(name: str, text: str, style: Style) -> list[str]:
    first, *rest = hanging(f"   = {name}: ", text, style.columns)
    return [style.paint("   =", "gutter") + first[4:], *rest]


def _consequences(impact: Impact) -> str:
    """In words: what the break did to the program."""
    if impact.root.fatal:
        return "torch raised an exception here, because the whole had to be one graph (fullgraph=True)"
    parts = [f"met {impact.met} times" if impact.met > 1 else "met once"]
    if impact.graphs:
        parts.append(f"{_count(impact.graphs, 'graph')} ended here")
    if len(impact.functions) > 1:
        parts.append(f"frames split: {_some(impact.functions)}")
    if len(impact.compile_ids) > 1:
        parts.append(f"compiles {_some(impact.compile_ids)}")
    if impact.recompiles:
        parts.append(f"met again by recompiles {_some(impact.recompiles)}")
    return "; ".join(parts)


def _helps(impact: Impact, style: Style) -> list[str]:
    lines: list[str] = []
    for hint in impact.root.hints:
        first, *rest = hanging("help: ", hint, style.columns)
        lines += [style.paint("help:", "help") + first[5:], *rest]
    return lines


def _some(items: tuple[str, ...]) -> str:
    more = len(items) - _LISTED
    return ", ".join(items[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
