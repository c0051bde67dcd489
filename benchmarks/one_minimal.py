"""Try every single removal on finished repros: of each operation, in every way that leaves a program.

    python benchmarks/one_minimal.py repro.py other_repro.py ...

An operation in `f` is taken out by returning what it returned uncompiled (as a tensor from outside), or one of its
arguments in its place; one that is done for its effect only is left out. Each variant runs in a fork, and still fails
if it ends as the repro itself does: the same exception, or the same signal. Exits with 1 where one does. It reads the
text of the repro and knows nothing of the reducer.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import os
import re
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

_SECONDS = 300  # of one variant; a hang is a failure, and a repro of one ends here


@dataclass(frozen=True)
class Variant:
    """A repro with one operation less. `outside`: names of what it reads that the text does not make."""

    what: str
    source: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repros", nargs="+", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)  # a process that ran a parallel region cannot be forked safely
    wrong = 0
    for path in options.repros:
        source = path.read_text()
        values = eager_values(source)
        sought = ending(source, values)
        found = list(variants(source, values))
        still = [variant.what for variant in found if ending(variant.source, values) == sought]
        wrong += bool(still) or sought == "ended"
        count, how = len(operations(function(ast.parse(source)))), sought.splitlines()[0]
        print(f"{path}: {count} operations, {len(found)} removals, {len(still)} still fail ({how})", *still)
    return 1 if wrong else 0


def function(tree: ast.Module) -> ast.FunctionDef:
    (found,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "f"]
    return found


def operations(node: ast.FunctionDef) -> list[int]:
    """The statements of a function that compute something, by number."""
    return [i for i, statement in enumerate(node.body) if _computed(statement) is not None]


def _computed(statement: ast.stmt) -> ast.expr | None:
    value = statement.value if isinstance(statement, (ast.Assign, ast.Expr, ast.Return)) else None
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    return None if all(isinstance(part, (ast.Name, ast.Constant, type(None))) for part in parts) else value


def variants(source: str, values: dict[str, Any]) -> Iterator[Variant]:
    plain = function(ast.parse(source))
    local = {a.arg for a in plain.args.args} | {
        n.id for n in ast.walk(plain) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    for i in operations(plain):
        value = _computed(plain.body[i])
        assert value is not None
        if isinstance(value, ast.Subscript) and _several(value.value, plain, values):
            continue  # what returns several values, and the one of them that is used, are one operation
        names = dict.fromkeys(n.id for n in ast.walk(value) if isinstance(n, ast.Name) and n.id in local)
        for instead in (f"_outside_{i}", *names):
            yield _without(source, i, instead)


def _several(value: ast.expr, plain: ast.FunctionDef, values: dict[str, Any]) -> bool:
    places = [i for i in operations(plain) if isinstance(plain.body[i], ast.Assign)]
    named = {ast.unparse(plain.body[i].targets[0]): i for i in places}  # type: ignore[attr-defined]  # an Assign
    return isinstance(values.get(f"_outside_{named.get(ast.unparse(value))}"), (tuple, list))


def _without(source: str, place: int, instead: str) -> Variant:
    tree = ast.parse(source)
    body = function(tree).body
    what = f"{instead} for {ast.unparse(body[place])}"
    if isinstance(body[place], ast.Expr):
        body[place] = ast.Pass()
    else:
        body[place].value = ast.Name(instead, ast.Load())  # type: ignore[attr-defined]  # an Assign or a Return
    return Variant(what, ast.unparse(ast.fix_missing_locations(tree)))


def eager_values(source: str) -> dict[str, Any]:
    """What each operation returns uncompiled, the first time that it is run: in a fork: it may register things."""
    with tempfile.NamedTemporaryFile() as file:
        child = os.fork()
        if child == 0:
            torch.save(_eager_values(source), file.name)
            os._exit(0)
        os.waitpid(child, 0)
        loaded: dict[str, Any] = torch.load(file.name, weights_only=True)
    return loaded


def _eager_values(source: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def note(place: int, value: Any) -> Any:
        found.setdefault(f"_outside_{place}", copy.deepcopy(_detached(value)))
        return value

    tree = ast.parse(source)
    body = function(tree).body
    for i in operations(function(tree)):
        value = _computed(body[i])
        assert value is not None
        body[i].value = ast.Call(ast.Name("_note", ast.Load()), [ast.Constant(i), value], [])  # type: ignore[attr-defined]
    compiling, torch.compile = torch.compile, _as_it_is  # type: ignore[assignment]
    try:
        program = compile(ast.fix_missing_locations(tree), "repro.py", "exec")
        exec(program, {"__name__": "__main__", "_note": note})  # noqa: S102 - a repro is there to be run
    except Exception:  # noqa: BLE001 - uncompiled it may raise, which may be its point
        traceback.print_exc()
    finally:
        torch.compile = compiling
    return found


def _as_it_is(model: Callable[..., Any] | None = None, **_: Any) -> Any:
    return model if model is not None else _as_it_is


def _detached(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(map(_detached, value))
    return value.detach().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


def ending(source: str, values: dict[str, Any]) -> str:
    """How a program ends: the exception without its numbers, the signal, or "ended"."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _run(source, values, write)
    os.close(write)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.alarm(_SECONDS)
    with os.fdopen(read) as told:
        text = told.read()
    status = os.waitpid(child, 0)[1]
    signal.alarm(0)
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else text


def _run(source: str, values: dict[str, Any], write: int) -> None:
    text = "ended"
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
    try:
        program = compile(source, "repro.py", "exec")
        exec(program, {"__name__": "__main__", **values})  # noqa: S102 - a repro is there to be run
    except AssertionError:
        text = "AssertionError"
    except Exception as error:  # noqa: BLE001 - how it ends is the question
        text = f"{type(error).__name__}: {re.sub(r'[0-9]+', 'N', str(error))[:200]}"
    with contextlib.suppress(OSError):
        os.write(write, text.encode())
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
