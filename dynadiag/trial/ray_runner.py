"""Runs each trial of a program as a task of Ray, in a fresh interpreter on a machine of its cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dynadiag.errors import DynadiagError
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import AS_WRITTEN, Plan
from dynadiag.trial.program import Program
from dynadiag.trial.ray_session import command_context
from dynadiag.trial.runner import Runner
from dynadiag.trial.supervise import Limits

_MAX_RETRIES = 3  # of a task whose worker dies
_NO_FORKS = "the trials are tasks of Ray"


@dataclass(frozen=True, slots=True)
class _Trials:
    """What the trials of a program have in common, as a worker gets it."""

    program: Program
    hooks: tuple[str, ...]
    fresh_caches: bool
    interpret: bool
    cwd: Path | None
    folder: str = field(default_factory=os.getcwd)
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))


@dataclass(slots=True, kw_only=True)
class RayRunner(Runner):
    """Runs trials on ``ray``, a module that is connected. The machines share the file system and the environment.

    Supervising a trial, its limits and its outcome are those of one machine.
    """

    ray: Any
    _local: Runner | None = None

    @property
    def runs_in_parallel(self) -> bool:
        """Whether `run_many` runs more than one trial at a time."""
        return not self.one_at_a_time

    def run_fresh(self, plan: Plan = AS_WRITTEN) -> Outcome:
        return self.run(plan)

    def run(self, plan: Plan) -> Outcome:
        """One trial. Raises `DynadiagError` if Ray cannot run it."""
        return self.run_many([plan])[0]

    def run_many(self, plans: Sequence[Plan]) -> list[Outcome]:
        """The outcomes of several plans, in their order; as many trials at once as the cluster has room for."""
        shared = _Trials(
            self.program, (*self.hooks,), self.fresh_caches, self.interpret, self.cwd,
            environment={**os.environ, **self.environment},
        )  # fmt: skip
        task = self.ray.remote(num_cpus=1, max_retries=_MAX_RETRIES)(_run_trial)
        tasks = [task.remote(shared, plan, self.limits) for plan in plans]
        try:
            found: list[Outcome] = self.ray.get(tasks)
        except self.ray.exceptions.RayTaskError as error:
            raise DynadiagError(f"Ray: {error.cause or error}") from error
        except self.ray.exceptions.RayError as error:
            raise DynadiagError(f"Ray: {str(error).splitlines()[0][:300]}") from error
        except KeyboardInterrupt:
            for each in tasks:
                self.ray.cancel(each, force=True)
            raise
        return found

    @contextmanager
    def for_program(self, program: Program, cwd: Path | None = None, imports: Sequence[str] = ()) -> Iterator[Runner]:
        """A runner for another program, in forks on this machine: each of its trials follows from the one before."""
        if self._local is None:
            self._local = Runner(
                self.program, self.hooks, self.limits, self.fresh_caches, self.environment, self.one_at_a_time,
                interpret=self.interpret, notes=self.notes,
            )  # fmt: skip
            self._local.start_forks(self.threads, checkpoint=False)
        self._local.limits = self.limits
        with self._local.for_program(program, cwd, imports) as runner:
            yield runner

    def __exit__(self, *error: Any) -> None:
        if self._local is not None:
            self._local.__exit__(*error)
        Runner.__exit__(self, *error)

    def warm_up(self) -> None:
        """Does nothing: no trial is forked."""

    def start_forks(self, threads: int, checkpoint: bool = True) -> str | None:
        """Start nothing, and return why."""
        del checkpoint
        self.threads = threads
        return _NO_FORKS


def _run_trial(shared: _Trials, plan: Plan, limits: Limits) -> Outcome:
    """The task: one trial, on a worker."""
    with command_context(shared.folder, shared.environment):
        runner = Runner(
            shared.program, shared.hooks, limits, shared.fresh_caches, interpret=shared.interpret, cwd=shared.cwd
        )
        with runner:
            return runner.run_fresh(plan)
