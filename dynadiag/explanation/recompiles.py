"""Recompiles as findings: what changed, which recompiles are one, which follow from another, and what to do."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from dynadiag.explanation.advice import advise, is_from_before_break
from dynadiag.explanation.advice_table import advice
from dynadiag.explanation.changes import GuardChange, by_frequency, fingerprint, main_changes
from dynadiag.explanation.findings import Advice, Cost, Fact, Finding
from dynadiag.explanation.formatting import count, list_some
from dynadiag.explanation.guard_text import describe_change, described, sizes_in, what_changed
from dynadiag.explanation.guards import parse_guard
from dynadiag.explanation.identity import computed_names, enclosing_function, identity, local_number
from dynadiag.explanation.run_records import RunRecords
from dynadiag.recording.code_origin import original_name
from dynadiag.recording.records import Frame, Recompile, Span

__all__ = ["own_changes", "recompile_findings"]

_LOCAL = re.compile(r"L\['([^']+)'\]")
# Advice that says no more where other values or further containers of the function changed too.
_TOLD_ONCE = ("items.length", "value.integer_attribute", "value.integer", "value.float", "object.none")
_GUARDS = 8  # failing guards of one recompile that stand in a short report


_Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """Recompiles of one function for one reason, with what changed at each; the one that torch gave up at first.

    ``cause`` is what they follow from: the key of another group, or the position of a finding on a break.
    """

    items: tuple[Recompile, ...]
    changes: tuple[tuple[GuardChange, ...], ...]
    advice: tuple[Advice, ...]
    cause: _Key | int | None

    @property
    def first(self) -> Recompile:
        return self.items[0]

    def with_item(self, item: Recompile, own: tuple[GuardChange, ...], advice: tuple[Advice, ...]) -> _Group:
        """The group with one more recompile."""
        if item.limit_reached and not (self.items and self.first.limit_reached):
            items, changes, given = (item, *self.items), (own, *self.changes), (*advice, *self.advice)
        else:
            items, changes, given = (*self.items, item), (*self.changes, own), (*self.advice, *advice)
        return replace(self, items=items, changes=changes, advice=_each_once(given))


def _each_once(given: Sequence[Advice]) -> tuple[Advice, ...]:
    """The advice without repeats, and the first of each kind of which more says no more."""
    found: dict[str, Advice] = {}
    for each in given:
        found.setdefault(each.key if each.key in _TOLD_ONCE else each.text, each)
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class _Cause:
    """A recompile that others may follow from: the user's stack, its `fingerprint`, the key of its group."""

    stack: tuple[Frame, ...]
    what: frozenset[tuple[str, ...]]
    key: _Key


def recompile_findings(run: RunRecords, before: Sequence[Finding]) -> tuple[Finding, ...]:
    """A finding for each group of recompiles; the findings ``before`` stand in the list already.

    A size that changes goes through many functions: where an outer function was compiled again in the same call for
    the same change, the inner one follows from it. So does the rest of a function behind a graph break, if what failed
    there are sizes of values that were computed before the break. What no other recompile explains follows from it.
    """
    groups = _groups(run, before)
    position = {key: len(before) + index for index, key in enumerate(groups)}
    return tuple(
        _finding(
            _compiled_apart(group, before, run),
            run,
            position[group.cause] if isinstance(group.cause, tuple) else group.cause,
        )
        for group in groups.values()
    )


def _compiled_apart(group: _Group, before: Sequence[Finding], run: RunRecords) -> _Group:
    """The group, with advice on the break but for which the function would be part of its caller's graph.

    What differs between its calls is no reason there to compile anything again. The break is at the line that calls
    the function, or else in the function of that line. Nothing is said if there are several. Nothing is said either if
    what that line calls meets a break of its own: then the function would be compiled by itself all the same. Functions
    of torch are no part of the stack, which then ends with the line that calls them.
    """
    own, item = group.changes[0], group.first
    stack = next((found for each in group.items if len(found := run.stack(each.compile_id)) > 1), ())
    if not stack or run.begins_calls(item.file, item.function) or not own or not (own[0].source or "").startswith("L["):
        return group  # a mode or a global is another one for the caller too
    met = {each.index: each for each in run.breaks}
    breaks = [each for each in before if each.rule == "break" and each.severity == "warning"]
    caller = stack[-2] if stack[-1].file == item.file else stack[-1]
    ways = [[frame for index in each.records for frame in met[index].user_stack] for each in breaks]
    there = [each for each, way in zip(breaks, ways, strict=True) if caller in way]
    left = there or [
        each
        for each, way in zip(breaks, ways, strict=True)
        if any((frame.file, frame.function) == (caller.file, caller.function) for frame in way)
    ]
    callers = [run.function_of(met[each.records[0]].compile_id) for each in left]
    if len(left) != 1 or callers[0] in (None, (item.file, item.function)):
        return group
    of_caller = {each.compile_id for each in run.compiles if (each.file, each.function) == callers[0]}
    below = {each.compile_id for each in run.compiles if caller in each.user_stack}
    others = (each for each in run.breaks if each.compile_id not in of_caller)
    if any(each.compile_id in below or caller in each.user_stack for each in others):
        return group
    place = left[0].span
    at = f"{posixpath.basename(place.file or '')}:{place.line}"
    apart = advice("break.compiled_apart", function=item.function, caller=(callers[0] or ("", ""))[1], place=at)
    return replace(group, advice=(apart, *group.advice))


