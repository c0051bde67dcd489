"""Programs that compile, run in one process: bare, and under a recorder of which one function after the other raises.

``test_faults.py`` runs it in a process of its own and reads the JSON object that it prints.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import importlib
import inspect
import json
import logging
import logging.config
import os
import pkgutil
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any
from unittest import mock

import torch

from dynadiag import autoload, capture
from dynadiag.capture import probes as probes_module
from dynadiag.capture import process
from dynadiag.capture import recorder as recorder_module
from dynadiag.capture.collective_recorder import CollectiveRecorder
from dynadiag.capture.collectives import CollectiveLimit, UnseenCollectives
from dynadiag.capture.generated_code import RefusedFusions
from dynadiag.capture.guards import ObjectNumbers
from dynadiag.capture.later_calls import LaterCalls
from dynadiag.capture.recorder import Recorder
from dynadiag.capture.redact import Redactor
from dynadiag.recording import journal as journal_module
from dynadiag.recording.journal import Journal
from dynadiag.torch_private import exports
from tests.interpreters import leave_out_guard_timing

# The command's own process, what ends a recording, and what torch and logging call.
OUTSIDE = ("dynadiag.capture.launch", "dynadiag.capture.process", "dynadiag.torch_private.loggers")
MODULES = [f"dynadiag.capture.{module.name}" for module in pkgutil.iter_modules(capture.__path__)]
for module_name in MODULES:
    importlib.import_module(module_name)
MODULES += [name for name in sys.modules if name.startswith("dynadiag.torch_private.")]
MODULES = [*(name for name in MODULES if name not in OUTSIDE), "dynadiag.recording.journal"]
# What torch, logging or the end of the program calls. All else is behind one of these, which hold its failure back.
OUTERMOST = {
    *(Recorder.__init__, Recorder.start, Recorder.stop, Recorder.handle, Recorder.emit, Recorder.close),
    *(Recorder.give_up, Recorder._note_missed, Recorder._release, Recorder._on_skipped_frame),
    *(Recorder.record_kernels, Recorder.record_exception, Recorder.note, Recorder._on_export),
    *(CollectiveRecorder.__init__, CollectiveRecorder.start, CollectiveRecorder.stop, CollectiveRecorder.reset),
    *vars(recorder_module._CudaGraphSkipHandler).values(),
    Redactor.__init__,
    CollectiveLimit.__init__,
    UnseenCollectives.__init__,
    RefusedFusions.__init__,
    ObjectNumbers.__init__,
    *(LaterCalls.__init__, LaterCalls._called),
    exports._LoadErrors.emit,
}
LOGGERS = ("torch.__trace", "torch._dynamo.convert_frame")
EVENTS = "torch._inductor.cudagraph_utils.__cudagraphs"
Target = tuple[str, type | None, str]  # module, class or None, function
Piece = Callable[[], list[str]]
Deed = Callable[[], object]


class InjectedError(Exception):
    """Raised by whatever is made to fail."""


def broken(x: torch.Tensor) -> torch.Tensor:
    """Has one graph break, and is compiled for each size."""
    y = x.sin()
    torch._dynamo.graph_break()
    return (y * x.shape[0]).sum()


def numbers(x: torch.Tensor) -> Iterator[torch.Tensor]:
    """A generator, which Dynamo leaves to Python."""
    yield x + 1


def recompiles() -> list[str]:
    seen = []
    for size in (2, 3):
        x = torch.arange(size, dtype=torch.float32)
        result = torch.compile(broken, backend="eager", dynamic=False)(x)
        seen.append(str(result.tolist()))
    return seen


def skipped() -> list[str]:
    seen = [one.tolist() for one in torch.compile(numbers, backend="eager")(torch.ones(2))]
    logging.getLogger(EVENTS).warning("skipping cudagraphs due to us")
    return [*map(str, seen), str(torch.compile(abs, backend="eager")(-torch.ones(2)))]


def lowered() -> list[str]:
    return [str(torch.compile(torch.mm, backend="inductor")(torch.ones(2, 2), torch.ones(2, 2)).tolist())]


def cached() -> list[str]:
    with torch._inductor.config.patch(force_disable_caches=False), torch._inductor.utils.fresh_cache():
        return lowered()


def refused() -> list[str]:
    try:
        torch.compile(broken, fullgraph=True, backend="eager")(torch.ones(2))
    except torch._dynamo.exc.Unsupported as error:
        sys.last_value = error
        return str(error).splitlines()[:1]
    return ["compiled"]


@torch.library.custom_op("faulty::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    """An operator without a fake kernel."""
    return x * 2


class Twice(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return twice(x)


def drafted() -> list[str]:
    """A draft of an export runs the operator on the example."""
    x = torch.ones(2)
    return [str(torch.export.draft_export(Twice(), (x,)).module()(x).tolist())]


def specialized() -> list[str]:
    """A size that an operator makes a constant."""
    compiled = torch.compile(lambda x: x + torch.ones(3), backend="eager", dynamic=True)
    return [str(compiled(torch.ones(3)).tolist())]


_PIECES = (recompiles, skipped, refused, lowered, cached, drafted, specialized)
PIECES: dict[str, Piece] = {piece.__name__: piece for piece in _PIECES}


def bare(piece: Piece) -> list[str]:
    """The result of a piece, compiled again."""
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return piece()


@contextmanager
def recording(folder: Path, *, source: bool = True) -> Iterator[Recorder]:
    """A recorder with a journal of its own, and everything that is done to it at the end of a program."""
    recorder = Recorder(lambda: Journal.create(Path(tempfile.mkdtemp(dir=folder), "run.dynadiag")), source=source)
    recorder.start()
    try:
        yield recorder
    finally:
        process._end_recording(recorder, 0.0)


def targets() -> Iterator[Target]:
    """Every function of the recorder that one of its outermost ones calls."""
    for name in MODULES:
        for own in vars(importlib.import_module(name)).values():
            if getattr(own, "__module__", None) != name:
                continue
            if inspect.isclass(own):
                yield from ((name, own, key) for key, value in vars(own).items() if _may_fail(value))
            elif _may_fail(own):
                yield name, None, own.__name__


def _may_fail(value: object) -> bool:
    return isinstance(value, FunctionType) and value not in OUTERMOST


def label(target: Target) -> str:
    module, owner, name = target
    return ".".join([module.removeprefix("dynadiag."), *([owner.__name__] if owner else []), name])


@contextmanager
def replaced(target: Target, by: Callable[[Any], Any]) -> Iterator[None]:
    """Replaces a function in every module of ours that holds it."""
    module, owner, name = target
    original = vars(owner or importlib.import_module(module))[name]
    with contextlib.ExitStack() as stack:
        for holder in [owner] if owner else [one for key, one in list(sys.modules.items()) if key in MODULES]:
            for key in [key for key, value in vars(holder).items() if value is original]:
                stack.enter_context(mock.patch.object(holder, key, by(original)))
        probes = probes_module.PROBES
        stack.enter_context(mock.patch.dict(probes, {k: by(v) for k, v in probes.items() if v is original}))
        yield


class Faults:
    """Makes each target raise at its first call, at most one for each event; otherwise targets work as usual."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.reached: set[str] = set()
        self.held_back = 0  # failures that the recorder would have given up for

    def wrap(self, target: Target) -> Callable[[Any], Any]:
        name = label(target)

        def wrapped(original: Any) -> Any:
            def call(*args: Any, **options: Any) -> Any:
                self.reached.add(name)
                if name not in self.failed:
                    self.failed.append(name)
                    raise InjectedError(name)
                return original(*args, **options)

            return call

        return wrapped

    def give_up(self, _error: Exception) -> None:
        """In place of the recorder's own: it goes on, so that the next target can fail."""
        self.held_back += 1


