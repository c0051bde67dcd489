"""The identity of a failure: two runs with one bug have equal signatures, two bugs have different ones.

A message has parts that change from run to run: addresses, temporary names, sizes, the numbers of buffers and nodes.
`normalise` removes them. The `Signature` is what remains, with the kind, the type, the innermost frame in torch and the
line of the program that failed.
"""

from __future__ import annotations

import ast
import linecache
import os
import re
import sys
import textwrap
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from dynadiag.capture.run_metadata import text_of
from dynadiag.recording.code_origin import is_inductor_module, is_torch_file
from dynadiag.recording.package_files import installed_path
from dynadiag.recording.torch_text.reasons import without_address
from dynadiag.torch_private.exports import called_api

_RECURSION = "maximum recursion depth exceeded"
# In this order: a path may hold hexadecimal digits, a hash may hold decimal ones.
_REPLACEMENTS = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"(?<![\w.])(?:/[\w.+@~-]+){2,}"), "<path>"),
    (re.compile(r"0x[0-9a-fA-F]+"), "<address>"),
    (re.compile(r"\b(?=[a-z]*\d)[0-9a-z]{24,}\b"), "<hash>"),
    (re.compile(r"\b(tmp|c)[a-z0-9_]{8,}\b(?=\.|\b)"), "<name>"),
    (re.compile(r"\b(?:s|u|zf|zuf)\d+\b"), "#"),  # torch's symbols for sizes and values
    (re.compile(r"[-+]?\d+(?:\.\d+|\.(?=[],]))?(?:[eE][-+]?\d+)?"), "#"),
    (re.compile(r"_#"), "#"),
    (re.compile(r"[-+]?\b(?:nan|inf)\b"), "#"),
    (re.compile(r"(?:#[ ,x*]*){2,}"), "# "),
    (re.compile(r"(?<=[\[(])\s+|\s+(?=[\])])"), ""),  # torch prints tensors with room for a sign
    (re.compile(r"\s+"), " "),
    (re.compile(rf"({_RECURSION}).*"), r"\1"),  # where the limit is met depends on the stack
)
_MAX_SHOWN = 200
_MAX_COMPARED = 400  # characters that are compared; what follows are dumps of arguments
_BACKEND = re.compile(r"backend='[^']*' raised:\s*")
_DEVICE_ERROR = re.compile(r"(?:\b(?:CUDA|HIP) error|\bTriton Error \[\w+\]): (.+)")
_DIAGNOSTIC = re.compile(r"\berror:|^\s*target: ")


def normalise(message: str) -> str:
    """The part of a message that is the same in every run with the same failure. That is its first line, with the first
    later line that names the fault: a compiler diagnostic (`error:`) or the operator (`target:`).
    """
    lines = [line for line in _BACKEND.sub("", message).splitlines() if line.strip()]
    telling = [line for line in lines[1:] if _DIAGNOSTIC.search(line)][:1]
    text = " | ".join([*lines[:1], *telling])
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    return text.strip()[:_MAX_COMPARED]


