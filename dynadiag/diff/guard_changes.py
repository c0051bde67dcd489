"""The difference of the guards of two compiles: which conditions are new, gone or changed.

Guards are compared without order, addresses and ids of objects. Names that one side gives to the same thing as the
other (arguments, globals, attributes, classes) are no difference, keys and values are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dynadiag.explanation.formatting import brief, brief_pair
from dynadiag.explanation.process_state import dispatch_change, setting_words, state_words
from dynadiag.grouping import grouped, paired
from dynadiag.recording.records import Guard
from dynadiag.recording.torch_text.comparable import (
    STATE,
    THREADS,
    VALUE,
    canonical_guard,
    checked,
    global_state,
    is_on_called_code,
    is_on_constant,
    module_of,
    skeleton,
)
from dynadiag.recording.torch_text.guards import guarded_value, read_condition, tensor_check
from dynadiag.recording.torch_text.sources import source_text

# What torch checks of the code and the tensors that it traced. It follows from the operators in the graph.
_OF_TRACED_CODE = frozenset(
    {
        "ID_MATCH", "TYPE_MATCH", "TENSOR_MATCH", "DIMENSION_DYNAMIC_MARKING_GUARD", "NO_TENSOR_ALIASING",
        "OBJECT_ALIASING", "DICT_CONTAINS", "NO_HASATTR", "WEAKREF_ALIVE", "GLOBAL_WEAKREF",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GuardDifference:
    """A guard that one side lacks, or the guards of both sides on one source where they differ."""

    before: Guard | None
    after: Guard | None


def guard_differences(before: Sequence[Guard], after: Sequence[Guard]) -> tuple[GuardDifference, ...]:
    """Return the differences between the guards of two compiles, in the order of the second."""
    olds, news = _without_equal(before, after)
    olds, news = _without_renamed(olds, news)
    by_source = grouped(((checked(guard), guard.source), guard) for guard in olds)
    found: list[GuardDifference] = []
    for guard in news:
        same = by_source.get((checked(guard), guard.source))
        found.append(GuardDifference(same.pop(0) if same else None, guard))
    return (*found, *(GuardDifference(guard, None) for guards in by_source.values() for guard in guards))


def is_on_traced_code(difference: GuardDifference, before: Sequence[Guard], after: Sequence[Guard]) -> bool:
    """Whether a guard is only there because other code was traced: a function, a module or a tensor that one side uses.

    Such a guard follows from a graph that differs. A guard on a value that decides what is traced does not.
    """
    guard = difference.after or difference.before
    if guard is None or (difference.before and difference.after):
        return False
    others = before if difference.after else after
    module = module_of(guard)
    used = module is None or any(other.source.startswith(module) for other in others)
    return guard.kind in _OF_TRACED_CODE or not used or is_on_constant(guard)


def thread_count(guards: Iterable[Guard]) -> int | None:
    """The number of threads that torch had when it compiled."""
    for guard in guards:
        if guard.kind == STATE and isinstance(value := global_state(guard.expression).get(THREADS), int):
            return value
    return None


def changed_state(difference: GuardDifference) -> dict[str, tuple[str, str]]:
    """Return the settings and modes of torch that differ between two guards on its state, with both values."""
    guards = [guard for guard in (difference.before, difference.after) if guard is not None and guard.kind == STATE]
    states = [global_state(guard.expression) for guard in guards]
    if len(states) < 2:
        return {}
    shared = (name for name in states[1] if name in states[0] and name != THREADS)
    changed = {name: (states[0][name], states[1][name]) for name in shared if states[0][name] != states[1][name]}
    return {name: _told_values(*values) for name, values in changed.items()}


def _told_values(was: Any, now: Any) -> tuple[str, str]:
    """Two values of a setting. Of autocast's, which has lists of one value a device, the first two that differ."""
    if isinstance(was, dict) and isinstance(now, dict):
        for name in ("enabled", "dtype"):
            pairs = zip(was.get(name, ()), now.get(name, ()), strict=False)
            if (changed := next((pair for pair in pairs if pair[0] != pair[1]), None)) is not None:
                return str(changed[0]), str(changed[1])
    return str(was), str(now)


def _state_names(guards: Iterable[Guard]) -> set[str]:
    """The parts of the global state that torch checks. Another release checks more of them, or fewer."""
    return {name for guard in guards if guard.kind == STATE for name in global_state(guard.expression)}


def _without_equal(before: Sequence[Guard], after: Sequence[Guard]) -> tuple[list[Guard], list[Guard]]:
    """The guards that the other side does not have."""
    shared = _state_names(before) & _state_names(after)
    before, after = _once(before), _once(after)
    pairs = paired(*([(canonical_guard(guard, shared), guard) for guard in side] for side in (before, after)))
    known = {id(guard) for pair in pairs for guard in pair}
    left = ([each for each in side if id(each) not in known] for side in (before, after))
    olds, news = ([guard for guard in side if not is_on_called_code(guard)] for side in left)
    return olds, news


