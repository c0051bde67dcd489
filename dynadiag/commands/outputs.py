"""Open what a command writes. No output is an input of the same command, and nothing but a plain file is replaced.

`guard` knows the inputs of the command that runs: every word of its command line that names a file, by device and
inode. Each function here that opens a file for writing asks it, so a name that a command derives from an option
(``NAME-rank0.dynadiag``) is held to the same rules. A file is written beside its final name and renamed at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.machinery
import itertools
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import orjson

from dynadiag.commands.state import state_folder, tell_if_large
from dynadiag.errors import DynadiagError
from dynadiag.recording.journal import unused_path
from dynadiag.recording.opening import COMPARISON_NAME, READ_SUFFIXES, is_being_written
from dynadiag.recording.packing import is_packed
from dynadiag.recording.store import atomic_write

# Options that take a path which is only read. Every other option with a path is an `OutputOption`.
INPUT_OPTIONS = frozenset({"--fixes", "--overlay", "--python", "--resume"})

_MAX_DOCUMENT = 1 << 30  # bytes of a file that is read to tell whether it is ours
_MAX_HEAD = 1 << 16  # bytes of a page in which its title stands
_PROGRAM_FILES = ("__main__.py", "__init__.py")
_DESCRIPTORS = {0: "stdin", 1: "stdout", 2: "stderr"}

Identity = tuple[int, int]  # device and inode


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file that a command replaces without ``--force``, because it wrote the one that is there."""

    name: str
    is_ours: Callable[[bytes], bool]
    forcible: bool = True  # whether --force replaces a file of another kind


def _is_document(content: bytes) -> bool:
    document = _json_object(content)
    return type(document.get("schema")) is int and isinstance(document.get("dynadiag"), str)


def _is_sarif(content: bytes) -> bool:
    try:
        return bool(_json_object(content)["runs"][0]["tool"]["driver"]["name"] == "dynadiag")
    except (KeyError, IndexError, TypeError):
        return False


def _is_page(content: bytes) -> bool:
    head = content[:_MAX_HEAD]
    return head.startswith(b"<!DOCTYPE html>") and b" - dynadiag</title>" in head


def _is_baseline(content: bytes) -> bool:
    return {"version", "known"} <= _json_object(content).keys()


