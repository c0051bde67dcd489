"""Builds the header of a repro, and the calls that show the failure."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dynadiag.minify.candidate_trials import CompileSettings
from dynadiag.minify.repro_header import comment, without_tolerance
from dynadiag.recording.torch_text.failures import unwrapped_error
from dynadiag.trial.signature import Signature

_KINDS = {"wrong_result": "wrong result", "nan": "NaN or infinity where uncompiled is finite", "signal": "crash"}


@dataclass(frozen=True, slots=True)
class ReproSpec:
    """What a repro has to show, and what kind of call shows it."""

    rung: str
    backend: str  # as source
    signature: Signature
    inputs: tuple[Any, ...]
    returns_one: bool  # the function returns one value, not a tuple
    draws_random: bool  # the function draws random numbers
    mutates_inputs: bool  # the function changes its inputs
    backward: bool
    has_nan: bool = False  # a result of the function has a NaN
    passing_rungs: tuple[str, ...] = ()  # the rungs at which the program does not fail
    message: str = ""  # of the failure: the program may crash while the repro is only wrong
    previous_arguments: str = ""  # the arguments, as source, of a previous call
    summed: str = "sum()"  # the call that makes one real number of a result, which can be differentiated


def header(shown: ReproSpec, lines: Sequence[str]) -> str:
    """The comment at the top of a repro. It has no paths of this machine. ``lines`` are added at its end."""
    signature = shown.signature
    where = f", in {signature.where}" if signature.where else ""
    whole = (shown.message or signature.message).removeprefix("GraphModule: ")
    error, message = (
        unwrapped_error(signature.type, whole) if signature.kind == "exception" else ("in the program", whole)
    )
    device = next((str(v.device.type) for v in shown.inputs if isinstance(v, torch.Tensor)), "cpu")
    passing = [rung if rung == "uncompiled" else f"with {rung}" for rung in shown.passing_rungs]
    text = [
        f"{_KINDS.get(signature.kind, signature.kind)} with backend {shown.rung}{where}",
        without_tolerance(f"{error}: {_first_informative_line(message)}"),
        f"torch {torch.__version__}, Python {platform.python_version()}, {device}",
        *([f"the program passes {', '.join(passing)}"] if passing else []),
        *lines,
    ]
    return "".join(map(comment, text))


def _first_informative_line(message: str) -> str:
    """The first line that is not empty; with the next line, if it ends with a colon."""
    lines = [line.strip() for line in message.splitlines() if line.strip()] or [""]
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


def compile_call(shown: ReproSpec, around: CompileSettings) -> str:
    """The ``torch.compile`` expression, without default arguments."""
    words = ["$function"]
    if shown.backend != '"inductor"':
        words.append(f"backend={shown.backend}")
    if around.options:
        words.append(f"options={{{', '.join(f'{_quoted(k)}: {_quoted(v)}' for k, v in around.options.items())}}}")
    if around.dynamic is not None:
        words.append(f"dynamic={around.dynamic}")
    if around.fullgraph:
        words.append("fullgraph=True")
    return f"torch.compile({', '.join(words)})"


def _quoted(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


def call_sites(shown: ReproSpec, around: CompileSettings) -> Iterator[str]:
    """Call sites that may show the failure, the simplest first. Trials find out which of them do."""
    call = compile_call(shown, around)
    if not shown.previous_arguments:
        yield from _failing_calls(shown, around, call)
        return
    previous = f"compiled({shown.previous_arguments})  # the next call has other inputs and uses the same code"
    before = f"compiled = {call}\n{previous}"
    yield from (f"{before}\n{text}" for text in _failing_calls(shown, around, "compiled"))


def _failing_calls(shown: ReproSpec, around: CompileSettings, call: str) -> Iterator[str]:
    if not shown.signature.is_wrong_result:
        text = _call_with_backward(shown, call) if shown.backward else f"{call}($arguments)"
        yield f"{text}\ntorch.cuda.synchronize()" if shown.signature.device_error else text
    elif "uncompiled raises" in shown.signature.message:
        yield _assert_raises(shown, call)
    elif "share memory" in shown.signature.message:
        yield from _assert_memory(shown, call)
        yield _compare_property(_MEMORY_FUNCTION, "memory", shown, call)
    elif form := _form_that_differs(shown):
        if shown.returns_one and not shown.mutates_inputs:
            yield _assert_equal(f"$function($arguments).{form}", f"{call}($arguments).{form}")
        yield _compare_property(_FORM_FUNCTION, "form", shown, call)
    elif "gradient" in shown.signature.message and any(map(_requires_grad, shown.inputs)):  # else a result is wrong too
        yield from _compare_gradients(shown, call, around)
    else:
        yield from _compare_outputs(shown, call)


def _call_with_backward(shown: ReproSpec, call: str) -> str:
    if shown.returns_one:
        return f"{call}($arguments).{shown.summed}.backward()"
    summed = f"[out.{shown.summed} for out in outputs if out.requires_grad]"
    return f"outputs = {call}($arguments)\ntorch.autograd.backward({summed})"


def _assert_raises(shown: ReproSpec, call: str) -> str:
    found = re.search(r"uncompiled raises (\w+)", shown.signature.message)
    kind = found.group(1) if found else "Exception"
    return (
        f"try:\n    result = {call}($arguments)\n"
        f'except {kind} as error:\n    print("raises, as it does uncompiled:", error)\n'
        f'else:\n    raise AssertionError(f"uncompiled it raises {kind}, compiled it returns {{result}}")'
    )


def _compare_outputs(shown: ReproSpec, call: str) -> Iterator[str]:
    if not (shown.mutates_inputs or shown.draws_random):
        for loose in _tolerances(shown):
            yield _assert_close(f"{call}($arguments)", "$function($arguments)", shown, loose=loose)
            if loose and shown.returns_one:
                yield _compare_with_float64(shown, call)
    changed = (
        "*inputs" if all(isinstance(v, torch.Tensor) for v in shown.inputs) else "*filter(torch.is_tensor, inputs)"
    )
    last = f"    return [{'' if shown.returns_one else '*'}function(*inputs), {changed}]"
    yield from _compare_runs(shown, call, last)
    if _share_storage(shown.inputs) and not shown.draws_random:
        yield _compare_without_copies(shown, call)


def _tolerances(shown: ReproSpec) -> tuple[bool, ...]:
    """Whether to compare with a loose tolerance: first, and then not. Exact values have no tolerance.

    What is wrong by more than that needs no float64 to show that it is not rounding.
    """
    exact = _share_storage(shown.inputs) or not any(_is_inexact(v) for v in shown.inputs)
    return (False,) if exact else (True, False)


def _assert_close(actual: str, expected: str, shown: ReproSpec, *, loose: bool) -> str:
    words = [actual, expected, *(["rtol=0.01, atol=0.01"] * loose), *(["equal_nan=True"] * shown.has_nan)]
    return f"torch.testing.assert_close({', '.join(words)})"


def _compare_without_copies(shown: ReproSpec, call: str) -> str:
    """A call with the inputs themselves: copy.deepcopy keeps shared memory, but a copy of a view is not a view."""
    star = "" if shown.returns_one else "*"
    return (
        "copies = copy.deepcopy([$arguments])\n"
        f"actual = [{star}{call}($arguments), $arguments]\n"
        f"expected = [{star}$function(*copies), *copies]\n"
        f"{_assert_close('actual', 'expected', shown, loose=False)}"
    )


def _compare_gradients(shown: ReproSpec, call: str, around: CompileSettings) -> Iterator[str]:
    """Compare gradients: of a sum, then of a weighted sum, because equal gradients may hide the failure."""
    for weight in ("", " * torch.linspace(0.7, 1.3, out.numel()).view_as(out)"):
        one = f"(out{weight}).{shown.summed}" if weight else f"out.{shown.summed}"
        if shown.returns_one:
            lines = ["out = function(*inputs)", f"{one}.backward()"]
        else:
            summed = f"[{one} for out in outputs if out.requires_grad]"
            lines = ["outputs = function(*inputs)", f"torch.autograd.backward({summed})"]
        for device in _autocast_devices(around):
            lines[1:] = [f'with torch.autocast("{device}", enabled=False):', *(f"    {line}" for line in lines[1:])]
        lines.append("return [t.grad for t in inputs if t.requires_grad]")
        yield from _compare_runs(shown, call, "\n".join(f"    {line}" for line in lines))


def _autocast_devices(around: CompileSettings) -> list[str]:
    names = " ".join(setting.name for setting in around.settings)
    return [device for device in ("cpu", "cuda") if f'set_autocast_enabled("{device}"' in names]


def _compare_runs(shown: ReproSpec, call: str, last: str) -> Iterator[str]:
    for loose in _tolerances(shown):
        yield _run_function(shown, last) + _assert_close(f"run({call})", "run($function)", shown, loose=loose)
        if loose:
            runs = _WIDEN_FUNCTION + _run_function(shown, last, ", wide=False")
            yield runs + _FLOAT64_COMPARISON.replace("@", call)


def _compare_property(helper: str, name: str, shown: ReproSpec, call: str) -> str:
    text = helper.replace("[*inputs, *@]", "[*inputs, @]" if shown.returns_one else "[*inputs, *@]")
    text = text.replace("in @", "in [@]" if shown.returns_one else "in @").replace("@", "function(*inputs)")
    if not shown.mutates_inputs:
        text = text.replace("copy.deepcopy([$arguments])", "[$arguments]")
    if not shown.mutates_inputs and name == "form":
        text = text.replace("    inputs = [$arguments]\n", "").replace("*inputs", "$arguments")
    return text + _assert_equal(f"{name}($function)", f"{name}({call})")


def _assert_equal(expected: str, actual: str) -> str:
    return f'expected, actual = {expected}, {actual}\nassert actual == expected, f"{{actual}} instead of {{expected}}"'


def _assert_memory(shown: ReproSpec, call: str) -> Iterator[str]:
    """Assert whether the output and the only input of a call share memory."""
    if shown.returns_one and len(shown.inputs) == 1 and not shown.mutates_inputs:
        apart = "do not share memory" in shown.signature.message
        yield (
            f"output = {call}($arguments)\n"
            f"assert output.untyped_storage().data_ptr() {'==' if apart else '!='} "
            "$arguments.untyped_storage().data_ptr(), "
            f'"the output {"does not share" if apart else "shares"} the memory of the input"'
        )


# Differences that a comparison of values does not show. The list keeps all tensors alive, so no memory is reused.
_MEMORY_FUNCTION = """

