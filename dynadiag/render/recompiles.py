"""The recompiles of an explanation as text: what changed as a small table, then the advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dynadiag.explain.changes import GuardChange, changes, fingerprint, without_consequences
from dynadiag.explain.explanation import Explanation
from dynadiag.recording.records import Frame, Recompile
from dynadiag.render.clean import clean_line
from dynadiag.render.components import fact_lines, help_lines, lead_of, location_line
from dynadiag.render.formatting import count, list_some
from dynadiag.render.guard_changes import describe_change, sizes_at
from dynadiag.render.paths import fit_path, source_location
from dynadiag.render.snippet import source_lines
from dynadiag.render.style import Style
from dynadiag.render.wrap import truncate_end, truncate_middle, width

__all__ = ["FIRST", "recompiles_sections"]

FIRST = 10  # recompiles that a report shows without --all
_GUARDS = 8  # failing guards of one recompile that are shown without --all
_ID = 32  # columns of a compile id


@dataclass(frozen=True, slots=True)
class _Group:
    """A recompile, and the later ones of the same function for the same reason."""

    first: Recompile
    changes: tuple[GuardChange, ...]
    advice: tuple[str, ...]
    later: tuple[tuple[Recompile, tuple[GuardChange, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class _Given:
    """What was advised so far, and at which recompile: each text, and each set of changes that one call made."""

    texts: dict[str, str] = field(default_factory=dict)
    changes: list[tuple[tuple[Frame, ...], frozenset[tuple[str, ...]], str]] = field(default_factory=list)

    def for_the_same(self, stack: Sequence[Frame], what: frozenset[tuple[str, ...]]) -> str | None:
        """The recompile, earlier in the same call of the program, for these changes or more."""
        if not what:
            return None
        return next((label for site, known, label in self.changes if what <= known and _one_call(site, stack)), None)


def _one_call(outer: Sequence[Frame], inner: Sequence[Frame]) -> bool:
    """Whether two compiles, by their stacks, were for one call: torch has no callers of the function that the call
    begins with, for all others it has them from the program's own frame on."""
    if len(outer) == 1:
        return any((each.file, each.function) == (outer[0].file, outer[0].function) for each in inner[:-1])
    return outer[:1] == inner[:1]


def recompiles_sections(explanation: Explanation, style: Style, all_: bool) -> tuple[list[str], list[str]]:
    """The recompiles that torch gave up on, and the others, with their failing guards and what to do about it.

    Advice already given is not repeated; nor is any given where an outer function recompiled in the same call for the
    same change, as all functions do that a size goes through.
    """
    given = _Given()
    groups = _groups(explanation, all_)
    worst = [group for group in groups if group.first.limit_reached]
    others = [group for group in groups if not group.first.limit_reached]
    return tuple(_section(each, explanation, style, all_, given) for each in (worst, others))  # type: ignore[return-value]


def _section(groups: Sequence[_Group], explanation: Explanation, style: Style, all_: bool, given: _Given) -> list[str]:
    shown = groups if all_ else groups[:FIRST]
    lines: list[str] = []
    for group in shown:
        lines += [
            *_recompile(group, explanation, style, all_),
            *_advice(group, given, _stack(group, explanation), style),
            "",
        ]
    hidden = sum(1 + len(group.later) for group in groups[len(shown) :])
    if hidden:
        lines += [style.paint(f"... and {count(hidden, 'more recompile')}; --all shows them", "dim"), ""]
    return lines


def _groups(explanation: Explanation, all_: bool) -> list[_Group]:
    """The recompiles in order; those of one function for one and the same change together, unless all are asked for."""
    found: dict[tuple[object, ...], _Group] = {}
    for item, advice in zip(explanation.recompiles, explanation.advice, strict=True):
        own = changes(item.reasons if all_ else without_consequences(item.reasons))
        what = frozenset((change.reading.kind, change.source, change.file, change.line) for change in own)
        alike = (item.file, item.line, item.function, item.limit_reached, advice, what)
        key = alike if len(own) == 1 and not all_ else (item.index, len(found))
        before = found.get(key)
        if before is None:
            found[key] = _Group(item, own, advice)
        else:
            found[key] = _Group(before.first, before.changes, advice, (*before.later, (item, own)))
    return list(found.values())