def _json_object(content: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


DOCUMENT = Kind("a JSON document of dynadiag", _is_document, forcible=False)
SARIF = Kind("a SARIF log of dynadiag", _is_sarif)
PAGE = Kind("a page of dynadiag", _is_page)
BASELINE = Kind("a baseline of dynadiag", _is_baseline)


class OutputOption(argparse.Action):
    """An option that names what is written. `guard` finds the outputs of a command by it."""

    def __init__(
        self, option_strings: list[str], dest: str, *, kind: Kind | None = None, folder: bool = False, **kwargs: object
    ) -> None:
        super().__init__(option_strings, dest, **kwargs)  # type: ignore[arg-type]  # argparse's own keywords
        self.kind, self.folder = kind, folder

    def __call__(self, _parser: object, namespace: argparse.Namespace, values: object, _option: object = None) -> None:
        setattr(namespace, self.dest, values)


def add_output(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("-o", "--output", action=OutputOption, type=Path, metavar="FILE", help=what)
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")


def add_file_option(parser: argparse.ArgumentParser, option: str, what: str, kind: Kind | None = None) -> None:
    """Add a further option that names a file to write. A file of ``kind`` is replaced without ``--force``."""
    parser.add_argument(option, action=OutputOption, type=Path, metavar="FILE", kind=kind, help=what)


def add_folder_option(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``-o/--output`` of a command that writes a folder. Its files are checked as they are written."""
    parser.add_argument("-o", "--output", action=OutputOption, folder=True, type=Path, metavar="FOLDER", help=what)


def add_json(parser: argparse.ArgumentParser) -> None:
    what = "also write the result as JSON; - writes it to stdout instead of the text"
    parser.add_argument("--json", action=OutputOption, kind=DOCUMENT, metavar="FILE", help=what)


@dataclass(slots=True)
class _Inputs:
    """The inputs of the command that runs, by identity, with the word that names each."""

    names: dict[Identity, str]

    def add(self, path: Path | str, word: str) -> None:
        with suppress(OSError, ValueError):
            status = os.stat(path)  # noqa: PTH116 - of a string, which may be no path at all
            if not stat.S_ISCHR(status.st_mode):
                self.names.setdefault((status.st_dev, status.st_ino), word)


_inputs = _Inputs({})


@contextmanager
def guard(parser: argparse.ArgumentParser, args: argparse.Namespace) -> Iterator[None]:
    """Hold the outputs of a command to the rules while it runs.

    Raises `DynadiagError`, before anything has run, if an output is an input, if two outputs have one path, or if
    ``--json`` names what cannot be written.
    """
    global _inputs
    options = {action.dest: action for action in parser._actions if isinstance(action, OutputOption)}
    before, _inputs = _inputs, _collect_inputs(args, options.keys())
    try:
        seen: dict[object, str] = {}
        for dest, action in options.items():
            path = getattr(args, dest, None)
            if path is None or str(path) == "-":
                continue
            name = action.option_strings[-1]
            if not action.folder:
                _refuse_input(Path(path), name)
            if action.kind is DOCUMENT and not _is_stream(Path(path)):
                check_writable(Path(path), force=False, kind=DOCUMENT)
            place = _place(Path(path))
            if place in seen:
                raise DynadiagError(f"{name} {path}: {seen[place]} names the same file: give each a file of its own")
            seen[place] = name
        yield
    finally:
        _inputs = before


def input_at(path: Path) -> None:
    """Add a file that the command reads without a word of the command line, such as its configuration."""
    _inputs.add(path, str(path))


def _collect_inputs(args: argparse.Namespace, outputs: Collection[str]) -> _Inputs:
    found = _Inputs({})
    for dest, value in vars(args).items():
        if dest not in outputs:
            for word in _words(value):
                _add_word(found, word)
    for name in [args.target] if getattr(args, "module", False) else getattr(args, "modules", ()):
        for path in _module_files(str(name)):
            found.add(path, f"-m {name}")
    for descriptor, name in _DESCRIPTORS.items():
        with suppress(OSError):
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode):
                found.names.setdefault((status.st_dev, status.st_ino), name)
    return found


def _words(value: object) -> Iterator[str]:
    if isinstance(value, str | Path):
        yield str(value)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _words(item)


def _add_word(found: _Inputs, word: str) -> None:
    """Add the files that a word of the command line may name: itself, before a colon or #, after an equals sign."""
    for name in dict.fromkeys((word, word.partition("::")[0], word.rpartition(":")[0], word.rpartition("#")[0])):
        found.add(name, word)
    found.add(word.partition("=")[2], word)
    path = Path(word)
    with suppress(OSError, ValueError):
        if is_packed(path.parent):  # a recording of a packed job
            found.add(path.parent, word)
        if path.is_dir():
            read = [entry for entry in path.iterdir() if entry.suffix in READ_SUFFIXES and not is_packed(entry)]
            for entry in (*read, *(path / name for name in (*_PROGRAM_FILES, COMPARISON_NAME))):
                found.add(entry, str(entry))


def _module_files(name: str) -> Iterator[str]:
    """The file of a module, and those of the packages that it is in. Nothing is imported."""
    path: list[str] | None = [str(Path.cwd()), *sys.path]
    for part in name.split("."):
        spec = importlib.machinery.PathFinder.find_spec(part, path)
        if spec is None:
            return
        if spec.origin is not None:
            yield spec.origin
        path = list(spec.submodule_search_locations or ())
        for folder in path:
            yield from (os.path.join(folder, file) for file in _PROGRAM_FILES)  # noqa: PTH118 - strings of sys.path


def _place(path: Path) -> object:
    """What makes two paths one: the identity of the file, or of the folder that it will be in and its name."""
    with suppress(OSError, ValueError, RuntimeError):  # the last one is a loop of links
        path = path.resolve()
        try:
            status = path.stat()
        except FileNotFoundError:
            folder = path.parent.stat()
            return folder.st_dev, folder.st_ino, path.name
        return status.st_dev, status.st_ino
    return str(path)


def _refuse_input(path: Path, option: str = "") -> None:
    word = _inputs.names.get(_place(path))  # type: ignore[call-overload]  # a place that is no identity is not in it
    if word is not None:
        shown = f"{option} {path}".strip()
        what = f"{word} goes there" if word in ("stdout", "stderr") else f"it is an input of this command ({word})"
        raise DynadiagError(f"{shown[:300]}: {what[:300]}; name another file")


def check_writable(path: Path, *, force: bool, kind: Kind | None = None) -> Path:
    """Return the file that is written for ``path``, links followed. Called before long work, and again to write.

    Raises `DynadiagError` if it is an input, if it exists without ``force`` and is not of ``kind``, if it is not a
    plain file, or if its folder cannot be written.
    """
    try:
        _refuse_input(path)
        real = path.resolve()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            real.lstat()  # raises for a name that is too long; `exists` does not from Python 3.14 on
            _check_replaceable(path, real, force=force, kind=kind)
        if not real.parent.is_dir():
            raise DynadiagError(f"{path}: there is no folder {real.parent}")
        _check_folder(path, real)
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, a loop of links
        raise DynadiagError(f"cannot write {str(path)[:200]}: {getattr(error, 'strerror', None) or error}") from error
    return real


def _check_replaceable(path: Path, real: Path, *, force: bool, kind: Kind | None) -> None:
    """Raise `DynadiagError` unless the file that is there may be replaced."""
    if real.is_dir():
        raise DynadiagError(f"{path} is a folder: name a file")
    if not real.is_file():
        raise DynadiagError(f"{path} is not a plain file: name another")
    if not os.access(real, os.W_OK, effective_ids=True):
        raise DynadiagError(f"cannot write {path}: permission denied")
    if (kind is None or kind.forcible) and force:
        return
    if kind is None:
        raise DynadiagError(f"{path} exists: give another name, or --force to overwrite it")
    # A file of this kind may go, and one that has nothing to lose, as what ``mktemp`` makes.
    size = real.stat().st_size
    if not (size == 0 or (size <= _MAX_DOCUMENT and kind.is_ours(real.read_bytes()))):
        cure = ", or --force to overwrite it" if kind.forcible else ""
        raise DynadiagError(f"{path} exists and is not {kind.name}: give another name{cure}")


def _check_folder(path: Path, real: Path) -> None:
    """Raise `DynadiagError` if no file can be made beside the output."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{real.name[:50]}.", suffix=".part", dir=real.parent)
    except OSError as error:
        raise DynadiagError(f"cannot write {path}: {error.strerror}") from error
    os.close(descriptor)
    Path(name).unlink()


@contextmanager
def writing(path: Path, *, force: bool, kind: Kind | None = None) -> Iterator[Path]:
    """Yield a temporary path beside the output, which is renamed to it at the end, or removed if the body raises.

    Raises `DynadiagError` as `check_writable`, and if it cannot be written.
    """
    real = check_writable(path, force=force, kind=kind)
    with atomic_write(real, force or kind is not None) as scratch:
        yield scratch


def write_file(path: Path, content: bytes, *, force: bool, kind: Kind | None = None) -> None:
    """Write bytes to a file, completely or not at all. Raises `DynadiagError` as `writing`."""
    with writing(path, force=force, kind=kind) as scratch:
        scratch.write_bytes(content)


def unused_beside(path: Path) -> Path:
    """A path beside this one at which nothing is: ``repro-2.py`` for ``repro.py``."""
    names = (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(2))
    return next(each for each in names if not os.path.lexists(each))


def change_input(path: Path, content: bytes) -> None:
    """Replace a file of the program, as ``fix --apply`` is told to. Its text appears complete or not at all."""
    with atomic_write(path.resolve(), True) as scratch:
        scratch.write_bytes(content)


def append_text(path: Path, text: str) -> None:
    """Append to a file that others write too (a step's summary)."""
    with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)


def write_document(destination: str, document: bytes) -> None:
    """Write a JSON document to a file that ``--json`` names. A pipe or a terminal is written to, not replaced."""
    path = Path(destination)
    if not _is_stream(path):
        write_file(path, document, force=False, kind=DOCUMENT)
        return
    try:
        with path.open("wb") as file:
            file.write(document)
    except OSError as error:
        raise DynadiagError(f"cannot write {path}: {error.strerror}") from error


def _is_stream(path: Path) -> bool:
    """Whether a path is a pipe, a terminal or the null device."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


@contextmanager
def opened_log(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file for what a program prints while it runs."""
    with check_writable(path, force=False).open("xb") as file:
        yield file


def new_recording(output: Path | None, target: str, *, force: bool) -> Path:
    """Return the path of a new recording: `output` if given, otherwise a new name in the state folder.

    Nothing is deleted: what it replaces stays until the recording is complete. Raises `DynadiagError` as
    `check_writable`, if a program that runs is writing it, or if the state folder cannot be created.
    """
    if output is not None:
        real = check_writable(output, force=force)
        if is_being_written(real):
            raise DynadiagError(f"{output} is being written by a program that runs: give another name")
        return real if output.is_symlink() else output
    folder = state_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        # Not -o: some commands have none, and of others it names another file.
        told = "set XDG_STATE_HOME to a folder that can be written"
        raise DynadiagError(f"cannot make {folder}: {error.strerror}; {told}") from error
    tell_if_large(folder)
    return unused_path(folder, target)


@contextmanager
def set_aside(folder: Path, files: Callable[[], Iterable[Path]]) -> Iterator[None]:
    """Set the files of an earlier run in a folder aside while a command writes new ones, and then remove them.

    If the body raises `DynadiagError`, the new ones are removed, and the old ones are put back. Raises `DynadiagError`
    if one of them is an input, or cannot be replaced.
    """
    old = [check_writable(path, force=True) for path in files() if path.exists()]
    aside = Path(tempfile.mkdtemp(prefix=".replaced-", dir=folder)) if old else None
    if aside is not None:
        for path in old:
            path.rename(aside / path.name)
    try:
        yield
    except DynadiagError:
        for path in files():
            path.unlink(missing_ok=True)
        if aside is not None:
            for path in old:
                (aside / path.name).rename(path)
            aside.rmdir()
        raise
    if aside is not None:
        shutil.rmtree(aside)
