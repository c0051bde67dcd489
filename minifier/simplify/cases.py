"""Trying variants of a case: what runs uncompiled is asked about, what still fails is taken."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from minifier.graphs import Case, Fails, ask, canonical, moved, own
from minifier.metadata import refresh
from minifier.search import Oracle
from minifier.torch_private import undisturbed

__all__ = ["CaseProblem", "Simplifier", "Variants", "runs"]

# A part of a graph takes no longer uncompiled than this and this many times what the whole of it takes.
_SLACK, _FACTOR = 1.0, 20.0
_CPU = torch.device("cpu")
_LONGEST = 20.0  # seconds; of a graph that was called while the program waited
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
        # An index out of bounds is refused on the CPU, and breaks a GPU for good.
        self._on_cpu = torch.cuda.is_initialized() and runs(case, on_cpu=True)
        if not self._on_cpu:
            runs(case)  # the first time loads what it needs
        began = time.monotonic()
        runs(case, on_cpu=self._on_cpu)
        self._limit = min(_LONGEST, _SLACK + _FACTOR * (time.monotonic() - began))

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
        if not runs(variant, self._limit, self._on_cpu):
            return False
        variant = refresh(variant)
        if self._oracle.fails(variant):
            self.case = variant
            return True
        return False


class _TakesTooLongError(Exception):
    """Raised in the middle of a run."""


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """End what takes too long, as a loop may whose condition was made simpler. Only where signals are received."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGALRM) != signal.SIG_DFL:
        yield
        return

    def end(*_: object) -> None:
        raise _TakesTooLongError

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again: an exception is lost where it is raised in a __del__
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def runs(case: Case, seconds: float = _LONGEST, on_cpu: bool = False) -> bool:
    """Whether the case runs uncompiled in that time: a variant that does not is no variant, and costs no trial."""
    try:
        copied = moved(case, _CPU) if on_cpu else own(case)
        with undisturbed(), _limited(seconds):
            copied.module.forward(*copied.inputs)  # calling the module would print the failing line
    except Exception:  # noqa: BLE001  any operation may refuse the shapes or dtypes that are being tried
        return False
    return True
