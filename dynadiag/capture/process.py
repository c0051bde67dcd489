"""A whole process that records itself: started by our commands, or by anything with ``DYNADIAG_RECORD`` set."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dynadiag.capture import settings as settings_
from dynadiag.capture.recorder import Recorder
from dynadiag.errors import DynadiagError
from dynadiag.recording.journal import Journal

RECORDING_SUFFIX = ".dynadiag"


def record_this_process() -> None:
    """Start the recorder of this process, and end it when the interpreter ends.

    The main process of a command of ours has its journal from the start; every other process gets one with its first
    event, so that workers which never compile leave nothing behind.
    """
    folder = Path(os.environ[settings_.FOLDER])
    settings = settings_.from_environment(os.environ)
    if settings.parent is not None:
        settings_.hide()
        _pass_on(settings.environment(str(folder)))
    recorder = Recorder(lambda: _open(folder, settings), source=settings.source)
    try:
        if settings.parent == os.getppid():
            recorder.journal()
    except DynadiagError as error:
        print(f"dynadiag: this process is not recorded: {error}", file=sys.stderr)  # noqa: T201 - the only place to say it
        return
    recorder.start()
    atexit.register(_end, recorder, os.getpid(), time.time())


def _open(folder: Path, settings: settings_.Settings) -> Journal:
    main = settings.parent == os.getppid() and settings.journal is not None
    path = Path(settings.journal) if main and settings.journal else _own_path(folder, settings)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DynadiagError(f"cannot make the folder {folder}: {error.strerror}") from error
    journal = Journal.create(path, settings.limit)
    journal.append({"dynadiag_run": run_header(settings.target)})
    return journal


def _own_path(folder: Path, settings: settings_.Settings) -> Path:
    """The name of this process's recording: with its rank where the launcher gave one."""
    rank = os.environ.get("RANK")
    lead = Path(settings.journal).stem if settings.journal else socket.gethostname()
    name = f"{lead}-rank{rank}" if rank else f"{lead}-{os.getpid()}"
    path = folder / f"{name}{RECORDING_SUFFIX}"
    return path if not path.exists() else folder / f"{name}-{os.getpid()}-{time.time_ns()}{RECORDING_SUFFIX}"


def run_header(target: str | None) -> dict[str, Any]:
    """What is known of a run at its beginning."""
    import torch  # loaded already: torch is what called us

    return {**run_header_without_torch(target), "torch": torch.__version__, "argv": list(sys.argv)}


def run_header_without_torch(target: str | None) -> dict[str, Any]:
    """The same where torch was never imported. The process that writes it stands for the program."""
    return {
        "target": target or " ".join(sys.argv),
        "cwd": str(Path.cwd()),
        "python": sys.version.split()[0],
        "rank": int(os.environ["RANK"]) if os.environ.get("RANK", "").isdigit() else None,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "parent": os.getppid(),
        "started": time.time(),
        "environment": _relevant(os.environ),
    }


def _relevant(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that change what torch.compile does: people forget that they have set them."""
    lead = (
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
    return {name: value[:500] for name, value in sorted(environment.items()) if name.startswith(lead)}


def run_footer(started: float) -> dict[str, Any]:
    """What is known of a run at its end."""
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_initialized() else "cpu"
    return {"seconds": time.time() - started, "device": device, "uncaught": _uncaught()}


def _uncaught() -> str | None:
    """The type of the exception that ended the program, as the interpreter noted it."""
    kind = getattr(sys, "last_type", None)
    return f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else None


def _end(recorder: Recorder, pid: int, started: float) -> None:
    if os.getpid() == pid and recorder.opened:
        recorder.journal().append({"dynadiag_end": run_footer(started)}, past_limit=True)
    recorder.stop()


def _pass_on(variables: dict[str, str]) -> None:
    """Give our variables to processes that the program starts with an environment of its own making.

    ``torchrun`` copies ``os.environ``, where our variables are hidden: without this its workers would not record.
    """
    original = subprocess.Popen.__init__

    def start(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("env") is not None:
            kwargs["env"] = {**variables, **kwargs["env"]}
        original(self, *args, **kwargs)

    subprocess.Popen.__init__ = start  # type: ignore[method-assign]  # there is no hook for it in subprocess