def memory(function):
    inputs = copy.deepcopy([$arguments])
    tensors = [t for t in [*inputs, *@] if isinstance(t, torch.Tensor)]
    places = [t.untyped_storage().data_ptr() for t in tensors]
    return [places.index(place) for place in places]


"""
_FORM_FUNCTION = """

def form(function):
    inputs = copy.deepcopy([$arguments])
    return [(t.dtype, t.shape, t.stride(), t.requires_grad) for t in @ if isinstance(t, torch.Tensor)]


"""
_FORM_DIFFERS = re.compile(r"output \d+: (strides|requires_grad|dtype|shape) ")


def _form_that_differs(shown: ReproSpec) -> str:
    """What of the form of an output to compare, as an expression: values do not show the difference, or are random."""
    found = _FORM_DIFFERS.search(shown.signature.message)
    if found is None or not (shown.draws_random or found[1] in ("strides", "requires_grad")):
        return ""
    return found[1].replace("strides", "stride()")


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _is_inexact(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _share_storage(inputs: Sequence[Any]) -> bool:
    """Whether inputs share a storage. A float64 reference would separate them."""
    dense = [v for v in inputs if isinstance(v, torch.Tensor) and v.layout is torch.strided]
    return len({v.untyped_storage()._cdata for v in dense}) < len(dense)


def _compare_with_float64(shown: ReproSpec, call: str) -> str:
    return (
        f"expected, actual = $function($arguments), {call}($arguments)\n"
        f"truth = $function({_float64_arguments(shown)})\n"
        "allowed = 1e-5 + 10 * (expected - truth).abs()\n"
        "assert ((actual - truth).abs() <= allowed).all(), "
        'f"compiled: {actual}, eager: {expected}, in float64: {truth}"'
    )


def _run_function(shown: ReproSpec, last: str, wide: str = "") -> str:
    """Source of a function ``run(function)`` that calls it on copies of the inputs; ``last`` are its last lines.

    ``wide`` is the source of a further parameter that selects float64 inputs.
    """
    seed = "    torch.manual_seed(0)\n" if shown.draws_random else ""
    widening = "    if wide:\n        inputs = [widened(t) for t in inputs]\n" if wide else ""
    return f"\n\ndef run(function{wide}):\n{seed}    inputs = copy.deepcopy([$arguments])\n{widening}{last}\n\n\n"


_WIDEN_FUNCTION = """

def widened(t):
    floating = torch.is_tensor(t) and t.is_floating_point()
    return t.detach().double().requires_grad_(t.requires_grad) if floating else t
"""
_FLOAT64_COMPARISON = """for expected, actual, truth in zip(run($function), run(@), run($function, wide=True)):
    allowed = 1e-5 + 10 * (expected - truth).abs()
    assert ((actual - truth).abs() <= allowed).all(), f"compiled: {actual}, eager: {expected}, in float64: {truth}\""""


def _float64_arguments(shown: ReproSpec) -> str:
    """The arguments as source, with floating-point tensors converted to float64."""
    if not shown.inputs:
        return ""
    tensors = all(isinstance(v, torch.Tensor) for v in shown.inputs)
    floating = tensors and all(v.is_floating_point() for v in shown.inputs)
    if len(shown.inputs) == 1 and floating:
        return "$arguments.double()"
    which = "t.is_floating_point()" if tensors else "torch.is_tensor(t) and t.is_floating_point()"
    each = "t.double()" if floating else f"t.double() if {which} else t"
    return f"*[{each} for t in ({'$arguments' if len(shown.inputs) > 1 else '$arguments,'})]"
