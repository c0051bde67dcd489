"""Recompiles as findings: what changed, which recompiles are one, which follow from another, and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from dynadiag.explanation.advice_on_recompiles import advise_on
from dynadiag.explanation.blocks import calls_at, loop_around
from dynadiag.explanation.changes import by_frequency, fingerprint, own_failures
from dynadiag.explanation.findings import Cost, Fact, Finding
from dynadiag.explanation.formatting import count, list_some
from dynadiag.explanation.guard_text import describe_change, described, what_changed
from dynadiag.explanation.identity import computed_names, enclosing_function, identity, local_number
from dynadiag.explanation.owner import owner_and_entry, owner_of
from dynadiag.explanation.rebinding import assignment
from dynadiag.explanation.recompile_case import (
    RecompileCase,
    Symbols,
    cases_of,
    changing_source,
    is_from_before_break,
    is_special_size,
)
from dynadiag.explanation.rules import Rule
from dynadiag.explanation.run_records import RunRecords
from dynadiag.explanation.source_search import begins_thread, option_number
from dynadiag.recording.code_origin import is_torch_file, is_user_file, original_name, short_place
from dynadiag.recording.records import Compile, Frame, Recompile, Span, Symbol
from dynadiag.recording.torch_text.guards import class_words
from dynadiag.recording.torch_text.sources import local_name, renamed_local, without_part

_SHORT = 8  # causes of one recompile that stand in a short report

_DECORATOR = "/torch/utils/_contextlib.py"  # of torch.no_grad, torch.inference_mode and their like
_Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """Recompiles of one function for one reason, with the causes of each; the one that torch gave up at first.

    ``cause`` is what they follow from: the key of another group, or the position of a finding on a break. ``rests`` are
    the causes of recompiles of the rest of the function behind a break, which follow from these.
    """

    items: tuple[Recompile, ...]
    cases: tuple[tuple[RecompileCase, ...], ...]
    cause: _Key | int | None
    rests: tuple[RecompileCase, ...] = ()

    @property
    def first(self) -> Recompile:
        return self.items[0]

    def with_item(self, item: Recompile, cases: tuple[RecompileCase, ...]) -> _Group:
        """The group with one more recompile."""
        if item.limit_reached and not (self.items and self.first.limit_reached):
            cases = tuple(sorted(cases, key=lambda case: -len(case.changes[0].was)))  # most values used up the limit
            return replace(self, items=(item, *self.items), cases=(cases, *self.cases))
        return replace(self, items=(*self.items, item), cases=(*self.cases, cases))


@dataclass(frozen=True, slots=True)
class _Cause:
    """A recompile that others may follow from: its compile, its `fingerprint`, the key of its group."""

    compile_: Compile
    what: frozenset[tuple[str, ...]]
    key: _Key


def recompile_findings(run: RunRecords, before: Sequence[Finding]) -> tuple[Finding, ...]:
    """A finding for each group of recompiles; the findings ``before`` stand in the list already.

    A size that changes goes through many functions: where an outer function was compiled again in the same call for
    the same change, the inner one that it calls follows from it. So does the rest of a function behind a graph break,
    if what failed there are sizes of values that were computed before the break. What no other recompile explains
    follows from it.
    """
    groups = _groups(run, before)
    position = {key: len(before) + index for index, key in enumerate(groups)}
    return tuple(
        _finding(
            replace(_with_break(group, before, run), rests=_rests(key, groups)),
            run,
            position[group.cause] if isinstance(group.cause, tuple) else group.cause,
        )
        for key, group in groups.items()
    )


def _rests(key: _Key, groups: Mapping[_Key, _Group]) -> tuple[RecompileCase, ...]:
    """The causes that the rest of a function behind a break was compiled again for, which follow from a group."""
    file, _, function = key[:3]
    own = (each for each in groups.values() if each.cause == key)
    rests = (each for each in own if (each.first.file, each.first.function) == (file, function))
    return tuple(case for each in rests for cases in each.cases for case in cases if not case.is_computed)


def _with_break(group: _Group, before: Sequence[Finding], run: RunRecords) -> _Group:
    """The group, its first cause with the break that has the function compiled by itself, if there is one."""
    apart = _break_apart(group, before, run)
    if apart is None:
        return group
    first, *others = group.cases[0]
    return replace(group, cases=((replace(first, apart=apart), *others), *group.cases[1:]))


def _break_apart(group: _Group, before: Sequence[Finding], run: RunRecords) -> tuple[str, str, str] | None:
    """The function, its caller and the place of the break but for which it would be part of the caller's graph.

    What differs between its calls is no reason there to compile anything again. The break is at the line that calls
    the function, or else in the function of that line. Nothing is said if there are several. Nothing is said either if
    what that line calls meets a break of its own: then the function would be compiled by itself all the same. Functions
    of torch are no part of the stack, which then ends with the line that calls them.
    """
    cases, item = group.cases[0], group.first
    stack = next((found for each in group.items if len(found := run.stack(each.compile_id)) > 1), ())
    if not stack or run.begins_calls(item.file, item.function) or not cases or not local_name(cases[0].fact.source):
        return None  # a mode or a global is another one for the caller too
    met = {each.index: each for each in run.breaks}
    breaks = [each for each in before if each.rule == Rule.BREAK and each.severity == "warning"]
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
        return None
    of_caller = {each.compile_id for each in run.compiles if (each.file, each.function) == callers[0]}
    below = {each.compile_id for each in run.compiles if caller in each.user_stack}
    others = (each for each in run.breaks if each.compile_id not in of_caller)
    if any(each.compile_id in below or caller in each.user_stack for each in others):
        return None
    place = left[0].span
    return item.function, (callers[0] or ("", ""))[1], short_place(place.file, place.line)


def _groups(run: RunRecords, before: Sequence[Finding]) -> dict[_Key, _Group]:
    """The recompiles in order; together are those of one function for which the same change stands first, and all of a
    function that torch gave up, since they used up its limit.
    """
    given_up = {_function(item) for item in run.recompiles if item.limit_reached and item.reasons}
    compiles = {item.compile_id: item for item in run.compiles}
    changing = _changing(run)
    symbols = _symbols(run)
    groups: dict[_Key, _Group] = {}
    known: list[_Cause] = []
    failed: set[tuple[_Key, str, str | None]] = set()
    age = {each: number for number, each in enumerate(compiles)}
    for met in by_frequency(run.recompiles):
        item = _without_superseded(met, failed, age)
        superseded = (each for each in met.reasons if not is_special_size(each))
        failed |= {(_function(met), each.against, each.source) for each in superseded}
        computed = computed_names(run.sources.get(item.file or ""), item.line)
        callers = run.callers(item.compile_id)[-1:]
        caller = next((each for each in callers if owner_of(each.file, run.packages).is_user), None)
        made = symbols.get(_function(item))
        known_of = computed, changing[_function(item)], made, run.sources, run.torch_objects, caller
        unmarkable = bool(callers) and (caller is None or _is_compiled(caller, run))
        cases = cases_of(item, *known_of, unmarkable=unmarkable)
        ends = _function(item) in given_up
        own = compiles.get(item.compile_id)
        cause = None if ends or own is None else _cause(item, own, cases, known, before, computed, run.sources)
        key = (*_function(item), *(() if ends else (cause, *_reason(item, cases))))
        if cause is None and own is not None and own.user_stack:
            known.append(_Cause(own, fingerprint(item.reasons), key))
        groups[key] = groups.get(key, _Group((), (), cause)).with_item(item, cases)
    return groups


def _is_compiled(frame: Frame, run: RunRecords) -> bool:
    """Whether a frame is of a function of which torch compiled a part, or all."""
    source = run.sources.get(frame.file)
    named = (each for each in run.compiles if each.file == frame.file and each.outcome in ("ok", "break"))
    own = {each.line for each in named if original_name(each.function).rpartition(".")[2] == frame.function}
    return enclosing_function(source, frame.line) in {enclosing_function(source, line) for line in own} - {None}


def _without_superseded(
    item: Recompile, failed: Collection[tuple[_Key, str, str | None]], age: Mapping[str, int]
) -> Recompile:
    """The recompile without what an older entry failed by before, and the newest accepts.

    A newer entry was made for that, and the call is to be compared with it. But one for a size of 0 or 1 is for no
    other size, and tells nothing where an older one fails by that size too. Which entries came nearest is seen with
    all that failed: an entry looks near if what else it failed by is left out.
    """
    nearest = {each.against for each in own_failures(item.reasons)}
    near = [each for each in item.reasons if each.against in nearest]
    others = {each.source for each in near if each.part == "size" and not is_special_size(each)}
    short = {each.against for each in near if is_special_size(each) and each.source in others}
    reasons = tuple(each for each in near if each.against not in short)
    newest = max((age.get(each.against, 0) for each in reasons), default=0)
    last: dict[str | None, int] = {}
    for each in reasons:
        last[each.source] = max(last.get(each.source, 0), age.get(each.against, 0))
    own = tuple(
        each
        for each in reasons
        if (_function(item), each.against, each.source) not in failed
        or is_special_size(each)  # it is 0 or 1 for the newest entry too, which may say so of one tensor only
        or last[each.source] > age.get(each.against, 0)
        or last[each.source] == newest
    )
    return replace(item, reasons=own or reasons or item.reasons)


def _changing(run: RunRecords) -> dict[_Key, set[str | None]]:
    """Of each function what goes on changing: containers that had several lengths, numbers that had several values
    before and were constants of the code all the same, or that torch made symbols and then needed the value of. That
    a size was 0 or 1 before tells nothing: torch compiles these apart."""
    changing: dict[_Key, set[str | None]] = {}
    lengths: set[tuple[_Key, str | None, str | None]] = set()
    for item in run.recompiles:
        values: set[tuple[str | None, str | None]] = set()
        for reason in item.reasons:
            if reason.part == "length":
                lengths.add((_function(item), reason.subject, reason.now))
            elif reason.part == "shape" and reason.index == "number":
                changing.setdefault(_function(item), set()).add(reason.subject)
            elif reason.part in ("value", "size") and not is_special_size(reason) and reason.was != "None":
                values.add((changing_source(reason), reason.was))
        changing.setdefault(_function(item), set()).update(_repeated(subject for subject, _ in values))
    for function, subject in _repeated((function, subject) for function, subject, _ in lengths):
        changing[function].add(subject)
    return changing


def _symbols(run: RunRecords) -> dict[_Key, Symbols]:
    """The symbols of each function. Where only one compile needed a number, that call has a tensor that is new: its
    sizes are numbers at first, and so is what is added to it."""
    functions = {each.compile_id: (each.file, each.line, each.function) for each in run.compiles}
    own: dict[_Key, list[Symbol]] = {}
    for each in run.symbols:
        if each.source and (function := functions.get(each.compile_id)):
            own.setdefault(function, []).append(each)
    return {function: _symbols_of(symbols) for function, symbols in own.items()}


def _symbols_of(symbols: Sequence[Symbol]) -> Symbols:
    needed = {(each.compile_id, each.source): each.user_stack[-1:] for each in symbols if each.event == "specialized"}
    made = [(each.compile_id, each.source) for each in symbols if each.event == "created"]
    last = {source: (compile_id, source) not in needed for compile_id, source in made}
    once = Counter(source for _, source in needed)
    return Symbols(frozenset(made), needed, {each for each, is_symbol in last.items() if is_symbol and once[each] == 1})


_T = TypeVar("_T")


def _repeated(items: Iterable[_T]) -> set[_T]:
    """What is there more than once."""
    return {item for item, number in Counter(items).items() if number > 1}


def _function(item: Recompile) -> _Key:
    return (item.file, item.line, item.function)


def _reason(item: Recompile, cases: Sequence[RecompileCase]) -> _Key:
    """What recompiles of one function have in common that are told together."""
    if not cases:
        return (item.index,)
    fact = cases[0].fact
    return (*_what(cases[0]), fact.file, fact.line, is_special_size(fact))


def _what(case: RecompileCase) -> tuple[str, str | None]:
    """What a cause is told as once: its sort and its source, of a number that was a symbol first as of a constant."""
    fact = case.fact
    if case.sort == "shape" and fact.index == "number" and [without_part(each)[1] for each in fact.terms] == [None]:
        return "value", fact.terms[0]
    return case.sort, fact.source


def _cause(
    item: Recompile,
    own: Compile,
    cases: Sequence[RecompileCase],
    known: Sequence[_Cause],
    before: Sequence[Finding],
    computed: Collection[str],
    sources: Mapping[str, str],
) -> _Key | int | None:
    """What a recompile follows from. What was computed before a break is no change of its own."""
    if not own.user_stack:
        return None
    if cases and all(case.is_computed for case in cases):
        cause = _before_break(known, own)
        return _break_of(item, before) if cause is None else cause
    what = fingerprint([each for each in own_failures(item.reasons) if not is_from_before_break(each, computed)])
    return _outer(known, own, what, sources)


def _break_of(item: Recompile, before: Sequence[Finding]) -> int | None:
    """The finding on the break that split the function."""
    places = ((index, finding) for index, finding in enumerate(before) if finding.rule == Rule.BREAK)
    return next((i for i, each in places if (each.function, each.span.file) == (item.function, item.file)), None)


def _outer(
    known: Sequence[_Cause], own: Compile, what: frozenset[tuple[str, ...]], sources: Mapping[str, str]
) -> _Key | None:
    """The group of an earlier recompile in the same call of the program, whose changes include these."""
    causes = (cause for cause in known if what and what <= cause.what)
    return next(
        (each.key for each in causes if _calls(each.compile_, own, sources) or _is_rest(each.compile_, own)), None
    )


def _before_break(known: Sequence[_Cause], own: Compile) -> _Key | None:
    """The group of the newest recompile, for other sizes, of the function that a resume function is the rest of."""
    for cause in reversed(known):
        if _is_rest(cause.compile_, own) and any(sort == "size" for sort, *_ in cause.what):
            return cause.key
    return None


def _is_rest(head: Compile, rest: Compile) -> bool:
    """Whether two compiles were for a function and its rest behind a graph break, in one call."""
    same = original_name(head.function) == original_name(rest.function) and head.file == rest.file
    stacks = head.user_stack, rest.user_stack
    return same and head.line != rest.line and (len(stacks[0]) == 1 or stacks[0][0] == stacks[1][0])


def _calls(outer: Compile, inner: Compile, sources: Mapping[str, str]) -> bool:
    """Whether the outer compile was for a call that made the call of the inner one: its function is on the way there.

    torch has no callers of the function that a call begins with, for all others it has them from the program's own
    frame on.
    """
    own, begin = outer.user_stack[-1], inner.user_stack[0]
    if is_torch_file(outer.file):  # of torch's own wrapper around a module the stack ends with the program's call
        if calls_at(sources.get(own.file), own.line) > 1:
            return False  # any of them may be what called the inner function
        return inner.user_stack != outer.user_stack and inner.user_stack[: len(outer.user_stack)] == outer.user_stack
    callers = inner.user_stack[:-1] if inner.user_stack[-1].file == inner.file else inner.user_stack
    is_on_the_way = (own.file, own.function) in [(frame.file, frame.function) for frame in callers]
    return own.file == outer.file and is_on_the_way and (len(outer.user_stack) == 1 or outer.user_stack[0] == begin)


def _finding(group: _Group, run: RunRecords, cause: int | None) -> Finding:
    item, cases = group.first, group.cases[0]
    rule = Rule.RECOMPILE_LIMIT if item.limit_reached else Rule.RECOMPILE
    raised = item.limit_reached and item.compile_id in run.failed
    function = run.named(item.function, (item.compile_id, *(reason.against for reason in item.reasons)))
    span = _place(item, cases, run)
    ids = tuple(each.compile_id for each in group.items)
    changed = what_changed(cases[0].changes[0]) if cases else "no reason was recorded"
    owner, entry = owner_and_entry(span.file, run.stack(item.compile_id), run.packages)
    return Finding(
        rule=rule,
        id=None,
        identity=identity(
            rule, None, item.function, (_head(span, run),), run.sources, _changed_source(cases, span, run)
        ),
        severity="error" if raised else "warning" if cause is None else "note",
        span=span,
        function=item.function,
        title=(f"compiling {function} failed at the recompile limit: " if raised else f"{function}: ")
        + changed
        + (f", and {len(cases) - 1} more" if cases[1:] else ""),
        cause=described(cases[0].changes[0]) if cases else None,
        caused_by=cause,
        places=(span,),
        compile_ids=ids,
        cost=Cost(
            compile_seconds=run.seconds(ids),
            graphs=run.graphs_of(ids),
            functions_uncompiled=int(item.limit_reached and not raised),
        ),
        advice=advise_on(_told(group), run.run.torch),
        evidence=(*_guards(item, cases, run), *_later(group, run), *_shared(group, raised, run)),
        called=_called(item, run, raised, bool(cases) and cases[0].sort == "state", entry),
        records=tuple(each.index for each in group.items),
        owner=owner.name,
        entry=None if entry is None else Span(entry.file, entry.line),
    )


def _place(item: Recompile, cases: Sequence[RecompileCase], run: RunRecords) -> Span:
    """Where the function begins that was compiled again: of one under ``torch.no_grad`` or its like, which torch wraps
    in a function of its own, the program's."""
    own = Span(cases[0].fact.file, cases[0].fact.line) if cases else Span(None, None)
    function = enclosing_function(run.sources.get(own.file or ""), own.line)
    is_users = owner_of(own.file, run.packages).is_user
    is_wrapped = (item.file or "").endswith(_DECORATOR) and function is not None and is_users
    return Span(own.file, function.lineno) if is_wrapped and function else Span(item.file, item.line)


