"""The recordings of one distributed run: what each rank did, and where the ranks differ. Runs in a worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from dynadiag.errors import DynadiagError
from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.formatting import count, duration
from dynadiag.grouping import grouped
from dynadiag.job.comparison import find_divergence
from dynadiag.job.processes import open_job
from dynadiag.job.ranks import rank_list
from dynadiag.recording.records import UNCOMPILED_NOTE, Run
from dynadiag.render.paths import source_location
from tui.location import Location, source_place
from tui.overview import guard_change_fragments
from tui.session import Session
from tui.styled_text import Fragment, Line, line, one_line

_MAX_DIFFERENCES = 200  # differences listed of each kind
_SLOW_FACTOR = 1.5  # a rank is slow if it compiles this many times the median
_MIN_EXTRA_SECONDS = 0.5  # and this many seconds more than the median


@dataclass(frozen=True, slots=True)
class ComparedItem:
    """Something that ranks are compared by, whatever its compile id."""

    kind: str  # "compile", "break" or "recompile"
    description: str
    location: str


@dataclass(frozen=True, slots=True)
class RankSummary:
    """A summary of one recording of the folder. If ``error`` says why it could not be read, the rest is empty."""

    index: int
    name: str
    run: Run | None = None
    graphs: int = 0
    kernels: int = 0
    seconds: float | None = None
    items: Mapping[ComparedItem, Sequence[Location]] | None = None  # with where each of them occurs in this rank
    error: str | None = None
    live: bool = False  # whether its program still runs
    is_measured: bool = False  # a variant of a comparison that was measured in all rounds: how it ended is our doing

    def count_of(self, kind: str) -> int:
        """Return how many items of a kind the rank has."""
        return sum(len(places) for thing, places in (self.items or {}).items() if thing.kind == kind)


def read_rank(index: int, path: Path, session: Session | None = None) -> RankSummary:
    """Read one recording, or use `session` if it is already open."""
    try:
        if session is not None:
            return _rank(index, session)
        with Session.open(path) as opened:
            return _rank(index, opened)
    except DynadiagError as error:
        return RankSummary(index, one_line(path.stem), error=one_line(str(error).removeprefix(f"{path}: ")))


def _rank(index: int, session: Session) -> RankSummary:
    explanation = session.explanation()
    run = session.run
    things = grouped(_compared_items(explanation, index))
    name = f"rank {run.rank}" if run.rank is not None else one_line(session.path.stem)
    seconds = explanation.timing.total if explanation.timing else None
    counts = explanation.graph_count, session.kernel_count
    return RankSummary(index, name, run, *counts, seconds, things, live=session.live)


def _compared_items(explanation: Explanation, rank: int) -> Iterator[tuple[ComparedItem, Location]]:
    cwd = explanation.run.cwd
    for item in explanation.compiles:
        what = one_line(f"{item.function} {item.outcome}")
        target = Location("compiles", compile_id=item.compile_id, rank=rank)
        yield ComparedItem("compile", what, source_location(item.file, item.line, None, cwd)), target
    for root in explanation.roots:
        what = one_line(f"{root.gb_id or 'break'} {root.gb_type or 'of unknown type'}")
        at = source_location(root.span.file, root.span.line, None, cwd)
        yield ComparedItem("break", what, at), Location("breaks", item=root.index, rank=rank)
    for again in explanation.recompiles:
        what = one_line(f"{again.function}: {''.join(text for text, _ in guard_change_fragments(again))}")
        at = source_location(again.file, again.line, None, cwd)
        yield ComparedItem("recompile", what, at), Location("recompiles", item=again.index, rank=rank)


def differences(ranks: Sequence[RankSummary]) -> list[Line]:
    """Return where the ranks differ: items that do not occur equally often, exit codes, slow ranks."""
    read = [rank for rank in ranks if rank.items is not None]
    # That the uncompiled variant of a comparison compiled nothing is no difference.
    compiled = [rank for rank in read if not (rank.run is not None and UNCOMPILED_NOTE in rank.run.notes)]
    if len(compiled) < 2:
        why = "only one recording could be read" if len(read) < 2 else "only one of them compiles anything"
        return [line((f"{why}, so there is nothing to compare", "dim"))]
    which = "recording" if len(compiled) == len(read) else "compiled recording"
    read = compiled
    made = [*_exit_lines(read), *_slow_ranks(read)]
    for kind in ("break", "recompile", "compile"):
        made += _unequal_lines(kind, read)
    if not made:
        same = f"The same compiles, breaks and recompiles in every {which}"
        so_far = "So far: t" if any(rank.live for rank in read) else "T"
        return [line((f"{so_far}{same[1:]}, and none compiled much longer than the others.", "good"))]
    return made[:-1] if not made[-1].fragments else made


def first_divergence(ranks: Sequence[RankSummary], paths: Sequence[Path]) -> list[Line]:
    """Return how the ranks of a distributed run diverge first, as the report of the folder begins; else nothing."""
    numbers = {rank.run.rank: rank.index for rank in ranks if rank.run is not None and rank.run.rank is not None}
    found = find_divergence(open_job(paths)) if len(numbers) > 1 else None
    if found is None:
        return []
    place = source_location(found.file, found.line, None, next((rank.run.cwd for rank in ranks if rank.run), None))
    target = replace(source_place(found.file, found.line, found.compile_id), rank=numbers.get(found.ranks[0]))
    head = f"{found.text[:1].upper()}{one_line(found.text[1:])}."
    return [
        line((head, "error"), (f"  {place}" if found.line else "", "dim"), to=target if found.file else None),
        *(line(("  then: ", "dim"), one_line(text)) for text in found.consequences),
        *(line(("  help: ", "help"), one_line(each.text)) for each in found.advice),
        Line(),
    ]


def _exit_lines(ranks: Sequence[RankSummary]) -> Iterator[Line]:
    judged = (rank for rank in ranks if not rank.is_measured)
    groups = grouped((exit_status(rank.run, live=rank.live), rank) for rank in judged if rank.run is not None)
    if len(groups) < 2:
        return
    yield line(("They ended differently", "title"))
    for (said, role), group in sorted(groups.items(), key=lambda pair: -len(pair[1])):
        yield line((f"  {said}", role), (f"  {_rank_list(group)}", ""))
    yield Line()


def exit_status(run: Run, *, live: bool) -> tuple[str, str]:
    """Return how a rank ended, and its role. A rank that `torchrun` starts does not see its own exit code."""
    code = run.exit_code
    if live:
        return "running", "good"
    if code is None:
        return ("ended", "") if run.complete else ("cut short", "break")
    return (f"signal {-code}", "error") if code < 0 else (f"exit code {code}", "error" if code else "good")


def _slow_ranks(ranks: Sequence[RankSummary]) -> Iterator[Line]:
    times = [rank.seconds for rank in ranks if rank.seconds is not None]
    if len(times) < 2:
        return
    usual = median(times)
    slow = [
        r for r in ranks if r.seconds is not None and r.seconds > max(_SLOW_FACTOR * usual, usual + _MIN_EXTRA_SECONDS)
    ]
    if not slow:
        return
    yield line(("Compiled longer than the others", "title"), (f"  median {duration(usual)}", "dim"))
    for rank in sorted(slow, key=lambda one: -(one.seconds or 0.0)):
        target = Location("overview", rank=rank.index)
        yield line((f"{rank.name}  ", "strong"), (duration(rank.seconds or 0.0), "break"), to=target)
    yield Line()


def _unequal_lines(kind: str, ranks: Sequence[RankSummary]) -> list[Line]:
    every = {thing for rank in ranks for thing in rank.items or {} if thing.kind == kind}
    found = [(thing, [len((rank.items or {}).get(thing, ())) for rank in ranks]) for thing in every]
    unequal = sorted(
        ((thing, numbers) for thing, numbers in found if len(set(numbers)) > 1),
        key=lambda pair: (-(max(pair[1]) - min(pair[1])), pair[0].location, pair[0].description),
    )
    if not unequal:
        return []
    head = line((f"{kind.capitalize()}s that differ", "title"), (f"  {len(unequal):,} of {len(found):,}", "dim"))
    more = [line((f"and {len(unequal) - _MAX_DIFFERENCES:,} more", "dim"))] if len(unequal) > _MAX_DIFFERENCES else []
    return [
        head,
        *(_difference_line(thing, numbers, ranks) for thing, numbers in unequal[:_MAX_DIFFERENCES]),
        *more,
        Line(),
    ]


def _difference_line(thing: ComparedItem, numbers: Sequence[int], ranks: Sequence[RankSummary]) -> Line:
    groups = grouped(zip(numbers, ranks, strict=True))
    first = next(places[0] for rank in ranks if (places := (rank.items or {}).get(thing)))
    parts: list[str | Fragment] = [thing.description, (f"  {thing.location}  ", "dim")]
    said = [
        f"{'not' if not number else count(number, 'time')} on {_rank_list(group)}"
        for number, group in sorted(groups.items(), key=lambda pair: -pair[0])
    ]
    return line(*parts, (", ".join(said), "break"), to=first)


def _rank_list(ranks: Sequence[RankSummary]) -> str:
    """Return the ranks as a list of ranges, such as ``ranks 0-3, 6``."""
    numbers = [rank.run.rank for rank in ranks if rank.run is not None and rank.run.rank is not None]
    if len(numbers) != len(ranks):
        return ", ".join(rank.name for rank in ranks)
    return rank_list(numbers)
