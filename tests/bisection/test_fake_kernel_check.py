from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from dynadiag.bisection import fake_kernel_check
from dynadiag.recording.torch_text.operators import is_custom_operator
from dynadiag.trial.context import TRIAL
from dynadiag.trial.events import Note
from dynadiag.trial.plan import Plan, Switch
from tests.bisection.conftest import Bisected

_library = torch.library.Library("dynadiag_fakes", "DEF")


def _define(name: str, real: object, promise: object) -> None:
    _library.define(f"{name}(Tensor x) -> Tensor")
    _library.impl(name, real, "CPU")
    torch.library.register_fake(f"dynadiag_fakes::{name}", promise, lib=_library)


_define("honest", lambda x: x * 2, torch.empty_like)
_define("dtype", lambda x: x.double(), torch.empty_like)
_define("shape", lambda x: x * 2, lambda x: x.new_empty(x.shape[0] + 1, *x.shape[1:]))
_define("rank", lambda x: x.sum(), torch.empty_like)
_define("strides", lambda x: x * 2, lambda x: x.new_empty(x.shape[::-1]).t())
_define("picky", lambda x: 1 / int(x.sum()), torch.empty_like)
NAMES = ("honest", "dtype", "shape", "rank", "strides")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The notes of a trial in which fake kernels are not trusted."""
    texts: list[str] = []
    monkeypatch.setattr(TRIAL, "send", lambda event: texts.append(event.text) if isinstance(event, Note) else None)
    monkeypatch.setattr(
        TRIAL, "plan", Plan(switches=(Switch(fake_kernel_check.OPERATOR_KIND, keep=True, suffixes=()),))
    )
    monkeypatch.setattr(FakeTensorMode, "dispatch", FakeTensorMode.dispatch)
    monkeypatch.setattr(fake_kernel_check, "_reported", set())
    fake_kernel_check.install()
    return texts


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("honest", None),
        ("dtype", "returns torch.float64 where its fake kernel promises torch.float32"),
        ("shape", "returns the shape [2, 3] where its fake kernel promises [3, 3]"),
        ("rank", "returns the shape [] where its fake kernel promises [2, 3]"),
        ("strides", "returns the strides [3, 1] where its fake kernel promises [1, 2]"),
        ("picky", None),
    ],
)
def test_a_fake_result_is_compared_with_the_real_one(told: list[str], name: str, says: str | None) -> None:
    operator = getattr(torch.ops.dynadiag_fakes, name)
    with FakeTensorMode() as mode:
        for _ in range(2):
            operator(mode.from_tensor(torch.ones(2, 3)))
    assert len(told) == (says is not None), told
    assert says is None or says in told[0]


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("name", NAMES)
def test_an_untrusted_fake_kernel_gives_the_real_metadata(name: str) -> None:
    operator = getattr(torch.ops.dynadiag_fakes, name)
    real = operator(torch.ones(2, 3))
    with FakeTensorMode() as mode:
        fake = operator(mode.from_tensor(torch.ones(2, 3)))
    assert (fake.shape, fake.stride(), fake.dtype) == (real.shape, real.stride(), real.dtype)


@pytest.mark.usefixtures("told")
def test_sizes_that_were_promised_rightly_stay_symbolic() -> None:
    sizes: list[object] = []

    def keep(gm: torch.fx.GraphModule, _inputs: object) -> object:
        output = next(node for node in gm.graph.nodes if "shape" in node.name)
        sizes.extend(output.meta["example_value"].shape)
        return gm.forward

    x = torch.ones(2, 3)
    torch._dynamo.mark_dynamic(x, 1)
    torch.compile(torch.ops.dynadiag_fakes.shape, backend=keep)(x)
    assert isinstance(sizes[1], torch.SymInt)
    assert sizes[0] == 2


@pytest.mark.parametrize("name", ["aten.relu.default", "prims.inductor_random.default", "<built-in function add>"])
def test_torch_s_own_operators_are_left_alone(name: str) -> None:
    assert not is_custom_operator(name)


LYING = """
import torch

def define(name, real):
    operator = torch.library.custom_op(f"planted::{name}", real, mutates_args=())
    operator.register_fake(lambda x: torch.empty_like(x))
    return operator

def halved(x: torch.Tensor) -> torch.Tensor:
    return x.double() / 2

def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2

halve, double = define("halve", halved), define("double", doubled)

def f(x):
    return halve(double(x).sin()).relu() * 3

