"""The journal: an append-only file in the format of ``TORCH_TRACE`` logs, written while the program runs.

It lives in the user's process, so it imports the standard library only, never raises because of what it is given to
write or because a disk is full, and hands every event to the kernel with one ``write`` before `Journal.append`
returns: whatever was appended survives a crash of the process. The format is that of torch's own
``TorchLogsFormatter``: a glog line that ends in a JSON object, then the payload, each line led by a tab.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from dynadiag.errors import DynadiagError

__all__ = ["DEFAULT_LIMIT", "LIMIT_KIND", "Journal"]

DEFAULT_LIMIT = 4 << 30  # bytes: ten times the largest log met so far, and still less than a home quota
LIMIT_KIND = "dynadiag_limit"
_HIGH_DESCRIPTOR = 500  # above what programs count on, below the usual soft limit of 1024 open files


class Journal:
    """An open journal. One `append` is one event; any thread may call it.

    A forked child never writes into its parent's file: `is_owner` is false there, `append` returns False, and the
    inherited descriptor is closed on the first call. The child opens a journal of its own if it wants one.
    """

    def __init__(self, path: Path, descriptor: int, limit: int | None) -> None:
        """Take over `descriptor`; use `Journal.create`."""
        self.path = path
        self.failure: str | None = None  # why writing stopped, in the system's words
        self.full = False  # the size limit was reached, and events were left out
        self._descriptor: int | None = descriptor
        self._identity = _identity(descriptor)
        self.limit = limit
        self._size = 0
        self._pid = os.getpid()
        self._lock = threading.RLock()  # reentrant: a signal handler of the program's may compile while we write

    @classmethod
    def create(cls, path: Path, limit: int | None = DEFAULT_LIMIT) -> Journal:
        """Make a new file at `path`, at most `limit` bytes long (``None``: no limit).

        Raises `DynadiagError` where the file exists or cannot be made.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags, 0o666)
        except FileExistsError:
            raise DynadiagError(f"{path} exists already: give another name, or remove it") from None
        except OSError as error:
            raise DynadiagError(f"cannot write {path}: {error.strerror}") from error
        return cls(path, _move_to_high_descriptor(descriptor), limit)

    @classmethod
    def reopen(cls, path: Path, limit: int | None = None) -> Journal:
        """Go on with a journal whose process has ended, to add how it ended; or whose descriptor the program closed.

        What comes next begins a line even if the last event was cut short (a full disk, a kill in mid-write).
        Raises `DynadiagError` where it cannot be opened for writing.
        """
        try:
            descriptor = _move_to_high_descriptor(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC))
        except OSError as error:
            raise DynadiagError(f"cannot write {path}: {error.strerror}") from error
        journal = cls(path, descriptor, limit)
        journal._size = size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            journal._write(b"\n")
        return journal

    @property
    def is_owner(self) -> bool:
        """Whether this process made the journal: false in a forked child."""
        return self._pid == os.getpid()

    @property
    def removed(self) -> bool:
        """Whether `path` is gone or has become another file: nothing of ours may be written there any more."""
        try:
            status = self.path.stat()
        except OSError:
            return True
        return (status.st_dev, status.st_ino) != self._identity

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
        """Write one event and say whether it is in the file.

        `metadata` is torch's dictionary: the kind of the event is its first key. `created` is in seconds since the
        epoch (now, where it is not given), `severity` the letter of the glog line. `past_limit` is for the few small
        events that must not be lost, such as the end of the run. Never raises: see `failure` and `full`.
        """
        if not self.is_owner:
            self._detach()
            return False
        moment = time.time() if created is None else created
        prefix = f"{severity}{_timestamp(moment)} {self._pid} {_relative_path(pathname)}:{lineno}]"
        data = _event(prefix, metadata, payload)
        with self._lock:
            if self.limit is not None and self._size + len(data) > self.limit and not past_limit:
                self._mark_full(prefix)
                return False
            return self._write(data)

    def close(self) -> None:
        """Close the file; later events are left out. Closing twice is harmless."""
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
        """Write all of `data`: a short write happens on signals and on full disks."""
        descriptor = self._descriptor
        if descriptor is None:
            return False
        try:
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) != self._identity:  # the program closed all and opened its own
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
            _close(descriptor, self._identity)
            return False
        return True

    def _detach(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            _close(descriptor, self._identity)


def _event(prefix: str, metadata: Mapping[str, object], payload: str | None) -> bytes:
    """The bytes of one event. tlparse and torch expect the MD5 of a payload in the metadata, so it is added."""
    if payload is None:
        return f"{prefix} {_json(metadata)}\n".encode("utf-8", "backslashreplace")
    if "has_payload" not in metadata:
        digest = hashlib.md5(payload.encode("utf-8", "backslashreplace"), usedforsecurity=False)
        metadata = {**metadata, "has_payload": digest.hexdigest()}
    lines = payload.replace("\n", "\n\t")
    return f"{prefix} {_json(metadata)}\n\t{lines}\n".encode("utf-8", "backslashreplace")


def _json(metadata: Mapping[str, object]) -> str:
    """Metadata as one line of JSON; what JSON cannot hold becomes its ``repr``, as in torch's own log."""
    try:
        return _ENCODER.encode(metadata)
    except (TypeError, ValueError, RecursionError):  # keys that are no text, cycles, endless nesting
        return json.dumps({_key_text(key): _json_or_repr(value) for key, value in metadata.items()})


def _key_text(key: object) -> str:
    return key if isinstance(key, str) else _repr(key)


def _json_or_repr(value: object) -> object:
    """`value` if JSON can hold it, or else its ``repr``."""
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return _repr(value)
    return value


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - the repr is the user's code, and the event matters more than it
        return f"<{type(value).__name__} without a repr>"


_ENCODER = json.JSONEncoder(default=_repr)  # json.dumps makes one for every call that has a default
_last_timestamp: tuple[int, str] = (-1, "")


def _timestamp(created: float) -> str:
    """``MMDD HH:MM:SS.micros`` in local time. The second is formatted once: strftime costs more than the rest."""
    global _last_timestamp
    second = int(created)
    known, text = _last_timestamp
    if known != second:
        text = time.strftime("%m%d %H:%M:%S", time.localtime(second))
        _last_timestamp = (second, text)
    return f"{text}.{int((created - second) * 1_000_000):06d}"


_relative_paths: dict[str, str] = {}


def _relative_path(pathname: str) -> str:
    """A path relative to the first entry of ``sys.path`` that holds it, as torch writes the emitting line."""
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


def _identity(descriptor: int) -> tuple[int, int]:
    """Device and inode: a descriptor's number alone may come to mean another file."""
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _close(descriptor: int, identity: tuple[int, int]) -> None:
    """Close `descriptor` if it is still the file it was."""
    try:
        if _identity(descriptor) == identity:
            os.close(descriptor)
    except OSError:  # it is closed already, which is what was wanted
        return


def _move_to_high_descriptor(descriptor: int) -> int:
    """The same file under a high number, so that the program's own files get the numbers they always got."""
    try:
        high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH_DESCRIPTOR)
    except OSError:  # a low limit on open files: the low number serves as well
        return descriptor
    os.close(descriptor)
    return high
