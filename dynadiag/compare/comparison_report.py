"""Reports a comparison as tables and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from dynadiag import __version__
from dynadiag.compare.comparison import Comparison
from dynadiag.compare.variant import Variant
from dynadiag.compare.variant_result import RelativeSpeed, VariantResult, relative_speed
from dynadiag.compare.warm_call_report import warm_call_json, warm_call_tables
from dynadiag.explanation.formatting import count, duration, short_duration
from dynadiag.render.clean import clean_line
from dynadiag.render.components import labelled_lines
from dynadiag.render.json_document import SCHEMA, encode
from dynadiag.render.style import Style
from dynadiag.render.table import table
from dynadiag.render.wrap import truncate_middle, wrap_indented
from dynadiag.trial.typed_json import to_data

__all__ = ["comparison_json", "comparison_text"]

_MAX_NAME_WIDTH = 60  # columns of a device's name in the head
_PARTS = ("dynamo", "aot", "inductor", "codegen", "other")
_STEPS = {"call": "called as it is", "inference": "without gradients", "train": "forward and backward"}
_BYTES = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB"))
_MISSING = "-"

Column = tuple[str, Callable[[VariantResult], str]]


def comparison_json(found: Comparison, target: str) -> bytes:
    """The JSON document: one entry in ``rows`` for each variant, in the order of the table."""
    head = {"schema": SCHEMA, "dynadiag": __version__, "torch": _first(found, "torch"), "target": target}
    where = {"device": _first(found, "device"), "threads": _first(found, "threads")}
    rows = [_row(row, found) for row in found.rows]
    return encode({**head, **where, "interrupted": found.interrupted, "rows": rows})


def comparison_text(found: Comparison, target: str, style: Style) -> str:
    """The tables: times, then what was compiled, then compile times by part; failures and notes below."""
    measured = [row for row in found.rows if row.warm is not None]
    lines = [*_head(found, target, style), ""]
    if measured:
        lines += [*_table(measured, _times(found), style), "", *_table(measured, _results(measured), style)]
    if compiled := [row for row in measured if row.compiled and row.compiled.seconds]:
        lines += ["", *_table(compiled, list(_compiling()), style)]
    if details := warm_call_tables([(_name(row, measured), row) for row in measured], style):
        lines += [*details, ""]
    for row in found.rows:
        if row.failure is not None:
            lines += _failure(row, found, style)
    for note in _notes(found, measured):
        lines += labelled_lines("note", "strong", note, style)
    return "\n".join(lines) + "\n"


def _first(found: Comparison, name: str) -> Any:
    return next((getattr(row, name) for row in found.rows if getattr(row, name) is not None), None)


def _row(row: VariantResult, found: Comparison) -> dict[str, Any]:
    variant, warm = row.variant, row.warm
    timed = (
        None
        if warm is None
        else {**asdict(warm), "iqr": warm.spread, "blocks": len(row.times), "interval": row.confidence_interval}
    )
    return {
        "variant": variant.label,
        **to_data(variant),
        "failure": None if row.failure is None else to_data(row.failure),
        "first_call": row.first[0] if row.first else None,
        "first_calls": list(row.first),
        "warm_call": timed,
        "rounds": len(row.rounds),
        "against_eager": _against(row, found, lambda it: asdict(it)),
        "memory": {"first_calls": asdict(row.first_peak), "warm_calls": asdict(row.warm_peak)},
        "kernels": _kernels(row),
        **_compiled(row),
        **warm_call_json(row),
        "inputs": list(row.inputs),
        "recording": None if row.recording is None else str(row.recording),
    }


def _against(row: VariantResult, found: Comparison, show: Callable[[RelativeSpeed], Any]) -> Any:
    eager = found.eager(row.variant)
    against = None if eager is None or eager is row else relative_speed(row, eager)
    return None if against is None else show(against)


def _kernels(row: VariantResult) -> dict[str, Any] | None:
    """The kernels of one call, and how they were counted. None if Inductor generated no code."""
    if row.gpu is not None:
        return {"per_call": row.gpu.kernels, "from": "torch.profiler", **asdict(row.gpu)}
    if row.compiled is None or not row.compiled.generated + row.compiled.extern:
        return None
    made = {"generated": row.compiled.generated, "extern": row.compiled.extern}
    return {"per_call": sum(made.values()), "from": "generated code", **made}


def _compiled(row: VariantResult) -> dict[str, Any]:
    found = row.compiled
    if found is None:
        return dict.fromkeys(("compile_seconds", "graphs", "breaks", "recompiles", "cached", "no_cudagraphs"))
    return {
        "compile_seconds": {"total": found.seconds, **dict.fromkeys(_PARTS, 0.0), **dict(found.parts)},
        "graphs": found.graphs,
        "breaks": found.breaks,
        "recompiles": found.recompiles,
        "cached": found.cached,
        "no_cudagraphs": list(found.no_cudagraphs),
    }


def _head(found: Comparison, target: str, style: Style) -> list[str]:
    torch, threads = _first(found, "torch"), _first(found, "threads")
    device = truncate_middle(clean_line(_first(found, "device") or ""), _MAX_NAME_WIDTH)
    parts = [f"dynadiag {__version__}", f"torch {torch}" if torch else "torch unknown", device]
    parts += [count(threads, "thread")] if threads else []
    step = _STEPS[found.rows[0].variant.step]
    shown = style.paint(truncate_middle(clean_line(target), style.columns - len(step) - 2), "strong")
    return [", ".join(part for part in parts if part), f"{shown}, {step}"]


def _name(row: VariantResult, found: Sequence[VariantResult]) -> str:
    """A variant's label. With several functions, the function's name comes first."""
    several = len({one.variant.name for one in found}) > 1
    return f"{row.variant.name}: {row.variant.label}" if several else row.variant.label


def _times(found: Comparison) -> list[Column]:
    return [
        ("first call", lambda row: short_duration(row.first[0])),
        ("warm call", lambda row: short_duration(row.warm.median) if row.warm else _MISSING),
        ("spread", lambda row: short_duration(row.warm.spread) if row.warm else _MISSING),
        ("against eager", lambda row: _against(row, found, _ratio) or ""),
        ("pays after", lambda row: _against(row, found, _break_even) or ""),
    ]


def _ratio(against: RelativeSpeed) -> str:
    if against.noise:
        return "within the noise"
    if against.ratio >= 1:
        return f"{against.ratio:.2f}x faster"
    return f"{1 / against.ratio:.2f}x slower"


def _break_even(against: RelativeSpeed) -> str:
    if against.noise:
        return _MISSING
    return "never" if against.pays_after is None else count(against.pays_after, "call")


def _results(rows: Sequence[VariantResult]) -> list[Column]:
    columns: list[Column] = [
        ("first peak", lambda row: _size(row.first_peak.host)),
        ("warm peak", lambda row: _size(row.warm_peak.host)),
    ]
    if any(row.gpu for row in rows):
        columns = [
            ("first peak", lambda row: _size(row.first_peak.device)),
            ("warm peak", lambda row: _size(row.warm_peak.device)),
            ("launches", lambda row: str(row.gpu.launches) if row.gpu else _MISSING),
            ("Triton", lambda row: _percent(row.gpu.triton_share if row.gpu else None)),
            ("tensor cores", lambda row: _percent(row.gpu.tensor_core_share if row.gpu else None)),
            ("cold call", lambda row: short_duration(row.gpu.cold) if row.gpu else _MISSING),
        ]
    columns += [("kernels", lambda row: str((_kernels(row) or {"per_call": _MISSING})["per_call"]))]
    return columns + [(name, _counted(name)) for name in ("graphs", "breaks", "recompiles")]


def _percent(share: float | None) -> str:
    return _MISSING if share is None else f"{share:.0%}"


def _counted(name: str) -> Callable[[VariantResult], str]:
    return lambda row: _MISSING if row.compiled is None else str(getattr(row.compiled, name))


def _compiling() -> Iterator[Column]:
    yield "compiling", lambda row: duration(row.compiled.seconds) if row.compiled else _MISSING
    for title, part in (("Dynamo", "dynamo"), ("AOTAutograd", "aot"), ("Inductor", "inductor"), ("codegen", "codegen")):
        yield title, _part(part)


def _part(part: str) -> Callable[[VariantResult], str]:
    return lambda row: duration(dict(row.compiled.parts).get(part, 0.0)) if row.compiled else _MISSING


def _table(rows: Sequence[VariantResult], columns: Sequence[Column], style: Style) -> list[str]:
    names = [_name(row, rows) for row in rows]
    return table(names, [(title, [show(row) for row in rows]) for title, show in columns], style)


def _failure(row: VariantResult, found: Comparison, style: Style) -> list[str]:
    failure = row.failure
    assert failure is not None
    message = next((line for line in failure.message.splitlines() if line.strip()), "")
    kind = f"{failure.type}: " if failure.kind == "exception" else ""
    lead = f"{clean_line(_name(row, found.rows))}: "
    first, *rest = wrap_indented(lead, f"{kind}{message}", style.columns)
    return [style.paint(first[: len(lead) - 1], "error") + first[len(lead) - 1 :], *rest]


def _notes(found: Comparison, measured: Sequence[VariantResult]) -> Iterator[str]:
    if found.interrupted:
        rounds = max((len(row.rounds) for row in found.rows), default=0)
        yield f"interrupted after {count(rounds, 'round')}; these are the results until then"
    if any(_against(row, found, lambda it: it.noise) for row in measured):
        yield "within the noise: the confidence intervals of the medians overlap; more rounds (--repeat) narrow them"
    cached = [_name(row, measured) for row in measured if row.compiled and row.compiled.cached]
    if cached:
        yield f"{', '.join(cached)}: compiled code came from torch's cache; --fresh times a compile without caches"
    if any(row.warm and row.warm.spread > row.warm.median for row in measured):
        yield (
            "the spread is larger than the median: other processes use this machine"
            + (", or threads wait for each other (try OMP_NUM_THREADS=1)" if _first(found, "threads") != 1 else "")
        )
    if further := max((len(row.inputs) for row in measured), default=0):
        yield f"graphs, breaks, recompiles and compile times include {count(further, 'call')} with other inputs"
    yield from _per_variant(measured)
    if any(row.gpu for row in measured):
        yield "peaks: memory that torch allocated on the GPU; launches: a CUDA graph of many kernels counts as one"
        yield "Triton, tensor cores: share of the kernels' time; cold call: the GPU's cache is flushed before the call"
    elif measured:
        yield "peaks: growth of the process's memory, in the first calls and in warm calls"
    if not any(row.gpu for row in measured) and any(_kernels(row) for row in measured):
        yield "kernels: calls in the generated code, of Inductor's kernels and of library kernels"


def _per_variant(rows: Sequence[VariantResult]) -> Iterator[str]:
    """Notes on single variants. A note that several share is given once, with all their names."""
    names_of: dict[str, list[str]] = {}
    for row in rows:
        for note in _remarks(row.variant, row):
            names_of.setdefault(note, []).append(_name(row, rows))
    for note, names in names_of.items():
        yield f"{', '.join(names)}: {note}"


def _remarks(variant: Variant, row: VariantResult) -> Iterator[str]:
    if row.device == "cpu" and variant.backend is None and variant.mode == "reduce-overhead":
        yield "this mode adds CUDA graphs to the default mode; a CPU has none"
    if row.compiled is None:
        if variant.compiles:
            yield "not recorded: nothing is known about its compiles"
        return
    if variant.compiles and row.compiled.no_graphs:
        yield f"the timed calls ran uncompiled: {row.compiled.no_graphs}"
    yield from (f"no CUDA graphs: {reason}" for reason in row.compiled.no_cudagraphs)
    yield from row.compiled.notes


def _size(size: int | None) -> str:
    if size is None:
        return _MISSING
    scale, unit = next((pair for pair in _BYTES if size >= pair[0]), (1, "B"))
    return f"{size / scale:.3g} {unit}" if size < 1000 * scale else f"{size / scale:.0f} {unit}"
