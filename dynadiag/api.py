"""dynadiag from Python: record a block, explain one call, find what makes it fail, remove its graph breaks."""

from __future__ import annotations

import inspect
import io
import itertools
import linecache
import math
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from dynadiag.capture.output_path import check_output, described, named_path
from dynadiag.capture.run_metadata import cell_namer, notebook_name, run_footer, run_header, running_shell, text_of
from dynadiag.errors import DynadiagError, UnreadableInput, say
from dynadiag.recording.fold import fold
from dynadiag.recording.journal import SUFFIX, Journal, journal_path, journal_stem
from dynadiag.render.clean import clean_line
from dynadiag.render.report import Report
from dynadiag.tables import OpenRecording

if TYPE_CHECKING:
    from dynadiag.bisection.verdict import Verdict
    from dynadiag.capture.recorder import Recorder
    from dynadiag.capture.settings import ValueOptions
    from dynadiag.commands.progress import ProgressPrinter
    from dynadiag.fixes.fix_report import FixReport
    from dynadiag.tables import Values
    from dynadiag.trial.outcome import Outcome

_COMPILED_BEFORE = (
    "calls of what was compiled before the recording began, or given up, are not seen: torch.compiler.reset() drops it"
)
_recording_lock = threading.Lock()  # held while a block is recorded


@contextmanager
def record(path: str | Path, *, force: bool = False, source: bool = True) -> Iterator[Path]:
    """Record whatever torch compiles inside the block, in any thread, into ``path``.

    ``source=False`` leaves the text of your files out. An exception in the block goes on, and what was recorded is
    kept. Raises `DynadiagError` where ``path`` exists and ``force`` is not given, where it cannot be written, and
    inside another ``record``: the outer one has these events already.
    """
    absolute = named_path("record", path)
    if not _recording_lock.acquire(blocking=False):
        raise DynadiagError("record: a recording is being made already in this process; what is compiled goes into it")
    try:
        check_output(absolute, force=force)
        with _recorded(absolute.resolve(), None, source=source):  # a link stays one
            yield absolute
    finally:
        _recording_lock.release()


@contextmanager
def _recorded(
    path: Path, target: str | None, *, source: bool, values: ValueOptions | None = None
) -> Iterator[list[str]]:
    """Record a block; what it puts in the list are notes on it. With ``values`` those of compiled calls too."""
    import torch  # noqa: F401 - the recorder's probes need it loaded

    from dynadiag.capture.recorder import Recorder
    from dynadiag.torch_private.capture import frames_begun

    compiled_before = frames_begun()
    began, pid, journal = time.time(), os.getpid(), journal_path(path)
    recorder = Recorder(lambda: _open_journal(journal, target), source=source)
    recorder.journal()
    recorder.start()
    notes, error = list[str](), None
    try:
        if values is None:
            yield notes
        else:
            from dynadiag.node_values.watch import watching

            with watching(recorder, values):
                yield notes
    except BaseException as failure:
        error = failure
        recorder.record_exception(failure)
        raise
    finally:
        if os.getpid() == pid:
            if compiled_before and frames_begun() == compiled_before:
                notes.append(_COMPILED_BEFORE)
            how = {"code": 0 if error is None else 1, "notes": notes}
            _finish_recording(recorder, path, recorder.named(run_footer(began, error, source=source)), how)


def _finish_recording(recorder: Recorder, path: Path, footer: dict[str, Any], how: dict[str, Any]) -> None:
    """End a recording. Never raises: an exception of the block's own may be on its way to the caller."""
    journal = recorder.journal().path
    try:
        recorder.record_kernels()
        recorder.record_later_calls()
        recorder.stop()
        end = Journal.reopen(journal)
        end.append({"dynadiag_end": footer})
        end.append({"dynadiag_exit": how})
        end.close()
        fold(journal, path, force=True)
        if journal != path:
            journal.unlink()
    except Exception as failure:  # noqa: BLE001 - a disk that is full fails in many ways, and the block has run
        kept = f"what was recorded is in {journal}" if journal.exists() else f"{journal} is gone"
        say(f"{path} is not a whole recording; {kept}", failure)


def _open_journal(path: Path, target: str | None) -> Journal:
    own = path if not path.exists() else path.with_name(f"{journal_stem(path)}-{os.getpid()}{SUFFIX}")
    journal = Journal.create(own)
    journal.append({"dynadiag_run": run_header(target or notebook_name())})
    return journal


@contextmanager
def watch(file: TextIO | None = None) -> Iterator[None]:
    """Print one line as each compile in the block begins, breaks, recompiles, ends or gives up, in any thread.

    The lines go to ``file``, or else to stderr. Nothing is kept: use `record` for a report, alone or with this.
    """
    import torch  # noqa: F401 - the probes need it loaded

    from dynadiag.capture.live import Watcher, write_to_stderr

    if file is not None and not hasattr(file, "write"):
        raise DynadiagError(f"watch: file is {described(file)}; give an open file, such as sys.stdout")
    watcher = Watcher(write_to_stderr if file is None else lambda line: print(line, file=file, flush=True))
    watcher.start()
    try:
        yield
    finally:
        watcher.stop()


