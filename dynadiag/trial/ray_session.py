"""A connection to Ray, whose tasks run what one machine is too small for. Ray is an extra."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dynadiag.errors import DynadiagError


def load_ray() -> Any:
    """Import Ray. Raises `DynadiagError` if it is missing."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise DynadiagError("--on ray needs Ray, which is not installed: pip install 'dynadiag[ray]'") from error


@contextlib.contextmanager
def ray_session(ray: Any) -> Iterator[None]:
    """A connection to Ray: the caller's if there is one. ``RAY_ADDRESS`` names a cluster, without it Ray is started on
    this machine and ended. Raises `DynadiagError` if it cannot start.
    """
    if ray.is_initialized():
        yield
        return
    # Ray's own workers run with low priority, which would change the times that are measured.
    ours = {} if os.environ.get("RAY_ADDRESS") else {"_system_config": {"worker_niceness": 0}}
    try:
        ray.init(log_to_driver=False, include_dashboard=False, logging_level="ERROR", **ours)
    except Exception as error:  # of many kinds; each means that there is no cluster
        raise DynadiagError(f"Ray does not start: {str(error).splitlines()[0][:300]}") from error
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def command_context(folder: str, environment: Mapping[str, str]) -> Iterator[None]:
    """The folder and the environment of the command, on a worker of Ray.

    Ray adds variables of its own, such as the number of threads. Raises `DynadiagError` if the worker's machine has not
    got the folder.
    """
    if not Path(folder).is_dir():
        raise DynadiagError(f"{os.uname().nodename} has no folder {folder}: the machines need one file system")
    before = Path.cwd(), dict(os.environ)
    os.chdir(folder)
    _set_environment(environment)
    try:
        yield
    finally:
        os.chdir(before[0])
        _set_environment(before[1])


def _set_environment(variables: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)
