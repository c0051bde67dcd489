"""A guard that differs between two runs in words: the values that it compares, as the program writes them."""

from __future__ import annotations

import re

from dynadiag.diff.guard_changes import GuardDifference, changed_state
from dynadiag.explanation.formatting import brief, brief_pair
from dynadiag.explanation.guard_text import source_text
from dynadiag.explanation.guards import guarded_value, parse_guard
from dynadiag.explanation.process_state import dispatch_change, setting_words, state_words
from dynadiag.recording.records import Guard, GuardFailure

__all__ = ["guard_change_text", "value_rank"]

_MAX_GUARD = 100  # characters of a guard, or of the two of a change, in a sentence
# What torch checks of a tensor. Strides follow from sizes, so sizes come first.
_TENSOR = re.compile(
    r"check_tensor\(.*, \w+, DispatchKeySet\((?P<dispatch_keys>[^)]*)\), (?P<dtype>torch\.\w+), "
    r"device=(?P<device>[^,]*), requires_grad=(?P<requires_grad>\w+), "
    r"size=(?P<size>\[.*?\]), stride=(?P<stride>\[.*?\])\)"
)
_TENSOR_FIELDS = ("size", "dtype", "device", "requires_grad", "stride", "dispatch_keys")
_KEY_AT = re.compile(r"list\(dict\.keys\((?P<source>.+)\)\)\[\d+\] == (?P<key>.+)")
_LENGTH = re.compile(r"len\(.+\) == (\d+)")
_IDENTITY = ("identity", "type")


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
    if guard is None or (guarded_value(guard.expression) is None and not _TENSOR.match(guard.expression)):
        return 2
    return 0 if found.before and found.after else 1


def _state_text(name: str, was: str, now: str) -> str:
    if was.startswith(("{", "[")):
        return f"{state_words(name)} changed"
    return f"{state_words(name)} was {setting_words(name, was)}, is {setting_words(name, now)}"


def _words(guard: Guard) -> str:
    """What a guard demands."""
    expression = guard.expression
    if (found := _KEY_AT.fullmatch(expression)) is not None:
        return f"{brief(source_text(found['source'].removesuffix('._modules')))} has the key {found['key']}"
    if (found := _TENSOR.match(expression)) is not None:
        return (
            f"{brief(source_text(guard.source))} is a tensor of size {_field(found['size'])} and dtype {found['dtype']}"
        )
    parsed = parse_guard(GuardFailure(expression, None, None, None, "", None, None))
    if parsed.kind in _IDENTITY and parsed.subject:
        type_ = parsed.was if parsed.kind == "type" else parsed.index
        what = "is of" if parsed.kind == "type" else "is the same object, of"
        return f"{brief(source_text(parsed.subject))} {what} type {brief(type_ or '?')}"
    return brief(source_text(expression), _MAX_GUARD)


def _field(text: str) -> str:
    """A property of a tensor. torch writes None for a size that may be any."""
    return text.replace("None", "any") if text.startswith("[") else text


def _change(before: Guard, after: Guard) -> str:
    source = brief(source_text(after.source), _MAX_GUARD)
    tensors = _TENSOR.match(before.expression), _TENSOR.match(after.expression)
    if tensors[0] and tensors[1]:
        fields = [name for name in _TENSOR_FIELDS if tensors[0][name] != tensors[1][name]]
        fields = [name for name in fields if (name, "size") != ("stride", fields[0])]
        if fields == ["dispatch_keys"]:
            return f"{source} {dispatch_change(tensors[0]['dispatch_keys'], tensors[1]['dispatch_keys'])}"
        told = (f"{name} {_field(tensors[1][name])}, had {_field(tensors[0][name])}" for name in fields)
        return f"{source} has {', and '.join(told)}"
    values = guarded_value(before.expression), guarded_value(after.expression)
    if values[0] is not None and values[1] is not None and before.source == after.source:
        was, now = brief_pair(values[0], values[1], _MAX_GUARD)
        return f"{source} is {now}, was {was}"
    lengths = _LENGTH.fullmatch(before.expression), _LENGTH.fullmatch(after.expression)
    if lengths[0] and lengths[1]:
        return f"len({source}) is {lengths[1][1]}, was {lengths[0][1]}"
    return f"a guard on {source} changed: {_words(before)} became {_words(after)}"
