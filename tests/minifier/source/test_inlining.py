"""A call is replaced by a body that computes the same."""

from __future__ import annotations

import ast
import contextlib
import io

import pytest

from minifier.source import Observed
from minifier.source.passes.definitions import bind_parameters
from minifier.source.passes.inlining import inline_calls, inline_variables
from minifier.source.trees import apply_edit, render

PROGRAMS = {
    "the parameter is assigned": """
def f(a, b):
    a = a + b
    return a * 2

x = 3
print(f(x, 4), x)
""",
    "the argument is read twice, and computes": """
def f(a):
    b = a + a
    return b * a

print(f([1].pop()), 0)
""",
    "the body defines a function": """
def f(a):
    def g(b):
        return a + b
    return g

print(f(3)(4))
""",
    "a name of the body is one of the caller's": """
def f(a):
    y = a + 1
    return y * y

y = 5
print(f(y), y)
""",
}


def output_of(text: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(text, "program.py", "exec"), {})
    return printed.getvalue()


@pytest.mark.parametrize("what", PROGRAMS)
def test_an_inlined_call_computes_the_same(what: str) -> None:
    text = PROGRAMS[what]
    tree = ast.parse(text)
    made = [render(apply_edit(tree, edit)) for (edit,) in inline_calls(tree, Observed().of(tree))]
    assert [output_of(one) for one in made] == [output_of(text)]
    assert "def f" not in made[0]


def test_a_variable_is_replaced_where_it_is_read() -> None:
    tree = ast.parse("x = 3\ny = x + 1\nprint(x, y)\n")
    made = [render(apply_edit(tree, edit)) for (edit,) in inline_variables(tree, Observed().of(tree))]
    assert made == ["y = 3 + 1\nprint(3, y)\n", "x = 3\nprint(x, x + 1)\n"]


def test_a_lambda_that_all_calls_pass_takes_the_place_of_the_parameter() -> None:
    tree = ast.parse("def f(g, x):\n    return g(x)\nprint(f(lambda y: y * 2, 3), f(lambda y: y * 2, 4))\n")
    (edit,) = next(group for group in bind_parameters(tree, Observed().of(tree)) if group)
    text = render(apply_edit(tree, edit))
    assert text == "def f(x):\n    return (lambda y: y * 2)(x)\nprint(f(3), f(4))\n"
