from __future__ import annotations

import ast
from string import Template
from typing import Any

import pytest
import torch

from dynadiag.minify.candidate_trials import CompileSettings
from dynadiag.minify.repro_header import add_header_line
from dynadiag.minify.repro_text import ReproSpec, call_sites, header
from dynadiag.minify.torch_settings import TorchSetting
from dynadiag.trial.signature import Signature
from tests.watching import autocast_watcher

WRONG = Signature("wrong_result", "wrong_result", "GraphModule: output 0 differs in 1 of 2 elements")
PLAIN = CompileSettings(())


def shown(signature: Signature, **changed: Any) -> ReproSpec:
    values: dict[str, Any] = {
        "rung": "inductor",
        "backend": '"inductor"',
        "signature": signature,
        "inputs": (torch.ones(2),),
        "returns_one": True,
        "draws_random": False,
        "mutates_inputs": False,
        "backward": False,
    }
    return ReproSpec(**(values | changed))


def filled(call: str) -> str:
    text = Template(call).substitute(function="f", arguments="x")
    ast.parse(text)
    return text


def ran(call: str, compiled: Any, eager: Any, *inputs: Any) -> None:
    """Runs a call site with a function in the place of the compiled one."""

    class Torch:
        def __getattr__(self, name: str) -> Any:
            return (lambda f, **_: compiled) if name == "compile" else getattr(torch, name)

    text = Template(call).substitute(function="f", arguments=", ".join(f"x{i}" for i in range(len(inputs))))
    space = {"torch": Torch(), "f": eager, "copy": __import__("copy")}
    exec(text, {**space, **{f"x{i}": value for i, value in enumerate(inputs)}})


def test_no_folder_of_this_machine_gets_into_the_header() -> None:
    failed = Signature("exception", "OSError", "no such file: /home/somebody/data/x.bin\nmore", "torch/a.py:3 in f")
    text = header(shown(failed), ["from train.py:3: y = x.relu()"])
    assert "/home" not in text
    assert all(line.startswith("#") for line in text.splitlines())
    assert "from train.py:3: y = x.relu()" in text


def test_the_header_has_the_first_error_of_a_compiler() -> None:
    raised = "CppCompileError: C++ compile error\n\nCommand:\ng++ a.cpp\n\nOutput:\na.cpp:1:2: error: no 'x' here\n"
    text = header(shown(Signature("exception", "torch._inductor.exc.InductorError", raised, None)), [])
    assert "# CppCompileError: error: no 'x' here\n" in text


def test_a_message_cannot_leave_the_comment() -> None:
    failed = Signature("exception", "E", "x\rimport os", None)
    assert all(line.startswith("#") for line in header(shown(failed), []).splitlines())


def test_a_remark_is_the_last_line_of_the_header() -> None:
    raised = Signature("exception", "RuntimeError", "no")
    text = header(shown(raised), [])
    program = "import torch\n\n# of the program's own\n"
    assert add_header_line(text + program, "bisected: lowering\ntanh") == f"{text}# bisected: lowering tanh\n{program}"


def test_only_arguments_that_are_needed_are_given() -> None:
    raised = Signature("exception", "RuntimeError", "no")
    assert [filled(c) for c in call_sites(shown(raised), PLAIN)] == ["torch.compile(f)(x)"]
    around = CompileSettings((), {"max_autotune": True}, dynamic=True, fullgraph=True)
    given = 'backend="aot_eager", options={"max_autotune": True}, dynamic=True, fullgraph=True'
    assert [filled(c) for c in call_sites(shown(raised, backend='"aot_eager"'), around)] == [
        f"torch.compile(f, {given})(x)"
    ]


def test_a_failure_in_the_backward_pass_is_differentiated() -> None:
    raised = Signature("exception", "RuntimeError", "no")
    assert filled(next(iter(call_sites(shown(raised, backward=True), PLAIN)))) == "torch.compile(f)(x).sum().backward()"


def test_of_a_wrong_gradient_that_shows_without_gradients_the_results_are_compared() -> None:
    """The reduction may find a wrong result where no input requires a gradient any more."""
    wrong = Signature("wrong_result", "wrong_result", "gradient of input x differs in 1 of 4 elements")
    for call in call_sites(shown(wrong, inputs=(torch.ones(2),)), PLAIN):
        assert "backward" not in call
        with pytest.raises(AssertionError):
            ran(call, torch.cos, torch.sin, torch.ones(2))


