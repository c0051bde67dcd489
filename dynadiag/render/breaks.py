"""The graph breaks of an explanation as text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dynadiag.explain.explanation import Explanation
from dynadiag.explain.frame_origin import is_stdlib_file, user_frame
from dynadiag.explain.impact import Impact
from dynadiag.explain.registry import specific_hints
from dynadiag.recording.records import Break
from dynadiag.recording.torch_names import original_name
from dynadiag.render.clean import clean_line
from dynadiag.render.components import fact_lines, help_lines, lead_of, location_line
from dynadiag.render.formatting import count, list_some
from dynadiag.render.paths import fit_path, short_stack, source_location
from dynadiag.render.runtime_cost import cost_text
from dynadiag.render.snippet import snippet, source_lines
from dynadiag.render.style import Style
from dynadiag.render.wrap import truncate_middle, width, wrap_indented

__all__ = ["WORST", "breaks_section"]

_ID = 16  # columns of an id; torch's have six
_IN_TORCH = re.compile(r"^.*?(site|dist)-packages/torch/")
_LISTED = re.compile(r'# File "(?P<file>[^"\n]{1,500})", line (?P<line>\d{1,9}), in [^,\n]{1,200}, code: ')
_ADDRESS = re.compile(r" at 0x[0-9a-f]+(?=>)")  # of an object's default repr: it tells a reader nothing
_NO_TENSOR = "no tensor-related objects found in frame"  # convert_frame.py, 2.13 to 2.15
_UNSEEN = (
    "Dynamo goes on after a break only where the function has a tensor or a module in a variable (or a list, tuple or "
    "dict), or names `torch`. It does not look into objects (a dataclass, a model's output): move what follows into a "
    "function that takes their tensors."
)
WORST = 10  # breaks that a report shows without --all


def breaks_section(explanation: Explanation, style: Style, all_: bool) -> list[str]:
    """Each root cause, the worst first; ten of them unless all are asked for.

    Those that torch made in its own code and that cost no graph are told in a line each: nobody need act on them.
    """
    aside = () if all_ else tuple(item for item in explanation.impacts if item.is_torchs and not item.graphs)
    impacts = [item for item in explanation.impacts if item not in aside]
    shown = impacts if all_ else impacts[:WORST]
    lines: list[str] = []
    for impact in shown:
        lines += [*_diagnostic(impact, explanation, style), ""]
    hidden = len(impacts) - len(shown)
    if hidden:
        lines += [style.paint(f"... and {count(hidden, 'more graph break')}; --all shows them", "dim"), ""]
    return [*lines, *_aside(aside, explanation, style)]


def _aside(impacts: Sequence[Impact], explanation: Explanation, style: Style) -> list[str]:
    if not impacts:
        return []
    head = f"{count(len(impacts), 'break')} in torch's own code ended no graph: nothing to do"
    lines = [_of_torch(item, explanation, style) for item in impacts[:WORST]]
    if len(impacts) > WORST:
        lines += fact_lines("and", f"{len(impacts) - WORST} more; --all shows them", style)
    return [*(style.paint(line, "strong") for line in wrap_indented("", head, style.columns)), *lines, ""]


def _of_torch(impact: Impact, explanation: Explanation, style: Style) -> str:
    """``    GB0025 torch/optim/optimizer.py:79, 5 times from prog.py:46``."""
    root, cwd = impact.root, explanation.run.cwd
    inside = _IN_TORCH.sub("torch/", source_location(root.span.file, root.span.line, None, None))
    lead = f"    {truncate_middle(clean_line(root.gb_id or 'break'), _ID)} {inside}, {count(impact.met, 'time')}"
    frame = user_frame(root)
    if frame is None:
        return truncate_middle(lead, style.columns)
    lead = truncate_middle(f"{lead} from ", style.columns * 3 // 4)
    return lead + fit_path(source_location(frame.file, frame.line, None, cwd), style.columns - width(lead))


def _diagnostic(impact: Impact, explanation: Explanation, style: Style) -> list[str]:
    item = impact.root
    return [
        *_head(impact, style),
        location_line(source_location(item.span.file, item.span.line, item.span.column, explanation.run.cwd), style),
        *snippet(explanation.sources.get(item.span.file or ""), item.span, style),
        *_facts(impact, explanation, style),
        *(line for hint in _helps(impact, explanation) for line in help_lines(hint, style)),
    ]


def _helps(impact: Impact, explanation: Explanation) -> tuple[str, ...]:
    """torch's hints, and before them who can act on them where the line is torch's or Python's own."""
    hints, frame, file = specific_hints(impact.root.hints), user_frame(impact.root), impact.root.span.file
    if any(frame.reason == _NO_TENSOR for frame in impact.left):
        hints = (*hints, _UNSEEN)
    whose = "torch's own" if impact.is_torchs else "of Python's own library" if is_stdlib_file(file) else None
    if whose is None or frame is None:
        return hints
    at = source_location(frame.file, frame.line, None, explanation.run.cwd)
    return (f"This line is {whose}: what you can change is the call that leads to it, at {at}.", *hints)


