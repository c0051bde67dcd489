"""Records a compiled call as plain data: results, gradients, changed state, random numbers, printed text.

The records of the unchanged program are written to a file, and a candidate's process compares its own with them.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from dynadiag.fixes.printed_output import UNSTABLE, difference, mask_unstable
from dynadiag.fixes.user_globals import UserGlobals, copy_of_state, lies_in
from dynadiag.fixes.variants import OWN, meets_edges
from dynadiag.trial.fp64_oracle import effective_strides, shared_memory
from dynadiag.trial.reachable_state import expand_objects, find_scalars
from dynadiag.trial.reference_run import ReplayableCall, RunResult, copy_tensors

_TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
_MAX_SPREAD = 16.0  # times the usual rounding: beyond it a branch took another side
_SPECIAL = (bool, int, float, str, bytes, complex, type(None))
_UNDEFINED = ("ZeroDivisionError", "OverflowError", "math domain error")  # errors of arithmetic on numbers
# A module's own list of names, in which a new buffer is, the mark of what is compiled, and what Lightning keeps of a
# call of `torch.compile`. The last one is a global for what `rewrites/while_compiling.py` makes a constant.
_MARKS_OF_COMPILING = re.compile(
    r"\._non_persistent_buffers_set\b|\._is_torch_compile$|\._compile_kwargs\b|\bsub_compile_time_name(_\d+)*$"
)
_RANDOM = "it draws other random numbers, or another count of them"
_RAISES = re.compile(r"\s*(?:if .*:\s*)?raise\b")
_ADDRESS = re.compile(r"0x[0-9a-f]+")


@dataclass(slots=True)
class CallRecord:
    """One run of one compiled call.

    Dicts are keyed by names that a changed program has too: ``argument 2``, ``self.norm.running_mean``. ``error`` is
    the type of an exception; it is ``deliberate`` if a line of the user's raised it, and no library. Of the rest
    ``printed`` counts then, and of a deliberate one what the call changed, and ``random``. ``tensors`` are the
    positions of the tensors among the arguments. ``form`` is the structure of what the call returned. ``unstable`` are
    the scalars that differ from run to run. ``spread`` is how far results, gradients and mutations move
    where each float that the call starts from moves by its last bit, in times the usual rounding: a sum in another
    order may move them as far. The record of the program's own inputs has the values of the tensors that
    the call starts from, ``start_state`` by name and ``start_arguments`` by position.
    """

    call: int
    inputs: str
    error: str | None = None
    deliberate: bool = False
    tensors: list[int] = field(default_factory=list)
    form: str = ""
    outputs: list[Any] = field(default_factory=list)
    arguments: dict[str, Any] = field(default_factory=dict)
    gradients: dict[str, Any] | None = None
    state: dict[str, Any] = field(default_factory=dict)
    scalars: dict[str, Any] = field(default_factory=dict)
    unstable: list[str] = field(default_factory=list)
    spread: dict[str, float] = field(default_factory=dict)
    shared: list[int | None] = field(default_factory=list)
    random: str = ""
    printed: str = ""
    start_state: dict[str, Any] = field(default_factory=dict)
    start_arguments: dict[int, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The record as a dict of tensors and plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CallDifference:
    """One difference: the obligation that it breaks, what is different, and how far values are apart, in times the
    usual rounding.
    """

    what: str
    text: str
    apart: float = math.inf

    @property
    def rounding(self) -> bool:
        """Whether it is rounding alone."""
        return self.apart <= 1

    def allowing(self, spread: Mapping[str, float]) -> CallDifference:
        """The difference beside this `CallRecord.spread`: twice as much is rounding, too."""
        return replace(self, apart=self.apart / max(1.0, 2 * spread.get(self.what, 0.0)))


@dataclass(frozen=True, slots=True)
class StateAfter:
    """The state after a call: what it returns, the tensors, numbers and texts that it can reach, and the random number
    generators. It is taken when the call returns, because `run_call` restores all of it afterwards: a tensor that is
    returned may be one of the state.
    """

    outputs: list[Any] = field(default_factory=list)
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    scalars: dict[str, Any] = field(default_factory=dict)
    random: str = ""

    @classmethod
    def of(cls, call: ReplayableCall, globals_: UserGlobals, result: Any = None) -> StateAfter:
        """The state now. ``result`` is what the call returns."""
        outputs = copy_tensors(expand_objects(pytree.tree_leaves(result)))
        tensors = {name: copy_of_state(value) for name, value in call.named_state().items()}
        tensors = {name: value for name, value in {**globals_.tensors(), **tensors}.items() if ".grad" not in name}
        held = {name: _plain(value) for name, value in globals_.scalars().items()}
        scalars = {**held, **scalars_of(call)}
        scalars = {name: value for name, value in scalars.items() if not _MARKS_OF_COMPILING.search(name)}
        return cls(outputs, tensors, scalars, random_state())


def record_of(
    call: ReplayableCall,
    index: int,
    inputs: str,
    ran: RunResult,
    after: StateAfter,
    printed: str = "",
    roots: tuple[str, ...] = (),
) -> CallRecord:
    """The record of a run. ``roots`` are what the paths of the user's modules begin with."""
    leaves = pytree.tree_leaves((call.args, call.kwargs))
    positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    names = [f"argument {i}" for i in positions]
    arguments = dict(zip(names, (_plain(value) for value in ran.inputs), strict=False))
    if (error := ran.error) is not None:
        name = "math domain error" if str(error) == "math domain error" else type(error).__name__
        record = CallRecord(index, inputs, name, _is_deliberate(error, roots), positions, printed=printed)
        changed = replace(record, arguments=arguments, state=after.tensors, scalars=after.scalars, random=after.random)
        return changed if record.deliberate else record
    return CallRecord(
        index,
        inputs,
        error=None if ran.backward_error is None else f"backward: {type(ran.backward_error).__name__}",
        tensors=positions,
        form=_ADDRESS.sub("", str(pytree.tree_structure(ran.result))),
        outputs=[_plain(value) for value in after.outputs],
        arguments=arguments,
        gradients=_gradients(call, ran, names),
        state=after.tensors,
        scalars=after.scalars,
        shared=_shared(ran),
        random=after.random,
        printed=printed,
    )