def warm() -> None:
    """Say that the warm-up is over: from here on nothing should be compiled.

    `dynadiag explain` then reports only what is compiled later, and `dynadiag check` fails if anything is. Where
    nothing is recorded it does nothing.
    """
    from dynadiag.torch_private.capture import mark_warm

    mark_warm()


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    """Compile ``fn`` (a function or a module), call it once, and say what torch.compile did.

    What is compiled already is called as it is. Where the call raises, the explanation says so and ``exit_code`` is 1.
    Raises `DynadiagError` inside `record`, and if ``fn`` cannot be called.
    """
    return _explained("explain", fn, args, kwargs, None)


def values(fn: Callable[..., Any], *args: Any, calls: str = "0", nodes: str | None = None, **kwargs: Any) -> Values:
    """Compile ``fn`` (a function or a module) anew, call it once, and return the value of each node of its graphs.

    What the program has compiled of it stays as it is. ``calls`` are those of each graph that count, such as
    ``"0,3..5"``; ``nodes`` is a regular expression, or names with commas. The graphs run once more in a fork of this
    process, or in it if CUDA is in use: its inputs and random numbers stay as they are. A backward graph has values if
    ``fn`` calls it. Raises `DynadiagError` as `explain`, and if ``fn`` is compiled code that was made before.
    """
    from dynadiag.capture.settings import ValueOptions, check_pattern, parse_calls
    from dynadiag.tables import Values

    if nodes is not None:
        check_pattern("values: nodes", nodes)
    report = _explained("values", fn, args, kwargs, ValueOptions(parse_calls(str(calls), "values: calls"), nodes))
    if report.values is None and _COMPILED_BEFORE in report.notes:
        raise DynadiagError(
            f"values({_target_name(fn)}): its compiled code was made without values: give what is compiled, not what "
            "torch.compile returned"
        )
    return Values(report)


def _explained(function: str, fn: Callable[..., Any], args: Any, kwargs: Any, options: ValueOptions | None) -> Report:
    """Compile and call ``fn`` under the recorder. With ``options`` the values of its graphs are recorded too."""
    _check_callable(function, fn)
    import torch

    from dynadiag.torch_private.capture import is_compiled

    if is_compiled(fn):
        compiled = fn
    elif options is None:
        compiled = torch.compile(fn)
    else:
        from dynadiag.torch_private.fresh_compile import compiled_afresh

        compiled = compiled_afresh(fn)
    if not _recording_lock.acquire(blocking=False):
        raise DynadiagError(
            f"{function}: a recording is being made already in this process: call it outside of record()"
        )
    try:
        with tempfile.TemporaryDirectory(prefix="dynadiag-") as folder:
            path = Path(folder, "call.dynadiag")
            failure = _call(path, _target_name(fn), compiled, args, kwargs, options)
            with open(path) as recording:
                made = replace(recording.report(), path=None)  # the recording is temporary
    finally:
        _recording_lock.release()
    return made if failure is None else replace(made, notes=(*made.notes, failure))


def _call(
    path: Path, name: str, fn: Callable[..., Any], args: Any, kwargs: Any, options: ValueOptions | None
) -> str | None:
    """Call ``fn`` under the recorder; what it raised, in a sentence."""
    try:
        with _recorded(path, name, source=True, values=options):
            fn(*args, **kwargs)
    except DynadiagError:
        raise
    except Exception as error:  # noqa: BLE001 - the user's program may raise anything: it is what is explained
        return f"the call raised {type(error).__name__}: {text_of(error)}".removesuffix(": ")
    return None


def _check_callable(function: str, fn: object) -> None:
    if not callable(fn):
        raise DynadiagError(f"{function}: fn is {described(fn)}, which cannot be called; give a function or a module")


def _check_call(function: str, fn: Callable[..., Any], args: object, kwargs: object) -> None:
    """Raise `DynadiagError` that names the argument if ``fn`` cannot be called with these."""
    _check_callable(function, fn)
    if not isinstance(args, list | tuple):
        raise DynadiagError(f"{function}: args is {described(args)}; give a tuple, such as (x,)")
    if not (isinstance(kwargs, Mapping) and all(isinstance(name, str) for name in kwargs)):
        raise DynadiagError(f"{function}: kwargs is {described(kwargs)}; give a dict of names and values")
    called = getattr(fn, "forward", fn) if hasattr(fn, "named_parameters") else fn
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):  # a builtin, whose call says what is wrong
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise DynadiagError(f"{function}: {_target_name(fn)}{signature} does not take these args: {error}") from None


