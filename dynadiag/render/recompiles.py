"""The recompiles of an explanation as text: what changed as a small table, then the advice."""

from __future__ import annotations

from collections.abc import Sequence

from dynadiag.explain.explanation import Explanation
from dynadiag.explain.guards import read
from dynadiag.explain.naming import shown
from dynadiag.recording.records import GuardFailure, Recompile
from dynadiag.render.clean import clean_line
from dynadiag.render.paths import fit, place
from dynadiag.render.pieces import fact, help_, lead_of, where
from dynadiag.render.snippet import source_lines
from dynadiag.render.style import Style
from dynadiag.render.words import count, some
from dynadiag.render.wrap import cut, hanging, width

__all__ = ["FIRST", "recompiles_section"]

FIRST = 10  # recompiles that a report shows without --all
_GUARDS = 8  # failing guards of one recompile that are shown without --all
_CONDITIONS = ("shape", "alias", "membership")  # kinds of guard that say more than the values do
_VALUE = 32  # columns of a value in the table


def recompiles_section(explanation: Explanation, style: Style, all_: bool) -> list[str]:
    """Each recompile with its failing guards and what to do about it; advice already given is not repeated."""
    pairs = list(zip(explanation.recompiles, explanation.advice, strict=True))
    shown_ = pairs if all_ else pairs[:FIRST]
    lines: list[str] = []
    given: dict[str, str] = {}
    for item, advice in shown_:
        lines += _recompile(item, explanation, style, all_)
        lines += [*_advice(item, advice, given, style), ""]
    hidden = len(pairs) - len(shown_)
    if hidden:
        lines += [style.paint(f"... and {count(hidden, 'more recompile')}; --all shows them", "dim"), ""]
    return lines


def _advice(item: Recompile, advice: Sequence[str], given: dict[str, str], style: Style) -> list[str]:
    lines = [line for text in advice if text not in given for line in help_(text, style)]
    again = sorted({given[text] for text in advice if text in given})
    for text in advice:
        given.setdefault(text, f"{item.compile_id} of {item.function}")
    return [*lines, *(line for before in again for line in help_(f"as for recompile {before}", style))]


def _recompile(item: Recompile, explanation: Explanation, style: Style, all_: bool) -> list[str]:
    label = f"recompile[{cut(clean_line(item.compile_id), _VALUE)}]"
    name = cut(clean_line(item.function), style.columns - width(label) - 2)
    lines = [
        style.paint(label, "recompile") + style.paint(f": {name}", "strong"),
        where(place(item.file, item.line, None, explanation.run.cwd), style),
    ]
    changes = _changes(item.reasons)
    kept = changes if all_ else changes[:_GUARDS]
    for at, texts in _by_place(kept).items():
        lines += [line for text in texts for line in fact("guard", text, style)]
        lines += _line(*at, explanation, style)
    if len(kept) < len(changes):
        lines += fact("and", f"{count(len(changes) - len(kept), 'more failing guard')}; --all shows them", style)
    return lines


def _changes(reasons: Sequence[GuardFailure]) -> list[tuple[str, tuple[str | None, int | None]]]:
    """Each change with its place, said once with all the cached entries that it kept from being used."""
    against: dict[tuple[str, tuple[str | None, int | None]], list[str]] = {}
    for reason in reasons:
        against.setdefault((_change(reason), (reason.file, reason.line)), []).append(reason.against)
    return [(f"{text} (guard of {some(ids)})", at) for (text, at), ids in against.items()]


def _by_place(
    changes: Sequence[tuple[str, tuple[str | None, int | None]]],
) -> dict[tuple[str | None, int | None], list[str]]:
    places: dict[tuple[str | None, int | None], list[str]] = {}
    for text, at in changes:
        places.setdefault(at, []).append(text)
    return places


def _change(reason: GuardFailure) -> str:
    """What changed from what to what where that is known, the guard's own text where not."""
    kind, source, was, now = read(reason).kind, shown(reason.source), _value(reason.was), _value(reason.now)
    if (kind in _CONDITIONS and reason.guard) or (reason.was and reason.was == reason.guard):
        held = f"`{shown(reason.guard)}` does not hold"
        return f"{held}: {source} is now {now}" if kind == "shape" and reason.now else held
    if kind == "identity" and (reason.was or "another object").startswith("another object"):
        return f"{source} is another object than before" + (f", now {now}" if reason.now else "")
    if reason.was is None and reason.now is None:
        return reason.guard or "a guard of unknown text"
    if reason.now is None:
        return f"{source} is no longer {was}"
    return f"{source} was {was}, now {now}" if reason.was is not None else f"{source} is now {now}"


def _line(file: str | None, number: int | None, explanation: Explanation, style: Style) -> list[str]:
    """Where the program made the guard, with the line itself where it was kept."""
    if file is None or number is None:
        return []
    at = place(file, number, None, explanation.run.cwd)
    source = source_lines(explanation.sources.get(file, ""))
    code = clean_line(source[number - 1]) if 1 <= number <= len(source) else ""
    lead = " " * len(lead_of("guard"))
    room = style.columns - width(lead)
    lines = [f"{lead}{fit(f'at {at}', room)}"]
    return [*lines, f"{lead}{style.paint(_end(code, room), 'dim')}"] if code else lines


def _end(code: str, room: int) -> str:
    """A line of code cut at its end."""
    return code if width(code) <= room else hanging("", code, room - 1)[0] + "…"


def _value(text: str | None) -> str:
    return cut(clean_line(text or ""), _VALUE)