@dataclass(frozen=True, slots=True)
class Signature:
    """The identity of a failure.

    ``type`` is the exception's qualified name, a signal's name, or the exit code as text. ``where`` is the innermost
    frame in torch (``torch/_inductor/lowering.py:123 in f``), or none, ``user`` the line of the program that was
    running (``train.py:31``). ``rung`` and the ``rank`` of a distributed job say where it was seen: no part of the
    identity.
    """

    kind: str  # "exception" | "exit" | "signal" | "hang" | "wrong_result" | "nan" | "slow" | "memory" | "metric"
    type: str
    message: str
    where: str | None = None
    user: str | None = None
    cause: str = ""  # the innermost exception's type, where torch wrapped it
    rung: str | None = None
    rank: int | None = None
    frames: tuple[str, ...] = ()  # the innermost frames, the raising one first; those outside torch are "program"
    export: str | None = None  # the function that exports ("torch.export.export") in which it was raised
    asserted: str | None = None  # the source of the program's assertion that failed, or of its ``raise``

    @property
    def text(self) -> str:
        """The type and the first line of the message, cut to 200 characters: `ValueError: no such axis`. The message of
        an exit code has it.
        """
        first = "".join(self.message.strip().splitlines()[:1])
        type_ = "" if self.kind == "exit" else self.type
        return ": ".join(filter(None, (type_, textwrap.shorten(first, _MAX_SHOWN, placeholder=" ..."))))

    def same_as(self, other: Signature) -> bool:
        """Whether both are the same failure, seen at the same rung."""
        return self.identity() == other.identity()

    def same_across_rungs(self, other: Signature) -> bool:
        """Whether both may be the same failure, seen at two rungs.

        Another backend wraps the same exception in another message and other frames. So two failures match if the same
        line of the program fails with the same kind, or if the innermost exceptions have the same type.
        """
        if self.device_error and other.device_error:
            return True
        if self.kind != other.kind:
            return False
        if self.kind == "exception":
            return (self.user is not None and self.user == other.user) or self.cause == other.cause
        return self.type == other.type

    def same_across_releases(self, other: Signature) -> bool:
        """Whether both are the same failure, seen with two releases of torch: kind, type, message without numbers.

        Where in torch it was raised is no part of it, nor is the module of the exception: both move.
        """
        return self._release_identity() == other._release_identity()

    def _release_identity(self) -> tuple[str, str, str]:
        return self.kind, self.type.rpartition(".")[2], self._compared_message

    @property
    def is_wrong_result(self) -> bool:
        """Whether values differ from those of uncompiled code; a program's own assertion on them is an exception."""
        return self.kind in ("wrong_result", "nan")

    @property
    def _compared_message(self) -> str:
        """The message without numbers; of a wrong result its beginning, since the first wrong output may vary."""
        message = normalise(self.message)
        return message.partition(": ")[0] if self.is_wrong_result else message

    @property
    def is_endless_recursion(self) -> bool:
        """Whether the stack was full. Then ``frames`` are those of one round."""
        return _RECURSION in self.message

    @property
    def device_error(self) -> str | None:
        """The message of an asynchronous device error, or ``None``. Whatever call comes next raises it."""
        found = _DEVICE_ERROR.search(self.message.partition("\n")[0])
        return found[1] if found else None

    def identity(self) -> tuple[object, ...]:
        """What two runs with this failure have in common, for use as a key. Which of torch's exceptions wraps the cause
        is no part of it: that depends on the part of the compiler that was running.
        """
        if self.device_error:
            return ("device", normalise(self.device_error))
        place = self.where if self.kind == "exception" else None
        return self.kind, self.cause or self.type, self._compared_message, place, self.user


_TARGET = re.compile(r"^\s*target: (\S+)", re.M)
_NODE = re.compile(r"While executing %(\w+)")
_USER_CODE = "from user code:"
_MAX_FRAMES = 8
_OURS = str(Path(__file__).parents[1]) + os.sep
_PROGRAM = "program"  # a frame outside torch
_RAISES_AGAIN = " in compile_wrapper"  # torch/_dynamo/eval_frame.py
_CHECKS = re.compile(r"torch/__init__\.py:\d+ in _check")  # functions that raise what their caller found
_FILE_LINE = re.compile(r'File "([^"]+)", line (\d+)')
_MAX_MESSAGE = 20_000  # characters
_COMPILER_ERROR = re.compile(r"^.{,1000}\berror: .{,1000}\n(?:\s*\d+ \|.{,1000}\n)?", re.M)  # with the line of code
_MAX_ERRORS = 8


def signature_of(error: BaseException, rung: str | None) -> Signature:
    """The signature of an exception that left the program."""
    inner = _innermost(error)
    called = called_api([frame for frame, _ in traceback.walk_tb(error.__traceback__)])
    return Signature(
        kind="exception",
        type=_type_name(error),
        message=without_address(_kept(text_of(error))),
        where=_deepest_torch_frame(inner) or _deepest_torch_frame(error),
        user=_program_line(error.__traceback__),
        cause=_type_name(inner),
        rung=rung,
        frames=tuple(map(_frame, _innermost_entries(inner)[:_MAX_FRAMES])),
        export=called and called[1],
        asserted=_asserted(error),
    )


def _kept(message: str) -> str:
    """The beginning of a long message, and the errors that a compiler lists after it: warnings may come before."""
    if len(message) <= _MAX_MESSAGE:
        return message
    end = message.rfind("\n", 0, _MAX_MESSAGE) + 1 or _MAX_MESSAGE
    return f"{message[:end]}...\n{''.join(_COMPILER_ERROR.findall(message, end)[:_MAX_ERRORS])}"


def _asserted(error: BaseException) -> str | None:
    """The source of what failed in the program: a condition, a call of a function that asserts, or a ``raise``.
    ``None`` if torch or a library raises.
    """
    if _deepest_torch_frame(error) is not None:
        return None
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not installed_path(frame.filename)]
    source = _source(own[-1]) if own else None
    if not isinstance(error, AssertionError):
        return source if source is not None and own[-1] is frames[-1] and source.startswith("raise ") else None
    if source is None or not source.startswith("assert"):
        return source
    with suppress(SyntaxError):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Assert):
                return ast.unparse(node.test)
    return source


