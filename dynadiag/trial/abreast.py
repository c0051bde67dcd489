"""Trials side by side: each in a fork of a server of its own, where a machine has the cores for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
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


def abreast(trial: Trial, plans: Sequence[Plan], servers: Sequence[Server], most: int) -> list[Outcome]:
    """The outcomes in the order of ``plans``, at most ``most`` at a time.

    ``servers`` are those where each begins; several at one place need as many twins. What a trial raises, or Ctrl-C,
    ends the servers with all that runs in them, and is raised.
    """
    begins = [id(server) for server in servers]
    alike = {id(server): server.with_twins(min(most, begins.count(id(server)))) for server in servers}
    free: dict[int, SimpleQueue[Server]] = {place: SimpleQueue() for place in alike}
    for place, twins in alike.items():
        for server in twins:
            free[place].put(server)

    def one(plan: Plan, place: int) -> Outcome:
        server = free[place].get()
        try:
            return trial(server, plan)
        finally:
            free[place].put(server)

    with ThreadPoolExecutor(most) as pool:
        try:
            return list(pool.map(one, plans, begins))
        except BaseException:
            for server in chain(*alike.values()):
                kill_session(server.leader)  # a trial dies with the process that it was forked from
            raise