def own_changes(item: Recompile, computed: Collection[str]) -> tuple[GuardChange, ...]:
    """What changed at a recompile, without what only follows; the values from before a graph break stand last.

    ``computed`` has the names of these.
    """
    return tuple(sorted(main_changes(item.reasons), key=lambda change: is_from_before_break(change.parsed, computed)))


def _groups(run: RunRecords, before: Sequence[Finding]) -> dict[_Key, _Group]:
    """The recompiles in order; together are those of one function for which the same change stands first, and all of a
    function that torch gave up, since they used up its limit.
    """
    given_up = {_function(item) for item in run.recompiles if item.limit_reached and item.reasons}
    changing = _changing(run)
    found: dict[_Key, _Group] = {}
    known: list[_Cause] = []
    for item in by_frequency(run.recompiles):
        computed = computed_names(run.sources.get(item.file or ""), item.line)
        own, given = own_changes(item, computed), advise(item, computed, changing[_function(item)])
        ends = _function(item) in given_up
        cause = None if ends else _cause(item, own, computed, known, before, run)
        key = (*_function(item), *(() if ends else (cause, *_reason(item, own, given))))
        stack = run.stack(item.compile_id)
        if cause is None and stack:
            known.append(_Cause(stack, fingerprint(item.reasons), key))
        found[key] = found.get(key, _Group((), (), (), cause)).with_item(item, own, given)
    return found


def _changing(run: RunRecords) -> dict[_Key, set[str | None]]:
    """Of each function what goes on changing: containers that had several lengths, numbers that had several values
    before and were constants of the code all the same."""
    found: dict[_Key, set[str | None]] = {}
    lengths: set[tuple[_Key, str | None, str | None]] = set()
    for item in run.recompiles:
        values: set[tuple[str | None, str | None]] = set()
        for reading in map(parse_guard, item.reasons):
            if reading.kind == "length":
                lengths.add((_function(item), reading.subject, reading.now))
            elif reading.kind == "value":
                values.add((reading.subject, reading.was))
        found.setdefault(_function(item), set()).update(_repeated(subject for subject, _ in values))
    for function, subject in _repeated((function, subject) for function, subject, _ in lengths):
        found[function].add(subject)
    return found


_T = TypeVar("_T")


def _repeated(items: Iterable[_T]) -> set[_T]:
    """What is there more than once."""
    return {item for item, number in Counter(items).items() if number > 1}


def _function(item: Recompile) -> _Key:
    return (item.file, item.line, item.function)


def _reason(item: Recompile, own: Sequence[GuardChange], advice: Sequence[Advice]) -> _Key:
    """What recompiles of one function have in common that are told together."""
    if not own:
        return (item.index,)
    first = own[0]
    return (first.parsed.kind, first.source, first.file, first.line, *advice[:1])


def _cause(
    item: Recompile,
    own: Sequence[GuardChange],
    computed: Collection[str],
    known: Sequence[_Cause],
    before: Sequence[Finding],
    run: RunRecords,
) -> _Key | int | None:
    """What a recompile follows from; ``computed`` has the names of values from before a graph break."""
    stack = run.stack(item.compile_id)
    if not stack:
        return None
    if own and all(is_from_before_break(change.parsed, computed) for change in own):
        cause = _before_break(known, stack)
        return _break_of(item, before) if cause is None else cause
    return _outer(known, stack, fingerprint(item.reasons))


def _break_of(item: Recompile, before: Sequence[Finding]) -> int | None:
    """The finding on the break that split the function."""
    places = ((index, found) for index, found in enumerate(before) if found.rule == "break")
    return next((i for i, found in places if (found.function, found.span.file) == (item.function, item.file)), None)


def _outer(known: Sequence[_Cause], stack: Sequence[Frame], what: frozenset[tuple[str, ...]]) -> _Key | None:
    """The group of an earlier recompile in the same call of the program, whose changes include these."""
    if not what:
        return None
    same = [each for each in known if what <= each.what]
    return next((each.key for each in same if _is_one_call(each.stack, stack) or _is_rest(each.stack, stack)), None)


def _before_break(known: Sequence[_Cause], stack: Sequence[Frame]) -> _Key | None:
    """The group of the newest recompile, for other sizes, of the function that a resume function is the rest of."""
    for each in reversed(known):
        if _is_rest(each.stack, stack) and any(kind == "size" for kind, *_ in each.what):
            return each.key
    return None


