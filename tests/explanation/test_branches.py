"""What is read of a branch: its condition as an expression of tensors, and what a side passes on as it is."""

from __future__ import annotations

import ast
import textwrap
from typing import Any

import pytest
import torch

from dynadiag.explanation.branches import does_more, is_of_an_operand, kept_side, only_shows, tensor_condition
from dynadiag.fixes.rewrites.side_expressions import new_tensor
from dynadiag.recording.records import Span

V = torch.linspace(-1.0, 3.0, 12).reshape(4, 3)


@pytest.mark.parametrize(
    ("condition", "written"),
    [
        ("v.sum() > 0", "v.sum() > 0"),
        ("v.sum()", "v.sum() != 0"),
        ("(v > 0).any()", "(v > 0).any()"),
        ("not v.sum()", "torch.logical_not(v.sum() != 0)"),
        ("v.sum() > 0 and not (v > 9).any()", "(v.sum() > 0) & (torch.logical_not((v > 9).any()))"),
        ("v.min() < 0 or v.max() > 2", "(v.min() < 0) | (v.max() > 2)"),
        ("v is not None and v.sum() > 0", ""),
        ("flag and v.sum() > 0", ""),
        ("0 < v.sum() < 9", ""),
    ],
)
def test_a_condition_is_written_for_tensors(condition: str, written: str) -> None:
    source = f"def f(v, flag):\n    if {condition}:\n        return v + 1\n    return v - 1\n"
    assert tensor_condition(source, Span("f.py", 2, 7)) == written
    if written:
        chosen = torch.where(eval(written, {"v": V, "torch": torch}), V + 1, V - 1)  # noqa: S307 - a text of this table
        scope: dict[str, Any] = {}
        exec(source, scope)
        torch.testing.assert_close(chosen, scope["f"](V, True))


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("if v.sum() > 0:\n    return v\nreturn v + 1", "v"),
        ("if v.sum() > 0:\n    return v + 1\nreturn v[:2]", "v[:2]"),
        ("if v.sum() > 0:\n    v = v * 2\nreturn v", "v"),
        ("if v.sum() > 0:\n    w = v * 2\nelse:\n    w = v.T\nreturn w", "v.T"),
        ("if v.sum() > 0:\n    w = v * 2\n    return w\nreturn v + 1", ""),
        ("if v.sum() > 0:\n    return v + 1, v.float()\nreturn v, v", "v.float()"),
        ("if v.sum() > 0:\n    v += 1\nelse:\n    v = v - 1\nreturn v", ""),
        ("if v.sum() > 0:\n    return v + 1\nn = int(v.max())\nw = v[:n]\nreturn w + 1", ""),
        ("if v.sum() > 0:\n    sizes = [1, 2]\n    k = sizes[0]\n    v = v * k\nreturn v", "v"),
        ("n = 1\nif v.sum() > 0:\n    n = n + 1\nreturn v * n", ""),
        ("n, w = 1, v + 1\nif v.sum() > 0:\n    n, w = n + 1, v\nreturn w * n", "v"),
        ("return v if v.sum() > 0 else v + 1", "v"),
        ("return v * 2 if v.sum() > 0 else v + 1", ""),
    ],
)
def test_what_a_side_passes_on_is_named(body: str, kept: str) -> None:
    source = f"def f(v):\n{textwrap.indent(body, '    ')}\n"
    assert kept_side(source, Span("f.py", 2 + body.partition("if ")[0].count("\n"), 7)) == kept


@pytest.mark.parametrize(
    "text", ["v", "v.T", "v[:2]", "v[0]", "v.view(3, 4)", "v.float()", "v.contiguous()", "v.to(v.dtype)", "v.detach()"]
)
def test_an_operand_or_a_view_of_one_is_copied_in_a_side(text: str) -> None:
    assert is_of_an_operand(ast.parse(text, mode="eval").body)

    def choose(side: str) -> Any:
        made = eval(f"lambda v: {side}", {"torch": torch})  # noqa: S307 - a text of this table
        torch._dynamo.reset()
        function = torch.compile(lambda v: torch.cond(v.sum() > 0, made, lambda v: made(v) + 1, (v,)), backend="eager")
        return function(V)

    with pytest.raises(Exception, match=r"alias"):
        choose(text)
    torch.testing.assert_close(choose(new_tensor(text)), eval(text, {"v": V}))  # noqa: S307 - as above


@pytest.mark.parametrize("text", ["v * 2", "-v", "v.sin()", "torch.stack([v, v])"])
def test_what_a_side_computes_is_not_copied(text: str) -> None:
    assert new_tensor(text) == text


def test_a_value_that_the_condition_reads_is_more_than_kept() -> None:
    peak = "def f(self, m):\n    if m > self.peak:\n        self.peak = m\n    return m"
    last = peak.replace("self.peak = m", "self.last = m")
    assert [only_shows(text, Span("f.py", 2, 7)) for text in (peak, last)] == [False, True]


def test_a_side_that_loops_or_calls_for_an_effect_does_more_than_compute() -> None:
    text = "def f(self, x):\n    if x.any():\n        {}\n    return x"
    sides = {"x = x * 2": False, "x.mul_(2)": False, "self.done.append(x)": True, "for y in x: x = x + y": True}
    assert {side: does_more(text.format(side), Span("f.py", 2, 7)) for side in sides} == sides