def _source(frame: traceback.FrameSummary) -> str | None:
    """The source of what a frame is at, in one line: the whole assertion for some releases of Python, its condition for
    others. Columns are counted in bytes.
    """
    first, last, begin, end = frame.lineno, frame.end_lineno, frame.colno, frame.end_colno
    if first is None or last is None or begin is None or end is None:
        return None
    lines = [linecache.getline(frame.filename, line).encode() for line in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    return " ".join(b"".join(lines).decode(errors="replace").split()) or None


def witness_of(error: BaseException) -> tuple[str, ...]:
    """The operators and nodes that the exception's text names. They are hints, which trials must confirm."""
    text = text_of(error)
    notes = "".join(getattr(error, "__notes__", ()))
    return tuple(dict.fromkeys(_TARGET.findall(text) + _NODE.findall(text + notes)))


def user_lines(error: BaseException) -> list[tuple[str, int]]:
    """The user's line that torch blames, from the user stack in the exception or in its message, not one of torch's
    that it calls; in an export the line of the module that was running. Empty if there is none.
    """
    stack = [(frame.filename, frame.lineno) for frame in getattr(error, "real_stack", None) or ()]
    if not stack:
        _, found, after = text_of(error).rpartition(_USER_CODE)
        entries = _FILE_LINE.findall(after.split("\n\n")[0]) if found else []
        stack = [(file, int(line)) for file, line in entries]
    return [each for each in stack if not is_torch_file(each[0])][-1:] or stack[-1:] or _exported_line(error)


def _exported_line(error: BaseException) -> list[tuple[str, int]]:
    """The innermost line of the program below the call that exports: a trace that is not strict runs the module."""
    frames = list(traceback.walk_tb(error.__traceback__))
    called = called_api([frame for frame, _ in frames])
    below = [(frame.f_code.co_filename, line) for frame, line in frames[called[0] :]] if called else []
    own = [place for place in below if not installed_path(place[0]) and not place[0].startswith(_OURS)]
    return own[-1:]


def _innermost(error: BaseException) -> BaseException:
    """The exception that torch wrapped: BackendCompilerFailed and InductorError keep it as ``inner_exception``."""
    inner = getattr(error, "inner_exception", None)
    if isinstance(inner, BaseException) and inner is not error:
        return _innermost(inner)
    return _cause_behind_fake_tensors(error) if type(error).__name__ == "TorchRuntimeError" else error


def _cause_behind_fake_tensors(error: BaseException) -> BaseException:
    """The exception that an operation of the program raised while Dynamo traced it: the first of the chain that is not
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


def _deepest_torch_frame(error: BaseException) -> str | None:
    """Return the innermost frame in torch. Functions such as `torch._check` are skipped: their caller is at fault. None
    if torch removed the frames: the compiled call only raises the error of Dynamo again.
    """
    frames = (frame for frame in map(_frame, _innermost_entries(error)) if not _CHECKS.match(frame))
    found = next((frame for frame in frames if frame != _PROGRAM), None)
    return None if found is None or found.endswith(_RAISES_AGAIN) else found


def _innermost_entries(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames of an exception, the innermost first. Of a recursion without end only those that are called again and
    again, in an order of their own: the innermost is wherever the stack was full. What Inductor generated is neither
    torch nor the program: who calls it raises.
    """
    entries = [entry for entry in traceback.extract_tb(error.__traceback__) if not is_inductor_module(entry.filename)]
    if _RECURSION not in text_of(error):
        return entries[::-1]
    places = Counter((entry.filename, entry.lineno or 0) for entry in entries)
    often = max(places.values(), default=0) / 4  # one frame may be entered several times in a round
    found = {place: entry for entry in entries if places[place := (entry.filename, entry.lineno or 0)] > often}
    return [found[place] for place in sorted(found)]


def _frame(entry: traceback.FrameSummary) -> str:
    """A frame in torch as text. torch.testing is none of it: there the program's own comparison fails."""
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    root = f"{Path(torch).parent.parent}/" if torch else "/"
    if not entry.filename.startswith(root + "torch/") or "/torch/testing/" in entry.filename:
        return _PROGRAM
    return f"{entry.filename[len(root) :]}:{entry.lineno} in {entry.name}"


def _program_line(trace: TracebackType | None) -> str | None:
    """The line of the main program that was running, as ``FILE:LINE`` without the folder."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    for entry in traceback.extract_tb(trace):
        if entry.filename == main:
            return f"{Path(entry.filename).name}:{entry.lineno}"
    return None
