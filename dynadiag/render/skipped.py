"""The frames that Dynamo left to Python, as text: a line each, because the breaks above tell the most of them."""

from __future__ import annotations

from collections.abc import Mapping

from dynadiag.explain.explanation import Explanation
from dynadiag.recording.records import SkippedFrame
from dynadiag.recording.torch_names import is_resume_function, original_name
from dynadiag.render.clean import clean_line
from dynadiag.render.formatting import count
from dynadiag.render.paths import fit_path, source_location
from dynadiag.render.style import Style
from dynadiag.render.wrap import truncate_middle, width, wrap_indented

__all__ = ["skipped_section"]

_FRAMES = 10  # frames that are shown without --all
_REASON = 60  # columns of a reason


def skipped_section(explanation: Explanation, style: Style, all_: bool) -> list[str]:
    """Where each frame is and why it was left, or what above tells it; with `all_` torch's whole reason too."""
    frames = tuple(dict.fromkeys(explanation.skipped))
    if not frames:
        return []
    told = _told(explanation)
    shown = frames if all_ else frames[:_FRAMES]
    head = f"skipped {count(len(frames), 'frame')}, left to Python"
    lines = [style.paint(line, "strong") for line in wrap_indented("", head, style.columns)]
    for frame in shown:
        lines += _frame(frame, told.get(_key(frame.file, frame.line, frame.function)), explanation.run.cwd, style, all_)
    if len(shown) < len(frames):
        lines.append(
            style.paint(f"    ... and {count(len(frames) - len(shown), 'more frame')}; --all shows them", "dim")
        )
    return [*lines, ""]


def _key(file: str | None, line: int | None, function: str) -> tuple[str | None, int | None, str]:
    return (file, line, original_name(function))


def _told(explanation: Explanation) -> Mapping[tuple[str | None, int | None, str], str]:
    """What else of the report tells why a frame was left: the last of its recompiles, or the break that it met."""
    told: dict[tuple[str | None, int | None, str], str] = {}
    roots = {item.index: item for item in explanation.roots}
    met = {item.compile_id: roots[item.index if item.cause is None else item.cause] for item in explanation.breaks}
    for compile_ in explanation.compiles:
        if compile_.outcome == "skipped" and (root := met.get(compile_.compile_id)):
            named = f"break {root.gb_id}" if root.gb_id else "the break"
            told[_key(compile_.file, compile_.line, compile_.function)] = f"{named} at line {root.span.line}"
    for item in explanation.recompiles:
        if item.limit_reached:
            told[_key(item.file, item.line, item.function)] = f"gave up[{item.compile_id}] above"
    return told


def _frame(frame: SkippedFrame, told: str | None, cwd: str | None, style: Style, all_: bool) -> list[str]:
    """``    prog.py:37 in train: see break GB0008 at line 43``."""
    at = f"{source_location(frame.file, frame.line, None, cwd)} in {clean_line(original_name(frame.function))}"
    reason = clean_line(frame.reason or "no reason was recorded")
    if is_resume_function(frame.function):
        reason = f"what follows here, {reason}"
    why = f"see {truncate_middle(clean_line(told), _REASON)}" if told else _type(reason)
    lines = [f"    {fit_path(at, style.columns - width(why) - 6)}: {why}"]
    return [*lines, *wrap_indented("        ", reason, style.columns)] if all_ else lines


def _type(reason: str) -> str:
    """The type of a break out of torch's sentence, which goes on with an explanation."""
    return truncate_middle(reason.split(": ")[0].split(". ")[0], _REASON)
