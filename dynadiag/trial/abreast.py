"""Trials side by side: each in the fork of a server of its own, where a machine has the cores for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.server import Server
from dynadiag.trial.supervise import kill_session, session_memory

__all__ = ["abreast", "room_for"]

Trial = Callable[[Server, Plan], Outcome]
_GROWTH = 3  # times the memory of the stopped program that a trial of it may come to


def room_for(server: Server, memory: int) -> int:
    """How many forks of ``server`` may run at once: one a core, and ``memory`` bytes are enough for them all."""
    return min(len(os.sched_getaffinity(0)), memory // (_GROWTH * max(1, session_memory(server.leader))))


def abreast(trial: Trial, servers: Sequence[Server], plans: Sequence[Plan]) -> list[Outcome]:
    """The outcomes in the order of ``plans``, as many at a time as there are servers.

    What a trial raises, or Ctrl-C, ends the servers with all that runs in them, and is raised.
    """
    free: SimpleQueue[Server] = SimpleQueue()
    for server in servers:
        free.put(server)

    def one(plan: Plan) -> Outcome:
        server = free.get()
        try:
            return trial(server, plan)
        finally:
            free.put(server)

    with ThreadPoolExecutor(len(servers)) as pool:
        try:
            return list(pool.map(one, plans))
        except BaseException:
            for server in servers:
                kill_session(server.leader)  # a trial dies with the process that it was forked from
            raise
