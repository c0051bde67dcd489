"""Compiles that fail in real programs: the first finding of the report, with its stage, cause and line."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch._inductor import lowering
from torch.autograd import forward_ad

import dynadiag
from dynadiag.explanation.explanation import Explanation, explain
from dynadiag.render.report import explanation_text

pytestmark = [
    pytest.mark.filterwarnings("ignore:dynamo_pgo force disabled"),  # the tests switch caches off
    pytest.mark.filterwarnings("ignore:Error detected in"),  # autograd's word on the operator without a formula
]
LINES = Path(__file__).read_text().splitlines()
OLD = torch.__version__ < (2, 12)


@torch.library.custom_op("dynadiag_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    """An operator that has no formula for autograd."""
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def no_lowering(*_: object, **__: object) -> None:
    raise AssertionError("no lowering for you")


def refuses(_gm: object, _inputs: object) -> Any:
    raise ValueError("this backend has no idea")


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def erase(x: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    start = scores.argmax().item()  # taken
    x = x.clone()
    x[:, start : start + 2] = 0
    return x


def failing(folder: Path, call: Callable[[], object]) -> Explanation:
    """The explanation of a call that raises."""
    path = folder / "run.dynadiag"
    with pytest.raises(Exception), dynadiag.record(path):  # noqa: B017, PT011 - each raises its own
        call()
    with dynadiag.open(path) as recording:
        return explain(recording)


def leads(made: Explanation, line: str, stage: str, why: str) -> str:
    """Check what leads, and return the report."""
    first = made.findings[0]
    assert (first.rule, first.severity) == ("failed-compile", "error")
    assert LINES[(first.span.line or 0) - 1].strip() == line
    assert stage in first.title
    assert why in (first.cause or "")
    text = explanation_text(made)
    assert text.startswith("Compiling ")
    assert text.index("error[") < min((text.find(word) for word in ("break[", "time:") if word in text), default=10**9)
    return text


def test_the_cpp_compiler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        print("first")  # noqa: T201 - it breaks the graph
        return torch.relu(y)

    with inductor_config.patch({"cpp.inject_relu_bug_TESTING_ONLY": "compile_error", "force_disable_caches": True}):
        made = failing(tmp_path, lambda: torch.compile(f)(torch.randn(8)))
    text = leads(made, "return torch.relu(y)", "the C++ compiler", "error: ")
    assert "Elsewhere: 1 graph break." in " ".join(text.split())
    assert "compile" in (made.findings[0].cause or "")
    assert "\n" not in (made.findings[0].cause or "")
    assert capsys.readouterr().out.startswith("first")


def test_a_machine_without_a_cpp_compiler(tmp_path: Path) -> None:
    def call() -> object:
        with inductor_config.patch({"cpp.cxx": ("no-such-compiler",), "force_disable_caches": True}):
            return torch.compile(torch.relu)(torch.ones(4))

    finding = failing(tmp_path, call).findings[0]
    assert finding.cause is not None
    assert "No working C++ compiler found" in finding.cause
    assert [each.key for each in finding.advice] == ["failed.no_compiler"]


def test_an_operator_that_fails_while_tracing(tmp_path: Path) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos().double(), (x,))

    made = failing(tmp_path, lambda: torch.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
    assert "expected same dtype but got torch.float32 and torch.float64" in made.headline.sentence
    assert "fake tensor call" not in made.headline.sentence


def test_a_transform_of_torch_func_fails_while_it_is_traced(tmp_path: Path) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.func.jvp(torch.sin, (x,), (x,))[0]

    with forward_ad.dual_level():
        made = failing(tmp_path, lambda: torch.compile(f, backend="aot_eager")(torch.ones(3)))
    leads(made, "return torch.func.jvp(torch.sin, (x,), (x,))[0]", "Dynamo", "Nested forward mode AD is not supported")


def test_an_operator_without_autograd_behind_a_break(tmp_path: Path) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        print("go")  # noqa: T201 - it breaks the graph
        y = x + 1
        return twice(y).sum()

    x = torch.randn(4, requires_grad=True)
    made = failing(tmp_path, lambda: torch.compile(f, backend="aot_eager")(x).backward())
    leads(made, "return twice(y).sum()", "AOTAutograd", "no autograd formula was registered")
    assert "register_autograd" in made.findings[0].advice[0].text


def test_a_mark_that_the_code_contradicts(tmp_path: Path) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(3, 4) + 1

    x = torch.randn(12)
    torch._dynamo.mark_dynamic(x, 0)
    made = failing(tmp_path, lambda: torch.compile(f, backend="eager")(x))
    why = "`x.size()[0]` is marked dynamic, but the code fixes it to 12"
    leads(made, "return x.reshape(3, 4) + 1", "Dynamo, while it makes guards", why)
    assert "maybe_mark_dynamic" in made.findings[0].advice[0].text
    operation = next(each.text for each in made.findings[0].evidence if each.label == "operation")
    assert operation == "`aten.view.default of (x.size()[0],), [3, 4]`"


def test_the_advice_on_a_contradicted_mark_works() -> None:
    x = torch.randn(12)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    assert torch.compile(lambda x: x.reshape(3, 4) + 1, backend="eager")(x).shape == (3, 4)


def test_a_lowering_that_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return torch.erf(y)

    monkeypatch.setitem(lowering.lowerings, torch.ops.aten.erf.default, no_lowering)
    with inductor_config.patch(force_disable_caches=True):
        made = failing(tmp_path, lambda: torch.compile(f)(torch.randn(8)))
    leads(made, "return torch.erf(y)", "Inductor's lowering", "AssertionError: no lowering for you")


def test_a_lowering_that_raises_in_the_backward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = (x * 2).sin()
        return y.sum()

    monkeypatch.setitem(lowering.lowerings, torch.ops.aten.cos.default, no_lowering)
    x = torch.randn(8, requires_grad=True)
    with inductor_config.patch(force_disable_caches=True):
        made = failing(tmp_path, lambda: torch.compile(f)(x).backward())
    leads(made, "y = (x * 2).sin()", "Inductor's lowering (backward)", "AssertionError: no lowering for you")


def test_a_backend_that_raises(tmp_path: Path) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        print("a")  # noqa: T201 - it breaks the graph
        return y + 1

    made = failing(tmp_path, lambda: torch.compile(f, backend=refuses)(torch.randn(8)))
    leads(made, "y = x * 2", "the backend `refuses`", "ValueError: this backend has no idea")


def test_an_exception_without_a_message_is_told_by_its_type(tmp_path: Path) -> None:
    def mute(_gm: object, _inputs: object) -> Any:
        raise AssertionError

    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    made = failing(tmp_path, lambda: torch.compile(f, backend=mute)(torch.randn(8)))
    text = leads(made, "return x * 3", "the backend `mute`", "AssertionError")
    assert "the backend `mute`: AssertionError. dynadiag" in " ".join(text.split())


def test_what_a_higher_order_operator_refuses_is_told_with_its_name(tmp_path: Path) -> None:
    def loop(x: torch.Tensor) -> Any:
        return while_loop(lambda a: a.sum() < 10, lambda a: (a + 1,), 3)

    found = failing(tmp_path, lambda: torch.compile(loop, backend="eager")(torch.ones(3)))
    said = "<class 'torch._dynamo.variables.tensor.SymNodeVariable'>" if OLD else "'int'"
    assert found.findings[0].cause == f"torch.while_loop: {said} object is not iterable"
    assert "while_loop(lambda" in LINES[(found.findings[0].span.line or 0) - 1]


def test_a_break_that_is_raised_says_why_it_is(tmp_path: Path) -> None:
    def whole(x: torch.Tensor) -> torch.Tensor:
        print("here")  # noqa: T201 - it breaks the graph
        return x + 1

    def branch(x: torch.Tensor) -> torch.Tensor:
        print("there")  # noqa: T201 - it breaks the graph
        return x + 1

    def chooses(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, branch, branch, (x,))

    def wrong(x: torch.Tensor) -> torch.Tensor:
        return x @ torch.ones(7, 3)

    told = []
    for index, (fn, options) in enumerate(((whole, {"fullgraph": True}), (chooses, {}), (wrong, {}))):
        folder = tmp_path / str(index)
        folder.mkdir()
        compiled = torch.compile(fn, backend="eager", **options)
        made = failing(folder, partial(compiled, torch.ones(4)))
        assert made.findings[0].rule == "failed-compile"
        told.append(next(fact.text for fact in made.findings[0].evidence if fact.label == "led to"))
    assert "fullgraph=True" in told[0]
    assert "torch.cond" in told[1]
    assert "the operator failed" in told[2]


def test_what_a_higher_order_operator_found_is_told(tmp_path: Path) -> None:
    def widens(x: torch.Tensor) -> Any:
        return scan(lambda carry, each: ((carry + each).double(), each.clone()), torch.zeros(2), x, dim=0)

    made = failing(tmp_path, lambda: torch.compile(widens, backend="aot_eager", fullgraph=True)(torch.ones(3, 2)))
    cause = made.findings[0].cause or ""
    assert "float32" in cause, cause
    assert not any("bisect" in each.text for each in made.findings[0].advice)


def test_torchs_own_backend_is_not_to_be_mended(tmp_path: Path) -> None:
    def sides(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda v: v @ weight, lambda v: v @ weight[:, :2], (x,))

    weight = torch.ones(4, 4, requires_grad=True)
    made = failing(tmp_path, lambda: torch.compile(sides, backend="aot_eager")(torch.ones(2, 4), weight))
    assert "AOTAutograd" in made.findings[0].title
    assert not any("mend it there" in each.text for each in made.findings[0].advice)


def test_a_failure_in_a_library_is_told_at_the_users_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "counted"
    package.mkdir(parents=True)
    asked = "from importlib import metadata\n\ndef has(name):\n    try:\n        metadata.version(name)\n"
    (package / "__init__.py").write_text(f"{asked}    except metadata.PackageNotFoundError:\n        return False\n")
    monkeypatch.syspath_prepend(str(package.parent))
    import counted  # type: ignore[import-not-found]

    def step(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if counted.has("no-such-package") else x * 2

    path = tmp_path / "run.dynadiag"
    with contextlib.suppress(Exception), dynadiag.record(path):
        torch.compile(step, backend="eager")(torch.ones(2))
    with dynadiag.open(path) as recording:
        found = [each for each in explain(recording).findings if each.severity == "error"]
    assert found or OLD  # torch 2.11 breaks the graph instead
    for each in found:
        assert each.owner == "counted"
        assert each.entry is not None
        assert "counted.has" in LINES[(each.entry.line or 0) - 1]
        assert "torch fails on code of counted" in each.advice[0].text


@pytest.mark.skipif(OLD, reason="torch 2.11 fails later, with another error")
def test_a_number_that_inductor_asks_about_is_told_where_it_is_taken(tmp_path: Path) -> None:
    path, compiled = tmp_path / "run.dynadiag", torch.compile(erase)
    captured = torch._dynamo.config.patch(capture_scalar_outputs=True)
    with captured, contextlib.suppress(Exception), dynadiag.record(path):
        compiled(torch.ones(2, 8), torch.ones(4))
    with dynadiag.open(path) as recording:
        findings = explain(recording).findings
    if not findings and torch.__version__ >= (2, 14):
        pytest.skip("this torch does not ask")
    assert "u0 < 0" in (findings[0].cause or "")
    assert LINES[(findings[0].span.line or 0) - 1].endswith("# taken")
    assert "`torch._check(start >= 0)`" in findings[0].advice[0].text