def _once(guards: Iterable[Guard]) -> list[Guard]:
    """The guards without those that compare the same value again, for a symbol that torch made of it."""
    met: set[str] = set()
    return [
        guard
        for guard in guards
        if checked(guard) != VALUE or not (guard.expression in met or met.add(guard.expression))  # type: ignore[func-returns-value]
    ]


def _without_renamed(olds: list[Guard], news: list[Guard]) -> tuple[list[Guard], list[Guard]]:
    """The guards that are not the same under one renaming of names. The renaming is found from the guards in order."""
    forward: dict[str, str] = {}
    backward: dict[str, str] = {}
    waiting: dict[str, list[tuple[Guard, list[str]]]] = defaultdict(list)
    for guard in news:
        form, names = skeleton(guard)
        waiting[form].append((guard, names))
    left = []
    for guard in olds:
        form, names = skeleton(guard)
        found = next((item for item in waiting[form] if _renames(names, item[1], forward, backward)), None)
        if found is None:
            left.append(guard)
            continue
        forward.update(zip(names, found[1], strict=True))
        backward.update(zip(found[1], names, strict=True))
        waiting[form].remove(found)
    kept = {id(guard) for items in waiting.values() for guard, _ in items}
    return left, [guard for guard in news if id(guard) in kept]


def _renames(olds: list[str], news: list[str], forward: dict[str, str], backward: dict[str, str]) -> bool:
    """Whether a renaming so far, one name for one, can also take these names to those."""
    return all(
        forward.get(old, new) == new and backward.get(new, old) == old for old, new in zip(olds, news, strict=True)
    )


_MAX_GUARD = 100  # characters of a guard, or of the two of a change, in a sentence
# What torch checks of a tensor. Strides follow from sizes, so sizes come first.
_TENSOR_FIELDS = ("size", "dtype", "device", "requires_grad", "stride", "dispatch_keys")


def guard_change_text(found: GuardDifference) -> str:
    """How a guard changed: ``flags['act'] is 'relu', was 'tanh'``."""
    if found.before is None or found.after is None:
        guard, what = (found.after, "a new guard") if found.after else (found.before, "a guard is gone")
        return f"{what}: {_words(guard) if guard else '?'}"
    if changed := changed_state(found):
        return "; ".join(_state_text(name, *values) for name, values in changed.items())
    return _change(found.before, found.after)


def value_rank(found: GuardDifference) -> int:
    """The order of a guard by what it tells: 0 for a value or tensor that changed, 1 for a value, 2 for others."""
    guard = found.after or found.before
    if guard is None or (guarded_value(guard.expression) is None and tensor_check(guard.expression) is None):
        return 2
    return 0 if found.before and found.after else 1


def _state_text(name: str, was: str, now: str) -> str:
    if was.startswith(("{", "[")):
        return f"{state_words(name)} changed"
    return f"{state_words(name)} was {setting_words(name, was)}, is {setting_words(name, now)}"


def _words(guard: Guard) -> str:
    """What a guard demands."""
    if (check := tensor_check(guard.expression)) is not None:
        return f"{brief(source_text(guard.source))} is a tensor of size {_field(check.size)} and dtype {check.dtype}"
    fact = read_condition(guard.expression)
    subject = brief(source_text(fact.subject))
    if fact.part == "keys":
        return f"{subject} has the key {fact.was}"
    if fact.part in ("identity", "type") and fact.subject:
        what = "is of" if fact.part == "type" else "is the same object, of"
        return f"{subject} {what} type {brief(fact.was_type or '?')}"
    return brief(source_text(guard.expression), _MAX_GUARD)


def _field(value: str | tuple[str, ...]) -> str:
    """A property of a tensor. torch writes None for a size that may be any."""
    if isinstance(value, str):
        return value
    return f"[{', '.join('any' if item == 'None' else item for item in value)}]"


def _change(before: Guard, after: Guard) -> str:
    source = brief(source_text(after.source), _MAX_GUARD)
    was, now = tensor_check(before.expression), tensor_check(after.expression)
    if was is not None and now is not None:
        fields = [name for name in _TENSOR_FIELDS if getattr(was, name) != getattr(now, name)]
        fields = [name for name in fields if (name, "size") != ("stride", fields[0])]
        if fields == ["dispatch_keys"]:
            changed = replace(read_condition(after.expression), was=was.dispatch_keys, now=now.dispatch_keys)
            return f"{source} {dispatch_change(changed)}"
        told = (f"{name} {_field(getattr(now, name))}, had {_field(getattr(was, name))}" for name in fields)
        return f"{source} has {', and '.join(told)}"
    values = guarded_value(before.expression), guarded_value(after.expression)
    if values[0] is not None and values[1] is not None and before.source == after.source:
        old, new = brief_pair(values[0], values[1], _MAX_GUARD)
        return f"{source} is {new}, was {old}"
    lengths = read_condition(before.expression), read_condition(after.expression)
    if all(fact.part == "length" for fact in lengths):
        old, new = ((fact.was or "").removeprefix("length ") for fact in lengths)
        return f"len({source}) is {new}, was {old}"
    return f"a guard on {source} changed: {_words(before)} became {_words(after)}"
