"""Describes a call of `torch.export` or of AOTInductor: what was exported, from which line, and why it failed.

Non-strict export runs the program's own Python code, so that the frames of an exception are the program's. Strict
export traces with Dynamo, outside of any compile: then the exception has the program's frames.
"""

from __future__ import annotations

import sys
import traceback
import zipfile
from pathlib import Path
from types import FrameType
from typing import Any

from dynadiag.capture.code_locations import describe_callable, frame_data, is_stdlib_or_torch, user_callers
from dynadiag.capture.dynamic_shapes import fitting_shapes
from dynadiag.capture.run_metadata import text_of
from dynadiag.torch_private import exports as torch_private

# What writes a file, and a part of a name in it (torch/export/pt2_archive/constants.py, torch/serialization.py).
_PARTS = {
    "torch._inductor.aoti_compile_and_package": "/data/aotinductor/",
    "torch.export.save": "/models/",
    "torch.jit.save": "/constants.pkl",
    "torch.save": "/data.pkl",
}
_NOT_TRACED = ("dynadiag", "sympy")  # torch computes with sympy
_MAX_MESSAGE = 20_000  # characters of an exception's message that are recorded


def describe_export(outcome: str, caller: FrameType) -> dict[str, Any] | None:
    """Return the data of an export that begins or ends in ``caller``. A failed one has its exception.

    ``again``: it is a draft's second attempt, with `Dim.AUTO` for each `Dim`, after the first violated a constraint.
    None where torch may yet load a file that its reader failed at.
    """
    frames = [caller]
    while (outer := frames[-1].f_back) is not None:
        frames.append(outer)
    frames.reverse()
    failure = sys.exc_info()[1] if outcome == "error" else None
    inner = [] if failure is None else list(traceback.walk_tb(failure.__traceback__))
    lines = {id(frame): line for frame, line in inner}
    below = [frame for frame, _ in inner if frame not in frames]
    data = {"outcome": outcome, **_call(frames), **_failure(failure, below, lines)}
    if failure is not None and (given := torch_private.given_shapes([*frames, *below])) is not None:
        data["shapes"] = fitting_shapes(*given)
    if outcome == "begun" and torch_private.is_second_attempt(frames):
        data["again"] = True
    if (api := data["api"]) not in torch_private.FILES:
        return data
    path = torch_private.loaded_file(frames)
    contents = "nothing" if path is None else _contents(path)
    return data | {"contents": contents} if _is_final(api, contents) else None


def describe_ending_failure(failure: BaseException | None) -> dict[str, Any] | None:
    """Return the data of the export in which the exception that ends the program was raised, if no event has it."""
    if failure is None or torch_private.was_told(failure):
        return None
    passed = list(traceback.walk_tb(failure.__traceback__))
    frames = [frame for frame, _ in passed]
    if (called := torch_private.called_api(frames)) is None:
        return None
    place, lines = called[0], {id(frame): line for frame, line in passed}
    callers = [_frame_of(frame, lines) for frame in frames[:place] if _is_users(frame)]
    data = {"outcome": "error", **_call(frames), "callers": callers}
    data |= _failure(failure, frames[place:], lines)
    if (logged := torch_private.logged_failure(failure)) is not None:
        data["message"] = logged[:_MAX_MESSAGE]
    path = torch_private.loaded_file(frames)
    return data if path is None else data | {"contents": _contents(path)}


def _is_final(api: str, contents: str) -> bool:
    """Whether torch cannot load a file that its reader failed at. It then reads older formats, and a program may try
    whether there is a file.
    """
    is_package = contents == "torch._inductor.aoti_compile_and_package"
    return contents in (*_PARTS, "no archive") and not (is_package and api == "torch._inductor.aoti_load_package")


def _contents(path: str) -> str:
    """What a file holds, by the names in its archive: what wrote it says why it cannot be loaded."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, ValueError, zipfile.BadZipFile):
        return "no archive" if Path(path).exists() else "nothing"
    return next((what for what, part in _PARTS.items() if any(part in name for name in names)), "another archive")


def _call(frames: list[FrameType]) -> dict[str, Any]:
    """What was called, on what, and from where."""
    called = torch_private.called_api(frames)
    if called is None:  # a private function of torch's that exports
        return {"api": "torch.export", "callers": user_callers(frames[-1])}
    place, api, module, strict = called
    exported = describe_callable(module, frames[place]) if callable(module) else frame_data(None, None, None)
    return {"api": api, "strict": strict, **exported, "callers": user_callers(frames[place])}


def _failure(failure: BaseException | None, below: list[FrameType], lines: dict[int, int]) -> dict[str, Any]:
    """The exception, and the frames of the program's code that was traced."""
    if failure is None:
        return {}
    real = getattr(failure, "real_stack", None)
    if real:
        stack = [frame_data(each.filename, each.lineno, each.name) for each in real]
        stack = [each for each in stack if not is_stdlib_or_torch(str(each["file"]))]
    else:
        stack = [_frame_of(frame, lines) for frame in below if _is_users(frame)]
    needed = torch_private.undecided_condition(failure)
    return {
        "error": type(torch_private.original_failure(failure)).__name__,
        "message": text_of(failure)[:_MAX_MESSAGE],
        "stack": stack,
        "gb_type": getattr(failure, "gb_type", None),
        **({} if needed is None else {"condition": needed[0], "symbols": needed[1]}),
    }


def _frame_of(frame: FrameType, lines: dict[int, int]) -> dict[str, Any]:
    """A frame that an exception has passed, with the line at which it did."""
    return frame_data(frame.f_code.co_filename, lines.get(id(frame), frame.f_lineno), frame.f_code.co_name)


def _is_users(frame: FrameType) -> bool:
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    return package not in _NOT_TRACED and not is_stdlib_or_torch(frame.f_code.co_filename)