def _head(impact: Impact, style: Style) -> list[str]:
    item = impact.root
    word = "error" if item.fatal else "break"
    label = f"{word}[{truncate_middle(clean_line(item.gb_id), _ID)}]" if item.gb_id else word
    first, *rest = wrap_indented(f"{label}: ", item.gb_type or "graph break of unknown type", style.columns)
    lead = style.paint(first[: len(label)], word) + style.paint(first[len(label) :], "strong")
    return [lead, *(style.paint(line, "strong") for line in rest)]


def _facts(impact: Impact, explanation: Explanation, style: Style) -> list[str]:
    item = impact.root
    facts = {
        "why": _explained(item, explanation.run.cwd),
        "in": item.function if item.compile_id == "-" else f"{item.function} (compile {item.compile_id})",
        "led to": _consequences(impact),
        "costs": cost_text(impact.cost, explanation.warm) if impact.cost and explanation.warm else "",
    }
    lines = [line for name, text in facts.items() if text for line in fact_lines(name, text, style)]
    if not _has_line(explanation, impact) and not impact.is_torchs:
        lines += fact_lines("note", "the source of this line was not recorded", style)
    return [*lines, *_stack(impact, explanation.run.cwd, style)]


def _explained(item: Break, cwd: str | None) -> str:
    """torch's explanation, without addresses, and the places in its listings as they stand elsewhere in the report."""
    text = _ADDRESS.sub("", item.explanation or item.reason)
    return _LISTED.sub(lambda found: f"# {source_location(found['file'], int(found['line']), None, cwd)}: ", text)


def _has_line(explanation: Explanation, impact: Impact) -> bool:
    span = impact.root.span
    source = explanation.sources.get(span.file or "")
    return source is not None and 1 <= (span.line or 0) <= len(source_lines(source))


def _stack(impact: Impact, cwd: str | None, style: Style) -> list[str]:
    """The way to the break, where it is more than the line itself."""
    root = impact.root
    above = [frame for frame in root.user_stack if (frame.file, frame.line) != (root.span.file, root.span.line)]
    frames = short_stack(above, cwd)
    if not frames:
        return []
    lead = lead_of("called")
    first, *rest = (fit_path(frame, style.columns - len(lead)) for frame in frames)
    return [*fact_lines("called", first, style), *(" " * len(lead) + line for line in rest)]


def _consequences(impact: Impact) -> str:
    """In words: what the break did to the program."""
    parts = []
    if impact.root.fatal:
        parts.append("an exception instead of a split (fullgraph=True, torch.cond, an operator that fails, ...)")
    if impact.graphs:
        parts.append(f"{count(impact.graphs, 'graph')} ended here")
    if impact.met > 1:
        parts.append(f"met {count(impact.met, 'time')}, in compiles {list_some(impact.compile_ids)}")
    if len(impact.functions) > 1:
        parts.append(f"it split the frames of {list_some(impact.functions)}")
    if impact.left:
        names = tuple(dict.fromkeys(original_name(frame.function) for frame in impact.left))
        parts.append(f"what follows in {list_some(names)} ran uncompiled ({impact.left[0].reason})")
    if impact.recompiles:
        parts.append(f"recompiles among them: {list_some(impact.recompiles)}")
    return "; ".join(parts)
