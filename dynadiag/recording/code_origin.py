"""Whose code a file or a function is: the program's, torch's or Python's own.

The author of a program can change only the first. torch also makes functions of its own from those of the program.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from itertools import pairwise

from dynadiag.recording.records import Break, Compile, Frame, Span

# torch names a resume function "torch_dynamo_resume_in_NAME_at_LINE" (2.11 to 2.15).
_RESUME = re.compile(r"torch_dynamo_resume_in_(?P<name>.+?)_at_\d+")
# Where pip, Debian and conda put the package, and modules that no program has. The folder's name `torch` alone says
# nothing: a program may have one of its own.
_TORCH = re.compile(
    r"[/\\](site|dist)-packages[/\\]torch[/\\]|/torch/_dynamo/|/torch/nn/modules/module\.py$|^<eval_with_key>"
)
# Python's own library, wherever it is installed, but not what is installed into it.
_STDLIB = re.compile(r"[/\\]lib(?:64)?[/\\]python3\.\d+t?[/\\](?!(?:site|dist)-packages[/\\])|^<frozen ")
# The folders of installed packages: of an environment, of Debian, of conda.
_PACKAGES = re.compile(r"[/\\](?:site|dist)-packages(?=[/\\])")
# Modules that Inductor wrote, and torch's own names of functions without a file.
_OF_INDUCTOR = re.compile(r"/c[a-z2-7]{40,}\.py$|/torchinductor_")
_GENERATED = re.compile(rf"(?<!\.py)(?<!\]>)$|{_OF_INDUCTOR.pattern}")
# The recorder's name of a notebook's cell (`capture.cells`).
_CELL = re.compile(r"<(In\[\d+\])>")
# pytest and what runs it, which call a test.
_PYTEST = re.compile(r"/(?:_?pytest|pluggy|xdist|execnet)/[^/]*(?:/[^/]*)?$|/bin/(?:pytest|py\.test)$")
# Our own code that calls the program's.
_OURS = re.compile(r"/dynadiag/(?:api|compare/\w+|trial/\w+)\.py$")


def cell_label(file: str) -> str | None:
    """Return what a notebook shows beside a cell (``In[3]``), for the file that a cell is recorded as. Else None."""
    found = _CELL.fullmatch(file)
    return found and found[1]


def short_place(file: str | None, line: int | None) -> str:
    """Return a place as a sentence names it: ``net.py:12``, ``In[3]:5``."""
    return f"{cell_label(file or '') or posixpath.basename(file or '')}:{line}"


def is_resume_function(function: str) -> bool:
    """Whether torch made this function from the code after a graph break."""
    return _RESUME.search(function) is not None


def original_name(function: str) -> str:
    """Return the name that the user wrote, for a resume function of torch's, also after a second split."""
    while match := _RESUME.search(function):
        function = function[: match.start()] + match["name"] + function[match.end() :]
    return function


def named_frames(stack: Iterable[Frame]) -> tuple[Frame, ...]:
    """Return a stack with the names that the user wrote.

    A function that was split at graph breaks is one frame, with the line of its last part: each part calls the next.
    """
    found = list[Frame]()
    for frame in stack:
        name = original_name(frame.function)
        if found and name != frame.function and (found[-1].file, found[-1].function) == (frame.file, name):
            found.pop()
        found.append(Frame(frame.file, frame.line, name))
    return tuple(found)


def is_torch_file(file: str | None) -> bool:
    """Whether a file belongs to torch."""
    return file is not None and _TORCH.search(file) is not None


def is_polyfill(file: str | None) -> bool:
    """Whether a file is Dynamo's own Python for a builtin (``all``, ``zip``), which a line of the user's calls."""
    return file is not None and is_torch_file(file) and "/_dynamo/polyfills/" in file.replace("\\", "/")


def is_stdlib_file(file: str | None) -> bool:
    """Whether a file belongs to Python's own library."""
    return file is not None and not is_torch_file(file) and _STDLIB.search(file) is not None


def is_generated_file(file: str) -> bool:
    """Whether a file is generated code, or no file at all (``<string>``)."""
    return _GENERATED.search(file) is not None


def is_inductor_module(file: str) -> bool:
    """Whether a file is a module that Inductor generated."""
    return _OF_INDUCTOR.search(file) is not None


def path_in_packages(file: str) -> str | None:
    """The path from its package on (``torch/nn/modules/linear.py``) of a file in a folder of packages, else ``None``.
    Whether a file elsewhere is of a package is known to `package_files`.
    """
    _, *inside = _PACKAGES.split(file)
    return (inside[-1][1:] or None) if inside else None


def module_at(path: str) -> str:
    """The module that is imported from a path below a folder of packages.

    >>> module_at("transformers/models/bert/__init__.py")
    'transformers.models.bert'
    """
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def is_user_file(file: str | None) -> bool:
    """Whether a file is the program's, or of a library that it uses: neither torch's, nor Python's, nor ours."""
    return file is not None and not (is_torch_file(file) or is_stdlib_file(file) or _OURS.search(file))


def user_span(compiled: Compile) -> Span:
    """Return the line of the compiled function; of a function of torch's, the line of the program that called it."""
    frames = [frame for frame in compiled.user_stack if is_user_file(frame.file)]
    if is_torch_file(compiled.file) and frames:
        return Span(frames[-1].file, frames[-1].line)
    return Span(compiled.file, compiled.line)


def user_frames(stack: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Return a stack with the user's frames only. If there are none, return the whole stack.

    Code from ``-c`` that calls ours starts the program: it is not the user's. Neither are the frames of a kernel, which
    come before those of a notebook's cells, nor those of pytest, which come before those of a test or of a fixture.
    """
    behind_runner = max((index for index, frame in enumerate(stack, 1) if _runs_program(frame)), default=0)
    stack = stack[behind_runner:] or stack
    starts = {frame for frame, called in pairwise(stack) if frame.file == "<string>" and _OURS.search(called.file)}
    return tuple(frame for frame in stack if is_user_file(frame.file) and frame not in starts) or stack


def _runs_program(frame: Frame) -> bool:
    """Whether the frame is pytest's, or IPython's that runs a cell. A cell below a magic has two of these."""
    is_shell = frame.function == "run_code" and frame.file.endswith("/IPython/core/interactiveshell.py")
    return is_shell or _PYTEST.search(frame.file) is not None


def user_frame(item: Break) -> Frame | None:
    """Return the innermost frame of the user's code on the way to a break."""
    return next((frame for frame in reversed(item.user_stack) if is_user_file(frame.file)), None)