def _called(item: Recompile, run: RunRecords, raised: bool, is_state: bool, entry: Frame | None) -> tuple[Frame, ...]:
    """The user's stack to a function that is not the user's, to a call in another state of torch, or where torch raised
    at the limit."""
    if raised:  # before the compile began, so that it has no stack of its own
        stacks = (each.user_stack for each in run.breaks if each.compile_id == item.compile_id)
        return tuple(frame for frame in next(stacks, ()) if (frame.file, frame.line) != (item.file, item.line))
    if is_user_file(item.file):
        stack = run.stack(item.compile_id) if is_state else ()
        return tuple(frame for frame in stack if (frame.file, frame.line) != (item.file, item.line))
    return tuple(frame for frame in run.stack(item.compile_id) if frame != entry)


def _told(group: _Group) -> tuple[RecompileCase, ...]:
    """The causes that are advised on: those of the first recompile, then what else changed in later ones and in the
    rest of the function."""
    joined = any(_has_computed_size(case) for case in (*group.cases[0], *group.rests))
    first = tuple(replace(case, is_joined=joined or case.is_joined) for case in group.cases[0])
    known = set(map(_what, first))
    later = [*(case for cases in group.cases[1:] for case in cases), *group.rests]
    return (*first, *(case for case in later if _what(case) not in known))


