"""Decides whether a candidate or a repro shows the program's failure."""

from __future__ import annotations

from collections.abc import Callable

from dynadiag.trial.signature import Signature, normalise

_DIFFERENCES = ("differs in", "uncompiled raises", "share memory", "strides", "shape", "dtype", "outputs instead")


def reproduces(found: Signature | None, expected: Signature) -> bool:
    """Whether a repro shows the expected failure. A repro reports a wrong result by an assertion."""
    if _kind(expected) == "wrong_result":
        return found is not None and found.cause == "AssertionError" and _is_repro_assertion(found)
    return same_failure_standalone(found, expected)


def _is_repro_assertion(found: Signature) -> bool:
    """Whether an assertion comes from the repro: torch's compiler has assertions too."""
    return found.where is None or found.where.startswith("torch/testing/")


def same_failure_in_part(found: Signature | None, expected: Signature) -> bool:
    """Whether a part of a graph fails as the whole graph does. With wrong results, another value may be wrong."""
    if found is None:
        return False
    if _kind(found) == _kind(expected) == "wrong_result":
        return _kind_of_difference(found) == _kind_of_difference(expected)
    return found.same_as(expected)


def matches_memory_corruption(
    matches: Callable[[Signature | None, Signature], bool], found: Signature | None, expected: Signature
) -> bool:
    """Whether the failure matches, if memory is written out of bounds: then a crash also matches a wrong result.

    ``matches`` is the usual comparison.
    """
    if found is None or matches(found, expected):
        return found is not None
    kinds = {_kind(found), _kind(expected)}
    return kinds == {"signal", "wrong_result"} or (kinds == {"signal"} and "SIGABRT" in (found.type, expected.type))


def _kind_of_difference(signature: Signature) -> str | None:
    return next((words for words in _DIFFERENCES if words in signature.message), None)


def same_failure_standalone(found: Signature | None, expected: Signature) -> bool:
    """Whether a standalone graph fails as the program did. The outer stack frames may differ."""
    if found is None or _kind(found) != _kind(expected):
        return False
    if found.kind != "exception":
        return found.kind != "signal" or found.type == expected.type
    if found.cause != expected.cause:
        return False
    return found.where == expected.where or _first_line(found) == _first_line(expected)


def _first_line(signature: Signature) -> str:
    """The first line of the message, normalised. The rest describes the context, which differs for a subgraph."""
    return normalise(signature.message.strip().partition("\n")[0])


def _kind(signature: Signature) -> str:
    return "wrong_result" if signature.kind == "nan" else signature.kind
