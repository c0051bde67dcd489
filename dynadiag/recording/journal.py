"""The journal: an append-only file in the format of ``TORCH_TRACE`` logs, written while the program runs.

It is used in the user's process. So it imports only the standard library, and it never raises because of the data it
gets or a full disk. `Journal.append` hands each event to the kernel with one ``write`` before it returns, so the event
survives a crash of the process. The format is that of torch's ``TorchLogsFormatter``: a glog line that ends in a JSON
object, then the payload, each line with a leading tab.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
import re
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from dynadiag.errors import DynadiagError

SUFFIX = ".dynadiag"  # journals, and the recordings that they become
JOURNAL_SUFFIX = ".journal"  # added to the name of a recording that exists until its journal is complete
_DEFAULT_LIMIT = 4 << 30  # bytes; ten times the largest log seen so far, and less than a usual home quota
LIMIT_KIND = "dynadiag_limit"
Identity = tuple[int, int]  # device and inode of a file: its name may come to mean another one
_HIGH_DESCRIPTOR = 500  # above the numbers that programs use, below the usual soft limit of 1024 open files


def unused_path(folder: Path, target: str) -> Path:
    """Return a path in this folder for a recording of this target: the target's name, the time, the process's id."""
    name = f"{clean_stem(target)}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    names = (f"{name}{f'-{number}' if number else ''}{SUFFIX}" for number in itertools.count())
    return next(path for each in names if not (path := folder / each).exists())


def journal_path(recording: Path) -> Path:
    """Return where the journal of a recording is written: in its place, or beside a file that it is to replace."""
    return Path(f"{recording}{JOURNAL_SUFFIX}") if os.path.lexists(recording) else recording


def journal_stem(journal: Path) -> str:
    """Return the name of a recording without its suffixes: other processes of the program have names that begin so."""
    return journal.name.removesuffix(JOURNAL_SUFFIX).removesuffix(SUFFIX)


def process_space() -> str | None:
    """Return the boot and the namespace in which this process's id means this process. None where there is no /proc.

    Containers and machines may share a host name, but not this.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def clean_stem(target: str) -> str:
    """Return the name of a target as the beginning of a file name, which no command takes for an option.

    >>> clean_stem("my runs/train.py"), clean_stem("-m pkg.train")
    ('train', 'pkg.train')
    """
    name = target[3:] if target.startswith("-m ") else Path(target.split(":")[0]).stem
    return re.sub(r"[^\w.-]+", "_", name).lstrip("-")[:60] or "run"


