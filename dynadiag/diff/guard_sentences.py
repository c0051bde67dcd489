"""A guard that differs between two runs in words: the values that it compares, as the program writes them."""

from __future__ import annotations

from dataclasses import replace

from dynadiag.diff.guard_changes import GuardDifference, changed_state
from dynadiag.explanation.formatting import brief, brief_pair
from dynadiag.explanation.process_state import dispatch_change, setting_words, state_words
from dynadiag.recording.records import Guard
from dynadiag.recording.torch_text.guards import guarded_value, read_condition, tensor_check
from dynadiag.recording.torch_text.sources import source_text

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
