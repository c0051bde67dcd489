"""The frames that Dynamo left to Python, as text: by reason, because many share one."""

from __future__ import annotations

from dynadiag.explain.explanation import Explanation
from dynadiag.recording.records import SkippedFrame
from dynadiag.render.clean import clean_line
from dynadiag.render.paths import place
from dynadiag.render.pieces import fact, where
from dynadiag.render.style import Style
from dynadiag.render.words import count
from dynadiag.render.wrap import hanging

__all__ = ["skipped_section"]

_REASONS = 5  # reasons that are shown without --all
_FRAMES = 3  # frames of one reason that are shown without --all


def skipped_section(explanation: Explanation, style: Style, all_: bool) -> list[str]:
    """Skipped frames grouped by reason, the most usual reason first."""
    groups: dict[str, list[SkippedFrame]] = {}
    for frame in explanation.skipped:
        groups.setdefault(frame.reason, []).append(frame)
    ranked = sorted(groups.items(), key=lambda item: -len(item[1]))
    shown = ranked if all_ else ranked[:_REASONS]
    lines = [line for reason, frames in shown for line in _group(reason, frames, explanation, style, all_)]
    if len(shown) < len(ranked):
        lines += [style.paint(f"... and {count(len(ranked) - len(shown), 'more reason')}; --all shows them", "dim")]
    return [*lines, ""] if lines else []


def _group(reason: str, frames: list[SkippedFrame], explanation: Explanation, style: Style, all_: bool) -> list[str]:
    head, *rest = hanging(f"skipped {count(len(frames), 'frame')}: ", reason or "no reason was recorded", style.columns)
    lines = [style.paint("skipped", "strong") + head[7:], *rest]
    shown = frames if all_ else frames[:_FRAMES]
    for frame in shown:
        at = place(frame.file, frame.line, None, explanation.run.cwd)
        lines.append(where(f"{at} in {clean_line(frame.function)}", style))
    if len(shown) < len(frames):
        lines += fact("more", f"{count(len(frames) - len(shown), 'frame')}; --all shows them", style)
    return lines
