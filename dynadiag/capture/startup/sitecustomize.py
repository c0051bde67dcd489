"""What Python runs first in a recorded process: takes our variables out of its environment, and restores its path.

A command puts this folder first into ``PYTHONPATH``, and `site` imports ``sitecustomize`` before any code of the
program. From then on ``os.environ``, ``sys.path`` and ``PYTHONPATH`` are what they would be without us. The variables
are held here (`HELD`) and are given to a child process that may run Python, where the child is made: in
``_posixsubprocess.fork_exec``, through which `subprocess` and `multiprocessing` go, and in the functions of `os` that
run a program. A child whose environment is the program's own, and no copy of ``os.environ``, does not get them.

It imports only what Python has loaded by then, as it runs in every Python that the program starts, of whatever version.
"""

from __future__ import annotations

import os
import sys

NAMES = ("DYNADIAG_RECORD", "DYNADIAG_RECORD_SETTINGS")
PATH, KEPT_PATH = "PYTHONPATH", "DYNADIAG_PYTHONPATH"  # the second has the program's own value, if it has one
FOLDER = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is not loaded
MODULE = "_dynadiag_start"  # the name of this module in a process of which it holds the variables
HELD: dict[str, str] = {}

_MAX_WORDS = 200  # words of a command line that are looked at
_SCRIPTS = (".py", ".sh")


def variables(own_path: str | None) -> dict[str, str]:
    """Return what makes a Python take part: what is held, and this folder first on its path."""
    if own_path is None:
        return {**HELD, PATH: FOLDER}
    return {**HELD, PATH: os.pathsep.join([FOLDER, own_path] if own_path else [FOLDER]), KEPT_PATH: own_path}


def take() -> None:
    """Take our variables out of the environment, and let children that may run Python have them."""
    HELD.update({name: os.environ.pop(name) for name in NAMES if name in os.environ})
    if os.environ.get(PATH, "").split(os.pathsep)[0] == FOLDER:
        own = os.environ.pop(KEPT_PATH, None)
        if own is None:
            del os.environ[PATH]
        else:
            os.environ[PATH] = own
    if FOLDER in sys.path:
        sys.path.remove(FOLDER)
    sys.path_importer_cache.pop(FOLDER, None)
    if HELD and MODULE not in sys.modules:
        sys.modules[MODULE] = sys.modules[__name__]
        _replace_functions()


def _replace_functions() -> None:
    """Put our own in place of the functions that make a child process. Each calls the original."""
    import _posixsubprocess

    fork_exec = _posixsubprocess.fork_exec

    def fork_exec_recorded(*arguments):  # type: ignore[no-untyped-def]  # it has 22 arguments, or 23
        def call(given):  # type: ignore[no-untyped-def]  # a list, or None
            ours = arguments if given is None else (*arguments[:5], given, *arguments[6:])
            return fork_exec(*ours)

        return _with_variables(arguments[0], arguments[5], call)

    _posixsubprocess.fork_exec = fork_exec_recorded
    if "subprocess" in sys.modules and hasattr(sys.modules["subprocess"], "_fork_exec"):
        sys.modules["subprocess"]._fork_exec = fork_exec_recorded  # type: ignore[attr-defined]  # of Python 3.11 on
    system, execv, execve, spawn, spawnp = os.system, os.execv, os.execve, os.posix_spawn, os.posix_spawnp

    def replace(function):  # type: ignore[no-untyped-def]  # a function of `os`, by its name
        original = getattr(os, function.__name__)
        function.__doc__, function.__wrapped__ = original.__doc__, original
        function.__module__ = original.__module__
        setattr(os, function.__name__, function)

    def exec_(path, argv):  # type: ignore[no-untyped-def]
        return _with_variables([path, *argv], None, lambda _: execv(path, argv))

    exec_.__name__ = exec_.__qualname__ = "execv"
    replace(exec_)
    names = {"execve": execve, "posix_spawn": spawn, "posix_spawnp": spawnp}
    for name, function in names.items():

        def with_environment(path, argv, env, _function=function, **options):  # type: ignore[no-untyped-def]
            return _with_variables(
                [path, *argv], env, lambda given: _function(path, argv, env if given is None else given, **options)
            )

        with_environment.__name__ = with_environment.__qualname__ = name
        replace(with_environment)

    def run(command):  # type: ignore[no-untyped-def]
        return _with_variables([command], None, lambda _: system(command))

    run.__name__ = run.__qualname__ = "system"
    replace(run)


def _with_variables(words, environment, call):  # type: ignore[no-untyped-def]  # of each function's own types
    """Make a child process by ``call(GIVEN)``, GIVEN its environment with our variables, ``None`` to leave it."""
    try:
        wanted = _may_run_python(words)
        given = None if environment is None or not wanted else _with_ours(environment)
    except Exception:  # noqa: BLE001 - words or an environment that the original refuses, with its own message
        return call(None)
    if environment is not None or not wanted:
        return call(given)
    added = variables(os.environ.get(PATH))
    before = os.environ.get(PATH)
    for name, value in added.items():
        os.putenv(name, value)
    try:
        return call(None)
    finally:
        for name in added:
            os.unsetenv(name)
        if before is not None:
            os.putenv(PATH, before)


def _with_ours(environment):  # type: ignore[no-untyped-def]  # a list of b"NAME=VALUE", or a mapping
    """Return an environment with our variables, ``None`` if it is not a copy of the program's, or has them already."""
    entries = [each.partition(b"=")[::2] for each in environment] if isinstance(environment, list) else []
    own = dict(entries) if entries else {os.fsencode(name): os.fsencode(environment[name]) for name in environment}
    same = sum(own.get(name) == value for name, value in os.environb.items())
    if os.fsencode(NAMES[0]) in own or 2 * same < len(os.environb):
        return None
    path = own.get(os.fsencode(PATH))
    added = variables(None if path is None else os.fsdecode(path))
    own.update({os.fsencode(name): os.fsencode(value) for name, value in added.items()})
    return [name + b"=" + value for name, value in own.items()] if isinstance(environment, list) else own


def _may_run_python(words) -> bool:  # type: ignore[no-untyped-def]  # str, bytes or paths
    """Whether a command line names Python, a script, or what a Python package installed (``torchrun``)."""
    texts = " ".join(map(os.fsdecode, words)).split()[:_MAX_WORDS]
    return any(map(_names_python, texts))


def _names_python(word: str) -> bool:
    word = word.strip("'\"();&|")
    name = word.rpartition("/")[2]
    if name.startswith("python") or name.endswith(_SCRIPTS) or word == sys.executable:
        return True
    if not name or name.startswith("-") or "=" in name or len(word) > 255:
        return False
    folders = [""] if "/" in word else os.environ.get("PATH", "").split(os.pathsep)
    return any(_begins_as_script(os.path.join(folder, word)) for folder in folders)  # noqa: PTH118 - as above


def _begins_as_script(file: str) -> bool:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return False
    try:
        return os.read(descriptor, 2) == b"#!"
    except OSError:
        return False
    finally:
        os.close(descriptor)


if __name__ == "sitecustomize":
    _this = sys.modules[__name__]
    take()
    del sys.modules[__name__]
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401 - the program's own, which this one hides
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        sys.modules[__name__] = _this  # `import` wants it there
        raise ImportError(name="sitecustomize") from None  # there is none: `site` goes on, and forgets this module
