"""The difference of the guards of two compiles: which conditions are new, gone or changed.

Guards are compared without order, addresses and ids of objects. Names that one side gives to the same thing as the
other (arguments, globals, attributes, classes) are no difference, keys and values are.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dynadiag.diff.canonical_graph import without_addresses
from dynadiag.recording.records import Guard
from dynadiag.recording.torch_text.guards import guarded_value

__all__ = ["GuardDifference", "changed_state", "guard_differences", "is_on_traced_code", "thread_count"]

_OBJECT_ID = re.compile(r"(___check_(?:obj|type)_id\(.*, )\d+\)")
# torch numbers the globals that it installs: `__builtins_dict___1`, `__resume_at_30_2`, `__compiled_fn_4_<uuid>`.
_INSTALLED = re.compile(r"\b(__\w+?)_\d+(?:_[0-9a-f]{8}(?:_[0-9a-f]{4}){3}_[0-9a-f]{12})?(?=\W)")
# A global of another module is the module's attribute there: where a function stands is no difference.
_IMPORTED = re.compile(r"G\['__import_\w+'\]\.(\w+)")
_CODE = re.compile(r"(<code object \S+) at [^>]*>")  # with its address, file and line, which move
_HINT = re.compile(r" \(HINT: [^)]*\)$")  # torch adds it to some guards on a type, for the reader
_NAME = re.compile(
    r"\b[LG]\['\w+(?='\])"  # an argument, a variable of a closure or a global: where it is held is no difference
    r"|(?<=_modules\[')\w+(?='\])|(?<=_parameters\[')\w+(?='\])|(?<=_buffers\[')\w+(?='\])"
    r"|(?<=[\])\w]\.)(?<!\btorch\.)[A-Za-z_]\w*"  # an attribute; torch's own are dtypes and layouts
    r"|(?<=<class ')[\w.<>]+(?='>)|(?<=<code object )[^\s>]+"
)
_THREADS = "num_threads"
_STATE = "GLOBAL_STATE"
_VALUE = "value"
# What torch checks of the code and the tensors that it traced. It follows from the operators in the graph.
_OF_TRACED_CODE = frozenset(
    {
        "ID_MATCH", "TYPE_MATCH", "TENSOR_MATCH", "DIMENSION_DYNAMIC_MARKING_GUARD", "NO_TENSOR_ALIASING",
        "OBJECT_ALIASING", "DICT_CONTAINS", "NO_HASATTR", "WEAKREF_ALIVE", "GLOBAL_WEAKREF",
    }
)  # fmt: skip
# Guards that a builtin, a global function, class or module is the one that was traced, or is the same under two names,
# and that a method is the one of the class. They are left out, because how source is divided into functions is no
# difference. A value that is read from the class has a guard of its own.
_OF_CALLED_CODE = re.compile(
    r"___check_obj_id\((?:dict\()?G\['(?:\w+'\](?:\.__dict__\)\['\w+'\])?(?:\.\w+)*, \d+\), "
    r"type=<class '(?:code|module|function)'>"
    r"|__builtins_dict__\w+'\]\['\w+'\])"
    r"|___check_obj_id\(G\['(\w+)'\], \d+\), type=<class '(?:\w+\.)*\1'>"
    r"|G\['__import_\w+'\][\w.]* is G\['\w+'\](?:\.\w+)*$"
    r"|not ___dict_contains\('\w+', .+\.__dict__\)$"
)
_OF_TORCH = re.compile(r"G\['(?:torch|__import_torch\w*)'\]")  # a constant of torch's, such as a dtype
_SUBMODULE = re.compile(r"_modules\['\w+'\]")


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
        by_source[_check(guard), guard.source].append(guard)
    found: list[GuardDifference] = []
    for guard in news:
        same = by_source[_check(guard), guard.source]
        found.append(GuardDifference(same.pop(0) if same else None, guard))
    return (*found, *(GuardDifference(guard, None) for guards in by_source.values() for guard in guards))


def _check(guard: Guard) -> str:
    """What a guard checks: a value, whatever torch's kind for ``True`` and ``False``, or else its kind."""
    return _VALUE if guarded_value(guard.expression) is not None else guard.kind


