"""Guards on values, each kind raised by a real program, and told as what it is with advice that fits.

The kinds are those of ``GuardBuilder`` in torch/_dynamo/guards.py. Guards on modes and settings are in
`test_process_state`.
"""

from __future__ import annotations

import enum
import gc
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import dynadiag
from dynadiag.explanation.findings import Finding
from dynadiag.render.report import report
from tests.explanation.advice_programs import PROGRAMS, Cache

TORCH = tuple(map(int, torch.__version__.split(".")[:2]))

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")

Compile = Callable[..., Callable[..., Any]]
x, y, zeros = torch.ones(4), torch.ones(4), torch.zeros(4)
number = 1


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Holder:
    factor: int


class Settings:
    width = 2


SETTINGS = Settings()


class First:
    factor = 1


class Second:
    factor = 2


def twice(v: torch.Tensor) -> torch.Tensor:
    return v * 2


def calls(fn: Callable[..., Any], *each: tuple[Any, ...], **options: Any) -> Callable[[Compile], None]:
    """A program that compiles a function and calls it with each of these arguments."""

    def run(compile_: Compile) -> None:
        compiled = compile_(fn, **options)
        for arguments in each:
            compiled(*arguments)

    return run


def attribute(c: Compile) -> None:
    held = Holder()
    held.factor = 1
    f = c(lambda x, held: x * held.factor, dynamic=False)
    f(x, held)
    held.factor = 2
    f(x, held)


def times(v: torch.Tensor, n: int) -> torch.Tensor:
    return v * n


def with_partials(c: Compile) -> None:
    for n in (2, 3):
        c(partial(times, n=n))(x)


def with_class_attribute(c: Compile) -> None:
    f = c(lambda x: x * SETTINGS.width)
    for Settings.width in (2, 3):
        f(x)


def has_attribute(c: Compile) -> None:
    held = Holder()
    f = c(lambda x: x + 1 if hasattr(held, "scale") else x - 1)
    f(x)
    held.scale = 2  # type: ignore[attr-defined]  # that it is there now is what changes
    f(x)


def closure(c: Compile) -> None:
    factor = 1

    def inner(x: torch.Tensor) -> torch.Tensor:
        return x * factor

    f = c(inner, dynamic=False)
    f(x)
    factor = 2
    f(x)


def a_global(c: Compile) -> None:
    global number
    f = c(lambda x: x * number, dynamic=False)
    number = 1
    f(x)
    number = 2
    f(x)


def training(c: Compile) -> None:
    module = nn.Dropout()
    f = c(lambda x: module(x))
    f(x)
    module.eval()
    f(x)


def parameter(c: Compile) -> None:
    module = nn.Linear(4, 4)
    f = c(lambda x: module(x))
    f(x)
    module.bias = None
    f(x)


def weak_reference(c: Compile) -> None:
    module = nn.Linear(4, 4)
    reference = weakref.ref(module)
    f = c(lambda x, r: r()(x) if r() is not None else x + 1)
    f(x, reference)
    del module
    gc.collect()
    f(x, reference)


def hook(c: Compile) -> None:
    module = nn.Linear(4, 4)
    with torch._dynamo.config.patch(skip_nnmodule_hook_guards=False):
        f = c(lambda x: module(x))
        f(x)
        module.register_forward_hook(lambda _module, _inputs, output: output + 1)
        f(x)


