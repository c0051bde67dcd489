"""What a graph break knows when torch logs it: its type, and the exact span of source that it blames.

torch's text names a line. The span comes from the instruction that Dynamo's translator of that frame is at: its
``positions`` have columns for every instruction (Python 3.11 and up).
"""

from __future__ import annotations

import functools
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeAlias

from dynadiag.capture import spans
from dynadiag.torch_private import capture as torch_private

_OBSERVED = "Observed exception"  # torch's type of break for an exception that no traced code handles

Sources: TypeAlias = Callable[[str], spans.SourceText]  # the lines of a file when the recorder first saw it


def describe_break(
    failure: BaseException, emitter: FrameType | None, sources: Sources, *, fatal: bool
) -> dict[str, Any]:
    """Return the data of one break: ``gb_type``, its location, and whether torch raised it.

    The location is file, line, columns and function.
    """
    place = _blamed_location(failure, emitter, sources)
    made = {"gb_type": _gb_type(failure), "fatal": fatal, "raised": type(failure).__name__, **(place or {})}
    if made["gb_type"] == _OBSERVED and (origin := _raised_at(failure, emitter)):
        made["raised_at"] = origin
    return made


def _raised_at(failure: BaseException, emitter: FrameType | None) -> dict[str, Any] | None:
    """The innermost frame in the traceback of the traced exception, of those that are the user's or a library's."""
    for tx in torch_private.instruction_translators(emitter, failure):
        try:
            frames = torch_private.exception_traceback(tx)
        except Exception:  # noqa: BLE001 - it asks Dynamo's objects, and a break is worth more than its origin
            return None
        own = [frame for frame in frames if not is_stdlib_or_torch(frame[0])]
        if own or frames:
            return frame_data(*(own or frames)[-1])
    return None


def user_callers(frame: FrameType | None) -> list[dict[str, Any]]:
    """Return the user's frames from ``frame`` outwards, outermost first. torch leaves them out of a raised break."""
    found = []
    while frame is not None:
        own = str(frame.f_globals.get("__name__")).partition(".")[0] == "dynadiag"
        if not own and not is_stdlib_or_torch(frame.f_code.co_filename):
            found.append(frame_data(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return found[::-1]


def frame_data(file: str, line: int | None, function: str) -> dict[str, Any]:
    """Return a frame in the form that our events have."""
    return {"file": file, "line": line, "function": function}


def _gb_type(failure: BaseException) -> str | None:
    name = getattr(failure, "gb_type", None)
    return name if isinstance(name, str) and name else None


def _blamed_location(failure: BaseException, emitter: FrameType | None, sources: Sources) -> dict[str, Any] | None:
    """The innermost frame of the user's code or of a library that it called. If there is none, the innermost of all."""
    interpreters = list(torch_private.instruction_translators(emitter, failure))
    theirs = [tx for tx in interpreters if not is_stdlib_or_torch(tx.f_code.co_filename)]
    innermost = (theirs or interpreters)[-1:]
    return _location_of(innermost[0], sources) if innermost else None


def _location_of(tx: Any, sources: Sources) -> dict[str, Any]:
    code: CodeType = tx.f_code
    source = sources(code.co_filename)
    span = spans.blamed_positions(source, torch_private.instructions_backwards(tx))
    line = span.line if span else _line(tx)
    place: dict[str, Any] = {"file": code.co_filename, "line": line, "function": code.co_qualname}
    return place if span is None else {**place, **spans.to_character_columns(source, span)}


def _line(tx: Any) -> int | None:
    positions = getattr(tx.current_instruction, "positions", None)
    return getattr(positions, "lineno", None) or getattr(tx, "lineno", None)


@functools.cache
def is_stdlib_or_torch(file: str) -> bool:
    """Whether a file belongs to Python's standard library, to torch, or to the interpreter."""
    if file.startswith("<frozen "):
        return True
    path = Path(file)
    return any(_inside(path, folder) for folder in _stdlib_and_torch()) and "site-packages" not in _parts_below_stdlib(
        path
    )


def _parts_below_stdlib(path: Path) -> tuple[str, ...]:
    """The parts of a path below the standard library. ``site-packages`` there is a library of the user's."""
    stdlib, torch = _stdlib_and_torch()
    if _inside(path, torch):
        return ()
    return path.relative_to(stdlib).parts if _inside(path, stdlib) else ()


def _inside(path: Path, folder: Path) -> bool:
    return path.is_relative_to(folder)


@functools.cache
def _stdlib_and_torch() -> tuple[Path, Path]:
    import torch

    return Path(sysconfig.get_path("stdlib")), Path(torch.__file__).parent
