"""The first section of a report, with the answer and the counts; and its section on time."""

from __future__ import annotations

import re

from dynadiag import __version__
from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.formatting import count, duration
from dynadiag.explanation.timing import CompileTime, PhaseShare, Timing
from dynadiag.recording.records import CUT_SHORT, Run
from dynadiag.render.clean import clean_line
from dynadiag.render.components import labelled_lines
from dynadiag.render.style import Style
from dynadiag.render.wrap import truncate_middle, width, wrap_indented

__all__ = ["summary_section", "time_section"]

_MAX_PART = 24  # columns of a version or a device
_MAX_SLOWEST = 5  # compiles that are named
_SIGNAL = re.compile(r"the program was .* by signal \d+ ")  # a note of the digest's
_PARTS = {
    "dynamo": "Dynamo (tracing)",
    "aot": "AOTAutograd",
    "backend": "backend",
    "inductor": "Inductor",
    "codegen": "code generation",
    "cached": "backend (code from the cache)",
    "other": "other",
}


def summary_section(explanation: Explanation, style: Style) -> list[str]:
    """The answer first, then what was run, the counts, how the program ended, and notes."""
    lines = [*_headline(explanation, style), *_head(explanation.run, style), *_counts(explanation, style)]
    names_end = explanation.headline.tells_end
    lines += [] if names_end else _exit_note(explanation.run, style)
    for note in explanation.notes:
        lines += [] if names_end and _SIGNAL.match(note) else labelled_lines("note", "strong", note, style)
    return lines


def time_section(explanation: Explanation, style: Style) -> list[str]:
    """How long the parts of the compiler took; empty if no times were recorded."""
    return [] if explanation.timing is None else [*_time(explanation.timing, style), ""]


def _head(run: Run, style: Style) -> list[str]:
    parts = [f"dynadiag {__version__}", f"torch {run.torch}" if run.torch else "torch unknown", run.device or ""]
    if run.rank is not None:
        parts.append(f"rank {run.rank}")
    joined = ", ".join(truncate_middle(clean_line(part), _MAX_PART) for part in parts if part)
    lead = truncate_middle(joined, style.columns * 3 // 4)
    target = truncate_middle(clean_line(run.target), style.columns - width(lead) - 2)
    return [f"{lead}: {style.paint(target, 'strong')}"]


def _counts(explanation: Explanation, style: Style) -> list[str]:
    reports = len(explanation.breaks)
    breaks = count(explanation.break_count, "graph break")
    free = sum(len(item.places) for item in explanation.findings if item.rule == "break" and item.is_free)
    aside = [f"met {count(reports, 'time')}"] if reports > explanation.break_count else []
    aside += [f"{free} at no cost"] if free else []
    breaks += f" ({', '.join(aside)})" if aside else ""
    text = (
        f"{count(explanation.graph_count, 'graph')}, {breaks}, {count(explanation.recompile_count, 'recompile')}, "
        f"{count(len(explanation.compiles), 'compile')}, {count(len(explanation.kernels), 'kernel')}"
    )
    return wrap_indented("", text, style.columns)


def _headline(explanation: Explanation, style: Style) -> list[str]:
    found = explanation.headline
    role = found.severity if found.severity in ("good", "error") else "break"
    lines = [style.paint(line, role) for line in wrap_indented("", found.sentence, style.columns)]
    for why in found.why:
        lines += labelled_lines("why", "strong", why, style)
    return lines


def _exit_note(run: Run, style: Style) -> list[str]:
    """How the program ended, if it failed and no other note says so."""
    if run.exit_code == 0 or run.is_foreign or (run.exit_code is None and run.complete):
        return []
    if run.exit_code is None:
        if CUT_SHORT in run.notes:
            return []
        text = "the run was cut short; this is what was recorded until then"
    elif run.exit_code < 0:
        text = f"the program was ended by signal {-run.exit_code}"
        if any(f"signal {-run.exit_code}" in note for note in run.notes):
            return []
    else:
        text = f"the program ended with exit code {run.exit_code}"
    return labelled_lines("note", "strong", text, style)


def _time(timing: Timing, style: Style) -> list[str]:
    text = f"{duration(timing.total)} compiling: {_shares(timing.shares, timing.total)}"
    lines = labelled_lines("time", "strong", text, style)
    if timing.recompiles:
        again = f"{duration(timing.first_compiles)} in first compiles, {duration(timing.recompiles)} in recompiles"
        lines += wrap_indented("      ", again, style.columns)
    if timing.hits:
        hits = f"the code of {count(timing.hits, 'compile')} came from the FX graph cache"
        lines += wrap_indented("      ", hits, style.columns)
    slowest = timing.spent[:_MAX_SLOWEST]
    if len(timing.spent) > 1:
        lines += [_spent(item, style) for item in slowest]
    if len(timing.spent) > len(slowest):
        rest = sum(item.seconds for item in timing.spent[len(slowest) :])
        lines.append(f"      and {count(len(timing.spent) - len(slowest), 'more compile')}, {duration(rest)}")
    return lines


def _spent(item: CompileTime, style: Style) -> str:
    """A slow compile on one line: its seconds, id, function and reason, and if there is room the slowest part."""
    compile_ = item.compile
    most = max(item.shares, key=lambda share: share.seconds, default=None)
    part = f" ({_PARTS[most.part]})" if most and most.seconds > item.seconds / 2 else ""
    lead = f"      {duration(item.seconds):>8}  {truncate_middle(clean_line(compile_.compile_id), _MAX_PART):<6} "
    kind = f"recompile: {truncate_middle(clean_line(item.because), _MAX_PART)}" if item.because else "recompile"
    function = clean_line(compile_.function)
    tail = f"  {kind if item.again else 'first compile'}"
    room = style.columns - width(lead) - width(tail)
    if room - width(part) < min(width(function), _MAX_PART):
        part = ""
    return truncate_middle(lead + truncate_middle(function, max(room - width(part), 10)) + tail + part, style.columns)


def _shares(shares: tuple[PhaseShare, ...], total: float) -> str:
    """The parts in percent, the largest first, without those that round to 0%."""
    ranked = sorted(shares, key=lambda share: -share.seconds)
    named = [f"{_PARTS[share.part]} {share.seconds / total:.0%}" for share in ranked if share.seconds >= total / 200]
    return ", ".join(named) or "no parts were recorded"
