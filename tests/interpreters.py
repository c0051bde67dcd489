"""Python processes that need not load torch again: each is a fork of one process that has it loaded.

A fresh interpreter spends seconds on ``import torch`` and on the compiler's first steps before it comes to what a test
is about. Inside ``with warm():`` a ``subprocess.Popen`` of this interpreter, or of the console script ``dynadiag``,
is a fork of a server instead. It has the arguments, environment, folder, descriptors and session that were asked for,
runs ``__main__`` anew, is a child of this process, and its ``import torch`` ends with the entry points that a real one
calls. The same holds for what it starts before it imports torch itself.

Where a fork cannot stand for an interpreter, there is a real one: other options of Python's, another setting of torch's
in the environment, a process that has imported torch, a machine with a GPU. Tests of how a process starts, is killed or
is not disturbed do not come here.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import io
import json
import os
import random
import runpy
import signal
import site
import socket
import subprocess
import sys
import tempfile
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from fcntl import F_DUPFD_CLOEXEC, fcntl
from pathlib import Path
from typing import Any, NoReturn

from dynadiag.capture.launch import SignalRelay
from dynadiag.capture.startup import sitecustomize

__all__ = ["DYNADIAG", "keep_environment", "leave_out_guard_timing", "warm"]

DYNADIAG = Path(sys.executable).with_name("dynadiag")
_ROOT = Path(__file__).parents[1]
_Real = subprocess.Popen
_PARAMETERS = tuple(inspect.signature(_Real._execute_child).parameters)[1:]  # type: ignore[attr-defined]
# Variables that Python, torch, Triton and compilers read early: a fork has those of the server.
_EARLY = ("PYTHON", "TORCH", "PYTORCH", "TRITON", "CUDA", "OMP_", "MKL_", "KMP_", "GOMP_", "LD_", "CXX", "PATH")
_SERVERS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS", "PYTORCH_NVML_BASED_CUDA_CHECK")
# Settings that a variable forces to be off: the modules that have them, and their names there.
_FORCED_OFF = {
    "TORCHINDUCTOR_FX_GRAPH_CACHE": ("torch._inductor.config", "fx_graph_cache"),
    "TORCHINDUCTOR_AUTOGRAD_CACHE": ("torch._functorch.config", "enable_autograd_cache"),
    "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_LOCAL_PGO": ("torch._dynamo.config", "automatic_dynamic_local_pgo"),
}
# What is heeded here, or read late, or no different: all forks of one server hash alike.
_HEEDED = {*_SERVERS, *_FORCED_OFF, "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"}
_HEEDED |= {"TORCHINDUCTOR_FORCE_DISABLE_CACHES", "TORCHDYNAMO_DISABLE"}
_HEEDED |= {"OMP_WAIT_POLICY", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONPATH", "PYTHONUNBUFFERED"}
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_HIGH = 500  # descriptors on their way are numbered from here
_prctl = ctypes.CDLL(None).prctl


def keep_environment() -> None:
    """Start the server with the variables that this process has now, whichever test is the first to need it."""
    _State.environment = dict(os.environ)


@contextlib.contextmanager
def warm() -> Iterator[None]:
    """While this lasts, interpreters that are started are forks wherever they can be."""
    before, subprocess.Popen = subprocess.Popen, _Forked  # type: ignore[misc]
    try:
        yield
    finally:
        subprocess.Popen = before  # type: ignore[misc]


def leave_out_guard_timing() -> None:
    """Compile without timing the guards. The timing takes 40% of the time of a small compile.

    Interpreters that are no forks time them, and so does the test of the function that is left out.
    """
    from dynadiag.torch_private import trial

    trial.skip_guard_timing()


class _Forked(_Real):  # type: ignore[type-arg]
    """A process that looks like any other to its parent."""

    def _execute_child(self, *values: Any) -> None:
        asked = dict(zip(_PARAMETERS, values, strict=True))
        pid = _start_fork(asked) if _can_be_a_fork(asked) else None
        if pid is None:
            super()._execute_child(*values)  # type: ignore[misc]
            return
        self.pid, self._child_created = pid, True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[name] for name in pipes))  # type: ignore[attr-defined]


def _can_be_a_fork(asked: Mapping[str, Any]) -> bool:
    args = asked["args"]
    usual = {"shell": False, "gid": None, "uid": None, "umask": -1, "process_group": -1}
    return (
        isinstance(args, list | tuple)
        and str(args[0]) in (sys.executable, str(DYNADIAG))
        and _script(_words(args)) is not None
        and all(asked[name] == value for name, value in usual.items() if name in asked)
        and (asked["preexec_fn"] is None or _State.base is not None or _unblocks_signals(asked["preexec_fn"]))
        and _can_have_forks(os.environ if asked["env"] is None else asked["env"])
        and not _State.imported
        and sitecustomize.MODULE not in sys.modules  # the children of a recorded program get its variables as they do
        and (_State.base is None or threading.active_count() == 1)
    )


def _unblocks_signals(function: Callable[[], object]) -> bool:
    """Whether it undoes what `SignalRelay` blocks. In a fork of the server no signal is blocked."""
    return function.__qualname__.startswith(SignalRelay.__qualname__)


def _words(args: Sequence[Any]) -> list[str]:
    """The words after the interpreter's own name."""
    words = [os.fsdecode(word) for word in args]
    return words[1:] if words[0] == sys.executable else words


