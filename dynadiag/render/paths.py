"""Paths as a reader wants them: relative to where the program ran, where that is shorter."""

from __future__ import annotations

import os.path
import re
from collections.abc import Sequence
from itertools import groupby

from dynadiag.recording.code_origin import cell_label, is_user_file
from dynadiag.recording.records import Frame
from dynadiag.render.clean import clean_line
from dynadiag.render.wrap import truncate_middle, width

_MIN_NAME = 8  # columns of a file's or a function's name at least
_MAX_COLUMNS = 4000  # columns of a place that are looked at: more than any terminal shows
_PLACE = re.compile(r"(.*?)(:\d+(?::\d+)?)?( in [^/]*)?", re.DOTALL)  # path, line and column, function
_MAX_FRAMES = 4  # frames of a user stack that are shown: the outermost, and the innermost


def relative_path(file: str | None, cwd: str | None) -> str:
    """The path of a file, relative to `cwd` where that is shorter. It is safe for a terminal.

    >>> relative_path("<In[3]>", None)  # a cell of a notebook
    'In[3]'
    """
    if not file:
        return "<unknown>"
    if cell := cell_label(file):
        return cell
    if cwd and file.startswith("/"):
        file = min(os.path.relpath(file, cwd), file, key=len)
    return clean_line(file)


def source_location(file: str | None, line: int | None, column: int | None, cwd: str | None) -> str:
    """``file:line:column``, the column 1-based as editors take it."""
    numbers = [] if line is None else [line] if column is None else [line, column + 1]
    return ":".join([relative_path(file, cwd), *map(str, numbers)])


def fit_path(text: str, columns: int) -> str:
    """A place in at most `columns`. The first folders of a long path are cut first, because its end tells most.

    Then the middle of the file's name is cut, then that of the function's, and never the line.

    >>> fit_path("/usr/lib/python3/site-packages/torch/nn/modules/linear.py:3 in forward", 40)
    '…/nn/modules/linear.py:3 in forward'
    >>> fit_path("a_file_with_a_long_name.py:123 in a_function", 30)
    'a_file…me.py:123 in a_function'
    """
    if width(text) <= columns:
        return text
    found = _PLACE.fullmatch(truncate_middle(text, _MAX_COLUMNS))
    path, line, function = found.groups(default="") if found else (text, "", "")
    path = _last_folders(path, columns - width(line + function))
    path = truncate_middle(path, max(columns - width(line + function), _MIN_NAME))
    room = columns - width(path + line)
    function = truncate_middle(function, room) if room >= _MIN_NAME else ""
    return truncate_middle(path + line + function, columns)


def _last_folders(path: str, columns: int) -> str:
    """A path without its first folders: as many of the last as fit, and the file at least."""
    parts = path.split("/")
    while width(path) > columns and len(parts) > 1:
        parts = parts[1:]
        path = f"…/{'/'.join(parts)}"
    return path


def short_stack(frames: Sequence[Frame], cwd: str | None) -> list[str]:
    """A user stack, outermost first. The middle of a long one is left out.

    Neighbours that read alike, such as a frame and its generator, are one line.
    """
    named = (f"{source_location(item.file, item.line, None, cwd)} in {clean_line(item.function)}" for item in frames)
    lines = [line for line, _ in groupby(named)]
    if len(lines) <= _MAX_FRAMES:
        return lines
    hidden = len(lines) - _MAX_FRAMES + 1
    return [lines[0], f"({hidden} more frames)", *lines[hidden + 1 :]]


def short_place(frame: Frame) -> str:
    return f"{clean_line(frame.file.rpartition('/')[2])}:{frame.line}"


def short_chain(frames: Sequence[Frame]) -> str:
    """Return the user's frames, the innermost first: ``layers.py:9 < net.py:20 < train.py:31``."""
    own = [frame for frame in frames if is_user_file(frame.file)] or frames
    return " < ".join(map(short_place, reversed(own)))