# A program, what its first guard says, and what the advice says of it.
KINDS: dict[str, tuple[Callable[[Compile], None], str, str]] = {
    "TYPE_MATCH": (
        calls(lambda x, v: x + len(v), (x, [1]), (x, (1,))),
        "v was list, now tuple",
        "`v` is of another type",
    ),
    "TYPE_MATCH of an object": (
        calls(lambda x, o: x * o.factor, (x, First()), (x, Second())),
        "o was First, now Second",
        "`o` is of another type",
    ),
    "TYPE_MATCH of a module": (
        calls(lambda x, m: m(x), (x, nn.ReLU()), (x, nn.Sigmoid())),
        "m was ReLU, now Sigmoid",
        "`m` is of another type",
    ),
    "BOOL_MATCH": (
        calls(lambda x, b: x + 1 if b else x - 1, (x, True), (x, False)),
        "b was True, now False",
        "`b` is a constant of the code",
    ),
    "NONE_MATCH": (
        calls(lambda x, o: x + 1 if o is None else x + o, (x, None), (x, y)),
        "o was None",
        "`o` was None in one call and not in the other",
    ),
    "NOT_NONE_MATCH": (
        calls(lambda x, o: x + 1 if o is None else x + o, (x, y), (x, None)),
        "o was Tensor(4), now None",
        "`o` was None in one call and not in the other",
    ),
    "CONSTANT_MATCH": (
        calls(lambda x, n: x * n, (x, 3), (x, 4), dynamic=False),
        "n was 3, now 4",
        "`n` changed, and with your `dynamic=False` each value of a number is compiled apart",
    ),
    "EQUALS_MATCH of a float": (
        calls(lambda x, n: x * n, (x, 0.3), (x, 0.4), dynamic=False),
        "n was 0.3, now 0.4",
        "`n` changed, and with your `dynamic=False` each value of a number is compiled apart",
    ),
    "EQUALS_MATCH of a text": (
        calls(lambda x, m: x.sum() if m == "sum" else x.mean(), (x, "sum"), (x, "mean")),
        "m was 'sum', now 'mean'",
        "`m` is a constant of the code",
    ),
    "EQUALS_MATCH of a dtype": (
        calls(lambda x, d: x.to(d), (x, torch.float64), (x, torch.float16)),
        "d was torch.float64, now torch.float16",
        "`d` is a constant of the code",
    ),
    "EQUALS_MATCH of a device": (
        calls(lambda x, d: x.to(d), (x, torch.device("cpu")), (x, torch.device("meta"))),
        "d was device(type='cpu')",
        "`d` is a constant of the code",
    ),
    "ID_MATCH": (
        calls(lambda x, e: x + 1 if e is Color.RED else x - 1, (x, Color.RED), (x, Color.BLUE)),
        "e was Color.RED, now Color.BLUE",
        "`e` is a constant of the code",
    ),
    "FUNCTION_MATCH": (
        calls(lambda x, g: g(x), (x, twice), (x, lambda v: v + 1)),
        "g is another function than before: it was twice (test_guard_kinds.py:",
        "`g` is another function than before",
    ),
    "HASATTR": (
        has_attribute,
        "held.scale was absent, now present",
        "`held.scale` was not there before, and the code asked for it",
    ),
    "an attribute": (attribute, "held.factor was 1, now 2", "`held.factor` changed, and with your `dynamic=False`"),
    "CLOSURE_MATCH": (closure, "factor was 1, now 2", "`factor` changed, and with your `dynamic=False`"),
    "a global": (a_global, "number was 1, now 2", "The global `number` changed"),
    "training": (training, "module.training was True, now False", "`module.training` switched"),
    "a parameter": (parameter, "module.bias was", "`module.bias` was None in one call and not in the other"),
    "WEAKREF_ALIVE": (weak_reference, "r() was ", "`r()` was None in one call and not in the other"),
    "SEQUENCE_LENGTH": (
        calls(lambda x, v: sum(v, x), (x, [y]), (x, [y, zeros])),
        "v was length 1, now length 2",
        "`v` has another number of items",
    ),
    "TUPLE_ITERATOR_LEN": (
        calls(lambda x, i: sum(i, x), (x, iter((y,))), (x, iter((y, zeros)))),
        "i is no longer length 1",
        "`i` has another number of items",
    ),
    "DICT_KEYS_MATCH": (
        calls(lambda x, d: sum(d.values(), x), (x, {"a": y}), (x, {"b": y})),
        "list(d)[0] was 'a', now 'b'",
        "`d` has other keys",
    ),
    "DICT_CONTAINS": (
        calls(lambda x, d: x + 1 if "a" in d else x - 1, (x, {"b": 1}), (x, {"a": 1})),
        "whether 'a' is in d changed",
        "What `d` contains changed",
    ),
    "SET_CONTAINS": (
        calls(lambda x, s: x + 1 if "a" in s else x - 1, (x, {"b"}), (x, {"a"})),
        "whether 'a' is in s changed",
        "What `s` contains changed",
    ),
    "RANGE_ITERATOR_MATCH": (
        calls(lambda x, r: x + sum(r), (x, range(3)), (x, range(4))),
        "r.stop was 3, now 4",
        "`r.stop` changed",
    ),
    "DUPLICATE_INPUT": (
        calls(lambda a, b: a.add_(1) + b, (x, y), (y, y)),
        "a and b were different tensors, and are one now",
        "Two arguments were the same tensor",
    ),
    "TENSOR_MATCH of a dtype": (
        calls(lambda x: x + 1, (x,), (x.double(),)),
        "x.dtype was torch.float32, now torch.float64",
        "`x` came in another dtype",
    ),
    "TENSOR_MATCH of a rank": (
        calls(lambda x: x + 1, (x,), (x[None],)),
        "x.dim() was 1, now 2",
        "another number of dimensions",
    ),
    "TENSOR_MATCH of a size": (
        calls(lambda x: x + 1, (x,), (torch.ones(5),), dynamic=False),
        "x.size()[0] was 4, now 5",
        "because of `dynamic=False`",
    ),
    "TENSOR_MATCH of a stride": (
        calls(lambda x: x + 1, (torch.ones(3, 4),), (torch.ones(4, 3).t(),)),
        "x.stride()[0] was 4, now 1",
        "`.contiguous()`",
    ),
    "TENSOR_MATCH of gradients": (
        calls(lambda x: x + 1, (x,), (torch.ones(4, requires_grad=True),)),
        "x.requires_grad was False, now True",
        "another `requires_grad`",
    ),
    "TENSOR_MATCH of a class": (
        calls(lambda x: x + 1, (x,), (nn.Parameter(y),)),
        "x.__class__ was Tensor, now Parameter",
        "`x` is a `Parameter` in one call",
    ),
    "EQUALS_MATCH of what the first call sets": (
        PROGRAMS["a_cache"][0],
        "cache.is_initialized was False, now True",
        "`cache.is_initialized` is set in the first call",
    ),
    "SEQUENCE_LENGTH of arguments": (
        PROGRAMS["keyword_arguments"][0],
        "kwargs was length 0, now length 1",
        "another number of arguments",
    ),
    "TENSOR_MATCH of a device": (
        PROGRAMS["a_device"][0],
        "v is on another device now (Meta)",
        "came on another device",
    ),
    "AUTOGRAD_SAVED_TENSORS_HOOKS": (
        PROGRAMS["saved_tensor_hooks"][0],
        "the default hooks on saved tensors was",
        "Hooks on saved tensors that are graph modules",
    ),
    "DUAL_LEVEL": (
        PROGRAMS["dual_level"][0],
        "the level of forward-mode AD was",
        "`torch.autograd.forward_ad.dual_level`",
    ),
    "hooks of a module": (hook, "module._forward_hooks", "A hook of `module` came or went"),
    "ID_MATCH of a builtin function": (
        calls(lambda x, g: g(x), (x, torch.sin), (x, torch.cos)),
        "g is another object than before, now cos (builtin_function_or_method)",
        "`g` is another function",
    ),
    "EQUALS_MATCH of a class attribute": (
        with_class_attribute,
        "type(SETTINGS).width was 2, now 3",
        "The integer attribute `type(SETTINGS).width` changed",
    ),
    "EQUALS_MATCH of a default": (
        calls(lambda x, g: g(x), *((x, lambda v, k=k: v * k) for k in (2, 3))),
        "g.__defaults__[0] was 2, now 3",
        "each value of it is compiled apart",
    ),
    "TENSOR_MATCH of a layer in a list": (
        PROGRAMS["a_bias_taken_away"][0],
        "self[0].bias was Tensor(4), now None",
        "`self[0].bias` was None in one call",
    ),
    "EQUALS_MATCH of a partial": (
        with_partials,
        "n was 2, now 3",
        "The integer `n` changed",
    ),
    "SHAPE_ENV, an integer": (
        calls(lambda x, n: x[:n] + n, (x, 4), (x, 3), (x, 1), dynamic=True),
        "`2 <= n` does not hold: n was 4, now 1",
        "takes another way otherwise. Keep to one side, or expect one compile for each.",
    ),
    "SHAPE_ENV, two sizes": (
        calls(
            lambda x, y: x + y if x.shape[0] == y.shape[0] else x.sum() + y, (x, y), (x, torch.ones(5)), dynamic=True
        ),
        "`y.size()[0] == x.size()[0]` does not hold: y.size()[0] was 4, now 5",
        "these sizes went together",
    ),
    "SHAPE_ENV, a range": (
        calls(lambda x: x + 1 if x.shape[0] > 10 else x - 1, (x,), (torch.ones(40),), dynamic=True),
        "`2 <= x.size()[0] <= 10` does not hold: x.size()[0] was 4, now 40",
        "The code is dynamic, but made for",
    ),
    "SHAPE_ENV, a multiple": (
        calls(lambda x: x.view(-1, 2) + 1 if x.shape[0] % 2 == 0 else x + 1, (x,), (torch.ones(5),), dynamic=True),
        "`(x.size()[0] % 2) == 0` does not hold",
        "takes another way for other sizes",
    ),
    "SHAPE_ENV, a place in a storage": (
        calls(lambda x: x + 1, (torch.ones(9)[2:],), (torch.ones(9)[:8],), dynamic=True),
        "`2 <= x.storage_offset()` does not hold: x.storage_offset() was 2, now 0",
        "another place in its storage",
    ),
    "SHAPE_ENV, a stride": (
        calls(
            lambda x: x + 1 if x.stride(0) == x.size(1) else x - 1,
            (torch.ones(4, 8),),
            (torch.ones(4, 9)[:, :8],),
            dynamic=True,
        ),
        "`x.stride()[0] == x.size()[1]` does not hold: x.stride()[0] was 8, now 9",
        "another memory layout",
    ),
    "SHAPE_ENV, one": (
        calls(lambda x: x + 1, (x,), (torch.ones(1),), dynamic=True),
        "`2 <= x.size()[0]` does not hold",
        "sizes 0 and 1 apart",
    ),
}