def bisect(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    accuracy: bool = True,
    repeat: int = 1,
    timeout: float = 600.0,
) -> Verdict:
    """Compile ``fn`` (a function or a module), call it, and find the part of the compiler that makes that fail.

    It fails where it raises, crashes or hangs, and with ``accuracy`` where it gives another result than uncompiled,
    with float64 as the oracle. Each trial is a fork of this process with one thread: nothing of what it does is
    left here, and nothing of its output is shown. ``repeat`` tries each candidate up to that often, for failures
    that come and go; ``timeout`` is the limit of one trial, in seconds. Raises `DynadiagError` where this process
    cannot be forked: CUDA is in use, or a thread of it holds a lock.
    """
    _check_call("bisect", fn, args, kwargs if kwargs is not None else {})
    if isinstance(repeat, bool) or not isinstance(repeat, int) or repeat < 1:
        raise DynadiagError(f"bisect: repeat is {repeat!r}: give a number of repeats, 1 or more")
    if not (isinstance(timeout, int | float) and math.isfinite(timeout) and timeout > 0):
        raise DynadiagError(f"bisect: timeout is {timeout!r}: give a number of seconds, more than 0")
    import torch

    from dynadiag.bisection.bisector import bisect_call
    from dynadiag.bisection.failing_rung import BisectOptions

    if torch.cuda.is_initialized():
        raise DynadiagError(
            f"bisect({_target_name(fn)}): CUDA is in use in this process, which cannot be forked then. "
            "Put the call into a file and use: dynadiag bisect FILE.py:NAME"
        )
    options = BisectOptions(accuracy=accuracy, repeat=repeat)
    with _progress() as progress:
        return _with_cells_named(bisect_call(fn, args, kwargs or {}, options, timeout, progress.on_trial))


@contextmanager
def _progress() -> Iterator[ProgressPrinter]:
    """Show how far a search is, on a terminal and in a notebook, and nowhere else."""
    from dynadiag.commands.progress import ProgressPrinter

    live = sys.stderr is not None and (sys.stderr.isatty() or running_shell() is not None)
    with ProgressPrinter(sys.stderr if live else io.StringIO(), live=live) as progress:
        yield progress


def _with_cells_named(verdict: Verdict) -> Verdict:
    """In a notebook, name cells as recordings do, and let their lines be found by that name."""
    namer = cell_namer()
    if namer is None:
        return verdict
    culprits = []
    for culprit in verdict.culprits:
        named = tuple((namer(file), line) for file, line in culprit.lines)
        linecache.cache |= {
            new: linecache.cache[old]
            for (new, _), (old, _) in zip(named, culprit.lines, strict=True)
            if old in linecache.cache
        }
        culprits.append(replace(culprit, lines=named))
    return replace(verdict, culprits=tuple(culprits))


def fix(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> FixReport:
    """Find changes of ``fn`` (a function or a module) that remove the graph breaks of this call, and prove each one.

    The call is pickled, and every trial of it runs in a process of its own, with a copy of the folder that holds the
    source of ``fn``: your files and this process stay as they are. A main program is imported there as
    `multiprocessing` does it, so what it starts stands below ``if __name__ == "__main__"``. Raises `DynadiagError`
    where the call cannot be pickled, ``fn`` is compiled already, or the call fails uncompiled.
    """
    _check_call("fix", fn, args, kwargs)
    from dynadiag.fixes.pickled_call import fix_call
    from dynadiag.torch_private.capture import is_compiled

    if is_compiled(fn):
        raise DynadiagError(
            f"fix({_target_name(getattr(fn, '_orig_mod', fn))}): give what is compiled, not what torch.compile "
            f"returned: {_uncompiled(fn)}"
        )
    trials = itertools.count(1)
    with _progress() as progress:
        return fix_call(fn, args, kwargs, partial(_on_outcome, trials, progress))


def _uncompiled(fn: object) -> str:
    """How to get what was compiled, in a sentence."""
    if hasattr(fn, "_orig_mod"):
        return "`._orig_mod` of it is the module"
    if hasattr(fn, "named_parameters"):
        return "a module on which `.compile()` was not called yet"
    return f"instead of a decorator, write `fast = torch.compile({_target_name(fn)})` below the definition"


def _on_outcome(trials: Iterator[int], progress: ProgressPrinter, label: str, outcome: Outcome) -> None:
    progress.on_trial(next(trials), label, outcome.ending, outcome.seconds)


def _target_name(fn: object) -> str:
    return clean_line(str(getattr(fn, "__qualname__", None) or type(fn).__qualname__))


def open(path: str | Path) -> OpenRecording:  # noqa: A001 - `dynadiag.open`, as `gzip.open` is
    """Open a recording, or a journal that is not folded yet. Raises `dynadiag.UnreadableInput`."""
    named = named_path("open", path)
    if named.is_dir():
        raise UnreadableInput(f"open: {path} is a folder; name one of its recordings (*.dynadiag)")
    return OpenRecording.at(Path(path))
