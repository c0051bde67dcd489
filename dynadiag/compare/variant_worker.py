"""Runs in the process of a variant: loads the function, then answers requests one at a time."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dynadiag.compare.variant import Variant
from dynadiag.trial.events import write_line
from dynadiag.trial.program import Program, TargetError, call_factory, load_call
from dynadiag.trial.signature import signature_of
from dynadiag.trial.typed_json import load

# With -c the current folder is first on sys.path. It is removed before dynadiag is imported, because the user may have
# a package of that name there. Loading the program adds its folder again.
BOOT = (
    "import sys; sys.path.pop(0); from dynadiag.compare.variant_worker import serve; "
    "sys.exit(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))"
)


@dataclass(frozen=True, slots=True)
class VariantRequest:
    """What the process is started for."""

    program: Program
    variant: Variant


def serve(request: str, requests: int, replies: int) -> int:
    """Answer each request (a line of JSON) with one line, until no more come or one fails.

    ``requests`` and ``replies`` are file descriptors. Returns the exit code: 0, 1 for a failure, 2 for a bad target.
    """
    for descriptor in (requests, replies):
        os.set_inheritable(descriptor, False)
    try:
        wanted = load(request, VariantRequest)
        answers = _answers(wanted.program, _measurer(wanted))
        for line in os.fdopen(requests):
            call = json.loads(line)
            write_line(replies, {"event": "done", **answers[call.pop("do")](**call)})
    except TargetError as error:
        write_line(replies, {"event": "unusable", "message": str(error)})
        return 2
    except BaseException as error:  # noqa: BLE001 - any exception of the program is the variant's failure
        write_line(replies, {"event": "failed", "failure": signature_of(error, None)})
        return 1
    return 0


def _measurer(wanted: VariantRequest) -> Any:
    call = load_call(wanted.program)
    # Only after the program is loaded: it may set environment variables before it imports torch.
    measure = importlib.import_module("dynadiag.compare.measure")
    return measure.Measurer(call, wanted.variant)


def _answers(program: Program, measurer: Any) -> dict[str, Callable[..., dict[str, Any]]]:
    def inputs(name: str) -> dict[str, Any]:
        return dict(measurer.inputs(_inputs(replace(program, name=name))))

    measured = {name: getattr(measurer, name) for name in ("first", "round", "count", "profile", "warm")}
    return {"load": dict, "inputs": inputs, **measured}


def _inputs(program: Program) -> list[tuple[Any, ...]]:
    """The list of argument tuples that a function in the target's file returns. Raises `TargetError` for others."""
    found = call_factory(program)
    if not isinstance(found, (list, tuple)) or not all(isinstance(args, tuple) for args in found):
        raise TargetError(f"{program.name}() must return a list of args, each a tuple")
    return list(found)
