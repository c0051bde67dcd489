"""Recompiles as findings: what changed, which recompiles are one, which follow from another, and what to do."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from dynadiag.explanation.advice import advise, is_from_before_break
from dynadiag.explanation.changes import GuardChange, by_frequency, fingerprint, main_changes
from dynadiag.explanation.findings import Advice, Cost, Fact, Finding
from dynadiag.explanation.formatting import count, list_some
from dynadiag.explanation.guard_text import describe_change, described, sizes_in, what_changed
from dynadiag.explanation.identity import computed_names, enclosing_function, identity, local_number
from dynadiag.explanation.run_records import RunRecords
from dynadiag.recording.code_origin import original_name
from dynadiag.recording.records import Frame, Recompile, Span

__all__ = ["own_changes", "recompile_findings"]

_LOCAL = re.compile(r"L\['([^']+)'\]")
_GUARDS = 8  # failing guards of one recompile that stand in a short report


@dataclass(frozen=True, slots=True)
class _Group:
    """Recompiles of one function for one reason, with what changed at each."""

    items: tuple[Recompile, ...]
    changes: tuple[tuple[GuardChange, ...], ...]
    advice: tuple[Advice, ...]
    computed: frozenset[str]  # names of values from before a graph break

    @property
    def first(self) -> Recompile:
        return self.items[0]

    @property
    def is_from_before_break(self) -> bool:
        """Whether nothing changed but what was computed before a graph break."""
        own = self.changes[0]
        return bool(own) and all(is_from_before_break(change.parsed, self.computed) for change in own)


@dataclass(frozen=True, slots=True)
class _Cause:
    """A recompile that others may follow from: the user's stack, its `fingerprint`, the position of its finding."""

    stack: tuple[Frame, ...]
    what: frozenset[tuple[str, ...]]
    position: int


def recompile_findings(run: RunRecords, before: Sequence[Finding]) -> tuple[Finding, ...]:
    """A finding for each group of recompiles; the findings ``before`` stand in the list already.

    A size that changes goes through many functions: where an outer function was compiled again in the same call for
    the same change, the inner one follows from it. So does the rest of a function behind a graph break, if what failed
    there are sizes of values that were computed before the break. What no other recompile explains follows from it.
    """
    found: list[Finding] = []
    known: list[_Cause] = []
    for group in _groups(run):
        stack, what = run.stack(group.first.compile_id), fingerprint(group.first.reasons)
        may_follow, cause = bool(stack) and not group.first.limit_reached, None
        if may_follow:
            cause = _before_break(known, stack) if group.is_from_before_break else _outer(known, stack, what)
        if may_follow and cause is None:
            cause = _break_of(group, before) if group.is_from_before_break else None
        if may_follow and cause is None:
            known.append(_Cause(stack, what, len(before) + len(found)))
        found.append(_finding(group, run, cause))
    return tuple(found)


def own_changes(item: Recompile, computed: Collection[str]) -> tuple[GuardChange, ...]:
    """What changed at a recompile, without what only follows; the values from before a graph break stand last.

    ``computed`` has the names of these.
    """
    return tuple(sorted(main_changes(item.reasons), key=lambda change: is_from_before_break(change.parsed, computed)))


def _break_of(group: _Group, before: Sequence[Finding]) -> int | None:
    """The finding on the break that split the function."""
    places = ((index, found) for index, found in enumerate(before) if found.rule == "break")
    item = group.first
    return next((i for i, found in places if (found.function, found.span.file) == (item.function, item.file)), None)


def _groups(run: RunRecords) -> list[_Group]:
    """The recompiles in order; those of one function for one and the same change together."""
    found: dict[tuple[object, ...], _Group] = {}
    for item in by_frequency(run.recompiles):
        computed = computed_names(run.sources.get(item.file or ""), item.line)
        own, advice = own_changes(item, computed), advise(item, computed)
        what = frozenset((change.parsed.kind, change.source, change.file, change.line) for change in own)
        alike = (item.file, item.line, item.function, item.limit_reached, advice, what)
        key = alike if len(own) == 1 else (item.index, len(found))
        group = found.get(key, _Group((), (), advice, computed))
        found[key] = replace(group, items=(*group.items, item), changes=(*group.changes, own))
    return list(found.values())


def _outer(known: Sequence[_Cause], stack: Sequence[Frame], what: frozenset[tuple[str, ...]]) -> int | None:
    """The finding on an earlier recompile in the same call of the program, for these changes or more."""
    if not what:
        return None
    return next((each.position for each in known if what <= each.what and _is_one_call(each.stack, stack)), None)


def _before_break(known: Sequence[_Cause], stack: Sequence[Frame]) -> int | None:
    """The finding on the newest recompile, for other sizes, of the function that a resume function is the rest of."""
    name = original_name(stack[-1].function)
    for each in reversed(known):
        head = each.stack[-1]
        same = original_name(head.function) == name and head.file == stack[-1].file
        called_alike = len(each.stack) == 1 or each.stack[0] == stack[0]  # torch leaves out frames between
        if same and called_alike and any(kind == "size" for kind, *_ in each.what):
            return each.position
    return None


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
    """The further recompiles of the group, and the values that they were for."""
    later = list(zip(group.items, group.changes, strict=True))[1:]
    if not later:
        return
    text = f"in {list_some([item.compile_id for item, _ in later])}, for the same reason"
    values = [own[0].now for _, own in later if own[0].now is not None]
    yield Fact("again", f"{text} (then {list_some(values)})" if len(set(values)) > 1 else text)
    for item, own in later:
        newest = replace(own[0], was=own[0].was[:1], against=own[0].against[:1])
        yield Fact(item.compile_id, describe_change(newest, item.compile_id, run.symbols), detail=True)
