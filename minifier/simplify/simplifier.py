"""Tries variants of a case: a variant that runs uncompiled gets a trial, and is taken if it still fails.

The metadata of its nodes are updated then, for its shapes or dtypes may have changed.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from minifier.graph_problem import Case, CaseOracle, case_key, copy_case, copy_to_device
from minifier.search import Oracle
from minifier.simplify.shapes import is_corner
from minifier.tensors import leaves, map_leaves
from minifier.torch_private import restore_torch_state
from minifier.triton_launches import launched_kernel

# The time limit of a variant that runs uncompiled: these seconds plus this multiple of the time of the first case.
_SLACK, _FACTOR = 1.0, 20.0
_CPU = torch.device("cpu")
_MAX_SECONDS = 20.0  # seconds; the most that a variant may take
T = TypeVar("T")
Variants = Callable[[Case], Iterator[Case]]
# The keys of a node's fake value: "val" of AOTAutograd and Inductor, "example_value" of Dynamo.
_KEYS = ("val", "example_value")


def all_then_each(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield all items together, then each alone. Nothing if there are none."""
    if items:
        yield items
    if len(items) > 1:
        yield from ([item] for item in items)


class CaseProblem:
    """Whole cases with an oracle; implements `minifier.search.ReductionProblem`."""

    def __init__(self, oracle: CaseOracle) -> None:
        self._oracle = oracle

    def key(self, candidate: Case) -> str:
        """See `ReductionProblem.key`."""
        return case_key(candidate)

    def fails_each(self, candidates: Sequence[Case]) -> list[bool]:
        """See `ReductionProblem.fails_each`."""
        return self._oracle.fails_each([copy_case(case) for case in candidates])

    def cost(self, candidate: Case) -> int:
        """The number of operations."""
        return sum(node.op.startswith("call_") for node in candidate.module.graph.nodes)


class Simplifier:
    """Holds the simplest case so far and tries variants of it."""

    def __init__(self, oracle: Oracle[Case], case: Case) -> None:
        self.case = case
        self._oracle = oracle
        self._passing: list[Case] = []  # variants that were tried: what is true of one is true of its corners
        # The CPU reports an index out of bounds as an exception; on a GPU it breaks the context for good.
        self._on_cpu = torch.cuda.is_initialized() and runs_uncompiled(case, on_cpu=True)
        if not self._on_cpu:
            runs_uncompiled(case)  # the first run loads modules, and is not timed
        began = time.monotonic()
        runs_uncompiled(case, on_cpu=self._on_cpu)
        self._limit = min(_MAX_SECONDS, _SLACK + _FACTOR * (time.monotonic() - began))

    def take_first(self, variants: Variants) -> bool:
        """Take the first variant that runs uncompiled and still fails. True if there was one."""
        left = (refresh_metadata(each) for each in variants(self.case) if self._is_worth_a_trial(each))
        while batch := list(islice(left, self._oracle.width)):
            found = self._oracle.first_failing(batch)
            self._passing += batch if found is None else batch[: batch.index(found)]
            if found is not None:
                self.case = found
                return True
        return False

    def take_all(self, variants: Variants) -> bool:
        """Take variants, each made from the last one taken, until none fails. True if any was taken."""
        taken = False
        while self.take_first(variants):
            taken = True
        return taken

    def try_variant(self, variant: Case) -> bool:
        """Take this variant if it runs uncompiled and still fails. True if it was taken."""
        return self.take_first(lambda _: iter([variant]))

    def _is_worth_a_trial(self, variant: Case) -> bool:
        passes = any(is_corner(variant, passing) for passing in self._passing)
        return not passes and runs_uncompiled(variant, self._limit, self._on_cpu)


class _TakesTooLongError(Exception):
    """The time limit of a run has passed."""


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise `_TakesTooLongError` after a time limit: a simpler loop condition may never become false.

    It needs SIGALRM, so it has no effect outside the main thread, or if the program handles that signal itself.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGALRM) != signal.SIG_DFL:
        yield
        return

    def end(*_: object) -> None:
        raise _TakesTooLongError

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # repeated: an exception that is raised in a __del__ is lost
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def runs_uncompiled(case: Case, seconds: float = _MAX_SECONDS, on_cpu: bool = False) -> bool:
    """Whether the case runs uncompiled within `seconds`. A variant that does not is skipped without a trial."""
    try:
        copied = copy_to_device(case, _CPU) if on_cpu else copy_case(case)
        with restore_torch_state(), _time_limit(seconds):
            copied.module.forward(*copied.inputs)  # a call of the module would print the failing line
    except Exception:  # noqa: BLE001  any operation may reject the shapes or dtypes of a variant
        return False
    return True


def refresh_metadata(case: Case) -> Case:
    """The case with metadata that fit its inputs. Symbolic metadata stay: they hold for other sizes too."""
    described = [(node, key) for node in case.module.graph.nodes for key in _KEYS if key in node.meta]
    if not described or any(is_symbolic(node.meta[key]) for node, key in described):
        return case
    copied = copy_case(case)
    values = _FakeInterpreter(copied.module).values(copied.inputs)
    for node in copied.module.graph.nodes:
        node.meta.pop("tensor_meta", None)
        for key in _KEYS:
            if key in node.meta and node in values:
                node.meta[key] = values[node]
    return Case(copied.module, case.inputs)


def is_symbolic(value: Any) -> bool:
    """Whether a value has a symbolic size."""
    return any(
        isinstance(leaf, torch.SymInt)
        or (isinstance(leaf, torch.Tensor) and any(isinstance(size, torch.SymInt) for size in leaf.shape))
        for leaf in leaves(value)
    )


class _FakeInterpreter(fx.Interpreter):
    def values(self, inputs: tuple[Any, ...]) -> dict[fx.Node, Any]:
        self._seen: dict[fx.Node, Any] = {}
        mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())  # a while_loop makes new symbols
        fakes = map_leaves(
            lambda v: mode.from_tensor(v, static_shapes=True) if isinstance(v, torch.Tensor) else v, list(inputs)
        )
        with restore_torch_state(), mode:
            self.run(*fakes, enable_io_processing=False)
        return self._seen

    def run_node(self, n: fx.Node) -> Any:
        if launched_kernel(n) is not None:
            return None  # a launch on fake tensors would have no memory
        self._seen[n] = value = super().run_node(n)
        return value
