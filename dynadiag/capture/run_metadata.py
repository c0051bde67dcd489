"""The metadata of a run: what is known at its beginning and at its end. Imports no torch: the command line writes
headers too.

IPython compiles the cells of a notebook under names that tell a reader nothing (``/tmp/ipykernel_7/93.py``). In a
recording they are files ``<In[3]>``, by the number that the notebook shows.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dynadiag.recording.journal import process_space
from dynadiag.torch_private import process_groups, spawned_ranks

_RELEVANT_PREFIXES = (
    "TORCH_",
    "TORCHDYNAMO_",
    "TORCHINDUCTOR_",
    "TRITON_",
    "INDUCTOR_",
    "AOT_",
    "PYTORCH_",
    "OMP_NUM_THREADS",
    "CUDA_VISIBLE",
)
_MAX_VALUE = 500  # characters of a variable that are recorded: a setting, or a list of paths
_DRAWN = 2**32  # a larger seed is hardly a program's own
_MAX_FRAMES = 8  # of a stack
_MAX_NAMES = 1000  # names that are tried for one recording


def run_header(target: str | None, launcher: int | None = None) -> dict[str, Any]:
    """Return the metadata of the current process at its start.

    ``launcher`` is the process id of the command that started the program.
    """
    torch = sys.modules.get("torch")
    return {
        "target": target or " ".join(sys.argv),
        "argv": list(sys.argv),
        "cwd": _working_directory(),
        "torch": getattr(torch, "__version__", None),
        "python": sys.version.split()[0],
        "rank": job_place(os.environ).get("rank"),
        "job": job_place(os.environ),
        **writer(),
        "parent": os.getppid(),
        "launcher": launcher,
        "started": time.time(),
        "environment": _relevant_variables(os.environ),
    }


def writer() -> dict[str, Any]:
    """Return which process writes a journal: whether it still runs can be known on its own machine only."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "space": process_space()}


def _working_directory() -> str | None:
    try:
        return str(Path.cwd())
    except OSError:  # the folder does not exist any more
        return None


# The variables in which a launcher gives a process its place in the job: those of torchrun, then those of SLURM.
_JOB_VARIABLES = {
    "rank": ("RANK", "SLURM_PROCID"),
    "local_rank": ("LOCAL_RANK", "SLURM_LOCALID"),
    "world_size": ("WORLD_SIZE", "SLURM_NTASKS"),
    "node": ("GROUP_RANK", "SLURM_NODEID"),
    "restart": ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"),
}


def job_place(environment: Mapping[str, str]) -> dict[str, int | str]:
    """Return the place of the process in a distributed job: rank, world size, restarts. Empty outside of one.

    A process that `torchrun` starts under SLURM has both kinds of variables, and torchrun's count.
    """
    index = 0 if "RANK" in environment else 1
    if index and not (environment.get("SLURM_STEP_ID", "").isdigit() and environment.get("SLURM_NTASKS") != "1"):
        return {}  # a shell or a launcher inside a SLURM job has its variables too, but is no task of a step
    texts = {name: environment.get(variables[index], "") for name, variables in _JOB_VARIABLES.items()}
    found: dict[str, int | str] = {name: int(text) for name, text in texts.items() if text.isascii() and text.isdigit()}
    if name := environment.get("TORCHELASTIC_RUN_ID") or environment.get("SLURM_JOB_ID"):
        found["job"] = name
    return found