def _is_rest(head: Sequence[Frame], rest: Sequence[Frame]) -> bool:
    """Whether two compiles, by their stacks, were for a function and its rest behind a graph break, in one call."""
    whole, part = head[-1], rest[-1]
    same = original_name(whole.function) == original_name(part.function) and whole.file == part.file
    return same and whole.line != part.line and (len(head) == 1 or head[0] == rest[0])  # frames between are left out


def _is_one_call(outer: Sequence[Frame], inner: Sequence[Frame]) -> bool:
    """Whether two compiles, by their stacks, were for one call: torch has no callers of the function that the call
    begins with, for all others it has them from the program's own frame on. Where the ways part in two functions, a
    line of the program made two calls (a loop over what it runs)."""
    if len(outer) == 1:
        return any((each.file, each.function) == (outer[0].file, outer[0].function) for each in inner[:-1])
    if outer[:1] != inner[:1]:
        return False
    parted = next(((one, other) for one, other in zip(outer[:-1], inner[:-1], strict=False) if one != other), None)
    return parted is None or (parted[0].file, parted[0].function) == (parted[1].file, parted[1].function)


def _finding(group: _Group, run: RunRecords, cause: int | None) -> Finding:
    item, own = group.first, group.changes[0]
    rule = "recompile-limit" if item.limit_reached else "recompile"
    function = run.named(item.function, (item.compile_id, *(reason.against for reason in item.reasons)))
    span = Span(item.file, item.line)
    ids = tuple(each.compile_id for each in group.items)
    changed = what_changed(own[0]) if own else "no reason was recorded"
    return Finding(
        rule=rule,
        id=None,
        identity=identity(rule, None, item.function, (_head(span, run),), run.sources, _changed_source(own, span, run)),
        severity="warning" if cause is None else "note",
        span=span,
        function=item.function,
        title=f"{function}: {changed}" + (f", and {len(own) - 1} more" if own[1:] else ""),
        cause=described(own[0]) if own else None,
        caused_by=cause,
        places=(span,),
        compile_ids=ids,
        cost=Cost(
            compile_seconds=run.seconds(ids), graphs=run.graphs_of(ids), functions_uncompiled=int(item.limit_reached)
        ),
        advice=group.advice,
        evidence=(*_guards(item, own, run), *_later(group, run)),
        records=tuple(each.index for each in group.items),
    )


def _head(span: Span, run: RunRecords) -> Span:
    """Where the function begins that a recompile is of: which part of it torch compiles again depends on its breaks."""
    function = enclosing_function(run.sources.get(span.file or ""), span.line)
    return span if function is None else Span(span.file, function.lineno)


def _changed_source(own: Sequence[GuardChange], span: Span, run: RunRecords) -> str:
    """What changed, for an identity: a local variable by its number, since it may be renamed."""
    if not own:
        return "no reason was recorded"
    source = run.sources.get(span.file or "")
    numbered = _LOCAL.sub(lambda found: f"L['{local_number(source, span.line, found[1])}']", own[0].source or "")
    return what_changed(replace(own[0], source=numbered or None))


def _guards(item: Recompile, own: Sequence[GuardChange], run: RunRecords) -> Iterator[Fact]:
    """The guards that failed; of conditions on the same sizes the first, which is the one that torch went by."""
    short = _first_of_each(own)[:_GUARDS]
    for change in own:
        text = describe_change(change, item.compile_id, run.symbols)
        span = Span(change.file, change.line) if change.file and change.line else None
        yield Fact("guard", text, span, detail=change not in short)
    if len(short) < len(own):
        yield Fact("and", f"{count(len(own) - len(short), 'more failing guard')}; --all shows them")


def _first_of_each(each: Sequence[GuardChange]) -> list[GuardChange]:
    met: set[tuple[str, ...]] = set()
    kept = []
    for change in each:
        sizes = sizes_in(change.guard) if change.parsed.kind == "shape" else ()
        if not sizes or sizes not in met:
            kept.append(change)
        met.add(sizes)
    return kept


def _later(group: _Group, run: RunRecords) -> Iterator[Fact]:
    """The further recompiles of the group, the values that they were for, and what else changed in some."""
    later = list(zip(group.items, group.changes, strict=True))[1:]
    if not later:
        return
    ids = list_some([item.compile_id for item, _ in later])
    values = [own[0].now for _, own in later if own and own[0].now is not None]
    then = f" (then {list_some(values)})" if len(set(values)) > 1 else ""
    yield Fact("again", f"{ids} before it" if group.first.limit_reached else f"in {ids}, for the same reason{then}")
    told = {change.source for change in group.changes[0]}
    beside = [what_changed(change) for _, own in later for change in own if change.source not in told]
    if beside:
        yield Fact("beside", f"in some of them also: {list_some(tuple(dict.fromkeys(beside)))}")
    for item, own in later:
        for change in own:
            newest = replace(change, was=change.was[:1], against=change.against[:1])
            yield Fact(item.compile_id, describe_change(newest, item.compile_id, run.symbols), detail=True)