def each_fails(folder: Path) -> dict[str, Any]:
    """Run the pieces until no target fails any more that has not failed before."""
    expected = {name: bare(piece) for name, piece in PIECES.items()}
    faults, wrong = Faults(), []
    with contextlib.ExitStack() as stack:
        for target in list(targets()):
            stack.enter_context(replaced(target, faults.wrap(target)))
        stack.enter_context(mock.patch.object(Recorder, "give_up", faults.give_up))
        for name, source in [*((name, True) for name in PIECES), ("recompiles", False)]:
            before = -1
            while before < len(faults.failed):
                before = len(faults.failed)
                with recording(folder, source=source):
                    seen = outcome(PIECES[name])
                if seen != expected[name]:
                    wrong.append([name, faults.failed[before:], seen])
    probes = [label((probes_module.__name__, None, probe.__name__)) for probe in probes_module.PROBES.values()]
    return {"probes": probes, "failed": faults.failed, "held_back": faults.held_back, "wrong": wrong}


def outcome(piece: Piece) -> list[str]:
    try:
        return bare(piece)
    except Exception as error:  # noqa: BLE001 - that is what must not be
        return [f"{type(error).__name__}: {error}"]


class Reporting(logging.Logger):
    """A logger class of the program that reports each record that it is given."""

    def debug(self, msg: object, *args: object, **options: Any) -> None:
        sys.stdout.write(f"debug {msg}\n")
        super().debug(msg, *args, **options)


