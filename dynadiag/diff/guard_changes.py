"""The difference of the guards of two compiles: which conditions are new, gone or changed.

Guards are compared without order, addresses and ids of objects. Names that one side gives to the same thing as the
other (arguments, globals, attributes, classes) are no difference, keys and values are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

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
    by_source: dict[tuple[str, str], list[Guard]] = defaultdict(list)
    for guard in olds:
        by_source[checked(guard), guard.source].append(guard)
    found: list[GuardDifference] = []
    for guard in news:
        same = by_source[checked(guard), guard.source]
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
    keys = [[canonical_guard(guard, shared) for guard in side] for side in (before, after)]
    found = _surplus(before, keys[0], Counter(keys[1])), _surplus(after, keys[1], Counter(keys[0]))
    return tuple([guard for guard in side if not is_on_called_code(guard)] for side in found)  # type: ignore[return-value]


def _once(guards: Iterable[Guard]) -> list[Guard]:
    """The guards without those that compare the same value again, for a symbol that torch made of it."""
    met: set[str] = set()
    return [
        guard
        for guard in guards
        if checked(guard) != VALUE or not (guard.expression in met or met.add(guard.expression))  # type: ignore[func-returns-value]
    ]


def _surplus(
    guards: Sequence[Guard], keys: Sequence[tuple[str, str, str]], others: Counter[tuple[str, str, str]]
) -> list[Guard]:
    found = []
    for guard, key in zip(guards, keys, strict=True):
        if others[key]:
            others[key] -= 1
        else:
            found.append(guard)
    return found


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
