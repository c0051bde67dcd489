"""Advice where a Python value or object changed: numbers, flags, containers, functions.

Counted on torch 2.13 with four values in turn (compiles): a float, wherever it is kept, and an integer that is an
argument, an item or an attribute of a plain object 2, with ``dynamic=True`` 1, with ``dynamic=False`` 4; an integer
that is a global, a closure's variable or a module's attribute 4, whatever ``dynamic`` is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dynadiag.explanation.guard_text import is_global, joined_sources, source_text
from dynadiag.explanation.guards import ParsedGuard

__all__ = [
    "freed",
    "identity",
    "keys",
    "left_over",
    "length",
    "membership",
    "none",
    "presence",
    "type_",
    "value",
]

_INTEGER = re.compile(r"-?\d+")
_LEARNING_RATE = re.compile(r"param_groups\[\d+\]\['lr'\]")
_CELL = re.compile(r"\.__closure__\[\d+\]\.cell_contents$")
_FLOAT = re.compile(r"-?(\d+\.\d*(e[+-]?\d+)?|\d+e[+-]?\d+|inf|nan)")


def value(found: Sequence[ParsedGuard]) -> list[str]:
    seen: dict[str | None, set[str | None]] = {}
    for item in found:
        seen.setdefault(item.subject, set()).add(item.was)
    return [text for item in found for text in _value_of(item, len(seen[item.subject]) > 1)]


def _value_of(item: ParsedGuard, again: bool) -> list[str]:
    subject, was = item.subject or "", item.was or ""
    name = f"`{source_text(subject)}`"
    if item.now is not None and _sort(item.now) != _sort(was):
        return type_([item])
    if subject.endswith(".training"):
        return [
            f"{name} switched (`model.train()`, `model.eval()`): one compile for each mode is expected, and "
            "both are kept. Warm up both; do not switch inside a loop."
        ]
    if _CELL.search(subject):
        return [_closed_over(f"`{source_text(_CELL.sub('', subject))}`", was, again)]
    if _is_attribute(subject):
        return [_attribute(name, was, again)]
    if is_global(subject):
        return [_global(name, was, again)]
    return [_argument(name, was, again)]


def _sort(value: str) -> str:
    """What a short text of a value is of: a number of either kind, or something else."""
    return "int" if _INTEGER.fullmatch(value) else "float" if _FLOAT.fullmatch(value) else "other"


def _is_attribute(subject: str) -> bool:
    """Whether a source is an attribute of something (``L['self'].k``), not a name (``n``, ``L['n']``)."""
    return "." in re.sub(r"\[.*?\]", "", subject)


def _closed_over(function: str, was: str, again: bool) -> str:
    if _FLOAT.fullmatch(was):
        return _float(f"A float that the function {function} closes over", again)
    return (
        f"A variable that the function {function} closes over changed, and its value is part of the code: one compile "
        "for each. Pass it as an argument."
    )


def _global(name: str, was: str, again: bool) -> str:
    if _FLOAT.fullmatch(was):
        return _float(f"The global {name}, a float,", again)
    cure = "pass it as an argument" if _INTEGER.fullmatch(was) else "set it once, before the first call"
    return f"The global {name} changed, and its value is part of the code: {cure}."


def _attribute(name: str, was: str, again: bool) -> str:
    if _FLOAT.fullmatch(was) and _LEARNING_RATE.search(name):
        return (
            f"{name} changed, as a scheduler changes it, and is a constant of the compiled step at first. From now on "
            "torch makes it an input of the graph (with `dynamic=False`, never); an optimizer that is made with "
            "`lr=torch.tensor(...)` needs no recompile."
        )
    if _FLOAT.fullmatch(was):
        return _float(f"The float attribute {name}", again)
    if _INTEGER.fullmatch(was):
        plain = "" if again else " On an object that is no module torch makes it a symbol from now on."
        return (
            f"The integer attribute {name} changed, and its value is part of the code: one compile for each. "
            "Keep it in a tensor (`register_buffer`), pass it as an argument, or, on a module, set "
            f"`torch._dynamo.config.allow_unspec_int_on_nn_module = True`.{plain}"
        )
    return f"The attribute {name} changed, and its value is part of the code: set it once, before the first call."


def _argument(name: str, was: str, again: bool) -> str:
    if again and _INTEGER.fullmatch(was):
        return (
            f"The integer {name} changed before and is still a constant: it was compiled with `dynamic=False`, "
            "or Python code needs to know it (a loop count, an index, a branch). Pass a tensor, or take that "
            "code out of the function."
        )
    if _INTEGER.fullmatch(was):
        return (
            f"The integer {name} changed. From now on torch makes it a symbol (with `dynamic=False`, never); "
            "`torch.compile(..., dynamic=True)` does so from the first call on. (0 and 1 remain constants, and so "
            "does an integer that Python code needs to know.)"
        )
    if _FLOAT.fullmatch(was):
        return _float(f"The float {name}", again)
    return (
        f"{name} is a constant of the code: each value of it is compiled apart. With few values call each once "
        "to warm up; with many, take the choice out of the compiled function."
    )


def _float(what: str, again: bool) -> str:
    if again:
        return (
            f"{what} changed before and is still a constant: it was compiled with `dynamic=False`, or Python code "
            "needs to know it (a branch, a conversion). Keep it in a tensor, or take that code out of the function."
        )
    return (
        f"{what} changed. From now on torch makes it an input of the graph (with `dynamic=False`, or where an operator "
        "needs the number itself, never); `torch.compile(..., dynamic=True)`, or a tensor instead (`register_buffer` "
        "on a module), does so from the first call on."
    )


def length(found: Sequence[ParsedGuard]) -> list[str]:
    return [
        f"{joined_sources(found)} has another number of items: a loop over it is unrolled, so each number is code of "
        "its own. Stack the items into one tensor, pad to one length, or loop outside and compile what is done "
        "to one item."
    ]


def keys(found: Sequence[ParsedGuard]) -> list[str]:
    return [
        f"{joined_sources(found)} has other keys, or in another order: use the same keys for every call, in "
        "the same order."
    ]


def membership(found: Sequence[ParsedGuard]) -> list[str]:
    return [
        f"What {joined_sources(found)} contains changed, and the code asked: look it up before the call and "
        "pass the answer."
    ]


def identity(found: Sequence[ParsedGuard]) -> list[str]:
    code = any((item.subject or "").endswith("__code__") for item in found)
    if code or any("function" in (item.index or item.was or "") for item in found):
        return [
            f"{joined_sources(found)} is another function than before: each is compiled apart. Do not make functions "
            "or lambdas anew for each call; for a few fixed ones, expect one compile each."
        ]
    return [
        f"{joined_sources(found)} is another object than before, and the code is bound to the object. Pass the same "
        "one, or pass the tensors and numbers in it instead."
    ]


def freed(_found: Sequence[ParsedGuard]) -> list[str]:
    return [
        "The object that the code was made for (an optimizer, a module, ...) is gone, and each new one is compiled "
        "anew. Make it once and use it again: start an optimizer over with `load_state_dict`, a module with "
        "`reset_parameters` or `load_state_dict`."
    ]


def type_(found: Sequence[ParsedGuard]) -> list[str]:
    return [
        f"{joined_sources(found)} is of another type than before: code is made for each type. Pass one type always."
    ]


def none(found: Sequence[ParsedGuard]) -> list[str]:
    return [
        f"{joined_sources(found)} was None in one call and not in the other: with and without it is different code. "
        "Expect one "
        "compile for each and warm up both, or always pass something (a default, an empty tensor)."
    ]


def left_over(_found: Sequence[ParsedGuard]) -> list[str]:
    return [
        "What was computed at a graph break is handed to the rest of the function, which was compiled for its "
        "value: end that break, and this recompile ends too."
    ]


def presence(found: Sequence[ParsedGuard]) -> list[str]:
    return [
        f"{joined_sources(found)} was there in one call and not in the other: define it from the start (in `__init__`)."
    ]