def _script(words: list[str]) -> tuple[bool, str, list[str]] | None:
    """(whether the path is safe, ``-c``, ``-m`` or a file, the rest), or None if the words are others."""
    safe = words[:1] == ["-P"]
    words = words[safe:]
    if not words or (words[0] in ("-c", "-m") and len(words) < 2):
        return None
    if words[0].startswith("-") and words[0] not in ("-c", "-m"):
        return None
    if words[0] == "-m" and words[1].startswith("torch"):
        return None
    return safe, words[0], words[1:]


def _can_have_forks(environment: Mapping[str, str]) -> bool:
    """Whether what is loaded is what a process with this environment would load."""
    is_same = _relevant_variables(environment) == _relevant_variables(_State.environment)
    return is_same and not _has_another_dynadiag(environment)


def _has_another_dynadiag(environment: Mapping[str, str]) -> bool:
    entries = environment.get("PYTHONPATH", "").split(os.pathsep)
    return any(entry and Path(entry) != _ROOT and Path(entry, "dynadiag").exists() for entry in entries)


def _relevant_variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_EARLY) and name not in _HEEDED}


class _State:
    """What this process began with. A test may change its environment before the server starts."""

    base: set[int] | None = None  # descriptors of the server's libraries
    path: tuple[str, ...] = ()  # what Python itself and its site have on the path
    environment: Mapping[str, str] = types.MappingProxyType(dict(os.environ))
    imported = False  # the program has imported torch: a fork of it would be no fresh interpreter


def _start_fork(asked: Mapping[str, Any]) -> int | None:
    """The process id of the fork, once it has its session and its descriptors; None if there is none to be had."""
    given = ("p2cread", "c2pwrite", "errwrite")
    standard = [number if (number := asked[name]) != -1 else default for default, name in enumerate(given)]
    request = {
        "words": _words(asked["args"]),
        "environment": dict(os.environ if asked["env"] is None else asked["env"]),
        "folder": os.fspath(asked["cwd"] or Path.cwd()),
        "session": bool(asked["start_new_session"]),
        "numbers": [0, 1, 2, *sorted(asked["pass_fds"])],
        "parent": os.getpid(),
    }
    descriptors = [*standard, *sorted(asked["pass_fds"])]
    if _State.base is None:
        return _server().start(request, descriptors)
    return _fork_here(request, descriptors, asked["preexec_fn"])


# --- in the process that pytest runs in ---