def reporting_class() -> None:
    for name in LOGGERS:  # they exist by now: they are made as `logging.setLoggerClass` would have had them made
        logging.getLogger(name).__class__ = Reporting


def reporting_factory() -> None:
    def factory(*args: Any, **options: Any) -> logging.LogRecord:
        sys.stdout.write(f"record {args[0]}\n")
        return logging.LogRecord(*args, **options)

    logging.setLogRecordFactory(factory)


def full_disk() -> None:
    write, written = os.write, iter(range(10**9))

    def fail_later(descriptor: int, data: bytes) -> int:
        if next(written) > 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    journal_module.os = SimpleNamespace(**vars(os) | {"write": fail_later})  # type: ignore[attr-defined, assignment]


def removed_folder() -> None:
    shutil.rmtree(os.environ.get("DYNADIAG_RECORD", ""), ignore_errors=True)


def closed_for_ever() -> None:
    os.closerange(3, 2000)
    removed_folder()


def nothing() -> None:
    return


def no_stderr() -> None:
    sys.stderr = None


def closed_stderr() -> None:
    sys.stderr.close()


# What is wrong from the beginning (the folder), what the program does before and after its first compile, and whether
# it is told that it is not recorded.
TROUBLES: dict[str, tuple[str, Deed, Deed, str | None]] = {
    "a file": ("file", nothing, nothing, "at all"),
    "below a file": ("file/below", nothing, nothing, "at all"),
    "no folder can be made": ("/proc/nothing", nothing, nothing, "at all"),
    "no file can be made": ("/proc/self", nothing, nothing, "at all"),
    "no stderr": ("file", no_stderr, nothing, None),
    "closed stderr": ("file", closed_stderr, nothing, None),
    "full disk": ("new", full_disk, nothing, "any further"),
    "folder removed": ("new", nothing, removed_folder, "any further"),
    "journal closed": ("new", nothing, functools.partial(os.closerange, 3, 2000), None),
    "journal closed and removed": ("new", nothing, closed_for_ever, "any further"),
    "dictConfig": ("new", nothing, functools.partial(logging.config.dictConfig, {"version": 1}), None),
    "logger class": ("new", reporting_class, nothing, None),
    "record factory": ("new", reporting_factory, nothing, None),
}


def troubled(folder: Path) -> dict[str, Any]:
    """The program in a fork for each trouble: its exit code, output, complaints, and what a bare run of it has."""
    for piece in (recompiles, skipped, refused):
        bare(piece)
    found, alone = {}, dict[Deed, list[Any]]()
    for number, (name, (place, before, after, told)) in enumerate(TROUBLES.items()):
        home = folder / str(number)
        home.mkdir()
        (home / "file").touch()
        if before not in alone:
            alone[before] = forked(home / "bare", None, before, after)
        found[name] = {
            "bare": alone[before],
            "recorded": forked(home / "recorded", home / place, before, after),
            "told": told,
            "bytes": sum(file.stat().st_size for file in home.glob("new/*.dynadiag")),
        }
    return found


def forked(into: Path, record: Path | None, before: Deed, after: Deed) -> list[Any]:
    """Run the program in a fork, as far as its natural end: exit code, stdout, stderr."""
    pid = os.fork()
    if pid == 0:
        for number, suffix in ((1, ".out"), (2, ".err")):
            os.dup2(os.open(into.with_suffix(suffix), os.O_WRONLY | os.O_CREAT), number)
        before()
        if record is not None:
            os.environ["DYNADIAG_RECORD"] = str(record)
            autoload.start()
        sys.stdout.write(f"{outcome(recompiles)}\n")
        after()
        sys.stdout.write(f"{[outcome(piece) for piece in (recompiles, skipped, refused)]}\n")
        atexit._run_exitfuncs()
        with contextlib.suppress(AttributeError, ValueError):  # there is no stderr, or it is closed
            sys.stderr.flush()
        sys.stdout.flush()
        os._exit(3)  # torch need not be taken down
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return [code, *(into.with_suffix(suffix).read_text() for suffix in (".out", ".err"))]


if __name__ == "__main__":
    leave_out_guard_timing()
    torch.set_num_threads(1)
    torch._inductor.config.force_disable_caches = True
    scratch = Path(sys.argv[2])
    sys.stdout.write(json.dumps(troubled(scratch) if sys.argv[1] == "troubles" else each_fails(scratch)))
