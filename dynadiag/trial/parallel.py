"""Runs several trials at once, each in a fork of a replica of a fork server."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from queue import SimpleQueue

from dynadiag.trial.fork_server import ForkServer
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.supervise import kill_session, session_memory

__all__ = ["max_parallel_forks", "run_parallel"]

RunTrial = Callable[[ForkServer, Plan], Outcome]
_MAX_MEMORY_GROWTH = 3  # a trial may use up to this many times the memory of the stopped program


def max_parallel_forks(server: ForkServer, memory: int) -> int:
    """How many forks of ``server`` may run at once: at most one per core, and only as many as fit into ``memory``
    bytes.
    """
    return min(len(os.sched_getaffinity(0)), memory // (_MAX_MEMORY_GROWTH * max(1, session_memory(server.leader))))


def run_parallel(
    trial: RunTrial, plans: Sequence[Plan], servers: Sequence[ForkServer], max_parallel: int
) -> list[Outcome]:
    """The outcomes of ``plans``, in their order, with at most ``max_parallel`` running at a time.

    ``servers`` has the fork server of each plan. A server that several plans share gets as many replicas as it needs.
    On Ctrl-C, or when a trial raises, all servers are killed with everything that runs in them, and the exception is
    raised.
    """
    begins = [id(server) for server in servers]
    alike = {id(server): server.with_replicas(min(max_parallel, begins.count(id(server)))) for server in servers}
    free: dict[int, SimpleQueue[ForkServer]] = {place: SimpleQueue() for place in alike}
    for place, twins in alike.items():
        for server in twins:
            free[place].put(server)

    def one(plan: Plan, place: int) -> Outcome:
        server = free[place].get()
        try:
            return trial(server, plan)
        finally:
            free[place].put(server)

    with ThreadPoolExecutor(max_parallel) as pool:
        try:
            return list(pool.map(one, plans, begins))
        except BaseException:
            for server in chain(*alike.values()):
                kill_session(server.leader)  # the kernel kills its forks with it
            raise