def test_a_complex_result_is_made_a_real_number_before_it_is_differentiated() -> None:
    wrong = Signature("wrong_result", "wrong_result", "gradient of input x differs in 1 of 4 elements")
    x = torch.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    for call in call_sites(shown(wrong, inputs=(x,), summed="abs().sum()", backward=True), PLAIN):
        ran(call, torch.square, torch.square, x)
        with pytest.raises(AssertionError):
            ran(call, lambda x: x.square() * 2, torch.square, x)


@pytest.mark.parametrize("changed", [{}, {"mutates_inputs": True}, {"draws_random": True}])
def test_each_comparison_catches_a_wrong_result_and_passes_a_right_one(changed: dict[str, Any]) -> None:
    for call in call_sites(shown(WRONG, **changed), PLAIN):
        ran(call, torch.sin, torch.sin, torch.ones(2))
        with pytest.raises(AssertionError):
            ran(call, torch.cos, torch.sin, torch.ones(2))


def test_a_view_is_still_one_for_the_compiled_function() -> None:
    """A failure with views may be another one, or none, with copies in the same memory."""
    base = torch.arange(4.0)
    row = base[1:]
    *_, call = call_sites(shown(WRONG, inputs=(base, row), mutates_inputs=True), PLAIN)
    right = lambda x, y: x.add_(1) + y[0]  # noqa: E731
    ran(call, right, right, base, row)
    with pytest.raises(AssertionError):
        ran(call, lambda x, y: right(x, y) + (y._base is x), right, base, row)


def test_rounding_is_no_wrong_result_for_the_oracle() -> None:
    x = torch.full((8,), 0.1, dtype=torch.float16)
    call = next(iter(call_sites(shown(WRONG, inputs=(x,)), PLAIN)))
    ran(call, lambda t: (t.float() * 3).to(t.dtype), lambda t: t + t + t, x)


def test_numbers_are_compared_as_they_are() -> None:
    for changed in ({}, {"draws_random": True}):
        for call in call_sites(shown(WRONG, inputs=(torch.ones(2), 3), **changed), PLAIN):
            ran(call, torch.mul, torch.mul, torch.ones(2), 3)
            with pytest.raises(AssertionError):
                ran(call, torch.add, torch.mul, torch.ones(2), 3)


def test_a_call_with_other_sizes_comes_before() -> None:
    around = CompileSettings((), dynamic=True, previous_call=True)
    for call in call_sites(shown(WRONG, previous_arguments="torch.ones(3)"), around):
        first, second, *_ = filled(call).splitlines()
        assert first == "compiled = torch.compile(f, dynamic=True)"
        assert second.startswith("compiled(torch.ones(3))")
        met: list[int] = []

        def noted(x: torch.Tensor, met: list[int] = met) -> torch.Tensor:
            met.append(len(x))
            return torch.sin(x)

        ran(call, noted, torch.sin, torch.ones(2))
        assert met == [3, 2]


def test_a_wrong_gradient_is_caught() -> None:
    wrong = Signature("wrong_result", "wrong_result", "GraphModule: gradient of input 0 differs in 1 of 2 elements")
    x = torch.ones(2, requires_grad=True)
    for call in call_sites(shown(wrong, inputs=(x,)), PLAIN):
        ran(call, torch.sin, torch.sin, x)
        with pytest.raises(AssertionError):
            ran(call, lambda t: torch.sin(t.detach()) + 0 * t, torch.sin, x)


