"""Guards on modes, settings and the backend: each raised by a real program, and told as what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

import dynadiag
from dynadiag.explanation.advice_on_recompiles import advise_on
from dynadiag.explanation.explanation import Explanation, explain
from dynadiag.explanation.findings import Finding
from dynadiag.explanation.process_state import backend_change
from dynadiag.explanation.recompile_case import cases_of
from dynadiag.recording.torch_text.guards import read_failure
from dynadiag.render.report import explanation_text
from tests.explanation.build import a_failure, a_recompile

Function = Callable[[torch.Tensor], torch.Tensor]


class Mode(TorchFunctionMode):
    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return fn(*args, **(kwargs or {}))


class CountingMode(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return fn(*args, **(kwargs or {}))


def in_inference_mode(f: Function, x: torch.Tensor) -> None:
    with torch.inference_mode():
        f(x)


def of_an_inference_tensor(f: Function, x: torch.Tensor) -> None:
    with torch.inference_mode():
        x = torch.ones(4)
    f(x)


def after_inference_mode(f: Function, x: torch.Tensor) -> None:
    torch._dynamo.reset()
    in_inference_mode(f, x)
    without_gradients(f, x)


def after_an_inference_tensor(f: Function, x: torch.Tensor) -> None:
    torch._dynamo.reset()
    with torch.no_grad():
        of_an_inference_tensor(f, x)
        f(x)


def without_gradients(f: Function, x: torch.Tensor) -> None:
    with torch.no_grad():
        f(x)


def under_autocast(f: Function, x: torch.Tensor) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        f(x)


def under_two_autocasts(f: Function, x: torch.Tensor) -> None:
    torch._dynamo.reset()
    under_autocast(f, x)
    with torch.autocast("cpu", dtype=torch.float16):
        f(x)


def in_a_function_mode(f: Function, x: torch.Tensor) -> None:
    with Mode():
        f(x)


def in_a_device_context(f: Function, x: torch.Tensor) -> None:
    with torch.device("cpu"):
        f(x)


def with_a_default_device(f: Function, x: torch.Tensor) -> None:
    torch.set_default_device("meta")
    f(x)


def with_a_default_dtype(f: Function, x: torch.Tensor) -> None:
    torch.set_default_dtype(torch.float64)
    f(x)


def deterministic(f: Function, x: torch.Tensor) -> None:
    torch.use_deterministic_algorithms(True)
    f(x)


def with_other_threads(f: Function, x: torch.Tensor) -> None:
    torch.set_num_threads(torch.get_num_threads() + 1)
    f(x)


def with_tf32(f: Function, x: torch.Tensor) -> None:
    torch.set_float32_matmul_precision("high")
    f(x)


def without_torch_function(f: Function, x: torch.Tensor) -> None:
    with torch._C.DisableTorchFunction():
        f(x)


def under_vmap(f: Function, x: torch.Tensor) -> None:
    torch.vmap(f)(torch.ones(2, 4))


def after_a_function_mode(f: Function, x: torch.Tensor) -> None:
    torch._dynamo.reset()
    with CountingMode():
        f(x)
    f(x)


def of_a_negated_view(f: Function, x: torch.Tensor) -> None:
    f(torch._neg_view(x))


def by_another_backend(f: Function, x: torch.Tensor) -> None:
    torch.compile(double, backend="aot_eager")(x)


def double(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
NAMES_BACKENDS, HAS_PRECISIONS = VERSION >= (2, 12), VERSION >= (2, 15)

# The second call -> what the title, the evidence and the advice say.
CALLS: dict[Callable[[Function, torch.Tensor], None], tuple[str, str, str]] = {
    in_inference_mode: ("inference mode changed", "inference mode was off, now on", "torch.inference_mode"),
    of_an_inference_tensor: (
        "x is an inference tensor now",
        "-AutogradCPU",
        "`x` was made under `torch.inference_mode`",
    ),
    after_inference_mode: ("x was an inference tensor or in inference mode before", "+AutogradCPU", "made, or passed,"),
    after_an_inference_tensor: ("x was an inference tensor or in", "+AutogradCPU", "`x` was made, or passed, under"),
    without_gradients: ("grad mode changed", "grad mode was on, now off", "gradients on and off"),
    under_autocast: ("autocast on cpu changed", "autocast on cpu was off, now on", "inside and outside autocast"),
    under_two_autocasts: ("autocast's dtype on cpu", "was torch.bfloat16, now torch.float16", "different dtypes"),
    in_a_function_mode: ("torch function modes changed", "was none, now Mode", "torch function mode"),
    after_a_function_mode: ("torch function modes changed", "was CountingMode, now none", "torch function mode"),
    in_a_device_context: ("torch function modes changed", "now DeviceContext(cpu)", "with torch.device"),
    with_a_default_device: ("the default device changed", "was None, now meta", "set_default_device"),
    with_a_default_dtype: ("the default dtype changed", "was torch.float32, now torch.float64", "set it at the start"),
    deterministic: ("deterministic algorithms changed", "was off, now on", "use_deterministic_algorithms"),
    with_other_threads: ("the number of threads changed", ", now ", "set_num_threads"),
    with_tf32: (
        "the precision of float32 matrix products changed" if HAS_PRECISIONS else "TF32 in matrix products changed",
        ", now TF32" if HAS_PRECISIONS else "was off, now on",
        "set_float32_matmul_precision",
    ),
    without_torch_function: ("`__torch_function__` changed", "was on, now off", "`__torch_function__` on and off"),
    under_vmap: ("the `torch.func` transform around the call changed", "was none, now Vmap", "compile(torch.vmap(fn))"),
    of_a_negated_view: ("x is a negated view now", "+Negative", "is a negated view now"),
    by_another_backend: (
        "compiled by another torch.compile",
        "the backend was eager, now aot_eager" if NAMES_BACKENDS else "the backend was another one",
        "Another `torch.compile`",
    ),
}


@pytest.fixture(autouse=True)
def state() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch._dynamo.reset()
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("highest")
    torch._dynamo.reset()


def explained(tmp_path: Path, second: Callable[[Function, torch.Tensor], None]) -> Explanation:
    function, x = torch.compile(double, backend="eager"), torch.ones(4)
    with dynadiag.record(tmp_path / "run.dynadiag"):
        function(x)
        second(function, x)
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        return explain(recording)


def recompile(explanation: Explanation) -> Finding:
    (found,) = [item for item in explanation.findings if item.rule == "recompile"]
    return found


@pytest.mark.parametrize("second", CALLS, ids=lambda call: call.__name__)
def test_the_guard_is_told_as_what_it_is(tmp_path: Path, second: Callable[[Function, torch.Tensor], None]) -> None:
    explanation = explained(tmp_path, second)
    found, (title, evidence, advice) = recompile(explanation), CALLS[second]
    assert title in found.title
    assert "more" not in found.title  # what follows from it is not told beside it
    assert any(evidence in fact.text for fact in found.evidence), found.evidence
    assert len(found.advice) == 1
    assert advice in found.advice[0].text
    text = explanation_text(explanation)
    assert "`L`" not in text
    assert "a value" not in text
    assert "Autocast" not in text or second is under_autocast  # nothing is cast that was not


def test_a_module_of_torchs_that_left_inference_mode_is_told_at_the_users_line(tmp_path: Path) -> None:
    net = torch.nn.Linear(4, 4)
    function = torch.compile(net, backend="eager")
    with dynadiag.record(tmp_path / "run.dynadiag"):
        with torch.inference_mode():
            function(torch.ones(2, 4))
        with torch.no_grad():  # the grad mode is off both times
            function(torch.ones(2, 4))
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        made = explain(recording)
    found = recompile(made)
    assert [fact.text for fact in found.evidence] == ["inference mode was on, now off (guard of 0/0)"]
    assert found.owner == "torch"
    assert found.entry is not None
    assert found.entry.file == __file__
    assert "test_process_state.py:" in explanation_text(made).partition("= in: torch")[0]


def test_the_sentences_of_a_foreign_log_are_understood() -> None:
    mode = a_failure("0/0: ___check_torch_function_mode_stack()")
    assert (mode.part, mode.index) == ("state", "torch function modes")
    assert a_failure("0/0: utils_device.CURRENT_DEVICE == None  # x").index == "default device"
    several = read_failure("GLOBAL_STATE changed: grad_mode autocast(cpu)_enabled ", "0/0")
    assert [(each.index, each.terms) for each in several] == [("grad_mode", ()), ("autocast_enabled", ("cpu",))]


def test_a_guard_of_which_nothing_is_known_names_no_value() -> None:
    (advice,) = advise_on(cases_of(a_recompile("___check_what_is_new()")))
    assert "a value" not in advice.text


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        (
            "_TorchCompileInductorWrapper (id=0x1)",
            "_TorchCompileInductorWrapper (id=0x2)",
            "inductor both times, with other options",
        ),
        ("_TorchCompileWrapper(compiler='eager', dynamic=None) (id=0x1)", "mine (id=0x2)", "eager, now mine"),
    ],
)
def test_backends_have_their_names(was: str, now: str, words: str) -> None:
    text = f"BACKEND_MATCH failure: torch.compile was called again. Cached backend: {was}. New backend: {now}. See"
    assert backend_change(a_failure(text)) == words
