from __future__ import annotations

import functools
import math
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch._inductor.lowering import make_pointwise
from torch._inductor.virtualized import ops

from dynadiag.minify.source_export import CannotExportError, SourceExporter
from dynadiag.torch_private import minify as torch_private

FACTOR = 3


def _scaled(x: float) -> float:
    return math.floor(x) * FACTOR


def outer(x: float) -> float:
    return _scaled(x) + 1


class Pass:
    def __call__(self, graph: Any) -> int:
        return FACTOR + len(graph)


class Counting(Pass):
    def __init__(self, start: int) -> None:
        self.start = start

    def __call__(self, graph: Any) -> int:
        return super().__call__(graph) + self.start


@torch.library.custom_op("dynadiag_tests::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@double.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _tripled(x: torch.Tensor) -> torch.Tensor:
    return x * 3


def _like(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(output)


def _backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    return grad * 2 + ctx.saved_tensors[0]


triple = torch.library.custom_op("dynadiag_tests::triple", _tripled, mutates_args=())
triple.register_fake(_like)
triple.register_autograd(_backward, setup_context=_keep)


def carried(value: Any) -> tuple[str, dict[str, Any]]:
    """The whole text for a value, and what running it in an empty module gives."""
    carrier = SourceExporter()
    expression = carrier.expression(value)
    text = "\n".join(["import torch", *carrier.imports, *carrier.blocks, f"result = {expression}"])
    space: dict[str, Any] = {"__name__": "carried"}
    exec(compile(text, "carried.py", "exec"), space)
    return text, space


@pytest.mark.parametrize(
    "value",
    [None, True, 1.5, "text", (1,), [1, (2, 3)], {"a": {1}}, torch.float16, torch.device("cpu"), math.floor, torch.add],
)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    assert carried(value)[1]["result"] == value


def test_a_function_brings_everything_that_it_names() -> None:
    text, space = carried(outer)
    assert space["result"](2.5) == outer(2.5)
    assert text.index("FACTOR = 3") < text.index("def _scaled") < text.index("def outer")


def test_what_a_function_closes_over_comes_along() -> None:
    def make(offset: int) -> Callable[[int], int]:
        def add(x: int) -> int:
            return x + offset

        return add

    assert carried(make(5))[1]["result"](1) == 6


def _halved_by_inductor(x: Any) -> Any:
    return make_pointwise(lambda v: ops.mul(v, ops.constant(0.5, x.get_dtype())))(x)


def test_what_a_function_has_from_torch_is_imported_by_its_name() -> None:
    text, space = carried(_halved_by_inductor)
    assert "from torch._inductor.lowering import make_pointwise\n" in text
    assert "from torch._inductor.virtualized import ops\n" in text  # an object that answers to any name
    assert "\nimport torch._inductor" not in text
    assert space["ops"] is ops


def test_an_object_comes_with_its_class_and_its_state() -> None:
    assert carried(Pass())[1]["result"]([1]) == 4
    assert carried(Counting(7))[1]["result"]([1]) == 11


def test_a_partial_application_comes_with_its_arguments() -> None:
    assert carried(functools.partial(outer, 2.0))[1]["result"]() == outer(2.0)


def test_an_operator_brings_its_fake_kernel() -> None:
    text, space = carried(double)
    assert 'custom_op("dynadiag_tests::double"' in text
    assert "@double.register_fake" in text
    assert torch.equal(space["result"](torch.ones(2)), torch.full((2,), 2.0))


def test_an_operator_that_calls_register_is_registered_by_calls() -> None:
    carrier = SourceExporter()
    assert carrier.expression(triple) == "triple"
    text = "\n".join(["import torch", *carrier.imports, *carrier.blocks]).replace("dynadiag_tests", "dynadiag_carried")
    assert "triple = torch.library.custom_op('dynadiag_carried::triple', _tripled, mutates_args=())" in text
    space: dict[str, Any] = {"__name__": "carried"}
    exec(compile(text, "carried.py", "exec"), space)
    x = torch.ones(2, requires_grad=True)
    torch.compile(space["triple"], backend="aot_eager", fullgraph=True)(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [5.0, 5.0]  # its fake kernel and its backward were there


def test_operators_are_named_as_a_program_names_them() -> None:
    carrier = SourceExporter()
    assert carrier.expression(torch.ops.aten.add.Tensor) == "torch.ops.aten.add.Tensor"
    assert carrier.expression(torch.ops.aten.add) == "torch.ops.aten.add"
    assert carrier.expression(torch.ops.aten) == "torch.ops.aten"
    assert list(carrier.imports) == ["import torch"]


@triton.jit
def _halved(x):  # type: ignore[no-untyped-def]  # Triton's compiler reads it, not mypy
    return x * 0.5


@triton.autotune(configs=[triton.Config({"BLOCK": 16})], key=["n"])
@triton.jit
def halving(x_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803 - as Triton has it
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, _halved(tl.load(x_ptr + offsets, mask=offsets < n)), mask=offsets < n)


def test_a_triton_kernel_brings_its_decorators_and_the_kernels_that_it_calls(tmp_path: Path) -> None:
    carrier = SourceExporter()
    expression = carrier.expression(halving)
    file = tmp_path / "carried.py"  # Triton reads the source of a kernel, and wants a file
    file.write_text("\n".join([*carrier.imports, *carrier.blocks, f"result = {expression}"]))
    made = runpy.run_path(str(file))
    assert type(made["result"]) is type(halving)
    assert made["result"].configs[0].kwargs == {"BLOCK": 16}
    assert type(made["_halved"]) is type(_halved)


def test_what_was_there_before_is_named_by_its_place() -> None:
    def known(value: Any) -> str | None:
        return "torch.table[0]" if value is outer else None

    assert SourceExporter(known).expression(outer) == "torch.table[0]"


@pytest.mark.parametrize("value", [(lambda x: x, lambda y: y)[0], object(), torch.ones(2), torch.nn.Linear(1, 1)])
def test_what_has_no_source_of_its_own_is_refused(value: Any) -> None:
    with pytest.raises(CannotExportError):
        SourceExporter().expression(value)


def test_a_function_without_a_name_is_carried_where_it_stands_alone() -> None:
    nameless = lambda x: x * FACTOR  # noqa: E731 - that it is one is the point
    assert carried(nameless)[1]["result"](2) == 6


def test_two_things_of_one_name_are_refused() -> None:
    def make(offset: int) -> Callable[[int], int]:
        def add(x: int) -> int:
            return x + offset

        return add

    carrier = SourceExporter()
    carrier.expression(make(1))
    with pytest.raises(CannotExportError, match="add"):
        carrier.expression(make(2))


def test_an_operator_of_a_library_comes_with_all_that_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.library.Library, "define", torch.library.Library.define)
    monkeypatch.setattr(torch.library.Library, "impl", torch.library.Library.impl)
    monkeypatch.setattr(torch._library.autograd, "make_autograd_impl", torch._library.autograd.make_autograd_impl)
    torch_private.track_libraries()
    library = torch.library.Library("dynadiag_library", "DEF")
    library.define("half(Tensor x) -> Tensor")

    @torch.library.impl(library, "half", "CPU")
    def half(x: torch.Tensor) -> torch.Tensor:
        return x / 2

    @torch.library.register_fake("dynadiag_library::half")
    def half_fake(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    torch.library.register_autograd("dynadiag_library::half", lambda _, grad: grad / 2, lib=library)
    carrier = SourceExporter()
    carrier.operator("dynadiag_library::half")
    text = "\n".join(["import torch", *carrier.imports, *carrier.blocks])
    assert "@" not in text
    used = """
assert torch.ops.dynadiag_library.half(torch.ones(2)).tolist() == [0.5, 0.5]
with torch._subclasses.FakeTensorMode():
    assert torch.ops.dynadiag_library.half(torch.ones(3)).shape == (3,)
x = torch.ones(2, requires_grad=True)
torch.ops.dynadiag_library.half(x).sum().backward()
assert x.grad.tolist() == [0.5, 0.5]
"""
    subprocess.run([sys.executable, "-c", text + used], check=True)  # torch 2.11 does not forget a fake implementation
