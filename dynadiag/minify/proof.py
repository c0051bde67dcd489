"""The proof of a repro: a fresh interpreter with fresh caches shows the same failure, and the rungs below it pass."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from dynadiag.bisect.bisector import HOOKS
from dynadiag.bisect.search import Search
from dynadiag.minify.likeness import shows
from dynadiag.minify.result import Result
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import RUNGS, Plan
from dynadiag.trial.program import Program
from dynadiag.trial.runner import Runner

__all__ = ["prove"]


_START = 180.0  # seconds for a fresh process with empty caches; 75 were the most seen, on a busy machine


def prove(search: Search, output: Path, result: Result, rungs: Mapping[str, str]) -> Result:
    """The result with what running its text showed. The text is run from a scratch folder, not from ``output``.

    ``rungs`` is how the program itself ends at each: below, the text has to pass wherever the program may.
    """
    sought = result.reduced or result.failure
    assert sought is not None
    with tempfile.TemporaryDirectory(prefix="dynadiag-proof-") as folder:
        file = Path(folder, output.name if output.suffix == ".py" else f"{output.name}.py")
        file.write_text(result.text)
        program, trial = Program(str(file)), partial(_trial, search, result.text)
        with _fresh_runner(search, program, folder) as fresh, search.runner.on(program) as forks:
            outcome = trial("in a fresh process", Plan(), fresh.fresh)
            proved, printed = shows(outcome.signature, sought), outcome.tail
            words = [f"in a fresh process with fresh caches it {'fails the same way' if proved else _ended(outcome)}"]
            for rung in _below(result.rung) if proved else ():
                run = fresh.fresh if rung == "uncompiled" else forks.run
                outcome = trial(f"at {rung}", Plan(rung=rung, caches=False), run)
                too = rungs.get(rung) == "different" and not shows(outcome.signature, sought)
                proved = proved and (outcome.passed or too)
                as_well = ", as the program fails there otherwise" if too and not outcome.passed else ""
                words.append(f"{rung}: {_ended(outcome)}{as_well}")
    return replace(result, proved=proved, proof=tuple(words), printed=printed)


def _below(rung: str | None) -> Iterator[str]:
    """The rungs under the failing one, nothing compiled first. `custom` is above all."""
    yield from (r for r in RUNGS[: RUNGS.index(rung or "inductor")] if r not in ("triton", "inductor"))


@contextmanager
def _fresh_runner(search: Search, program: Program, folder: str) -> Iterator[Runner]:
    """Fresh interpreters with a cache folder of their own, under the search's limits."""
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(Path(folder, "cache"))}
    limits = replace(search.runner.limits, seconds=max(search.runner.limits.seconds, _START))
    with Runner(program, HOOKS, limits, fresh_caches=True, environment=environment) as runner:
        yield runner


def _trial(search: Search, text: str, label: str, plan: Plan, run: Callable[[Plan], Outcome]) -> Outcome:
    """A trial of the text, or what an earlier search saw of it."""
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    key = f"repro {digest} {plan.key()}"
    known = search.rows.known(key)
    if known is not None:
        return known
    outcome = run(plan)
    status = "pass" if outcome.passed else "fail"
    search.rows.add(key, outcome, status, f"the repro {label}")
    search.tell(search.rows.count, f"the repro {label}", status, outcome.seconds)
    return outcome


def _ended(outcome: Outcome) -> str:
    if outcome.passed:
        return "passes"
    found = outcome.signature
    return f"fails with {found.type}: {''.join(found.message.splitlines()[:1])}" if found else f"{outcome.invalid}"