def _has_computed_size(case: RecompileCase) -> bool:
    """Whether a size of what was computed before a break changed with something else."""
    computed = (is_from_before_break(change.fact, case.computed) for change in case.changes if change.sort == "size")
    return not case.is_computed and any(computed)


def _head(span: Span, run: RunRecords) -> Span:
    """Where the function begins that a recompile is of: which part of it torch compiles again depends on its breaks."""
    function = enclosing_function(run.sources.get(span.file or ""), span.line)
    return span if function is None else Span(span.file, function.lineno)


def _changed_source(cases: Sequence[RecompileCase], span: Span, run: RunRecords) -> str:
    """What changed, for an identity: a local variable by its number, since it may be renamed."""
    if not cases:
        return "no reason was recorded"
    change = cases[0].changes[0]
    source = change.fact.source
    if name := local_name(source):
        source = renamed_local(source or "", local_number(run.sources.get(span.file or ""), span.line, name))
    return what_changed(replace(change, fact=replace(change.fact, source=source)))


def _guards(item: Recompile, cases: Sequence[RecompileCase], run: RunRecords) -> Iterator[Fact]:
    """What failed: one guard of each cause, and in a full report the others of it."""
    if not cases and not item.reasons:
        yield Fact("guard", "torch recorded no reason for this recompile")
    for number, case in enumerate(cases):
        first, *others = case.changes
        fact = first.fact
        yield Fact(
            "guard",
            describe_change(first, item.compile_id, run.symbols),
            Span(fact.file, fact.line) if fact.file and fact.line else None,
            detail=number >= _SHORT,
            note=described(first),
        )
        if (place := assignment(fact, run.sources)) is not None:
            yield Fact("assigned", "by the only statement that gives it another value", place, detail=number >= _SHORT)
        for change in others:
            yield Fact("guard", describe_change(change, item.compile_id, run.symbols), detail=True)


