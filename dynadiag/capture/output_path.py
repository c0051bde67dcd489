"""The file that a recording made from Python is to be: checked before anything is recorded."""

from __future__ import annotations

import contextlib
from pathlib import Path

from dynadiag.errors import DynadiagError


def named_path(function: str, path: object) -> Path:
    """The path that an argument names, absolute. Raises `DynadiagError` if it names none."""
    try:
        return Path(path).absolute()  # type: ignore[arg-type]  # it is what is checked
    except TypeError:
        raise DynadiagError(f"{function}: path is {described(path)}; give the name of a file") from None
    except FileNotFoundError:
        raise DynadiagError(f"{function}: {path}: the working directory is gone; give a path from the root") from None


def check_output(path: Path, *, force: bool) -> None:
    """Raise `DynadiagError` if no recording can be written there, or if a file is there and ``force`` is not given."""
    try:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.lstat()  # raises for a name that is too long; `exists` does not from Python 3.14 on
        if path.is_dir():
            raise DynadiagError(f"record: {path} is a folder: name a file")
        if path.exists() and not path.is_file():
            raise DynadiagError(f"record: {path} is not a plain file: name another")
        if path.exists() and not force:
            raise DynadiagError(f"{path} exists: give another name, or force=True to overwrite it")
        if not path.resolve().parent.is_dir():
            raise DynadiagError(f"record: {path}: there is no folder {path.resolve().parent}: make it first")
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, with a null byte, a loop of links
        why = getattr(error, "strerror", None) or error
        raise DynadiagError(f"record: cannot write {str(path)[:200]!r}: {why}: name another file") from None


def described(value: object) -> str:
    """What a wrong argument is, for a message."""
    return "None" if value is None else f"of type {type(value).__qualname__}"
