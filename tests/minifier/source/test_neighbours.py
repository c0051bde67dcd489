"""The neighbours of a program: what is changed, and that nothing else is."""

from __future__ import annotations

import ast

import pytest

from minifier.source.neighbours import neighbours


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("y = x.sum(0, keepdim=True)", [("argument", "keepdim=True", "keepdim=False", "y = x.sum(0, keepdim=False)")]),
        ("y = torch.add(x, x, alpha=2)", [("argument", "alpha=2", "", "y = torch.add(x, x)")]),
        ("y = torch.f(x, True)", [("argument", "torch.f(x, True)", "torch.f(x, False)", "y = torch.f(x, False)")]),
        (
            "y = torch.ones(2, requires_grad=True) + torch.rand(2, requires_grad=True)",
            [
                (
                    "gradient",
                    "requires_grad=True",
                    "",
                    "y = torch.ones(2) + torch.rand(2)",
                )
            ],
        ),
        (
            "y = x.to(torch.float16) + torch.ones(2, dtype=torch.float16)",
            [
                (
                    "dtype",
                    "torch.float16",
                    "torch.float32",
                    "y = x.to(torch.float32) + torch.ones(2, dtype=torch.float32)",
                )
            ],
        ),
        ("y = torch.ones(2).requires_grad_()", [("gradient", ".requires_grad_()", "", "y = torch.ones(2)")]),
        ("y = x.half()", [("dtype", ".half()", ".float()", "y = x.float()")]),
        ("y = torch.full((2,), float('nan'))", [("value", "nan", "1.0", "y = torch.full((2,), 1.0)")]),
        ("y = -torch.inf", [("value", "inf", "1.0", "y = -1.0")]),
        ("y = torch.ones(0, 3)", [("size", "torch.ones(0, 3)", "torch.ones(2, 3)", "y = torch.ones(2, 3)")]),
        (
            "y = torch.full((3, 0), 0)",
            [("size", "torch.full((3, 0), 0)", "torch.full((3, 2), 0)", "y = torch.full((3, 2), 0)")],
        ),
        (
            "y = torch.ones(3).as_strided((2, 2), (1, 1))\ndef f(x):\n    return x.t()",
            [
                (
                    "layout",
                    "torch.ones(3).as_strided((2, 2), (1, 1))",
                    "torch.ones(3).as_strided((2, 2), (1, 1)).contiguous()",
                    None,
                )
            ],
        ),
        (
            "torch._inductor.config.cpp.threads = 1",
            [("setting", "torch._inductor.config.cpp.threads = 1", "", "")],
        ),
        (
            "torch._inductor.config.fallback = True",
            [
                (
                    "setting",
                    "torch._inductor.config.fallback = True",
                    "torch._inductor.config.fallback = False",
                    "torch._inductor.config.fallback = False",
                )
            ],
        ),
        ("torch.a.table[torch.b] = f", [("setting", "torch.a.table[torch.b] = f", "", "")]),
        ("torch.set_flush_denormal(1)", [("setting", "torch.set_flush_denormal(1)", "", "")]),
        ("with torch.no_grad():\n    y = x", [("setting", "with torch.no_grad()", "", "y = x")]),
        ("@torch.a\n@torch.compile(backend='eager')\ndef g():\n    return x", [("setting", "@torch.a", "", None)]),
        # what says nothing: other rungs, other numbers, how results are compared, and the program's own functions
        ("y = torch.compile(x, backend='eager')(torch.rand(2, generator=g))", []),
        ("y = torch.ops.aten.zeros.default([2], layout=torch.strided)", []),
        ("torch.testing.assert_close(x, x, equal_nan=True)", []),
        ("class A:\n    pass\nA.f(deep=True)\nf(deep=True)", []),
        ("y = x + 0", []),
        (f"y = torch.f(text={'a' * 200!r})", []),
    ],
)
def test_one_option_is_changed_wherever_it_stands(line: str, changes: list[tuple[str, str, str, str | None]]) -> None:
    found = list(neighbours(f"import torch\n{line}\n"))
    assert [(each.kind, each.was, each.now) for each in found] == [change[:3] for change in changes]
    for each, (*_, changed) in zip(found, changes, strict=True):
        ast.parse(each.text)
        assert changed is None or each.text == f"import torch\n{changed}\n".replace("\n\n", "\n")


def test_options_of_what_the_program_gives_to_torch_are_none() -> None:
    """Of its pass, its operator and its lowering: they are not compiled."""
    text = """
import torch
aten = torch.ops.aten
def fold(graph):
    for node in graph.find_nodes(op="call_function", target=aten.sub.Tensor):
        graph.erase_node(node, check=True)
torch._inductor.config.post_grad_custom_pre_pass = fold
@torch.library.custom_op("a::b", mutates_args=())
def b(x: torch.Tensor) -> torch.Tensor:
    return x.sum(0, keepdim=True)
@b.register_fake
def _(x):
    return torch.empty_like(x, pin_memory=True)
@torch.no_grad()
def f(x):
    return torch.sub(b(x), x, alpha=3)
torch.compile(f)(torch.ones(2))
"""
    pass_of_torch = "torch._inductor.config.post_grad_custom_pre_pass = fold"
    assert {each.was for each in neighbours(text)} == {"alpha=3", pass_of_torch, "@torch.no_grad()"}