def is_on_traced_code(difference: GuardDifference, before: Sequence[Guard], after: Sequence[Guard]) -> bool:
    """Whether a guard is only there because other code was traced: a function, a module or a tensor that one side uses.

    Such a guard follows from a graph that differs. A guard on a value that decides what is traced does not.
    """
    guard = difference.after or difference.before
    if guard is None or (difference.before and difference.after):
        return False
    others = before if difference.after else after
    modules = [found.end() for found in _SUBMODULE.finditer(guard.source)]
    used = any(other.source.startswith(guard.source[: modules[-1]]) for other in others) if modules else True
    return guard.kind in _OF_TRACED_CODE or not used or _OF_TORCH.match(guard.source) is not None


def thread_count(guards: Iterable[Guard]) -> int | None:
    """The number of threads that torch had when it compiled."""
    for guard in guards:
        if guard.kind == _STATE and isinstance(value := _global_state(guard.expression).get(_THREADS), int):
            return value
    return None


def changed_state(difference: GuardDifference) -> dict[str, tuple[str, str]]:
    """Return the settings and modes of torch that differ between two guards on its state, with both values."""
    guards = [guard for guard in (difference.before, difference.after) if guard is not None and guard.kind == _STATE]
    states = [_global_state(guard.expression) for guard in guards]
    if len(states) < 2:
        return {}
    shared = (name for name in states[1] if name in states[0] and name != _THREADS)
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
    return {name for guard in guards if guard.kind == _STATE for name in _global_state(guard.expression)}


def _canonical(guard: Guard, state_names: Container[str] | None = None) -> tuple[str, str, str]:
    """What a guard is, for comparison. Of the global state only ``state_names`` count, all if there are none."""
    source, expression = (
        _IMPORTED.sub(r"G['\1']", _INSTALLED.sub(r"\1", text)) for text in (guard.source, guard.expression)
    )
    if guard.kind == _STATE:
        state = {
            name: value
            for name, value in _global_state(guard.expression).items()
            if name != _THREADS and (state_names is None or name in state_names)
        }
        return guard.kind, source, json.dumps(state, sort_keys=True)
    check = _check(guard)
    return (
        check,
        "" if check == _VALUE else source,  # the expression has it
        without_addresses(_OBJECT_ID.sub(r"\1)", _CODE.sub(r"\1>", _HINT.sub("", expression)))),
    )


def _global_state(expression: str) -> dict[str, Any]:
    """The state that torch prints as JSON after ``___check_global_state() against``."""
    try:
        state = json.loads(expression[expression.index("{") :])
    except ValueError:
        return {"expression": expression}
    return state if isinstance(state, dict) else {}


def _without_equal(before: Sequence[Guard], after: Sequence[Guard]) -> tuple[list[Guard], list[Guard]]:
    """The guards that the other side does not have."""
    shared = _state_names(before) & _state_names(after)
    before, after = _once(before), _once(after)
    keys = [[_canonical(guard, shared) for guard in side] for side in (before, after)]
    found = _surplus(before, keys[0], Counter(keys[1])), _surplus(after, keys[1], Counter(keys[0]))
    return tuple([guard for guard in side if not _OF_CALLED_CODE.match(guard.expression)] for side in found)  # type: ignore[return-value]


def _once(guards: Iterable[Guard]) -> list[Guard]:
    """The guards without those that compare the same value again, for a symbol that torch made of it."""
    met: set[str] = set()
    return [
        guard
        for guard in guards
        if _check(guard) != _VALUE or not (guard.expression in met or met.add(guard.expression))  # type: ignore[func-returns-value]
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
        skeleton, names = _skeleton(guard)
        waiting[skeleton].append((guard, names))
    left = []
    for guard in olds:
        skeleton, names = _skeleton(guard)
        found = next((item for item in waiting[skeleton] if _renames(names, item[1], forward, backward)), None)
        if found is None:
            left.append(guard)
            continue
        forward.update(zip(names, found[1], strict=True))
        backward.update(zip(found[1], names, strict=True))
        waiting[skeleton].remove(found)
    kept = {id(guard) for items in waiting.values() for guard, _ in items}
    return left, [guard for guard in news if id(guard) in kept]


def _skeleton(guard: Guard) -> tuple[str, list[str]]:
    """A guard with its names left out, and the names."""
    text = "\n".join(_canonical(guard))
    return _NAME.sub("?", text), _NAME.findall(text)


def _renames(olds: list[str], news: list[str], forward: dict[str, str], backward: dict[str, str]) -> bool:
    """Whether a renaming so far, one name for one, can also take these names to those."""
    return all(
        forward.get(old, new) == new and backward.get(new, old) == old for old, new in zip(olds, news, strict=True)
    )
