"""The types of values that the text of a function says."""

from __future__ import annotations

import sys

import libcst as cst
import pytest

from dynadiag.fixes.rewrites.value_types import all_locals, type_in_text

HEAD = "def f(self, x, n: int, m: int = None, *, k: float = 1.0, name: str, t: torch.Tensor):\n"


def type_of(value: str, body: str = "pass") -> str | None:
    function = cst.parse_module(f"{HEAD}    {body}\n").body[0]
    assert isinstance(function, cst.FunctionDef)
    return type_in_text(function, cst.parse_expression(value))


@pytest.mark.parametrize(
    "value", ["x.shape[0]", "x.shape[:2][1]", "x.size()[0]", "x.size(-1)", "x.ndim", "x.dim()", "len(x)"]
)
def test_a_size_is_a_symbol(value: str) -> None:
    assert type_of(value) == type_of("rows", f"rows = {value}") == "SymInt"


def test_the_names_of_a_shape_are_symbols() -> None:
    assert type_of("rows", "rows, columns = x.shape") == type_of("rows", "_, rows = x.size()") == "SymInt"
    assert type_of("rows", "rows, columns = pair") is type_of("rest", "rows, *rest = x.shape") is None


def test_a_parameter_has_the_type_that_it_says() -> None:
    assert [type_of(name) for name in ("n", "k", "name")] == ["SymInt", "float", "str"]


@pytest.mark.parametrize("value", ["self", "x", "t", "m", "x.shape", "x.shape[1:]", "n + 1", "self.n", "lost"])
def test_what_the_text_does_not_say_has_no_type(value: str) -> None:
    assert type_of(value) is None


@pytest.mark.parametrize("body", ["n = x", "n += 1", "for n in x: pass", "g = lambda n: n", "(n := x)", "del n"])
def test_a_name_that_is_bound_again_has_no_type(body: str) -> None:
    assert type_of("n", body) is None


_GENERIC = [
    pytest.param(
        "def f[T](x: T) -> T: y = x",
        marks=pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 knows no type parameters"),
    )
]


@pytest.mark.parametrize(
    "text",
    ["def f(x: int): y: int = x", "@keep(lambda z: z)\ndef f(x, /, *, by=lambda z: z): import math as y", *_GENERIC],
)
def test_locals_are_those_of_the_function_itself(text: str) -> None:
    function = cst.parse_module(f"{text}\n").body[0]
    assert isinstance(function, cst.FunctionDef)
    assert all_locals(function) - {"by"} == {"x", "y"}
