"""Turns a live exception into a signature. Runs in the trial's process and does not import torch itself."""

from __future__ import annotations

import re
import sys
import traceback
from pathlib import Path
from types import TracebackType

from dynadiag.trial.signature import Signature

__all__ = ["signature_of", "user_lines", "witness_of"]

_TARGET = re.compile(r"^\s*target: (\S+)", re.M)
_NODE = re.compile(r"While executing %(\w+)")
_USER_CODE = "from user code:"
_FILE_LINE = re.compile(r'File "([^"]+)", line (\d+)')
_MESSAGE_LIMIT = 20_000


def signature_of(error: BaseException, rung: str | None) -> Signature:
    """The signature of an exception that left the program."""
    inner = _innermost(error)
    return Signature(
        kind="exception",
        type=_type_name(error),
        message=str(error)[:_MESSAGE_LIMIT],
        where=_deepest_torch_frame(inner) or _deepest_torch_frame(error),
        user=_program_line(error.__traceback__),
        cause=_type_name(inner),
        rung=rung,
    )


def witness_of(error: BaseException) -> tuple[str, ...]:
    """The operators and nodes that the exception's text names. They are hints, which trials must confirm."""
    text = str(error)
    notes = "".join(getattr(error, "__notes__", ()))
    return tuple(dict.fromkeys(_TARGET.findall(text) + _NODE.findall(text + notes)))


def user_lines(error: BaseException) -> list[tuple[str, int]]:
    """The user's line that torch blames, from the user stack in the exception or in its message. Empty where there is
    none.
    """
    stack = getattr(error, "real_stack", None)
    if stack:
        return [(stack[-1].filename, stack[-1].lineno)]
    _, found, after = str(error).rpartition(_USER_CODE)
    entries = _FILE_LINE.findall(after.split("\n\n")[0]) if found else []
    return [(file, int(line)) for file, line in entries[-1:]]


def _innermost(error: BaseException) -> BaseException:
    """The exception that torch wrapped: BackendCompilerFailed and InductorError keep it as ``inner_exception``."""
    inner = getattr(error, "inner_exception", None)
    if isinstance(inner, BaseException) and inner is not error:
        return _innermost(inner)
    return _cause_behind_fake_tensors(error) if type(error).__name__ == "TorchRuntimeError" else error


def _cause_behind_fake_tensors(error: BaseException) -> BaseException:
    """What an operation of the program raised while Dynamo traced it: the first exception of the chain that is not
    Dynamo's.
    """
    behind: BaseException | None = error
    while behind is not None and type(behind).__module__ == type(error).__module__:
        behind = behind.__cause__ or behind.__context__
    return behind or error


def _type_name(error: BaseException) -> str:
    kind = type(error)
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )


def _torch_root() -> str | None:
    torch = sys.modules.get("torch")
    file = getattr(torch, "__file__", None)
    return str(Path(file).parent.parent) + "/" if file else None


def _deepest_torch_frame(error: BaseException) -> str | None:
    """The innermost frame in torch. torch.testing does not count: there the program's own comparison fails."""
    root = _torch_root()
    if root is None:
        return None
    for entry in reversed(traceback.extract_tb(error.__traceback__)):
        if entry.filename.startswith(root + "torch/") and "/torch/testing/" not in entry.filename:
            return f"{entry.filename[len(root) :]}:{entry.lineno} in {entry.name}"
    return None


def _program_line(trace: TracebackType | None) -> str | None:
    """The line of the main program that was running, as ``FILE:LINE`` without the folder."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    for entry in traceback.extract_tb(trace):
        if entry.filename == main:
            return f"{Path(entry.filename).name}:{entry.lineno}"
    return None
