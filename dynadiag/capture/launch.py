"""Run a program under the recorder, in a process of its own, as ``python FILE.py ARGS...`` would run it.

The recorder is loaded through torch's own entry point (`dynadiag.autoload`). The command line, ``sys.path`` and the
environment are the same as without us.
"""

from __future__ import annotations

import glob
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path

from dynadiag.capture.run_metadata import run_header, writer
from dynadiag.capture.settings import Settings
from dynadiag.errors import DynadiagError, UnwritableOutput, say
from dynadiag.recording.journal import SUFFIX, Identity, Journal, journal_stem
from dynadiag.recording.opening import is_journal, journal_header

PASSED_ON = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,  # a terminal that is closed
    signal.SIGQUIT,  # Ctrl-\
    signal.SIGUSR1,  # a cluster's: write a checkpoint, the time is nearly over
    signal.SIGUSR2,
)
_MAX_INTERRUPTS = 2  # times that Ctrl-C is left to the program; the next one kills it
_SECONDS = 1.0  # between looks at a program of whose end we get no signal


class SignalRelay:
    """Passes signals on to a program from before its start until its end.

    They are blocked meanwhile and taken one by one, which tells who sent each: what the terminal sends (Ctrl-C), it has
    sent to the program too. One that was ignored when we were started (`nohup`, a shell's ``&``) is passed on as well,
    because the program may handle it, and is not counted as Ctrl-C. For the main thread only.
    """

    def __init__(self) -> None:
        self.interrupts = 0

    def __enter__(self) -> SignalRelay:
        self._interruptible = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, signal.SIGCHLD})
        return self

    def __exit__(self, *_: object) -> None:
        while signal.sigtimedwait(PASSED_ON, 0) is not None:
            pass  # it was for the program, which has ended
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    @property
    def unblock(self) -> Callable[[], object]:
        """What the program's process calls before it becomes the program: it gets the signals as we got them."""
        before = self._before
        return lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def wait(
        self, process: subprocess.Popen[bytes], limit: float | None, tick: Callable[[float], None] | None = None
    ) -> int:
        """Wait for the end of the program, and kill it after ``limit`` seconds. Returns its exit code.

        ``tick`` is called about once a second, with the seconds so far.
        """
        began = time.monotonic()
        end = None if limit is None else began + limit
        while (code := process.poll()) is None:
            left = _SECONDS if end is None else min(_SECONDS, end - time.monotonic())
            if left <= 0:
                process.kill()
                return process.wait()
            if tick is not None:
                tick(time.monotonic() - began)
            info = signal.sigtimedwait({*PASSED_ON, signal.SIGCHLD}, left)
            if info is not None and info.si_signo != signal.SIGCHLD:
                self._pass_on(process, info)
        return code

    def _pass_on(self, process: subprocess.Popen[bytes], info: signal.struct_siginfo) -> None:
        if info.si_signo == signal.SIGINT and self._interruptible:
            self.interrupts += 1
            if self.interrupts > _MAX_INTERRUPTS:
                process.kill()
                return
        if info.si_code <= 0:  # sent by a process; the kernel's own go to the whole foreground group
            process.send_signal(info.si_signo)


