"""Trying variants of a case: what runs uncompiled is asked about, what still fails is taken."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from minifier.graphs import Case, Fails, ask, canonical, own
from minifier.metadata import refresh
from minifier.search import Oracle
from minifier.torch_private import undisturbed

__all__ = ["CaseProblem", "Simplifier", "Variants", "runs"]

# A part of a graph that was called while the program waited takes no longer than this uncompiled.
_SECONDS = 20.0
Variants = Callable[[Case], Iterator[Case]]


class CaseProblem:
    """Whole cases under an oracle: `minifier.search.Oracled`."""

    def __init__(self, fails: Fails, refused: list[Exception]) -> None:
        self._fails = fails
        self._refused = refused

    def key(self, candidate: Case) -> str:
        return canonical(candidate)

    def fails(self, candidate: Case) -> bool:
        return ask(self._fails, candidate, self._refused)

    def cost(self, candidate: Case) -> int:
        return sum(node.op.startswith("call_") for node in candidate.module.graph.nodes)


class Simplifier:
    """The simplest case so far, and the oracle that it goes by."""

    def __init__(self, oracle: Oracle[Case], case: Case) -> None:
        self.case = case
        self._oracle = oracle

    def take(self, variants: Variants) -> bool:
        """Take the first variant that runs and still fails. True if there was one."""
        return any(self.offer(variant) for variant in variants(self.case))

    def take_all(self, variants: Variants) -> bool:
        """Take one variant after the other, each made from what was taken before, until none is left."""
        taken = False
        while self.take(variants):
            taken = True
        return taken

    def offer(self, variant: Case) -> bool:
        """Take this variant if it runs and still fails."""
        if not runs(variant):
            return False
        variant = refresh(variant)
        if self._oracle.fails(variant):
            self.case = variant
            return True
        return False


class _TakesTooLongError(Exception):
    """Raised in the middle of a run."""


@contextmanager
def _limited() -> Iterator[None]:
    """End what takes too long, as a loop may whose condition was made simpler. Only where signals are received."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGALRM) != signal.SIG_DFL:
        yield
        return

    def end(*_: object) -> None:
        raise _TakesTooLongError

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, _SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def runs(case: Case) -> bool:
    """Whether the case runs uncompiled: a variant that does not is no variant, and costs no trial."""
    copied = own(case)
    try:
        with undisturbed(), _limited():
            copied.module.forward(*copied.inputs)  # calling the module would print the failing line
    except Exception:  # noqa: BLE001  any operation may refuse the shapes or dtypes that are being tried
        return False
    return True
