"""Kernels as text: the listing, one kernel with what it was made of, a stage beside its source lines, a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from dynadiag.kernels import Change, KernelCall, Place, Stage, Stages, bound, source_diff
from dynadiag.render.clean import clean, clean_line
from dynadiag.render.words import count, some

__all__ = ["changes_text", "kernel_text", "listing_text", "stage_text"]

_HEADS = ("compile", "graph", "language", "kernel", "computes", "lines", "bytes", "flops", "bound")
_NUMERIC = (6, 7)
_MARKS = {"cpp": "//"}
_UNITS = ("", "k", "M", "G", "T", "P")


def listing_text(calls: Sequence[KernelCall], balance: float | None) -> str:
    """A table, the call that moves the most bytes first."""
    if not calls:
        return "No kernel was generated: nothing was compiled by Inductor.\n"
    rows = [_row(call, balance) for call in calls]
    widths = [max(len(row[place]) for row in [_HEADS, *rows]) for place in range(len(_HEADS))]
    lines = [
        "  ".join(
            cell.rjust(width) if place in _NUMERIC else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [_HEADS, *rows]
    ]
    return "\n".join(lines) + "\n" + _remarks(calls)


def _row(call: KernelCall, balance: float | None) -> tuple[str, ...]:
    number = f" #{call.number}" if call.number > 1 else ""
    return (
        clean_line(call.compile_id),
        call.stage or "?",
        clean_line(call.language),
        clean_line(call.name) + number,
        clean_line(some(call.ops)) or "no mapping",
        _lines(call),
        _short(call.cost.moved),
        _short(call.cost.flops),
        bound(call.cost, balance) or "?",
    )


def _lines(call: KernelCall) -> str:
    """``block.py:18, 19``; with a question mark where it was inferred from the texts."""
    places = call.places or call.view_places
    files: dict[str, list[int]] = {}
    for place in places:
        files.setdefault(place.file, []).append(place.line)
    parts = [f"{PurePath(file).name}:{', '.join(map(str, sorted(lines)))}" for file, lines in files.items()]
    return (clean_line("; ".join(parts)) + ("?" if call.how == "dataflow" else "")) or "no mapping"


def _short(value: int | None) -> str:
    """``16.4k``: three digits and a unit of a thousand."""
    if value is None:
        return "?"
    number, unit = float(value), 0
    while number >= 999.5 and unit + 1 < len(_UNITS):
        number, unit = number / 1000, unit + 1
    return f"{number:.0f}" if not unit else f"{number:.3g}{_UNITS[unit]}"


def _remarks(calls: Sequence[KernelCall]) -> str:
    """What the table cannot say: fallbacks with their reason, lines that were inferred."""
    said: dict[str, None] = {}
    for call in calls:
        if call.fallback:
            said[f"{call.name} is a fallback: {call.fallback}."] = None
    if any(call.how == "dataflow" for call in calls):
        said[
            "? after lines: inferred from the generated code; the recording does not say (a cache hit, another's log)."
        ] = None
    return "".join(f"\n{clean_line(line)}" for line in said) + ("\n" if said else "")


def kernel_text(calls: Sequence[KernelCall], balance: float | None) -> str:
    """The source of a kernel, below what is known of it: comments of its language, so that it stays source."""
    call = calls[0]
    mark = _MARKS.get(call.language, "#")
    facts = [line for one in calls for line in _facts(one, balance)]
    head = "".join(f"{mark} {clean_line(line)}\n" for line in facts)
    if call.definition is None:
        return head + clean("".join(f"{one.text}\n" for one in calls))
    return head + clean(call.definition.source)


def _facts(call: KernelCall, balance: float | None) -> list[str]:
    cache = f", FX graph cache {call.cache}" if call.cache else ""
    facts = [f"{call.name}: compile {call.compile_id}, {call.stage or 'graph unknown'}, call {call.number}{cache}"]
    facts.append(f"  called in line {call.line} of the generated module: {call.text}")
    if call.grid:
        facts.append(f"  launch grid from {call.grid}")
    if call.partition:
        facts.append(f"  in CUDA graph {call.partition}")
    facts.append(f"  lines: {', '.join(map(_place, call.places or call.view_places)) or 'no mapping'}{_how(call)}")
    facts.append(f"  nodes: {', '.join(call.nodes) or 'no mapping'}")
    if call.dynamo:
        facts.append(f"  made from Dynamo's: {', '.join(call.dynamo)}")
    if call.fallback:
        facts.append(f"  a fallback: {call.fallback}")
    moved = (
        f"reads {_short(call.cost.read)}B, writes {_short(call.cost.written)}B, {_short(call.cost.flops)} operations"
    )
    return [*facts, f"  {moved}; bound by {bound(call.cost, balance) or 'what is not known'}"]


def _place(place: Place) -> str:
    return f"{place.file}:{place.line}"


def _how(call: KernelCall) -> str:
    return {"scheduler": "", "comment": " (the generated code says so)", "none": ""}.get(
        call.how, " (inferred from the generated code)"
    )


def stage_text(stage: Stage, stages: Stages) -> str:
    """A stage with the line of the kernel's source before each of its lines, below what the compiler said of it."""
    facts = [f"{stage.name} for {stages.target}", *(f"{name}: {value}" for name, value in stages.facts.items())]
    head = "".join(f"; {clean_line(line)}\n" for line in [*facts, *stages.notes])
    sources: dict[int, list[int]] = {}
    for line, source in stage.lines:
        sources.setdefault(line, []).append(source)
    body = [
        f"{','.join(map(str, sources.get(number, ()))):>5} | {clean(line)}".rstrip()
        for number, line in enumerate(stage.text.splitlines(), 1)
    ]
    return head + "\n".join(body) + "\n"


def changes_text(changes: Sequence[Change]) -> str:
    """What became of each kernel, with the difference of the sources of those that changed."""
    parts = []
    for change in changes:
        if change.kind == "same":
            continue
        before, after = (", ".join(clean_line(call.name) for call in calls) for calls in (change.before, change.after))
        lines = sorted({_place(place) for call in change.before + change.after for place in call.places})
        where = f"  ({clean_line(some(lines))})" if lines else ""
        parts.append(f"{change.kind}: {' -> '.join(part for part in (before, after) if part)}{where}\n")
        if change.before and change.after:
            parts.append(clean(source_diff(change)) + "\n")
    same = sum(change.kind == "same" for change in changes)
    return "".join(parts) + f"{count(same, 'kernel')} {'is' if same == 1 else 'are'} the same in both.\n"