def _stack(group: _Group, explanation: Explanation) -> tuple[Frame, ...]:
    stacks = (each.user_stack for each in explanation.compiles if each.compile_id == group.first.compile_id)
    return next(stacks, ())


def _advice(group: _Group, given: _Given, stack: tuple[Frame, ...], style: Style) -> list[str]:
    item = group.first
    what, label = fingerprint(item.reasons), f"{_word(item)}[{item.compile_id}], {item.function}"
    before = None if item.limit_reached or not stack else given.for_the_same(stack, what)
    if before is not None:
        return help_lines(f"as for {before}: it is the same change", style)
    if stack and not item.limit_reached:
        given.changes.append((stack, what, label))
    texts = given.texts
    lines = [line for text in group.advice if text not in texts for line in help_lines(text, style)]
    again = sorted({texts[text] for text in group.advice if text in texts})
    for text in group.advice:
        texts.setdefault(text, label)
    return [*lines, *(line for earlier in again for line in help_lines(f"as for {earlier}", style))]


def _word(item: Recompile) -> str:
    """What a diagnostic of it begins with: at the limit nothing was compiled."""
    return "gave up" if item.limit_reached else "recompile"


def _recompile(group: _Group, explanation: Explanation, style: Style, all_: bool) -> list[str]:
    item = group.first
    role = "error" if item.limit_reached else "recompile"
    label = f"{_word(item)}[{truncate_middle(clean_line(item.compile_id), _ID)}]"
    function = explanation.named(item.function, (item.compile_id, *(reason.against for reason in item.reasons)))
    name = truncate_middle(clean_line(function), style.columns - width(label) - 2)
    lines = [
        style.paint(label, role) + style.paint(f": {name}", "strong"),
        location_line(source_location(item.file, item.line, None, explanation.run.cwd), style),
    ]
    kept = group.changes if all_ else _first_of_each(group.changes)[:_GUARDS]
    for at, texts in _by_place(kept, item, explanation).items():
        lines += [line for text in texts for line in fact_lines("guard", text, style)]
        lines += _line(*at, explanation, style)
    if len(kept) < len(group.changes):
        lines += fact_lines(
            "and", f"{count(len(group.changes) - len(kept), 'more failing guard')}; --all shows them", style
        )
    return [*lines, *_later(group, style)]


def _first_of_each(each: Sequence[GuardChange]) -> list[GuardChange]:
    """The changes, of conditions on the same sizes only the first: it is the one that torch went by."""
    met: set[tuple[str, ...]] = set()
    kept = []
    for change in each:
        sizes = sizes_at(change)
        if not sizes or sizes not in met:
            kept.append(change)
        met.add(sizes)
    return kept


def _by_place(
    each: Sequence[GuardChange], item: Recompile, explanation: Explanation
) -> dict[tuple[str | None, int | None], list[str]]:
    places: dict[tuple[str | None, int | None], list[str]] = {}
    for change in each:
        text = describe_change(change, item.compile_id, explanation.symbols)
        places.setdefault((change.file, change.line), []).append(text)
    return places


def _later(group: _Group, style: Style) -> list[str]:
    """The further recompiles of the same kind, and the values that they were for."""
    if not group.later:
        return []
    text = f"in {list_some([item.compile_id for item, _ in group.later])}, for the same reason"
    values = [own[0].now for _, own in group.later if own[0].now is not None]
    if len(set(values)) > 1:
        text += f" (then {list_some(values)})"
    return fact_lines("again", f"{text}; --all shows them", style)


def _line(file: str | None, number: int | None, explanation: Explanation, style: Style) -> list[str]:
    """Where the program made the guard, with the line itself where it was kept."""
    if file is None or number is None:
        return []
    at = source_location(file, number, None, explanation.run.cwd)
    source = source_lines(explanation.sources.get(file, ""))
    code = clean_line(source[number - 1]) if 1 <= number <= len(source) else ""
    lead = " " * len(lead_of("guard"))
    room = style.columns - width(lead)
    lines = [f"{lead}{fit_path(f'at {at}', room)}"]
    return [*lines, f"{lead}{style.paint(truncate_end(code, room), 'dim')}"] if code else lines
