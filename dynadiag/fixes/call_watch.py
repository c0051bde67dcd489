"""Watches the compiled calls of a program: makes records of them, or compares them with those of another run.

A proof compares the changed program with the unchanged one call by call: results, gradients, state and what is printed,
with the program's own inputs and with others.
"""

from __future__ import annotations

import builtins
import functools
import os
import random
import sys
import time
import types
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.utils import _pytree as pytree

from dynadiag.explanation.formatting import count
from dynadiag.fixes.call_record import (
    CallDifference,
    CallRecord,
    StateAfter,
    compare,
    mark_unstable,
    random_state,
    record_of,
    spread_between,
)
from dynadiag.fixes.isolation import TooLong, captured_output, every_warning, printed_text, time_limit
from dynadiag.fixes.observation import (
    CALL_BUILTIN,
    MAX_DIFFERENCES,
    SIDE_BUILTIN,
    CallDiffers,
    CallsCompared,
    Observation,
    SideTaken,
    VariantRun,
)
from dynadiag.fixes.printed_output import UNSTABLE
from dynadiag.fixes.user_globals import UserGlobals
from dynadiag.fixes.variants import OWN, bytes_of, search_names, variant, variant_names
from dynadiag.torch_private import trial as torch_private
from dynadiag.trial.context import TRIAL
from dynadiag.trial.random_numbers import seed_generators
from dynadiag.trial.reference_run import ReplayableCall, run_call