x = torch.ones(64)
torch.testing.assert_close(torch.compile(f)(x), f(x))
"""


def test_an_operator_with_a_wrong_fake_kernel_is_named(bisected: Bisected) -> None:
    verdict = bisected(LYING)
    assert (verdict.verdict, verdict.rung) == ("found", "inductor"), verdict.notes
    assert [(c.group, c.name, c.lines[0][1]) for c in verdict.culprits] == [("operator", "planted.halve.default", 18)]
    assert any("planted.halve.default returns torch.float64" in note for note in verdict.notes), verdict.notes
    assert any("delete Inductor's cache" in note for note in verdict.notes), verdict.notes
    assert len(verdict.confirmed) == 2


def test_arguments_that_an_operator_changes_are_found(told: list[str]) -> None:
    """By the version of a tensor, and by its numbers where the operator writes them past torch."""

    def write(xs: list[torch.Tensor], y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        xs[1].numpy()[...] += 1
        z.mul_(3)
        return y * 2

    _library.define("writes(Tensor[] xs, Tensor y, *, Tensor z) -> Tensor")
    _library.impl("writes", write, "CPU")
    torch.library.register_fake("dynadiag_fakes::writes", lambda xs, y, z: torch.empty_like(y), lib=_library)
    with FakeTensorMode() as mode:
        x, y = mode.from_tensor(torch.ones(3)), mode.from_tensor(torch.ones(2, 3))
        torch.ops.dynadiag_fakes.writes([x, x], y, z=x)
    assert told == [
        "dynadiag_fakes.writes.default changes its argument xs and z, which its schema does not declare, and the "
        "compiler trusts it"
    ]


@pytest.mark.parametrize("sign", [1, -1])
def test_an_argument_that_changes_for_numbers_of_one_sign_is_found_by_a_tensor_of_one_number(
    told: list[str], sign: int
) -> None:
    def count(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        counts.numpy()[...] += (x * sign > 0).sum(0).numpy()
        return x * 2

    name = f"counts{sign % 3}"
    _library.define(f"{name}(Tensor x, Tensor counts) -> Tensor")
    _library.impl(name, count, "CPU")
    torch.library.register_fake(f"dynadiag_fakes::{name}", lambda x, _: torch.empty_like(x), lib=_library)
    with FakeTensorMode() as mode:
        x, counts = mode.from_tensor(torch.ones(1, 1)), mode.from_tensor(torch.ones(1, dtype=torch.int64))
        getattr(torch.ops.dynadiag_fakes, name)(x, counts)
    assert any("changes its argument counts" in text for text in told), told


CHANGING = """
import torch

@torch.library.custom_op("planted::push", mutates_args=())
def push(buffer: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    buffer.numpy()[...] += x.numpy()
    return x.sum()

@push.register_fake
def _(buffer, x):
    return x.new_empty(())

def f(buffer, x):
    before = buffer * 2
    total = push(buffer, x.cos())
    return buffer * 2 - before + total

x = torch.ones(4)
torch.testing.assert_close(torch.compile(f, fullgraph=True)(torch.zeros(4), x), f(torch.zeros(4), x))
"""


def test_an_operator_that_changes_what_it_does_not_declare_is_named(bisected: Bisected) -> None:
    verdict = bisected(CHANGING)
    assert (verdict.verdict, verdict.rung) == ("found", "inductor"), verdict.notes
    assert [(c.group, c.name, c.lines[0][1]) for c in verdict.culprits] == [("operator", "planted.push.default", 15)]
    assert any("planted.push.default changes its argument buffer" in note for note in verdict.notes), verdict.notes
    assert len(verdict.confirmed) == 2


HEAD_OF_INPUT = """
import torch

library = torch.library.Library("planted", "FRAGMENT")
library.define("head(Tensor x) -> Tensor")
library.impl("head", lambda x: x[1:3], "CompositeExplicitAutograd")
torch.library.register_fake("planted::head", lambda x: x.new_empty(2), lib=library)

def f(x):
    y = torch.ops.planted.head(x)
    x.add_(1)
    return y * 2

x = torch.arange(4.0)
torch.testing.assert_close(torch.compile(f, backend="aot_eager")(x.clone()), f(x.clone()))
"""


def test_an_operator_that_returns_memory_of_its_argument_is_named(bisected: Bisected) -> None:
    verdict = bisected(HEAD_OF_INPUT)
    assert (verdict.verdict, verdict.rung) == ("found", "aot_eager"), verdict.notes
    assert [(c.group, c.name, c.lines[0][1]) for c in verdict.culprits] == [("operator", "planted.head.default", 10)]
    assert any("planted.head.default returns memory of its argument x" in note for note in verdict.notes)
    assert len(verdict.confirmed) == 2


BACKWARD = """
import torch

@torch.library.custom_op("planted::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    return x ** 3

cube.register_fake(torch.empty_like)
steps = []

def backward(ctx, grad):
    steps.append(1)
    return grad * len(steps)

cube.register_autograd(backward)

def gradients(f):
    steps.clear()
    x = torch.ones(3, requires_grad=True)
    for _ in range(2):
        f(x).backward()
    return x.grad

def f(x):
    return cube(x.sin()).sum()

torch.testing.assert_close(gradients(torch.compile(f, backend="aot_eager")), gradients(f))
"""


@pytest.mark.slow
def test_an_operator_whose_backward_fails_where_it_is_traced_is_named(bisected: Bisected) -> None:
    verdict = bisected(BACKWARD)
    assert (verdict.verdict, verdict.rung) == ("found", "aot_eager"), verdict.notes
    (culprit,) = verdict.culprits
    assert (culprit.group, culprit.name, culprit.graph) == ("operator", "planted.cube.default", "backward")
    assert any("planted.cube.default fails in its backward" in note for note in verdict.notes), verdict.notes


REPLACED = """
import torch
from torch._subclasses import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

lib = torch.library.Library("planted", "DEF")
lib.define("soft_clip(Tensor x) -> Tensor")
lib.impl("soft_clip", torch.tanh, "CPU")

def autograd_kernel(x):
    if isinstance(x, (FakeTensor, FunctionalTensor)):
        return x.clamp(-1, 1)
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.planted.soft_clip(x)

lib.impl("soft_clip", autograd_kernel, "Autograd")

def f(x):
    return torch.ops.planted.soft_clip(x.sin()) + 1

x = torch.linspace(-2, 2, 8)
torch.testing.assert_close(torch.compile(f)(x), f(x))
"""


def test_an_operator_that_its_autograd_kernel_replaces_where_it_is_traced_is_named(bisected: Bisected) -> None:
    verdict = bisected(REPLACED)
    assert (verdict.verdict, verdict.rung) == ("found", "aot_eager"), verdict.notes
    assert [(c.group, c.name) for c in verdict.culprits] == [("operator", "planted.soft_clip.default")]
    assert any("planted.soft_clip.default fails where AOTAutograd traces it" in note for note in verdict.notes)
