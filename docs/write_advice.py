"""Writes `advice.md` from the table of advice: run by `make docs`, checked by `tests/test_docs.py`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dynadiag.explanation.advice_on_recompiles import REMEDIES
from dynadiag.explanation.break_remedies import BREAKS, FAMILIES
from dynadiag.explanation.cache_bypass import CACHES
from dynadiag.explanation.cuda_graphs import CUDA_GRAPHS, OVERWRITTEN
from dynadiag.explanation.export_remedies import EXPORTS
from dynadiag.explanation.failure_remedies import FAILURES
from dynadiag.explanation.number_remedies import NUMBERS
from dynadiag.explanation.program_end import DOUBLE_BACKWARD
from dynadiag.explanation.remedy import Remedy, Trial
from dynadiag.explanation.skipped import SKIPPED
from dynadiag.explanation.values import OVERFLOW
from dynadiag.fixes.rewrites import CATALOGUE
from dynadiag.job.divergence_text import RANKS

PAGE = Path(__file__).with_name("advice.md")
_REMEDIES: dict[str, Sequence[Remedy[Any]]] = {
    "Graph breaks of a known cause": tuple(BREAKS.values()),
    "Conditions on numbers that a tensor holds": NUMBERS,
    "Graph breaks by family": tuple(FAMILIES.values()),
    "Functions left to Python": SKIPPED,
    "Exports that fail": EXPORTS,
    "Recompiles": REMEDIES,
    "Failed compiles": FAILURES,
    "Exceptions of compiled code": (DOUBLE_BACKWARD,),
    "Values that are not finite": (OVERFLOW,),
    "Graphs that bypass a cache": CACHES,
    "Code without a CUDA graph": (*CUDA_GRAPHS, OVERWRITTEN),
    "Ranks that are not alike": tuple(RANKS.values()),
}


def markdown() -> str:
    """The page: each section as a list, with the trials of each piece of advice."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    sections = {title: [_remedy(each) for each in section] for title, section in _REMEDIES.items()}
    items = [item for section in sections.values() for item in section]
    tried = sum(item.told.startswith("Tried on") for item in items)
    yield "# Advice"
    yield ""
    yield "<!-- written by `make docs` -->"
    yield ""
    yield f"A report can give {len(items)} pieces of advice. Of these {tried} were tried: the test suite runs the named"
    yield "program as it is and as the advice says. A report calls advice tried only for the cases that are named here,"
    yield "and gives it only where all that it presupposes is known to hold. Where none fits, torch's own hints are"
    yield "passed on as torch's, unchecked. Words in capitals stand for what the case has there."
    for title, section in sections.items():
        yield ""
        yield f"## {title}"
        yield ""
        for item in section:
            yield from textwrap.wrap(f"- **{item.key}**: {item.text}", 110, subsequent_indent="  ")
            yield from textwrap.wrap(item.told, 110, initial_indent="  ", subsequent_indent="  ")


class _Item(NamedTuple):
    """One piece of advice on the page."""

    key: str
    text: str
    told: str


def _remedy(each: Remedy[Any]) -> _Item:
    told = f"Tried on: {'; '.join(map(_trial, each.trials))}" if each.trials else "not tried; given where it fits"
    rewrites = ", ".join(rewrite.name for rewrite in CATALOGUE if each.key in rewrite.remedies)
    return _Item(each.key, each.text, told + (f". `dynadiag fix` can do it: {rewrites}" if rewrites else ""))


def _trial(trial: Trial) -> str:
    by = f"on an H100, by {trial.by}" if trial.by else None
    on = ", ".join(part for part in (trial.case, *(f"torch {version}" for version in trial.torch), by) if part)
    return f"`{trial.program}`{f' ({on})' if on else ''}: {trial.outcome}"


if __name__ == "__main__":
    PAGE.write_text(markdown())
