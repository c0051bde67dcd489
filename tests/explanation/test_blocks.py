"""The blocks in which torch cannot split a graph, on the installed torch."""

from __future__ import annotations

import contextlib
import textwrap
from typing import Any

import pytest
import torch

from dynadiag.explanation.blocks import handled_lines, is_condition, loop_around, unsplittable_block
from dynadiag.recording.records import Span

BLOCKS = {
    "a loop": ("for _ in range(2):\n    BREAK", "i = 0\nwhile i < 2:\n    i += 1\n    BREAK"),
    "a `with` block": (
        "with Own():\n    BREAK",
        "with contextlib.suppress(ValueError):\n    BREAK",
    ),
    "a `try` block": ("try:\n    BREAK\nexcept ValueError:\n    pass", "try:\n    BREAK\nfinally:\n    x = x + 1"),
    "an `except` block": ("try:\n    raise ValueError\nexcept ValueError:\n    BREAK",),
    None: (
        "BREAK",
        "with torch.no_grad():\n    BREAK",
        "with contextlib.nullcontext():\n    BREAK",
        "try:\n    x = x + 1\nexcept ValueError:\n    pass\nelse:\n    BREAK",
        "try:\n    x = x + 1\nfinally:\n    BREAK",
        "for _ in range(2):\n    x = x + 1\nelse:\n    BREAK",
    ),
}


class Own:
    def __enter__(self) -> None: ...

    def __exit__(self, *_error: object) -> None: ...


@pytest.mark.parametrize(("told", "block"), [(told, block) for told, blocks in BLOCKS.items() for block in blocks])
def test_the_block_in_which_torch_cannot_split_a_graph(told: str | None, block: str) -> None:
    body = textwrap.indent(block.replace("BREAK", "torch._dynamo.graph_break()"), "    ")
    source = f"def f(x):\n    x = x + 1\n{body}\n    return x * 2\n"
    graphs = []
    names: dict[str, Any] = {"torch": torch, "contextlib": contextlib, "Own": Own}
    exec(source, names)
    torch._dynamo.reset()
    torch.compile(names["f"], backend=lambda graph, _inputs: graphs.append(graph) or graph.forward)(torch.ones(2))
    line = 1 + source[: source.index("torch._dynamo")].count("\n")
    assert unsplittable_block(source, Span("f.py", line)) == told
    assert bool(graphs) == (told is None)


SOURCE = """
def f(x):
    try:
        y = g(x)
        z = h(y)
    except KeyError:
        print("missing")
    if chance() < 0.5 and y:
        y = chance()
    return y
"""


def test_a_place_in_a_handler_is_led_to_the_lines_that_it_is_for() -> None:
    assert handled_lines(SOURCE, Span("f.py", 7)) == (4, 5)
    assert handled_lines(SOURCE, Span("f.py", 5)) is None


def test_a_place_in_what_a_branch_goes_by() -> None:
    assert is_condition(SOURCE, Span("f.py", 8, 7))
    assert not is_condition(SOURCE, Span("f.py", 9, 12))


@pytest.mark.parametrize(
    ("source", "line", "loop"),
    [
        ("for n in r:\n    def f(x):\n        return x\n", 2, 1),
        ("for n in r:\n    @compile\n    def f(x):\n        return x\n", 2, 1),
        ("for n in r:\n    fs.append(lambda x: x)\n", 2, 1),
        ("def f(x):\n    for n in r:\n        x = x + 1\n    return x\n", 1, None),
        ("for n in r:\n    def g():\n        def f(x):\n            return x\n        return f\n", 3, None),
    ],
)
def test_a_loop_that_makes_a_function_anew(source: str, line: int, loop: int | None) -> None:
    assert loop_around(source, line) == loop
