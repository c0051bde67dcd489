"""The calls that led to a compile: torch's event leaves out the last of them, the recorder does not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import dynadiag


def _wrap(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any) -> Any:
        return fn(*args)

    return wrapper


def _inner(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return x.cos()


@_wrap
def _outer(x: torch.Tensor) -> torch.Tensor:
    return _inner(x) + 1


def _plain(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def _split(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    x = x.sin()
    torch._dynamo.graph_break()
    return _inner(x)


def _calls(file: Path, call: Callable[[], object]) -> dict[str, list[str]]:
    """The functions on the way to the first compile of each function, from `call` on, by its name."""
    torch._dynamo.reset()
    with dynadiag.record(file):
        call()
    with dynadiag.open(file) as recording:
        stacks = {
            item.function: [frame.function for frame in item.user_stack] for item in reversed(recording.compiles())
        }
    return {name: stack[stack.index(call.__name__) :] for name, stack in stacks.items()}


def test_the_direct_caller_is_known(tmp_path: Path) -> None:
    def main() -> None:
        torch.compile(_plain, backend="eager")(torch.ones(3))

    assert _calls(tmp_path / "run.dynadiag", main) == {"_plain": ["main", "_plain"]}


def test_the_caller_of_a_decorated_function_is_known_with_and_without_a_break(tmp_path: Path) -> None:
    def main() -> None:
        torch.compile(_outer, backend="eager")(torch.ones(3))

    found = _calls(tmp_path / "run.dynadiag", main)
    assert found["_outer"] == ["main", "wrapper", "_outer"]
    assert found["_inner"] == ["main", "wrapper", "_outer", "_inner"]


def test_the_caller_of_a_function_of_torch_is_the_last(tmp_path: Path) -> None:
    def main() -> None:
        torch.compile(torch.nn.Linear(3, 3), backend="eager")(torch.ones(3))

    (stack,) = _calls(tmp_path / "run.dynadiag", main).values()
    assert stack == ["main"]


def test_a_function_that_breaks_split_is_one_caller_with_the_line_of_the_call(tmp_path: Path) -> None:
    """torch calls each part of it from the one before; the last of them has the call."""
    torch._dynamo.reset()
    with dynadiag.record(tmp_path / "run.dynadiag"):
        torch.compile(_split, backend="eager")(torch.ones(3))
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        compiles, breaks = recording.compiles(), recording.breaks()
    inner = [item for item in compiles if item.function == "_inner"]
    for stack in [item.user_stack for item in inner] + [item.user_stack for item in breaks]:
        assert [frame.function for frame in stack].count("_split") == 1
    first, call = _split.__code__.co_firstlineno, inner[0].user_stack[-2]
    assert (call.function, call.line) == ("_split", first + 4)
    parts = [item for item in compiles if item.function == "_split"]
    assert len(parts) > 1
    assert all("_split" not in [frame.function for frame in item.callers] for item in parts)