def _is_deliberate(error: Exception, roots: tuple[str, ...]) -> bool:
    """Whether a `raise` of the user's raised the exception, so that a caller may rely on its type. An `assert` has
    another type in every compiled function.
    """
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    return last is not None and lies_in(last.filename, roots) and _RAISES.match(last.line or "") is not None


def scalars_of(call: ReplayableCall) -> dict[str, Any]:
    """The numbers and texts that the call can reach now."""
    found = find_scalars(call.function, pytree.tree_leaves((call.args, call.kwargs)))
    return {name: _plain(value) for name, value in found.items()}


def _plain(value: Any) -> Any:
    """A tensor as it is, without its autograd graph; a number or a text; the type of anything else."""
    if isinstance(value, torch.Tensor):
        made = value.detach()
        return made.requires_grad_(value.requires_grad) if _may_require_grad(made) else made
    if isinstance(value, (torch.Size, torch.dtype, torch.device)):
        return str(value)
    if isinstance(value, _SPECIAL) and type(value) not in _SPECIAL:  # NumPy's numbers, enumerations
        return f"<{type(value).__qualname__} {value!r}>"
    return value if isinstance(value, _SPECIAL) else f"<{type(value).__qualname__}>"


def _may_require_grad(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _gradients(call: ReplayableCall, ran: RunResult, names: list[str]) -> dict[str, Any] | None:
    if ran.gradients is None:
        return None
    leaves = [name for name, value in zip(names, ran.inputs, strict=False) if value.requires_grad]
    leaves += [call.state_name(i) for i, tensor in enumerate(call.state) if tensor.requires_grad]
    return {name: value for name, value in zip(leaves, ran.gradients, strict=False) if value is not None}


def _shared(ran: RunResult) -> list[int | None]:
    """`shared_memory`, counted back from the outputs: a candidate may take more tensors than the program does."""
    return [None if position is None else position - len(ran.inputs) for position in shared_memory(ran)]


def random_state() -> str:
    """A digest of the random number generators of torch, Python and NumPy.

    A GPU's generator counts once it is used. Any compile initializes CUDA, so whether it exists tells nothing.
    """
    digest = hashlib.blake2b(torch.get_rng_state().numpy().tobytes(), digest_size=12)
    for generator in torch.cuda.default_generators:
        state = generator.initial_seed(), generator.get_offset()
        if state != (torch.initial_seed(), 0):
            digest.update(repr(state).encode())
    digest.update(repr(random.getstate()).encode())
    if "numpy" in sys.modules:
        state = sys.modules["numpy"].random.get_state()
        for part in state if isinstance(state, tuple) else (state,):  # a generator of another kind has a dictionary
            digest.update(part.tobytes() if hasattr(part, "tobytes") else repr(part).encode())
    return digest.hexdigest()


def compare(expected: CallRecord, actual: CallRecord, as_tensors: tuple[str, ...] = ()) -> Iterator[CallDifference]:
    """How a candidate's record differs from the unchanged program's. If the unchanged program raises, the candidate
    must raise too; the type may differ if no line of the user's raised it, because torch raises its own types while it
    compiles. Arithmetic that raises on numbers may have a result on tensors, if the program itself never gets there.
    """
    if expected.error or actual.error:
        yield from _compared_errors(expected, actual, as_tensors)
        return
    if expected.form != actual.form or len(expected.outputs) != len(actual.outputs):
        yield CallDifference("results", f"it returns {actual.form[:80]} instead of {expected.form[:80]}")
        return
    for position, (one, other) in enumerate(zip(expected.outputs, actual.outputs, strict=True)):
        yield from _value("results", f"output {position}", one, other)
    if expected.shared != actual.shared:
        yield CallDifference("results", "other outputs share memory with one another or with the arguments")
    yield from _mutations(expected.arguments, actual.arguments, " afterwards")
    yield from _mutations(expected.state, actual.state, " afterwards")
    yield from _scalars(expected, actual, as_tensors)
    if all(_is_finite(value) for value in expected.outputs):  # of NaN and infinity no gradient makes sense
        yield from _compared_gradients(expected.gradients, actual.gradients)
    if expected.random != actual.random:
        yield CallDifference("random", _RANDOM)
    yield from _printed(expected, actual)


def spread_between(expected: CallRecord, nudged: CallRecord) -> dict[str, float]:
    """`CallRecord.spread`, from the record of inputs that differ by their last bits.

    What moves much further took another branch, and tells nothing of rounding. But where results hold still, gradients
    that move so far are lost in rounding: then any gradient will do, unless the inputs are meant to meet an edge.
    """
    spread: dict[str, float] = {}
    for each in compare(expected, nudged):
        spread[each.what] = max(each.apart, spread.get(each.what, 0.0))
    steady = spread.get("results", 0.0) <= _MAX_SPREAD and not meets_edges(expected.inputs)
    lost = {"gradients"} if steady else set()
    return {what: by for what, by in spread.items() if by <= _MAX_SPREAD or (what in lost and math.isfinite(by))}


def mark_unstable(records: Sequence[CallRecord], again: CallRecord) -> None:
    """Mark what differs from run to run of the unchanged program, such as times: ``again`` is a second run of the first
    of these records of one call.
    """
    first = records[0]
    unstable = [name for name, value in first.scalars.items() if not _same_number(value, again.scalars.get(name))]
    first.printed = mask_unstable(first.printed, again.printed)
    for record in records:
        record.unstable = unstable
        if UNSTABLE in first.printed and record is not first:
            record.printed = UNSTABLE


def _compared_errors(expected: CallRecord, actual: CallRecord, as_tensors: tuple[str, ...]) -> Iterator[CallDifference]:
    undefined = expected.error in _UNDEFINED and expected.inputs != OWN
    alike = expected.error == actual.error if expected.deliberate else bool(expected.error and actual.error)
    if not alike and not undefined:
        yield CallDifference("error", _errors(expected.error, actual.error))
    elif expected.deliberate:
        yield from _mutations(expected.arguments, actual.arguments, " after the exception")
        yield from _mutations(expected.state, actual.state, " after the exception")
        yield from _scalars(expected, actual, as_tensors)
        if expected.random != actual.random:
            yield CallDifference("random", _RANDOM)
        yield from _printed(expected, actual)


def _printed(expected: CallRecord, actual: CallRecord) -> Iterator[CallDifference]:
    if difference(expected.printed, actual.printed) is not None:
        text = f"it prints {actual.printed[:80]!r} instead of {expected.printed[:80]!r}"
        yield CallDifference("printed", text.replace(UNSTABLE, "..."))


def _errors(expected: str | None, actual: str | None) -> str:
    if expected is None:
        return f"it raises {actual}, and the unchanged program does not"
    return f"the unchanged program raises {expected}, and it {f'raises {actual}' if actual else 'does not'}"


def _mutations(expected: Mapping[str, Any], actual: Mapping[str, Any], when: str) -> Iterator[CallDifference]:
    for name, value in expected.items():
        if name in actual:
            yield from _value("mutations", name + when, value, actual[name])
        else:
            yield CallDifference("mutations", f"{name} is not there{when}")


def _scalars(expected: CallRecord, actual: CallRecord, as_tensors: tuple[str, ...]) -> Iterator[CallDifference]:
    """Numbers and texts in objects. One that the candidate keeps in a tensor has to be named by the rewrite."""
    for name, value in expected.scalars.items():
        kept = name.rpartition(".")[2] in as_tensors and name in actual.state
        now = actual.state[name].item() if kept else actual.scalars.get(name, _MISSING)
        if now is _MISSING:
            found = "a tensor" if name in actual.state else "not there"
            yield CallDifference("mutations", f"{name} is {found} instead of {value!r:.60}")
        elif not _same_number(value, now) and not (name in expected.unstable and type(value) is type(now)):
            yield CallDifference("mutations", f"{name} is {now!r:.60} instead of {value!r:.60}")
    for name in actual.scalars.keys() - expected.scalars.keys():
        yield CallDifference("mutations", f"{name} is new")


_MISSING = object()


def _same_number(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-6)
    return type(one) is type(other) and one == other


def _compared_gradients(expected: Any, actual: Any) -> Iterator[CallDifference]:
    """A gradient that is missing counts as zeros. Rounding is relative to the largest of all gradients: where terms
    cancel out on the way back, what is left of them is rounding.
    """
    if (expected is None) != (actual is None):
        yield CallDifference("gradients", "it can be differentiated" if expected is None else "it has no gradients")
        return
    scale = max(map(_scale, (expected or {}).values()), default=0.0)
    for name in (expected or {}).keys() | (actual or {}).keys():
        one, other = (expected or {}).get(name), (actual or {}).get(name)
        like = one if one is not None else other
        one, other = (torch.zeros_like(like) if value is None else value for value in (one, other))
        yield from _value("gradients", f"the gradient of {name}", one, other, scale)


def _value(what: str, name: str, expected: Any, actual: Any, scale: float = 0.0) -> Iterator[CallDifference]:
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        if isinstance(expected, torch.Tensor) or isinstance(actual, torch.Tensor):
            yield CallDifference(what, f"{name} is {_kind(actual)} instead of {_kind(expected)}")
        elif not _same_number(expected, actual):
            yield CallDifference(what, f"{name} is {actual!r:.60} instead of {expected!r:.60}")
        return
    if text := _metadata(expected, actual):
        yield CallDifference(what, f"{name}: {text}")
    elif not _equal(expected, actual):
        yield CallDifference(what, f"{name}: {_worst(expected, actual)}", _apart(expected, actual, scale))


def _is_finite(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or bool(_dense(value).isfinite().all())


def _kind(value: Any) -> str:
    return "a tensor" if isinstance(value, torch.Tensor) else f"a Python {type(value).__name__}"


def _metadata(expected: torch.Tensor, actual: torch.Tensor) -> str | None:
    for name in ("dtype", "shape", "device", "requires_grad", "layout"):
        one, other = getattr(expected, name), getattr(actual, name)
        if one != other:
            return f"{name} {other} instead of {one}"
    if (
        expected.layout is torch.strided
        and expected.numel() > 1
        and effective_strides(expected) != effective_strides(actual)
    ):
        return f"strides {actual.stride()} instead of {expected.stride()}"
    return None


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def _equal(expected: torch.Tensor, actual: torch.Tensor) -> bool:
    one, other = _dense(expected), _dense(actual)
    if torch.equal(one, other):
        return True
    return _may_require_grad(one) and bool(torch.isclose(one, other, 0.0, 0.0, equal_nan=True).all())


def _apart(expected: torch.Tensor, actual: torch.Tensor, scale: float) -> float:
    """How far two tensors that are not equal are apart, in times the usual rounding: a few units in the last place of
    their largest values, or of ``scale``.
    """
    one, other = _dense(expected), _dense(actual)
    allowed = _TOLERANCE.get(one.dtype, 0.0) * max(_scale(one), scale) / 4
    if not allowed:
        return math.inf
    wide = torch.complex128 if one.is_complex() else torch.float64
    one, other = one.to(wide), other.to(wide)
    apart = ((one - other).abs() - _TOLERANCE[expected.dtype] * one.abs()) / allowed
    same = torch.isclose(one, other, 0.0, 0.0, equal_nan=True)  # of infinities no difference makes sense
    return float(apart.masked_fill(same, 0.0).nan_to_num(math.inf).max())


def _scale(value: torch.Tensor) -> float:
    """The largest finite magnitude in a tensor."""
    dense = _dense(value)
    finite = dense[dense.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _worst(expected: torch.Tensor, actual: torch.Tensor) -> str:
    one, other = (_dense(value).to(torch.float64) for value in (expected, actual))
    apart = ~torch.isclose(one, other, 0.0, 0.0, equal_nan=True)
    new_nan = int((other.isnan() & ~one.isnan()).sum())
    if new_nan:
        return f"NaN in {new_nan} of {one.numel()} elements"
    error = float((one - other).abs()[apart].nan_to_num(float("inf")).max()) if bool(apart.any()) else 0.0
    return f"{int(apart.sum())} of {one.numel()} elements differ, by up to {error:.3g}"