def recording_stems(lead: str, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the names for the recording of this process, of which the first free one is taken.

    A rank has its number, and how often the job was restarted. A worker that inherits the rank's environment has its
    process id instead. A job that restarts often needs more than one name.
    """
    place, pid = job_place(environment), os.getpid()
    if place.get("rank") is not None:
        again = f"-restart{place['restart']}" if place.get("restart") else ""
        yield f"{lead}-rank{place['rank']}{again}"
    yield f"{lead}-{pid}"
    for number in range(1, _MAX_NAMES):
        yield f"{lead}-{pid}-{number}"


def _relevant_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that change what torch.compile does. Users forget that they have set them."""
    return {
        name: value[:_MAX_VALUE] for name, value in sorted(environment.items()) if name.startswith(_RELEVANT_PREFIXES)
    }


def ending_exception() -> BaseException | None:
    """Return the exception that ends this process, as the interpreter recorded it. None if there is none.

    In a child of `multiprocessing`, whose finalizers run while it is raised up to Python 3.12, it is the current
    exception. `torch.multiprocessing.spawn` turns it into a ``SystemExit``.
    """
    error = getattr(sys, "last_value", None) or sys.exc_info()[1] or spawned_ranks.kept_exit()
    if isinstance(error, SystemExit):
        return error.__context__ if error.code not in (None, 0) else None
    return error


def exit_codes_of_ranks(error: BaseException | None) -> dict[int, int]:
    """Return the exit codes of the ranks that failed, from the exception that ends their launcher (``torchrun``)."""
    failures = getattr(error, "failures", None)
    if not isinstance(failures, dict):
        return {}
    codes = ((rank, getattr(each, "exitcode", None)) for rank, each in failures.items())
    return {rank: code for rank, code in codes if isinstance(rank, int) and isinstance(code, int)}


def run_footer(started: float, error: BaseException | None = None, *, source: bool = True) -> dict[str, Any]:
    """Return the metadata that is known when the interpreter ends. ``error`` is the exception that ends it.

    Without ``source`` it has no text of the program.
    """
    message = _exception_message(error) if source else None
    codes = exit_codes_of_ranks(error)
    return {
        "seconds": time.time() - started,
        "device": _device(),
        "seed": _seed(),
        "uncaught": None if error is None else f"{type(error).__module__}.{type(error).__qualname__}",
        "peak_memory": _peak_memory(),
        "message": message,
        "stack": _exception_frames(error),
        **({"exit_codes": codes} if codes else {}),
        **({} if (stance := process_groups.stance()) is None else {"stance": stance}),
        "ended": time.time(),
    }


def text_of(error: BaseException) -> str:
    """Return the message of an exception. It is made by the user's code, which may raise."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - as above
        return f"<its __str__ raised {type(failure).__name__}>"


def _exception_message(error: BaseException | None) -> str | None:
    return None if error is None else text_of(error)[:_MAX_VALUE]


def _exception_frames(error: BaseException | None) -> list[dict[str, Any]]:
    """The user's frames that an exception has passed, outermost first."""
    from dynadiag.capture.code_locations import frame_data, is_stdlib_or_torch

    found, link = [], error.__traceback__ if error is not None else None
    while link is not None:
        code = link.tb_frame.f_code
        if not is_stdlib_or_torch(code.co_filename):
            found.append(frame_data(code.co_filename, link.tb_lineno, code.co_name))
        link = link.tb_next
    if isinstance(error, SyntaxError) and error.filename is not None:  # no frame is of the text that is wrong
        found.append(frame_data(error.filename, error.lineno, "<module>"))
    return found[-_MAX_FRAMES:]


def uses_gpu() -> bool:
    """Whether this process has had memory on a GPU. That CUDA is initialized says nothing: any compile does that."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.memory_stats().get("allocation.all.allocated", 0) > 0


def _device() -> str | None:
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    return str(torch.cuda.get_device_name()) if uses_gpu() else "cpu"


def _seed() -> int | str | None:
    """The seed of torch's random numbers, "random" where torch drew it itself, from 53 bits (CPUGeneratorImpl.cpp)."""
    torch = sys.modules.get("torch")
    seed = None if torch is None else int(torch.initial_seed())
    return seed if seed is None or seed < _DRAWN else "random"


def _peak_memory() -> int | None:
    """Peak memory in bytes: what torch had allocated on the GPU, if the program used one, else that of this process."""
    if uses_gpu():
        return int(sys.modules["torch"].cuda.max_memory_allocated())
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:  # no Linux
        return None
    kilobytes = next((line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")), None)
    return None if kilobytes is None else int(kilobytes) * 1024


# The file names that ipykernel and IPython give to the code of a cell.
_NAME = re.compile(r"[^\s\"'<>]*/ipykernel_\d+/\d+\.py|<ipython-input-\d+-[0-9a-f]+>")


def running_shell() -> Any:
    """The running IPython shell, or None. Nothing is imported."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def after_cell(shell: Any, call: Callable[[Any], object]) -> None:
    """When the cell that runs has ended, call ``call`` with its result."""

    def end(result: Any) -> None:
        shell.events.unregister("post_run_cell", end)
        call(result)

    shell.events.register("post_run_cell", end)


def notebook_name() -> str | None:
    """Return what names this notebook in a report, or None outside of IPython."""
    if running_shell() is None:
        return None
    return os.environ.get("JPY_SESSION_NAME") or "the notebook"  # Jupyter's server sets the variable to the path


def cell_namer() -> Callable[[Any], Any] | None:
    """Return a function that names cells by their number in every text of a JSON value; None outside of IPython."""
    shell = running_shell()
    if shell is None:
        return None

    def number(found: re.Match[str]) -> str:
        label = shell.compile.format_code_name(found[0])  # ("Cell", "In[3]"), or None for no cell of this shell
        return f"<{label[1]}>" if label else found[0]

    def name_cells(value: Any) -> Any:
        if isinstance(value, str):
            return _NAME.sub(number, value)
        if isinstance(value, Mapping):
            return {key: name_cells(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [name_cells(item) for item in value]
        return value

    return name_cells
