"""The zygote: a process that has torch loaded and forks a trial for each request.

It stays single-threaded and never initializes CUDA, so that its forks can do both. `main` is its entry. `serve_forks`
also runs in the middle of a program, at its first compiled call, and forks trials that go on from there. So what a
program does before it compiles (imports, weights, data) is done once per search.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import random
import re
import signal
import socket
import sys
import sysconfig
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

from dynadiag.recording.package_files import installed_path
from dynadiag.trial import process
from dynadiag.trial.child_processes import install_hooks
from dynadiag.trial.context import TRIAL
from dynadiag.trial.plan import AS_WRITTEN, Plan
from dynadiag.trial.program import Program
from dynadiag.trial.random_numbers import seed_generators
from dynadiag.trial.typed_json import dump, load

BOOT = "import sys; sys.path.pop(0); from dynadiag.trial.zygote import main; main(int(sys.argv[1]), sys.argv[2])"

_OURS = str(Path(__file__).parents[1]) + os.sep
_CLOCK_IMPORT = re.compile(rb"(?:^|;)[ \t]*(?:import|from)\b[^#\n]*\b(?:time|datetime|timeit)\b", re.M)
_HUGE_PAGE = 2 << 20  # bytes
_MADV_COLLAPSE = 25  # <linux/mman.h>
_MESSAGE = 1 << 20  # bytes; a plan with a few hundred suffixes has some kilobytes
# Set for the zygote alone; the program must not see them.
ZYGOTE_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "TORCHINDUCTOR_COMPILE_THREADS",
    "PYTORCH_NVML_BASED_CUDA_CHECK",  # otherwise torch.cuda.is_available() initializes CUDA, which breaks forks
)


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """The work of the next fork: run the trial of ``plan``, with ``scratch`` as its temporary folder.

    The zygote runs ``program`` in ``cwd`` with this many ``threads``; ``seed`` seeds the random number generators. The
    stopped program goes on by itself. With ``checkpoint`` the fork stops at the next point where trials can be forked.
    With ``replica`` it runs no trial but forks trials, like the process that it was forked from; before that it runs
    the import statements of ``imports``.
    """

    plan: Plan = AS_WRITTEN
    scratch: str = ""
    program: Program | None = None
    cwd: str = ""
    threads: int = 1
    seed: int | None = None
    checkpoint: bool = False
    replica: bool = False
    imports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ForkReply:
    """The answer of a fork server: it is ready, or refuses and says why; the process id of a fork; the exit code of a
    fork.
    """

    ready: bool = False
    refused: str | None = None
    pid: int | None = None
    exit_code: int | None = None


Message = TypeVar("Message", ForkRequest, ForkReply)


def send(channel: socket.socket, message: ForkRequest | ForkReply, descriptors: Sequence[int] = ()) -> None:
    """Send a message, with open descriptors, over the channel."""
    socket.send_fds(channel, [dump(message).encode()], list(descriptors))


def receive(channel: socket.socket, kind: type[Message]) -> tuple[Message | None, list[int]]:
    """The next message and its descriptors. The message is ``None`` if the other side is gone."""
    data, descriptors, _, _ = socket.recv_fds(channel, _MESSAGE, 4)
    return (load(data, kind) if data else None), list(descriptors)


def main(descriptor: int, settings: str) -> NoReturn:
    """The zygote's process: loads torch, warms up the compiler, then forks trials until the channel closes."""
    process.die_with_parent()
    options = json.loads(settings)
    channel = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    install_hooks(options["hooks"])
    _warm_up_compiler()
    for name, value in options["environment"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    gc.collect()
    gc.freeze()  # so that a garbage collection in a trial does not copy the pages of torch's objects
    # At exit torch would unregister each operator, which takes 50 ms.
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # private: no public list
        finalizer.atexit = False
    send(channel, ForkReply(ready=True))
    request, descriptors = serve_forks(channel)
    checkpoint = descriptors.pop() if request.checkpoint else None
    if checkpoint is None:
        _use_threads(request.threads)  # before the hooks start: one of them notes what the program asks for
    start_trial(request, descriptors)
    _run_program(request, checkpoint)


def _warm_up_compiler() -> None:
    """One tiny compile. The first compile spends seconds on probing the machine, loading Inductor and tracing its
    patterns.

    Caches are bypassed: each fork would have to do the work that a cache hit skips. With a GPU any compile initializes
    CUDA (Dynamo saves its random state, and Inductor traces its patterns on it), so there the compiler is only loaded.
    """
    import torch

    from dynadiag.torch_private import trial as torch_private

    if torch.cuda.is_available():
        torch_private.load_compiler()
        return
    torch_private.start_autograd()
    # A compile that fails here (no C++ compiler, a damaged cache) fails in the trials too, and is reported there.
    with torch_private.caches_bypassed(), contextlib.suppress(Exception):
        loss = torch.nn.L1Loss()  # Dynamo skips our own functions
        torch.compile(loss, backend="inductor")(torch.ones(8, requires_grad=True), torch.zeros(8))
    torch_private.load_late_imports()  # otherwise each fork does; a larger compile would cost more than it saves
    torch_private.reset()


def serve_forks(channel: socket.socket) -> tuple[ForkRequest, list[int]]:
    """Fork a trial for each request. Returns only in the forks, each with its request and its descriptors.

    A fork that is to be a replica forks trials too, so that two trials can run at once.
    """
    while True:
        request, descriptors = receive(channel, ForkRequest)
        if request is None:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            channel.close()
            if not request.replica:
                return request, descriptors
            os.setsid()
            process.die_with_parent()
            channel = socket.socket(fileno=descriptors[0])
            _import_ahead(request.imports)
            continue
        for descriptor in descriptors:
            os.close(descriptor)
        send(channel, ForkReply(pid=pid))
        if not (request.checkpoint or request.replica):
            _, status = os.waitpid(pid, 0)
            send(channel, ForkReply(exit_code=os.waitstatus_to_exitcode(status)))


def _import_ahead(imports: Sequence[str]) -> None:
    """Run import statements, so that each trial has the libraries loaded. A statement that fails here fails in the
    trials too.
    """
    for statement in imports:
        with contextlib.suppress(Exception):
            exec(statement, {})  # noqa: S102 - an import of the user's program
    gc.collect()
    gc.freeze()
    _use_huge_pages()


def _use_huge_pages() -> None:
    """Have the kernel gather this process's memory in pages of 2 MB: of a small trial, most of the time is the copy of
    the table of pages. That takes a second once and saves 10 ms a trial, in a search of hundreds. Linux before 6.1 does
    nothing.
    """
    advise = ctypes.CDLL(None, use_errno=True).madvise
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights, _, _, inode, *name = line.split(maxsplit=5)
        if inode != "0" or not rights.startswith("rw-p") or name not in ([], ["[heap]"]):
            continue
        low, high = (int(number, 16) for number in place.split("-"))
        begin, end = -(-low // _HUGE_PAGE) * _HUGE_PAGE, high // _HUGE_PAGE * _HUGE_PAGE
        if begin < end:
            advise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _MADV_COLLAPSE)


def start_trial(request: ForkRequest, descriptors: list[int]) -> None:
    """Make this fork the process of a trial, and start it with the request's plan."""
    process.become_trial(*descriptors)
    os.environ["TMPDIR"] = request.scratch
    TRIAL.start(request.plan)


def _use_threads(count: int) -> None:
    import torch

    torch.set_num_threads(count)


def _run_program(request: ForkRequest, checkpoint: int | None) -> NoReturn:
    assert request.program is not None
    os.chdir(request.cwd)
    seed_generators(request.seed)
    if checkpoint is not None:
        _Checkpoint(socket.socket(fileno=checkpoint), request.threads, seeded=request.seed is not None).install()
    process.run_program_and_exit(request.program)


class _Checkpoint:
    """Runs the program with one thread up to its first compiled call, and forks trials from there.

    A process that has run a parallel region cannot be forked safely. The thread count that the program asks for is kept
    for the forks.
    """

    def __init__(self, channel: socket.socket, threads: int, *, seeded: bool) -> None:
        self._channel = channel
        self._seeded = seeded  # each trial begins with the same numbers
        self._threads = threads
        self._descriptors = _open_descriptors()
        self._random_state = random.getstate()
        self._owner = os.getpid()  # a child process of the program may be the first to compile
        self._pool: set[int] = set()  # torch's own threads, which it starts again in a fork

    def install(self) -> None:
        import torch

        self._set_num_threads = torch.set_num_threads
        torch.set_num_threads = self._note_threads
        self._get_num_threads = torch.get_num_threads
        torch.get_num_threads = lambda: self._threads
        self._seed = torch.initial_seed()
        TRIAL.at_first_call = self._serve

    def _note_threads(self, count: int) -> None:
        self._threads = count

    def _serve(self) -> None:
        self._reply_ready()
        request, descriptors = serve_forks(self._channel)
        further = descriptors.pop() if request.checkpoint else None
        start_trial(request, descriptors)
        self._resume()
        if further is not None:
            self._owner = os.getpid()
            self._channel = socket.socket(fileno=further)
            self._descriptors = _open_descriptors()
            TRIAL.at_first_graph = self._serve_at_graph

    def _serve_at_graph(self) -> None:
        """Runs with the program's own thread count, since Dynamo guards on it. Refused if its threads have run."""
        self._reply_ready()
        start_trial(*serve_forks(self._channel))
        self._reseed_unseeded()

    def _reply_ready(self) -> None:
        reason = self._refusal()
        send(self._channel, ForkReply(ready=reason is None, refused=reason))
        if reason:
            os._exit(0)

    def _resume(self) -> None:
        """Continue as a trial, with the program's own thread count."""
        import torch

        torch.get_num_threads = self._get_num_threads
        torch.set_num_threads = self._set_num_threads
        others = _threads()
        torch.set_num_threads(self._threads)
        self._pool = _threads() - others  # caffe2::pthreadpool has a fork handler, OpenMP has none
        self._reseed_unseeded()

    def _reseed_unseeded(self) -> None:
        """Reseed the generators that the program has not seeded, so that each trial has its own numbers."""
        if self._seeded:
            return
        import torch

        if random.getstate() == self._random_state:
            random.seed()
            self._random_state = random.getstate()
        if torch.initial_seed() == self._seed:
            self._seed = torch.seed()

    def _refusal(self) -> str | None:
        """Why this process must not be forked, or ``None``."""
        if os.getpid() != self._owner:
            return "the program compiles in a child process"
        if "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized():
            return "CUDA is initialized, and does not work in a fork"
        if len(_threads() - self._pool) > 1:
            return "the program has threads"
        if any(signal.getitimer(timer)[0] for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)):
            return "the program has set an alarm"
        if (reader := _clock_reader()) is not None:
            return f"the program reads the clock ({reader}), which runs on while it is stopped"
        extra = {str(_descriptor_name(d)) for d in _open_descriptors() - self._descriptors}
        if extra:
            return f"the program holds files open: {', '.join(sorted(extra))}"
        if _children():
            return "the program has child processes"
        return None


def _clock_reader() -> str | None:
    """A file of the program that imports a module that reads clocks; ``None`` if none does. Whether it has read one
    yet, and whether it keeps the time, cannot be seen from outside.
    """
    standard_library = sysconfig.get_path("stdlib") + os.sep
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or file.startswith((_OURS, standard_library)):
            continue
        if installed_path(file):  # of this environment, the user's or another one on `sys.path`
            continue
        with contextlib.suppress(OSError):
            if _CLOCK_IMPORT.search(Path(file).read_bytes()):
                return Path(file).name
    return None


def _threads() -> set[int]:
    return {int(entry.name) for entry in Path("/proc/self/task").iterdir()}


def _open_descriptors() -> set[int]:
    entries = (int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    return {number for number in entries if _descriptor_name(number) is not None}


def _descriptor_name(descriptor: int) -> str | None:
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        return None


def _children() -> list[int]:
    task = Path(f"/proc/self/task/{os.getpid()}/children")
    return [int(pid) for pid in task.read_text().split()] if task.exists() else []