class _Server:
    """The client's side of the process that has torch loaded."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        cache = Path(tempfile.gettempdir(), "dynadiag-tests-inductor")
        environment = {"TORCHINDUCTOR_CACHE_DIR": str(cache), **_State.environment} | dict.fromkeys(_SERVERS, "1")
        environment.pop("PYTHONPATH", None)  # each fork has its own
        self._process = _Real(
            [sys.executable, "-c", "from tests.interpreters import serve; serve()", str(theirs.fileno())],
            env=environment,
            cwd=_ROOT,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self._able = self._channel.recv(16) == b"ready"

    def start(self, request: dict[str, Any], descriptors: list[int]) -> int | None:
        if not self._able:
            return None
        reading, writing = os.pipe()
        with self._lock, tempfile.TemporaryFile() as file, os.fdopen(reading, "rb") as answer:
            file.write(json.dumps(request).encode())
            file.flush()
            _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._channel, [b"start"], [file.fileno(), writing, *descriptors])
                os.close(writing)
                said = answer.read()
            finally:
                _prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        return int(said) if said else None


@functools.cache
def _server() -> _Server:
    return _Server()


# --- in the server ---


def serve() -> NoReturn:
    """Loads torch, compiles something small, and forks for each request until the channel closes."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the first program may be started while a test blocks signals
    channel = socket.socket(fileno=int(sys.argv[1]))
    _State.path = tuple(sys.path[1:])
    import torch

    from dynadiag.capture.loaded_packages import packages_loaded_since
    from dynadiag.commands import explain  # noqa: F401 - most commands need what it imports
    from dynadiag.explanation.registry import Registry
    from dynadiag.trial import zygote

    leave_out_guard_timing()
    if not torch.cuda.is_available():
        zygote._warm_up_compiler()
        zygote._warm_up_compiler = lambda: None
    packages_loaded_since(set())  # both are kept, and needed by most programs
    Registry.installed()
    gc.collect()
    gc.freeze()  # a collection in a fork would copy every page of what is loaded, and come later than a program's own
    _State.base = _open_descriptors() - {channel.fileno()}
    channel.send(b"no" if torch.cuda.is_available() else b"ready")
    while True:
        _, descriptors, _, _ = socket.recv_fds(channel, 16, 250)
        if not descriptors:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            _fork_and_leave(channel, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        os.waitpid(pid, 0)


def _fork_and_leave(channel: socket.socket, descriptors: list[int]) -> NoReturn:
    """The fork of a fork whose parent is gone becomes a child of the process that asked for it."""
    middle = os.getpid()
    if os.fork():
        os._exit(0)
    channel.close()
    file, answer, *rest = descriptors
    request = json.loads(os.pread(file, os.fstat(file).st_size, 0))
    while os.getppid() == middle:
        os.sched_yield()
    if os.getppid() != request["parent"]:
        os._exit(1)
    _become(request, rest, answer)


# --- in the forks ---


def _fork_here(request: dict[str, Any], descriptors: list[int], before: Callable[[], object] | None) -> int:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        if before is not None:
            before()
        _become(request, descriptors, writing)
    os.close(writing)
    os.read(reading, 16)
    os.close(reading)
    return pid


def _become(request: dict[str, Any], descriptors: list[int], answer: int) -> NoReturn:
    """Turns this process into the requested interpreter, and runs it to its end."""
    answer = _take(descriptors, request["numbers"], answer)
    if request["session"]:
        os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False
    os.write(answer, str(os.getpid()).encode())
    os.close(answer)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    tempfile.tempdir = None
    random.seed()
    _redirect_streams()
    _hide_torch()
    subprocess.Popen = _Forked  # type: ignore[misc]
    more = _python_path()
    sys.path[:] = ["", *more, *(each for each in _State.path if each not in more)]  # as `site` does
    sys.orig_argv = [sys.executable, *request["words"]]
    if more:
        sys.modules.pop("sitecustomize", None)  # Debian's, which the server has
        site.execsitecustomize()
    _end(_status(functools.partial(_run, request["words"])))


def _python_path() -> list[str]:
    value = os.environ.get("PYTHONPATH")
    return [os.path.abspath(entry) for entry in value.split(os.pathsep)] if value else []  # noqa: PTH100 - as Python


def _open_descriptors() -> set[int]:
    return {int(entry.name) for entry in Path("/proc/self/fd").iterdir()}


def _take(descriptors: list[int], numbers: list[int], answer: int) -> int:
    """The given descriptors under their numbers and nothing else but the server's; gives `answer`'s new number."""
    assert _State.base is not None
    high = [fcntl(descriptor, F_DUPFD_CLOEXEC, _HIGH) for descriptor in (*descriptors, answer)]
    for descriptor in _open_descriptors() - _State.base - set(high):
        with contextlib.suppress(OSError):  # of the listing itself
            os.close(descriptor)
    for number, descriptor in zip(numbers, high, strict=False):
        os.dup2(descriptor, number)
        os.close(descriptor)
    return high[-1]


def _redirect_streams() -> None:
    """Drop output that a parent process had buffered but not written."""
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    is_unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for number, name in ((1, "stdout"), (2, "stderr")):
        before = getattr(sys, name)
        raw = io.FileIO(number, "w", closefd=False)
        stream = io.TextIOWrapper(
            raw if is_unbuffered else io.BufferedWriter(raw),
            before.encoding,
            before.errors,
            line_buffering=number == 2 or os.isatty(number),
            write_through=is_unbuffered,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _hide_torch() -> None:
    """Make ``import torch`` find the loaded module, and run other packages' entry points as a real import does."""
    if "torch" not in sys.modules:
        return
    loaded = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "torch"}
    for name in loaded:
        del sys.modules[name]
    find = importlib.machinery.PathFinder.find_spec
    spec = importlib.util.spec_from_loader("torch", _Loaded(loaded, find), origin=loaded["torch"].__file__)
    assert spec is not None
    spec.submodule_search_locations = list(loaded["torch"].__path__)
    spec.has_location = True

    def find_spec(name: str, *more: Any) -> importlib.machinery.ModuleSpec | None:
        return spec if name == "torch" else find(name, *more)

    importlib.machinery.PathFinder.find_spec = find_spec  # type: ignore[method-assign, assignment]


class _Loaded(importlib.abc.Loader):
    """Stands for the loader of torch."""

    def __init__(self, modules: dict[str, types.ModuleType], find: Any) -> None:
        self._modules, self._find = modules, find

    def create_module(self, _spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return self._modules["torch"]

    def exec_module(self, torch: Any) -> None:
        importlib.machinery.PathFinder.find_spec = self._find  # type: ignore[method-assign]
        sys.modules.update(self._modules)
        _State.imported = True
        threads = int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))
        if threads != torch.get_num_threads():
            torch.set_num_threads(threads)
        torch.seed()  # a process that seeds nothing has random numbers of its own
        if os.environ.get("TORCHINDUCTOR_FORCE_DISABLE_CACHES") == "1":
            torch.compiler.config.force_disable_caches = True
        for variable, (module, name) in _FORCED_OFF.items():
            if os.environ.get(variable) == "0":
                sys.modules[module]._config[name].env_value_force = False
        if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
            torch._import_device_backends()


def _run(words: list[str]) -> None:
    """``python WORDS...``."""
    script = _script(words)
    assert script is not None
    safe, first, rest = script
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=__builtins__, __spec__=None, __annotations__={})
    sys.path[0:1] = [] if safe else [{"-c": "", "-m": str(Path.cwd())}.get(first, str(Path(first).resolve().parent))]
    if first == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    elif first == "-m":
        sys.argv = ["-m", *rest[1:]]
        runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]
    else:
        sys.argv = [first, *rest]
        path = os.path.abspath(first)  # noqa: PTH100 - as Python does, which resolves no links
        main.__file__, main.__loader__ = path, importlib.machinery.SourceFileLoader("__main__", path)
        exec(compile(Path(path).read_bytes(), path, "exec"), main.__dict__)


def _status(action: Callable[[], None]) -> int:
    """The exit code that Python ends with; an interrupted one is ended by the signal."""
    try:
        action()
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        print(error.code, file=sys.stderr)  # noqa: T201 - as Python does
        return 1
    except BaseException as error:  # noqa: BLE001 - the program's, whatever it is
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _end(code: int) -> NoReturn:
    threading._shutdown()  # type: ignore[attr-defined]  # waits for the program's threads
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