def _later(group: _Group, run: RunRecords) -> Iterator[Fact]:
    """The further recompiles of the group, the values that they were for, and what else changed in some."""
    later = list(zip(group.items, group.cases, strict=True))[1:]
    if not later:
        return
    ids = list_some([item.compile_id for item, _ in later])
    values = [cases[0].fact.now for _, cases in later if cases and cases[0].fact.now is not None]
    then = f" (then {list_some(class_words(values))})" if len(set(values)) > 1 else ""
    told = set(map(_what, group.cases[0]))
    beside = [what_changed(case.changes[0]) for _, cases in later for case in cases if _what(case) not in told]
    same = "" if beside else ", for the same reason"
    yield Fact("again", f"{ids} before it" if group.first.limit_reached else f"in {ids}{same}{then}")
    if beside:
        yield Fact("beside", f"in some of them also: {list_some(tuple(dict.fromkeys(beside)))}")
    for item, cases in later:
        for case in cases:
            for change in case.changes:
                newest = replace(change, was=change.was[:1], against=change.against[:1])
                yield Fact(item.compile_id, describe_change(newest, item.compile_id, run.symbols), detail=True)


def _axes(group: _Group) -> Iterator[Fact]:
    """What the variants of a function that torch gave up differ by, with the number of values of each."""
    values: dict[str, set[str | None]] = {}
    for cases in group.cases:
        for case in cases:
            is_value = not case.fact.is_condition and case.sort != "freed"
            if case.changes[0].was and case.fact.now is not None and is_value:
                name = what_changed(case.changes[0]).removesuffix(" changed")
                values.setdefault(name, set()).update((*case.changes[0].was, case.fact.now))
    if len(values) > 1:
        most = sorted(values.items(), key=lambda item: -len(item[1]))
        yield Fact("axes", list_some([f"{name} had {count(len(each), 'value')}" for name, each in most]))