class Journal:
    """An open journal. One `append` writes one event. Any thread may call it.

    A forked child never writes into its parent's file. In the child `is_owner` is false, `append` returns False, and
    the first call closes the inherited descriptor. The child opens a journal of its own if it needs one.
    """

    def __init__(self, path: Path, descriptor: int, limit: int | None) -> None:
        """Take ownership of `descriptor`. Use `Journal.create` instead."""
        self.path = path
        self.failure: str | None = None  # the system's message when writing failed
        self.full = False  # the size limit was reached and events were dropped
        self._descriptor: int | None = descriptor
        self.identity = _identity(descriptor)
        self.limit = limit
        self._size = 0
        self._pid = os.getpid()
        self._lock = threading.RLock()  # reentrant: the program's signal handler may compile while we write

    @classmethod
    def create(cls, path: Path, limit: int | None = _DEFAULT_LIMIT) -> Journal:
        """Create a new file at `path` of at most `limit` bytes (``None``: no limit).

        Raises `DynadiagError` if the file exists or cannot be created.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags, 0o666)
        except FileExistsError:
            raise DynadiagError(f"{path} already exists: give another name, or remove it") from None
        except OSError as error:
            raise DynadiagError(f"cannot write {path}: {error.strerror}") from error
        return cls(path, _move_to_high_descriptor(descriptor), limit)

    @classmethod
    def reopen(cls, path: Path, limit: int | None = None, identity: Identity | None = None) -> Journal:
        """Open an existing journal to append to it.

        Its process has ended and its exit is to be recorded, or the program closed the descriptor. The next event
        begins a line even if the last one was cut short (a full disk, a kill during the write). Raises `DynadiagError`
        if the file cannot be opened for writing, or has not this ``identity``: its name has become another file's.
        """
        try:
            descriptor = _move_to_high_descriptor(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC))
        except OSError as error:
            raise DynadiagError(f"cannot write {path}: {error.strerror}") from error
        journal = cls(path, descriptor, limit)
        if identity not in (None, journal.identity):
            journal.close()
            raise DynadiagError(f"{path} was replaced by another file while the program ran")
        journal._size = size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            journal._write(b"\n")
        return journal

    @property
    def is_owner(self) -> bool:
        """Whether this process created the journal. False in a forked child."""
        return self._pid == os.getpid()

    @property
    def removed(self) -> bool:
        """Whether `path` is gone or has become another file: nothing of ours may be written there any more."""
        try:
            status = self.path.stat()
        except OSError:
            return True
        return (status.st_dev, status.st_ino) != self.identity

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._size

    def append(
        self,
        metadata: Mapping[str, object],
        payload: str | None = None,
        *,
        pathname: str = "dynadiag",
        lineno: int = 0,
        created: float | None = None,
        severity: str = "V",
        past_limit: bool = False,
    ) -> bool:
        """Write one event. Returns whether it is in the file. Never raises: see `failure` and `full`.

        `metadata` is torch's dictionary, whose first key is the kind of the event. `created` is in seconds since the
        epoch (by default now), `severity` the letter of the glog line. `past_limit` is for the few small events that
        must not be lost, such as the end of the run.
        """
        if not self.is_owner:
            self._detach()
            return False
        moment = time.time() if created is None else created
        prefix = f"{severity}{_timestamp(moment)} {self._pid} {_relative_path(pathname)}:{lineno}]"
        data = _event(prefix, metadata, payload)
        with self._lock:
            beyond = self.limit is not None and self._size + len(data) > self.limit
            if (beyond or self.full) and not past_limit:  # a small event would tell of what the log does not have
                self._mark_full(prefix)
                return False
            return self._write(data)

    def close(self) -> None:
        """Close the file. Later events are dropped. Closing twice is allowed."""
        if not self.is_owner:
            self._detach()
            return
        with self._lock:
            self._detach()

    def _mark_full(self, prefix: str) -> None:
        if not self.full:
            self.full = True
            self._write(_event(prefix, {LIMIT_KIND: {"bytes": self.limit}}, None))

    def _write(self, data: bytes) -> bool:
        """Write all of `data`. Signals and full disks cause short writes."""
        descriptor = self._descriptor
        if descriptor is None:
            return False
        try:
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) != self.identity:  # the program closed all and opened its own
                self._descriptor, self.failure = None, "the program closed the journal"
                return False
            if not status.st_nlink:
                self.failure = "the file was removed"
                self._detach()
                return False
            written = os.write(descriptor, data)
            self._size += written
            while written < len(data):
                step = os.write(descriptor, data[written:])
                written, self._size = written + step, self._size + step
        except OSError as error:
            self._descriptor, self.failure = None, error.strerror or str(error)
            _close(descriptor, self.identity)
            return False
        return True

    def _detach(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            _close(descriptor, self.identity)


def _event(prefix: str, metadata: Mapping[str, object], payload: str | None) -> bytes:
    """The bytes of one event. tlparse and torch expect the MD5 of the payload in the metadata, so it is added."""
    if payload is None:
        return f"{prefix} {_json(metadata)}\n".encode("utf-8", "backslashreplace")
    if "has_payload" not in metadata:
        digest = hashlib.md5(payload.encode("utf-8", "backslashreplace"), usedforsecurity=False)
        metadata = {**metadata, "has_payload": digest.hexdigest()}
    lines = payload.replace("\n", "\n\t")
    return f"{prefix} {_json(metadata)}\n\t{lines}\n".encode("utf-8", "backslashreplace")


def _json(metadata: Mapping[str, object]) -> str:
    """Metadata as one line of JSON. What JSON cannot represent becomes its ``repr``, as in torch's own log."""
    try:
        return _ENCODER.encode(metadata)
    except (TypeError, ValueError, RecursionError):  # keys that are not strings, cycles, endless nesting
        return json.dumps({_key_text(key): _json_or_repr(value) for key, value in metadata.items()})


def _key_text(key: object) -> str:
    return key if isinstance(key, str) else _repr(key)


def _json_or_repr(value: object) -> object:
    """Return `value` if JSON can represent it, else its ``repr``."""
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return _repr(value)
    return value


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - the repr is the user's code; its failure must not lose the event
        return f"<{type(value).__name__} without a repr>"


_ENCODER = json.JSONEncoder(default=_repr)  # json.dumps would make a new one for every call with a default
_last_timestamp: tuple[int, str] = (-1, "")


def _timestamp(created: float) -> str:
    """``MMDD HH:MM:SS.micros`` in local time. The text of a second is cached because strftime is slow."""
    global _last_timestamp
    second = int(created)
    known, text = _last_timestamp
    if known != second:
        text = time.strftime("%m%d %H:%M:%S", time.localtime(second))
        _last_timestamp = (second, text)
    return f"{text}.{int((created - second) * 1_000_000):06d}"


_relative_paths: dict[str, str] = {}


def _relative_path(pathname: str) -> str:
    """A path relative to the first entry of ``sys.path`` that contains it, as torch writes it."""
    known = _relative_paths.get(pathname)
    if known is None:
        known = _relative_paths[pathname] = _find_relative(pathname)
    return known


def _find_relative(pathname: str) -> str:
    if not pathname.startswith("/"):
        return pathname
    resolved = os.path.realpath(pathname)
    for folder in sys.path:
        lead = folder.rstrip("/") + "/"
        if folder and resolved.startswith(lead):
            return resolved[len(lead) :]
    return resolved


def _identity(descriptor: int) -> Identity:
    """Device and inode: a descriptor's number alone may be reused for another file."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _close(descriptor: int, identity: Identity) -> None:
    """Close `descriptor` if it is still the same file."""
    try:
        if _identity(descriptor) == identity:
            os.close(descriptor)
    except OSError:  # it is closed already
        return


def _move_to_high_descriptor(descriptor: int) -> int:
    """Move a file to a high descriptor number, so that the program's own files get their usual numbers."""
    try:
        high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH_DESCRIPTOR)
    except OSError:  # the limit on open files is low: keep the low number
        return descriptor
    os.close(descriptor)
    return high
