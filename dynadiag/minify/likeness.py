"""Whether what was made small still fails as the program did."""

from __future__ import annotations

from collections.abc import Callable

from dynadiag.trial.signature import Signature, normalise

__all__ = ["akin", "corrupted", "same", "shows"]

_DIFFERENCES = ("differs in", "uncompiled raises", "share memory", "strides", "shape", "dtype", "outputs instead")


def shows(found: Signature | None, sought: Signature) -> bool:
    """Whether a program of ours fails as it should: of a wrong result it says so by an assertion."""
    if _kind(sought) == "wrong_result":
        return found is not None and found.cause == "AssertionError" and _is_of_a_comparison(found)
    return akin(found, sought)


def _is_of_a_comparison(found: Signature) -> bool:
    """Whether an assertion is one of the repro's: torch's compiler has assertions of its own."""
    return found.where is None or found.where.startswith("torch/testing/")


def same(found: Signature | None, sought: Signature) -> bool:
    """Whether a part of a graph fails as the whole does. Of a wrong result, which value is wrong may change."""
    if found is None:
        return False
    if _kind(found) == _kind(sought) == "wrong_result":
        return _difference(found) == _difference(sought)
    return found.same_as(sought)


def corrupted(
    likeness: Callable[[Signature | None, Signature], bool], found: Signature | None, sought: Signature
) -> bool:
    """Where memory is written out of bounds: killed or wrong, whichever of the two is sought."""
    if found is None or likeness(found, sought):
        return found is not None
    kinds = {_kind(found), _kind(sought)}
    return kinds == {"signal", "wrong_result"} or (kinds == {"signal"} and "SIGABRT" in (found.type, sought.type))


def _difference(signature: Signature) -> str | None:
    return next((words for words in _DIFFERENCES if words in signature.message), None)


def akin(found: Signature | None, sought: Signature) -> bool:
    """Whether a graph by itself fails as the program did: the frames around it differ, the failure does not."""
    if found is None or _kind(found) != _kind(sought):
        return False
    if found.kind != "exception":
        return found.kind != "signal" or found.type == sought.type
    if found.cause != sought.cause:
        return False
    return found.where == sought.where or _first(found) == _first(sought)


def _first(signature: Signature) -> str:
    """What went wrong, without what was being done: that is told otherwise of a subgraph than of a graph."""
    return normalise(signature.message.strip().partition("\n")[0])


def _kind(signature: Signature) -> str:
    return "wrong_result" if signature.kind == "nan" else signature.kind