@pytest.mark.parametrize(
    ("difference", "compiled"),
    [
        ("output 0 and x share memory; uncompiled they do not", lambda x: x.t()),
        ("output 1 and output 0 share memory; uncompiled they do not", lambda x: x.t()),
        ("output 0: strides (1, 2) instead of (2, 1)", lambda x: (x + 0).t().contiguous().t()),
        ("output 0: requires_grad False instead of True", lambda x: (x + 0).detach()),
    ],
)
@pytest.mark.parametrize("single", [True, False])
def test_what_no_comparison_of_values_sees_is_caught(difference: str, compiled: Any, single: bool) -> None:
    wrong = Signature("wrong_result", "wrong_result", f"GraphModule: {difference}")
    x = torch.ones(2, 2, requires_grad=True)
    one, other = (lambda x: x + 0, compiled) if single else (lambda x: (x + 0,), lambda x: (compiled(x),))
    for mutates in (False, True):
        calls = list(call_sites(shown(wrong, inputs=(x,), returns_one=single, mutates_inputs=mutates), PLAIN))
        assert len(calls) == 1 + (single and not mutates)  # the simplest comes first
        for call in calls:
            assert ("deepcopy" in call) == mutates
            ran(call, one, one, x)
            with pytest.raises(AssertionError):
                ran(call, other, one, x)


def test_a_gradient_that_is_wrong_only_where_they_differ_is_caught() -> None:
    """The gradient of a sum is the same for every value, and may hide the difference."""
    wrong = Signature("wrong_result", "wrong_result", "GraphModule: gradient of input 0 differs in 1 of 1 elements")
    x = torch.ones(1, requires_grad=True)

    class Coarse(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, t: torch.Tensor) -> torch.Tensor:
            return t.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad.bfloat16().float()

    caught = 0
    for call in call_sites(shown(wrong, inputs=(x,)), PLAIN):
        ran(call, torch.clone, torch.clone, x)
        try:
            ran(call, Coarse.apply, torch.clone, x)
        except AssertionError:
            caught += 1
    assert caught


def test_what_is_differentiated_is_outside_autocast() -> None:
    wrong = Signature("wrong_result", "wrong_result", "GraphModule: gradient of input 0 differs in 1 of 1 elements")
    line = 'torch.set_autocast_dtype("cpu", torch.bfloat16)\ntorch.set_autocast_enabled("cpu", True)'
    around = CompileSettings((TorchSetting(line, lambda _: line, lambda: None),))
    x = torch.ones(1, requires_grad=True)
    watched, seen = autocast_watcher()
    call = next(iter(call_sites(shown(wrong, inputs=(x,)), around)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ran(call, watched, watched, x)
    assert set(seen) == {(True, False)}


def test_a_result_where_uncompiled_raises_is_caught() -> None:
    text = "GraphModule: uncompiled raises ValueError, compiled does not: no"
    wrong = Signature("wrong_result", "wrong_result", text)

    def raises(_: Any) -> None:
        raise ValueError("no")

    (call,) = call_sites(shown(wrong), PLAIN)
    ran(call, raises, raises, torch.ones(1))
    with pytest.raises(AssertionError, match="uncompiled it raises ValueError"):
        ran(call, torch.sin, raises, torch.ones(1))


def test_the_header_says_where_the_program_passes() -> None:
    text = header(shown(WRONG, passing_rungs=("uncompiled", "eager")), [])
    assert "# the program passes uncompiled, with eager" in text


def test_options_read_as_they_would_be_written() -> None:
    call = next(
        call_sites(shown(Signature("exception", "E", "x")), CompileSettings((), {"max_autotune": True, "a.b": "c"}))
    )
    assert filled(call) == 'torch.compile(f, options={"max_autotune": True, "a.b": "c"})(x)'


@pytest.mark.parametrize("inputs", [(torch.ones(2, dtype=torch.int8),), (torch.ones(4)[:3], torch.ones(1)), ()])
def test_float64_is_asked_only_where_it_has_something_to_say(inputs: tuple[torch.Tensor, ...]) -> None:
    base = torch.ones(4)
    views = (base, base[1:])
    assert not any("double" in call for call in call_sites(shown(WRONG, inputs=views), PLAIN))
    rounds = any(value.is_floating_point() for value in inputs)
    assert any("double" in call for call in call_sites(shown(WRONG, inputs=inputs), PLAIN)) == rounds


def test_a_repro_waits_for_a_device_that_tells_of_its_errors_late() -> None:
    failed = Signature("exception", "torch.AcceleratorError", "CUDA error: device-side assert triggered\nmore", None)
    (call,) = call_sites(shown(failed), PLAIN)
    assert filled(call).splitlines()[-1] == "torch.cuda.synchronize()"
