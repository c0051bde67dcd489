"""Writes a short program: a function, its inputs, and a call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import Template
from typing import Any

from torch import fx

from minifier.emit.functions import write_function
from minifier.emit.identifiers import NameAllocator
from minifier.emit.inputs import input_lines
from minifier.emit.tensor_literals import uses_packing
from minifier.graph_analysis import interpret

_NAME = "f"  # of the function
# $function is the function's name, $arguments the names of its inputs.
DEFAULT_CALL = "print(torch.compile($function)($arguments))"
_WORD = re.compile(r"(?<![\w.])[^\W\d]\w*")


def write_program(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    call: str = DEFAULT_CALL,
    preamble: str = "",
) -> str:
    """The source of a program that runs the graph on these inputs.

    `call` is the call site, with `$function` and `$arguments`. `preamble` comes after the imports (a custom op, a
    kernel). Nothing from the graph is executed, and its strings are quoted. A graph that returns one value becomes a
    function that returns it without a tuple. Raises `EmitError`.
    """
    names = NameAllocator(_names_in(call) | _names_in(preamble) | {_NAME})
    values = _values(gm, inputs)
    shapes = {node: values.get(i) for i, node in enumerate(gm.graph.nodes)}
    written = write_function(gm, _NAME, names, shapes)
    made = input_lines(inputs, written.parameters, names)
    body = "\n".join([*written.setup, *made])
    imports = {"torch"} | written.imports | ({"base64", "zlib"} if uses_packing(body) else set())
    arguments = ", ".join(written.parameters)
    parts = [
        "\n".join(f"import {module}" for module in sorted(imports, key=lambda m: (m == "torch", m))),
        preamble.strip("\n"),
        "\n".join(written.setup),
        "\n" + "\n".join(written.lines) + "\n",
        "\n".join(made),
        _blank_lines_before(Template(call).substitute(function=_NAME, arguments=arguments).strip("\n")),
    ]
    return "\n\n".join(part for part in parts if part).replace("\n\n\n\n", "\n\n\n") + "\n"


def _blank_lines_before(text: str) -> str:
    """The text with a blank line added before a function definition."""
    return f"\n{text}" if text.startswith("def ") else text


def _values(gm: fx.GraphModule, inputs: Sequence[Any]) -> dict[int, Any]:
    """The values of the nodes, for comments. Empty if the graph raises uncompiled: that may be the failure."""
    try:
        return interpret(gm, inputs).values
    except Exception:  # noqa: BLE001  any operation may raise
        return {}


def _names_in(text: str) -> set[str]:
    """All names in the caller's text, except attributes: generated names must not shadow them."""
    return set(_WORD.findall(text))