def _limit_elsewhere(group: _Group, run: RunRecords) -> Iterator[Fact]:
    """Where the program raises the limit for one thread, and the function reaches that of another, which torch's
    configuration is apart for (from 2.12 on)."""
    stated = option_number(run.sources, "recompile_limit") or option_number(run.sources, "cache_size_limit")
    stack = next((stack for each in group.items if (stack := run.stack(each.compile_id))), ())
    own = len(group.items)  # the variants that there were before the last
    is_apart = not (run.run.torch or "2.11").startswith("2.11")
    is_apart = is_apart and bool(stack) and begins_thread(run.sources, stack[0].function)
    if stated is not None and is_apart and stated[0] > own:
        text = (
            f"{own} in this thread: the program sets it to {stated[0]} for another one, and from torch 2.12 on each "
            "thread has a configuration of its own. Set it in the thread that calls the function"
        )
        yield Fact("limit", text, stated[1])


def _shared(group: _Group, raised: bool, run: RunRecords) -> Iterator[Fact]:
    """What many variants of one function share: the limit, and the code that all instances of a class have.

    ``raised``: torch raised at the limit.
    """
    moved = any(case.fact.is_new_owner for case in group.cases[0])
    alike = [item for item in run.recompiles if _function(item) == _function(group.first)] if moved else []
    owners = {
        number
        for item in alike
        for reason in item.reasons
        if local_name(reason.source) == "self"
        for number in (reason.owner_was, reason.owner_now)
        if number is not None
    }
    if len(owners) > 1:
        yield Fact(
            "instances",
            f"{len(owners)} objects as `self`, one after the other: they share this function's one code object, and "
            "one limit, however often `torch.compile` was called",
        )
    elif (loop := loop_around(run.sources.get(group.first.file or ""), group.first.line)) is not None:
        yield Fact(
            "instances",
            f"the loop at line {loop} makes the function anew: all that it makes share one code object, and one limit, "
            "however often `torch.compile` was called",
        )
    if group.first.limit_reached:
        yield from _axes(group)
        yield from _limit_elsewhere(group, run)
        if raised:
            yield Fact(
                "limit",
                "one more variant would exceed `torch._dynamo.config.recompile_limit`, and with fullgraph=True nothing "
                "is left to Python: torch raised an exception",
            )
            return
        yield Fact(
            "limit",
            "torch gave up compiling this function (`torch._dynamo.config.recompile_limit`): calls that fit a variant "
            "compiled so far still use it, all others run uncompiled, with everything they call",
        )