def recompiles(folder: Path, program: Callable[[Compile], None]) -> list[Finding]:
    torch._dynamo.reset()
    with dynadiag.record(folder / "run.dynadiag"):
        program(partial(torch.compile, backend="eager"))
    with dynadiag.open(folder / "run.dynadiag") as recording:
        return [item for item in report(recording).findings if item.rule.startswith("recompile")]


class Layer(nn.Module):
    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index

    def forward(self, cache: Cache, v: torch.Tensor) -> torch.Tensor:
        return cache.add(v) * self.index


def test_the_next_layer_with_the_same_cache_is_told_as_another_layer(tmp_path: Path) -> None:
    def run(compile_: Compile) -> None:
        cache, fn = Cache(), compile_(Layer.forward, dynamic=False)
        for layer in (Layer(2), Layer(3)):
            fn(layer, cache, x)

    (found,) = recompiles(tmp_path, run)
    assert found.title.startswith("Layer.forward: self.index changed")
    assert "`self.index`" in found.advice[0].text


def test_torch_gave_up_because_of_what_changed_each_time(tmp_path: Path) -> None:
    """Not because of what else the last call failed by."""

    def run(compile_: Compile) -> None:
        layer, cache = Layer(0), Cache()
        cache.add(x)
        fn = compile_(Layer.forward, dynamic=False)
        for layer.index in range(9):
            with torch.set_grad_enabled(layer.index < 8):
                fn(layer, cache, x)

    found = next(each for each in recompiles(tmp_path, run) if each.rule == "recompile-limit")
    assert found.title.startswith("Layer.forward: self.index changed, and 1 more")
    assert "`self.index`" in found.advice[0].text


@pytest.mark.parametrize("kind", KINDS)
def test_a_guard_is_told_as_what_it_is(tmp_path: Path, kind: str) -> None:
    program, guard, advice = KINDS[kind]
    if kind == "EQUALS_MATCH of a default" and torch.__version__ < (2, 12):
        pytest.skip("torch has no such guard")
    (found,) = recompiles(tmp_path, program)
    assert found.evidence[0].text.startswith((guard, f"`{guard}"))
    assert advice in found.advice[0].text
    assert len(found.advice) <= (2 if kind == "TENSOR_MATCH of a class" else 1)  # a parameter has gradients, too
