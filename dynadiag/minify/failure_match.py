"""Whether what was made small still fails as the program did."""

from __future__ import annotations

from collections.abc import Callable

from dynadiag.trial.signature import Signature, normalise

__all__ = ["matches_memory_corruption", "reproduces", "same_failure_in_part", "same_failure_standalone"]

_DIFFERENCES = ("differs in", "uncompiled raises", "share memory", "strides", "shape", "dtype", "outputs instead")


def reproduces(found: Signature | None, expected: Signature) -> bool:
    """Whether a program of ours fails as it should: of a wrong result it says so by an assertion."""
    if _kind(expected) == "wrong_result":
        return found is not None and found.cause == "AssertionError" and _is_repro_assertion(found)
    return same_failure_standalone(found, expected)


def _is_repro_assertion(found: Signature) -> bool:
    """Whether an assertion is one of the repro's: torch's compiler has assertions of its own."""
    return found.where is None or found.where.startswith("torch/testing/")


def same_failure_in_part(found: Signature | None, expected: Signature) -> bool:
    """Whether a part of a graph fails as the whole does. Of a wrong result, which value is wrong may change."""
    if found is None:
        return False
    if _kind(found) == _kind(expected) == "wrong_result":
        return _kind_of_difference(found) == _kind_of_difference(expected)
    return found.same_as(expected)


def matches_memory_corruption(
    matches: Callable[[Signature | None, Signature], bool], found: Signature | None, expected: Signature
) -> bool:
    """Where memory is written out of bounds: killed or wrong, whichever of the two is sought."""
    if found is None or matches(found, expected):
        return found is not None
    kinds = {_kind(found), _kind(expected)}
    return kinds == {"signal", "wrong_result"} or (kinds == {"signal"} and "SIGABRT" in (found.type, expected.type))


def _kind_of_difference(signature: Signature) -> str | None:
    return next((words for words in _DIFFERENCES if words in signature.message), None)


def same_failure_standalone(found: Signature | None, expected: Signature) -> bool:
    """Whether a graph by itself fails as the program did: the frames around it differ, the failure does not."""
    if found is None or _kind(found) != _kind(expected):
        return False
    if found.kind != "exception":
        return found.kind != "signal" or found.type == expected.type
    if found.cause != expected.cause:
        return False
    return found.where == expected.where or _first_line(found) == _first_line(expected)


def _first_line(signature: Signature) -> str:
    """What went wrong, without what was being done: that is told otherwise of a subgraph than of a graph."""
    return normalise(signature.message.strip().partition("\n")[0])


def _kind(signature: Signature) -> str:
    return "wrong_result" if signature.kind == "nan" else signature.kind