Streams = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a recorded program ended. ``other_journals`` are those of its other processes, by rank.

    ``has_journal`` is false where the file of its journal is gone, or is another by now, or was overwritten.
    """

    exit_code: int
    seconds: float
    interrupted: bool
    other_journals: tuple[Path, ...] = ()
    has_journal: bool = True


def launch(
    command: Sequence[str],
    journal: Path,
    settings: Settings,
    variables: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    streams: Streams = (None, None),
    limit: float | None = None,
    tick: Callable[[float], None] | None = None,
) -> ProcessEnd:
    """Run ``command`` with its main process recorded into ``journal``, and append how the program ended.

    The journal is made before the program starts, so that nobody else can take its name. ``variables`` are added to
    the program's environment, ``notes`` to the recording. ``streams`` are the descriptors of its stdout and stderr
    where these are not ours, ``limit`` the seconds after which it is killed. ``tick`` is called about once a second,
    with the seconds so far. Raises `DynadiagError` if the recorder is not installed in this interpreter, or if the
    journal exists or cannot be made. Once the program runs, nothing of ours is raised: what goes wrong is one line on
    stderr.
    """
    _check_installed()
    journal = journal.absolute()
    claimed = _claim(journal)
    claim = [*claimed.identity, claimed.size]
    settings = replace(settings, journal=str(journal), claim=claim, parent=os.getpid())
    environment = settings.program_environment(str(journal.parent), {**os.environ, **(variables or {})})
    try:
        ended = _run(command, environment, streams, limit, tick=tick)
    except OSError as error:
        claimed.close()
        journal.unlink()
        raise DynadiagError(f"cannot run {command[0][:200]}: {error.strerror}") from error
    others = tuple(sorted(_find_other_journals(journal), key=_rank_order))
    try:
        _record_end(journal, settings, ended, others, notes)
    except DynadiagError as error:
        say(f"{journal} has no end", error)
    has_journal = not claimed.removed and not _is_overwritten(journal)
    claimed.close()
    return replace(ended, other_journals=others, has_journal=has_journal)


def _claim(journal: Path) -> Journal:
    """Make the journal, with who launched the program. It stays open, so that no other file gets its inode."""
    made = Journal.create(journal)
    made.append({"dynadiag_launch": writer()})
    return made


def launch_job(command: Sequence[str], folder: Path, settings: Settings) -> ProcessEnd:
    """Run any command. Each of its processes that compiles, or joins a process group, records itself in ``folder``.

    Raises `DynadiagError` if the command cannot be started.
    """
    _check_installed()
    before = set(folder.glob(f"*{SUFFIX}"))
    try:
        ended = _run(command, settings.program_environment(str(folder.absolute()), os.environ))
    except OSError as error:
        raise DynadiagError(f"cannot run {command[0][:200]}: {error.strerror}") from error
    return replace(ended, other_journals=tuple(sorted(set(folder.glob(f"*{SUFFIX}")) - before, key=_rank_order)))


def launch_plain(command: Sequence[str], variables: Mapping[str, str]) -> ProcessEnd:
    """Run a program with these variables added to its environment. Nothing is recorded."""
    return _run(command, {**os.environ, **variables})


def launch_counted(
    command: Sequence[str], folder: Path, settings: Settings, variables: Mapping[str, str]
) -> ProcessEnd:
    """Run a program without its output. Each of its processes writes the counts of its operator calls to ``folder``.

    Nothing is recorded. The program's standard input is empty, because an earlier run has read it.
    """
    settings = replace(settings, parent=os.getpid(), coverage=str(folder))
    environment = settings.program_environment(str(folder), {**os.environ, **variables})
    return _run(command, environment, (subprocess.DEVNULL, subprocess.DEVNULL), stdin=subprocess.DEVNULL)


def _run(
    command: Sequence[str],
    environment: Mapping[str, str],
    streams: Streams = (None, None),
    limit: float | None = None,
    stdin: int | None = None,
    tick: Callable[[float], None] | None = None,
) -> ProcessEnd:
    began = time.time()
    with SignalRelay() as signals:
        process = subprocess.Popen(
            command, env=environment, stdin=stdin, stdout=streams[0], stderr=streams[1], preexec_fn=signals.unblock
        )
        code = signals.wait(process, limit, tick)
    return ProcessEnd(code, time.time() - began, signals.interrupts > 0)


def _check_installed() -> None:
    if not any(entry.name == "dynadiag" for entry in entry_points(group="torch.backends")):
        raise DynadiagError(
            "dynadiag is not installed in this environment, so torch cannot load its recorder: pip install dynadiag"
        )


def _find_other_journals(journal: Path) -> Iterator[Path]:
    """The journals of the program's other processes: those beside the main one that name us as their launcher."""
    for path in journal.parent.glob(f"{glob.escape(journal_stem(journal))}-*{SUFFIX}"):
        header = journal_header(path)
        if header is not None and header.get("launcher") == os.getpid():
            yield path


def _rank_order(path: Path) -> tuple[int, str]:
    rank = re.search(r"-rank(\d+)\.dynadiag$", path.name)
    return (int(rank[1]) if rank else sys.maxsize, path.name)


def record_exit(
    journal: Path, code: int | None, seconds: float, notes: Sequence[str] = (), identity: Identity | None = None
) -> None:
    """Append to a program's journal how it ended: its exit code, negative for a signal, and how long it ran.

    Raises `DynadiagError` if that cannot be written, or if the journal has not this ``identity`` any more.
    """
    end = Journal.reopen(journal, identity=identity)
    end.append({"dynadiag_exit": {"code": code, "seconds": seconds, "notes": list(notes)}})
    end.close()
    if end.failure is not None:
        raise UnwritableOutput(f"cannot write {journal}: {end.failure}")


def _record_end(
    journal: Path, settings: Settings, ended: ProcessEnd, others: Sequence[Path], extra_notes: Sequence[str]
) -> None:
    """Append the end of a program that was launched. Raises as `record_exit`."""
    device, inode, size = settings.claim or (0, 0, 0)
    notes = list(extra_notes)
    if _is_overwritten(journal):
        raise DynadiagError("the program wrote a file of its own there, which is left as it is")
    if journal.exists() and journal.stat().st_size == size:
        start = Journal.reopen(journal, identity=(device, inode))
        start.append({"dynadiag_run": run_header(settings.target, os.getpid())})
        start.close()
        notes.append(_why_not_recorded())
    if others:
        one = len(others) == 1
        number = "1 other process" if one else f"{len(others)} other processes"
        notes.append(
            f"{number} of the program {'has a recording of its own' if one else 'have recordings of their own'}"
        )
    if os.environ.get("TORCHDYNAMO_DISABLE") == "1" or os.environ.get("TORCH_COMPILE_DISABLE") == "1":
        notes.append("the environment disables torch.compile (TORCHDYNAMO_DISABLE or TORCH_COMPILE_DISABLE is 1)")
    record_exit(journal, ended.exit_code, ended.seconds, notes, (device, inode))


def _is_overwritten(journal: Path) -> bool:
    """Whether the program wrote a file of its own in place of what we began. On a full disk we began nothing."""
    return journal.exists() and journal.stat().st_size > 0 and not is_journal(journal)


def _why_not_recorded() -> str:
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        return "TORCH_DEVICE_BACKEND_AUTOLOAD is 0 in this environment: torch did not load the recorder"
    return "the program never imported torch, or ended before it had"
