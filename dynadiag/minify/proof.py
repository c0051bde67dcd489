"""The proof of a repro: a fresh interpreter with fresh caches shows the same failure, and the rungs below it pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dynadiag.bisect.bisector import HOOKS
from dynadiag.bisect.search import Search
from dynadiag.minify.likeness import shows
from dynadiag.minify.result import Result
from dynadiag.minify.rows import ReproRows, telling
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import AS_WRITTEN, RUNGS, Plan
from dynadiag.trial.program import Program
from dynadiag.trial.runner import Runner

__all__ = ["prove"]


_START = 180.0  # seconds for a fresh process with empty caches; 75 were the most seen, on a busy machine
# What a hang is held against. With empty caches it took 53 to 134 s on a machine that was three times overbooked, where
# a forward and a backward of a layer took 85 to 98; uncompiled these took 9 to 20, from which nothing follows.
_CONTROL = "import torch\n\ntorch.compile(torch.sin)(torch.ones(2))\n"
_HANG_SLACK, _HANG_FACTOR = 30.0, 2.0


def prove(search: Search, program: Program, rows: ReproRows, result: Result, rungs: Mapping[str, str]) -> Result:
    """The result with what running its text showed: ``program`` is that text, ``rows`` are its trials.

    ``rungs`` is how the user's program ends at each: below, the text has to pass wherever that may.
    """
    sought = result.reduced or result.failure
    assert sought is not None
    with _fresh_runner(search, program) as fresh, search.runner.on(program) as forks:
        apart, forked = (Search(runner, rows, telling(search)) for runner in (fresh, forks))
        control = _control(search, program) if sought.kind == "hang" else None
        if control is not None and control.passed:
            fresh.limits = replace(fresh.limits, seconds=_HANG_SLACK + _HANG_FACTOR * control.seconds)
        outcome = apart.fresh(AS_WRITTEN, "in a fresh process")
        proved, printed = shows(outcome.signature, sought), outcome.tail
        how = _alike(outcome, control) if proved else _ended(outcome)
        words = [f"in a fresh process with fresh caches it {how}"]
        for rung in _below(result.rung) if proved else ():
            plan = Plan(rung=rung, caches=False)
            at = apart.fresh(plan, rung) if rung == "uncompiled" else forked.trial(plan, f"at {rung}")
            too = rungs.get(rung) == "different" and not shows(at.signature, sought)
            proved = proved and (at.passed or too)
            as_well = ", as the program fails there otherwise" if too and not at.passed else ""
            words.append(f"{rung}: {_ended(at)}{as_well}")
    return replace(result, proved=proved, proof=tuple(words), printed=printed)


def _below(rung: str | None) -> Iterator[str]:
    """The rungs under the failing one, nothing compiled first. `custom` is above all."""
    yield from (r for r in RUNGS[: RUNGS.index(rung or "inductor")] if r not in ("triton", "inductor"))


@contextmanager
def _fresh_runner(search: Search, program: Program) -> Iterator[Runner]:
    """Fresh interpreters with a cache folder of their own beside the program, under the search's limits."""
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(Path(program.target).with_suffix(".cache"))}
    limits = replace(search.runner.limits, seconds=max(search.runner.limits.seconds, _START))
    with Runner(program, HOOKS, limits, fresh_caches=True, environment=environment) as runner:
        yield runner


def _control(search: Search, program: Program) -> Outcome:
    """How long a compile takes that passes, in the same way and on the machine as it is now."""
    file = Path(program.target).with_name("control.py")
    file.write_text(_CONTROL)
    with _fresh_runner(search, Program(str(file))) as runner:
        rows = ReproRows(search.rows, _CONTROL)
        return Search(runner, rows, telling(search)).fresh(AS_WRITTEN, "beside it, a compile that passes")


def _alike(outcome: Outcome, control: Outcome | None) -> str:
    if control is None:
        return "fails the same way"
    return f"hangs too: stopped after {outcome.seconds:.0f} s, where a compile that passes takes {control.seconds:.0f}"


def _ended(outcome: Outcome) -> str:
    if outcome.passed:
        return "passes"
    found = outcome.signature
    return f"fails with {found.type}: {''.join(found.message.splitlines()[:1])}" if found else f"{outcome.invalid}"