T = TypeVar("T", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class RecordedCalls:
    """The calls, and a digest of the random number generators when the program has ended."""

    calls: tuple[CallRecord, ...]
    random: str

    @classmethod
    def read(cls, file: str) -> RecordedCalls:
        """What `write` wrote."""
        loaded = torch.load(file, weights_only=True)
        return cls(tuple(CallRecord(**record) for record in loaded["calls"]), loaded["random"])

    def write(self, file: str) -> None:
        """Write the file, at once where it stands: a run may be ended at any time."""
        scratch = Path(f"{file}.part")
        torch.save({"calls": [record.to_json() for record in self.calls], "random": self.random}, scratch)
        scratch.rename(file)

    def of_call(self, call: int) -> list[CallRecord]:
        """The records of one call, with each of the inputs."""
        return [record for record in self.calls if record.call == call]

    def like(self, record: CallRecord) -> CallRecord | None:
        """The record of the same call with the same inputs."""
        return next((each for each in self.calls if (each.call, each.inputs) == (record.call, record.inputs)), None)

    def calls_from(self, count: int) -> Iterable[int]:
        """The calls that a program which makes ``count`` of them does not make."""
        return {record.call for record in self.calls if record.call >= count}


def masked_like(masked: CallRecord, record: CallRecord) -> CallRecord:
    """The record without what differs from run to run by the marks of another one."""
    printed = masked.printed if UNSTABLE in masked.printed else record.printed
    return replace(record, unstable=masked.unstable, printed=printed)


_MAX_OWN_CALLS = 12  # calls that are compared with the program's own inputs
_MAX_VARIED_CALLS = 3  # calls, each of another form, that are compared with other inputs
_MAX_BYTES = 256 << 20  # of a call's inputs and state, beyond which it is compared with its own inputs only
_VARIANT_SECONDS = 2.0  # for one call of the unchanged program with other inputs; beyond it may never end
RECOMPILE_LIMIT = 1000  # other inputs are compiled code of their own, and none of them may run uncompiled


class CallWatch:
    """Watches the outermost compiled calls of a process. A compiled call inside another one is part of it; those that a
    fork of the process makes, as a worker that loads data, are none of its own.
    """

    def __init__(self) -> None:
        self._inside = False
        self._process = os.getpid()
        setattr(builtins, CALL_BUILTIN, self._whole)

    def __call__(self, compiled: Callable[..., Any], original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self._inside or torch.compiler.is_compiling() or os.getpid() != self._process:
            return compiled(*args, **kwargs)
        self._inside = True
        try:
            return self.call(compiled, original, args, kwargs)
        finally:
            self._inside = False

    def call(self, compiled: Callable[..., Any], original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Make the program's call, compiled or as ``original``, and watch it."""
        raise NotImplementedError

    def _whole(self, function: T) -> T:
        """A function whose calls are watched, with what is compiled in them. A method's are those of its object. A
        module is watched as it is.
        """
        if isinstance(function, torch.nn.Module):
            torch_private.observe_module(function, functools.partial(self._call_module, function))
            return function
        is_method = function.__qualname__.rpartition(".")[0].rpartition(".")[2] not in ("", "<locals>")

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            if not is_method:
                return self(function, function, args, kwargs)
            bound = types.MethodType(function, args[0])
            return self(bound, bound, args[1:], kwargs)

        return called  # type: ignore[return-value]  # it is called as the function is

    def _call_module(self, module: torch.nn.Module, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self(call, module, args, kwargs)


@dataclass(slots=True)
class _Budget:
    """The time for other inputs, shared by all calls of a trial: the processor's, so that as many inputs are tried on a
    busy machine.
    """

    seconds: float

    def measure(self, action: Callable[[], None]) -> None:
        began = time.process_time()
        action()
        self.seconds -= time.process_time() - began


class ReferenceWatch(CallWatch):
    """The unchanged program, uncompiled: makes the records that candidates are compared with."""

    def __init__(self, asked: Observation) -> None:
        super().__init__()
        self._asked = asked
        self._records: list[CallRecord] = []
        self._budget = _Budget(asked.seconds)
        self._count = 0
        self._forms: set[str] = set()
        self._inputs = OWN
        self._taken: set[tuple[str, bool]] = set()
        setattr(builtins, SIDE_BUILTIN, self._side)

    def call(self, _compiled: Callable[..., Any], original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        index, self._count = self._count, self._count + 1
        if index < _MAX_OWN_CALLS:
            self._watch(ReplayableCall(original, args, kwargs), index)
        return original(*args, **kwargs)

    def _watch(self, call: ReplayableCall, index: int) -> None:
        first = len(self._records)
        self._run(call, index, OWN)
        self._records[-1].start_state, self._records[-1].start_arguments = call.start_values()
        form = _form(call)
        if form not in self._forms and len(self._forms) < _MAX_VARIED_CALLS and bytes_of(call) < _MAX_BYTES:
            self._forms.add(form)
            for name in variant_names(call):
                if self._budget.seconds > 0:
                    self._budget.measure(lambda name=name: self._run(call, index, name))  # type: ignore[misc]
            self._search(call, index)
        mark_unstable(self._records[first:], _run_variant(call, index, OWN, call.function, self._asked))
        call.restore()

    def _search(self, call: ReplayableCall, index: int) -> None:
        """Look for inputs with which a branch takes the side that it has not taken yet."""
        wanted = {(key, side) for key in self._asked.sides for side in (True, False)}
        for name in search_names(call):
            if self._budget.seconds <= 0 or wanted <= self._taken:
                return
            before = set(self._taken)
            self._budget.measure(lambda name=name: self._run(call, index, name))  # type: ignore[misc]
            if self._taken == before and self._records[-1].inputs == name:
                self._records.pop()

    def _run(self, call: ReplayableCall, index: int, name: str) -> None:
        """Record one variant. With inputs that are not the program's own the function may never end (a loop until a
        value is small, of NaN): such inputs are left out.
        """
        self._inputs = name
        with suppress(TooLong), time_limit(None if name == OWN else _VARIANT_SECONDS):
            made = _run_variant(call, index, name, call.function, self._asked)
            self._records.append(made)
            TRIAL.send(VariantRun(index, name, made.error))
        self._inputs = OWN

    def _side(self, key: str, value: Any) -> Any:
        """The value of an instrumented condition; which side it takes is reported."""
        taken = (key, bool(value))
        if taken not in self._taken:
            self._taken.add(taken)
            TRIAL.send(SideTaken(*taken, self._inputs))
        return value

    def finish(self) -> None:
        """Write the records, and the state of the random number generators at the end of the program."""
        assert self._asked.records is not None
        RecordedCalls(tuple(self._records), random_state()).write(self._asked.records)


class CandidateWatch(CallWatch):
    """The changed program, compiled: compares its calls with the records of the unchanged one, uncompiled and compiled.
    The unchanged program, compiled, makes the latter.
    """

    def __init__(self, asked: Observation) -> None:
        super().__init__()
        assert asked.records is not None
        self._expected = RecordedCalls.read(asked.records)
        self._compiled = RecordedCalls.read(asked.compiled_records) if asked.compiled_records else None
        self._made: list[CallRecord] = []
        self._asked = asked
        self._count = self._compared = self._reported = 0
        self._gradients = False

    def call(self, compiled: Callable[..., Any], original: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        index, self._count = self._count, self._count + 1
        if index == 0 and self._asked.seeds_first_call:
            seed_generators(self._asked.seed)
        if self._asked.inputs == "not finite":  # of what is compiled a part is left out, and torch may fail
            compiled = original
        with torch_private.recompile_limit(RECOMPILE_LIMIT):  # other inputs must not take what the program's own may
            if expected := self._expected.of_call(index):
                call, own = ReplayableCall(original, args, kwargs), ReplayableCall(original, args, kwargs)
                # Small differences of rounding grow from call to call, an optimizer may multiply them at once.
                call.start_from(expected[0].start_state, expected[0].start_arguments)
                for record in filter(lambda each: self._asked.compares(each.inputs), expected):
                    made = _run_variant(call, index, record.inputs, compiled, self._asked, record.tensors)
                    if self._asked.own_records is not None:
                        made = masked_like(record, made)
                        made.spread = self._spread(call, record, original)
                        self._made.append(made)
                    self._compare(record, made)
                own.restore()
            return compiled(*args, **kwargs)

    def _spread(self, call: ReplayableCall, record: CallRecord, original: Callable[..., Any]) -> dict[str, float]:
        """How far the results of the unchanged program, uncompiled, move with the last bits of what the call gets."""
        nudged = _run_variant(call, record.call, record.inputs, original, self._asked, record.tensors, nudged=True)
        return spread_between(record, nudged)

    def _compare(self, expected: CallRecord, actual: CallRecord) -> None:
        self._compared += 1
        self._gradients |= expected.gradients is not None
        for found in self._differences(expected, actual):
            if self._reported < MAX_DIFFERENCES:
                self._reported += not found.rounding
                TRIAL.send(CallDiffers(expected.call, expected.inputs, found.what, found.text, found.rounding))

    def _differences(self, expected: CallRecord, actual: CallRecord) -> list[CallDifference]:
        """How a call differs from the unchanged program's, uncompiled. If it does all as that program does when it is
        compiled, the change is not to blame: torch may fail on other inputs, or an optimizer multiply rounding. Where
        that program draws other random numbers when it is compiled (those of NumPy are torch's then), what it does
        otherwise with inputs that are not its own tells nothing. Of a change that is like neither, the differences from
        the one that it is more like are those that it makes.
        """
        compiled = self._compiled.like(expected) if self._compiled is not None else None
        spread = compiled.spread if compiled is not None else {}
        found = [each.allowing(spread) for each in compare(expected, actual, self._asked.as_tensors)]
        if compiled is None or compiled.error != actual.error or all(each.rounding for each in found):
            return found
        left = [each.allowing(spread) for each in compare(compiled, actual, self._asked.as_tensors)]
        if all(each.rounding for each in left):
            return left
        own = {each.what for each in compare(expected, compiled, self._asked.as_tensors)}
        is_chance = "random" in own and expected.inputs != OWN
        if is_chance:
            return [each for each in found if each.what not in own]
        return min(found, left, key=lambda each: sum(not one.rounding for one in each))

    def finish(self) -> None:
        """Report how much was compared, calls that were not made, and whether the program would draw other random
        numbers now: what is around a call may draw them, or set the generators back.
        """
        random = random_state()
        if random not in (self._expected.random, self._compiled.random if self._compiled is not None else None):
            text = "behind it the program draws other random numbers"
            TRIAL.send(CallDiffers(max(self._count - 1, 0), OWN, "random", text))
        if missing := self._expected.calls_from(self._count):
            TRIAL.send(
                CallDiffers(min(missing), OWN, "results", f"it makes only {count(self._count, 'compiled call')}")
            )
        if self._asked.own_records is not None:
            RecordedCalls(tuple(self._made), random).write(self._asked.own_records)
        spread = max((by for record in self._made for by in record.spread.values()), default=0.0)
        TRIAL.send(CallsCompared(self._count, self._compared, self._gradients, spread))


def _form(call: ReplayableCall) -> str:
    """The form of a call: the structure of its arguments, and their types, shapes and dtypes."""
    leaves, spec = pytree.tree_flatten((call.args, call.kwargs))
    return str(spec) + "; ".join(_leaf_form(leaf) for leaf in leaves)


def _leaf_form(leaf: Any) -> str:
    if isinstance(leaf, torch.Tensor):
        return f"{leaf.dtype} {tuple(leaf.shape)} {leaf.requires_grad}"
    return type(leaf).__name__


def _run_variant(
    call: ReplayableCall,
    index: int,
    name: str,
    function: Callable[..., Any],
    asked: Observation,
    tensors: Collection[int] | None = None,
    *,
    nudged: bool = False,
) -> CallRecord:
    """Run one variant of a call from the call's state, and restore that state. ``tensors`` and ``nudged`` are those of
    `variant`.
    """

    after = StateAfter()

    def observed(*args: Any, **kwargs: Any) -> Any:
        nonlocal after
        result = None
        try:
            result = changed(*args, **kwargs)
        finally:
            after = StateAfter.of(call, held, result)
        return result

    with captured_output() as printed, every_warning():
        restore, held = _random_restorer(), UserGlobals(asked.roots, call)
        changed, arguments = variant(name, call, call.copies(), function, asked.as_tensors, tensors, nudged=nudged)
        try:
            ran = run_call(call, observed, arguments)
        finally:
            restore()
            held.restore()
    return record_of(call, index, name, ran, after, printed_text(printed), asked.roots)


def _random_restorer() -> Callable[[], None]:
    """A function that restores the random number generators of Python and NumPy; `run_call` restores torch's."""
    state, numpy = random.getstate(), sys.modules.get("numpy")
    numpy_state = numpy.random.get_state() if numpy is not None else None

    def restore() -> None:
        random.setstate(state)
        if numpy is not None:
            numpy.random.set_state(numpy_state)

    return restore
