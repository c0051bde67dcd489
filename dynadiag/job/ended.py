"""How the ranks of a job ended: which died, raised, or waited until a timeout, and the line that each was at."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from dynadiag.explanation.formatting import count, list_some, shorten
from dynadiag.grouping import grouped
from dynadiag.job.divergence import Divergence
from dynadiag.job.processes import Job, Process
from dynadiag.job.ranks import name_ranks, rank_list, rank_numbers
from dynadiag.job.trace import POINT_TO_POINT
from dynadiag.job.waits import clock_offsets
from dynadiag.recording.code_origin import is_generated_file, short_place
from dynadiag.recording.records import Frame
from dynadiag.recording.torch_text.failures import is_peer_gone, is_timeout, without_place

_MESSAGE = 140  # characters of an exception's message
_TERMINATED = -signal.SIGTERM  # a launcher ends the other ranks by that
_BY_LAUNCHER = (_TERMINATED, -signal.SIGKILL)  # and by that if they do not answer
_LISTED = 8  # ranks whose end is told one by one


def ended_by_itself(item: Process) -> bool:
    """Whether a process came to its end without an exception, so that it lacks nothing that others have."""
    return item.complete and item.uncaught is None and item.exit_code in (None, 0)


def last_place(item: Process) -> Frame | None:
    """Where a process was last: at the line of the exception that ended it, where it stood still, or in its last
    collective.
    """
    written = [frame for frame in item.stack if not is_generated_file(frame.file)]
    if written:
        return written[-1]
    if item.trace and item.trace.stood is not None:
        return item.trace.stood
    last = item.trace.last if item.trace else None
    return None if last is None or last.file is None else Frame(last.file, last.line, last.function or "?")


def place_text(frame: Frame | None) -> str:
    """``train.py:31``; empty if it is not known."""
    return "" if frame is None else short_place(frame.file, frame.line)


def describe_end(item: Process, *, many: bool = False) -> str | None:
    """How a rank ended, if not well, in a sentence without its rank. ``many``: it is said of several."""
    was = "were" if many else "was"
    at = f" at {place}" if (place := place_text(last_place(item))) else ""
    if item.uncaught is not None:
        # The beginning of a message, without the place in C++ that it comes from.
        said = f": {shorten(' '.join(without_place(item.message).split()), _MESSAGE)}" if item.message else ""
        return f"ended with {item.uncaught.removeprefix('builtins.')}{at}{said}"
    if item.exit_code is not None and item.exit_code != 0:
        ended = f"{was} ended by signal {-item.exit_code}" if item.exit_code < 0 else f"ended with {item.exit_code}"
        return f"{ended}, last seen{at}" if at else ended
    if item.complete:
        return None
    last = item.trace.last if item.trace else None
    where = f" in {last.op}{at}" if last is not None and not item.stack else at
    cut = "their recordings are cut short" if many else "its recording is cut short"
    return f"{was} killed, crashed, called os._exit or could not write: {cut}{where and f', last seen{where}'}"


def find_dead_ranks(job: Job, ranks: Sequence[Process], restart: int) -> Divergence | None:
    """Return the ranks that died, never came or kept the others waiting, or None if all ended alike."""
    raised = [each for each in ranks if each.uncaught is not None and not _waited(each)]
    waited = [each for each in ranks if each.uncaught is not None and _waited(each)]
    cut = [each for each in ranks if _is_cut(each) and not _lived_on(each, ranks)]
    late = _late(cut, waited)
    left = [each for each in ranks if not _is_cut(each) and each.uncaught is None]
    by_launcher = _BY_LAUNCHER if late else (_TERMINATED,)
    killed = [each for each in (*cut, *left) if each.exit_code not in (None, 0, *by_launcher)]
    missing = job.missing(restart)
    if killed and len(killed) < len(ranks):
        return _dead("died", killed, ranks, restart)
    if raised and len(raised) < len(ranks):
        ahead = clock_offsets(ranks)
        first = min(raised, key=lambda each: (each.ended or 0.0) - ahead.get(each.host, 0.0))
        alike = [each for each in raised if (each.uncaught, each.stack) == (first.uncaught, first.stack)]
        return _dead("died", alike, ranks, restart)
    if raised:
        return None
    if cut and len(cut) < len(ranks):
        return _dead("timeout", late, ranks, restart) if late else _dead("died", cut, ranks, restart)
    if missing and waited:
        text = f"{rank_list(missing)} never came: no recording, and the others waited for a peer"
        return _ended("died", missing, restart, _first_place(ranks), text, ranks)
    behind = _behind(ranks) if waited or cut else []
    return _dead("timeout", behind, ranks, restart) if behind else None


def _is_cut(item: Process) -> bool:
    """Whether a rank was ended from outside, or by a crash: its recording ends before it did."""
    return item.uncaught is None and (not item.complete or (item.exit_code or 0) < 0)


def _late(cut: Sequence[Process], waited: Sequence[Process]) -> list[Process]:
    """The ranks that others waited for until a timeout; what starts the job ended them, and their recordings, after it.

    If a rank had died, the others would not wait so long: its connections close, and its launcher ends the job. Ranks
    that waited too were ended with it. They came as far as those whose timeout was the first.
    """
    if not waited or not all(is_timeout(each.message) for each in waited):
        return []
    far = max(map(_collectives, waited))
    late = [each for each in cut if _collectives(each) < far]
    return late or (list(cut) if len(cut) == 1 and all(map(_waits_in_compiled_code, waited)) else [])


def _waits_in_compiled_code(item: Process) -> bool:
    """Whether a rank waits elsewhere than in its last recorded collective: those of compiled code are not recorded."""
    place, last = last_place(item), item.trace.last if item.trace else None
    return place is not None and (last is None or (last.file, last.line) != (place.file, place.line))


def _lived_on(item: Process, ranks: Sequence[Process]) -> bool:
    """Whether a recording was cut short though its rank went on: the others went on with it, and ended by themselves.

    A collective that blocks ends on all ranks or on none. So the disk was full, or the recorder was stopped.
    """
    others = [each for each in ranks if each is not item]
    came = [_collectives(each) for each in others]
    return bool(others) and all(map(ended_by_itself, others)) and min(came) > _collectives(item) + 1


def _collectives(item: Process) -> int:
    return 0 if item.trace is None else item.trace.issued


def _waited(item: Process) -> bool:
    """Whether the exception that ended a rank says that another one did not come or is gone."""
    message = item.message or ""
    return is_timeout(message) or is_peer_gone(message)


def _behind(ranks: Sequence[Process]) -> list[Process]:
    """The ranks that had come least far, if not all had come equally far."""
    steps = [len(each.trace.steps) if each.trace else 0 for each in ranks]
    return [each for each, number in zip(ranks, steps, strict=True) if number == min(steps) < max(steps)]


def _dead(kind: str, dead: Sequence[Process], ranks: Sequence[Process], restart: int) -> Divergence:
    known = {id(each) for each in dead}
    others = [each for each in ranks if id(each) not in known]
    place = last_place(dead[0]) or (_first_place(others) if kind == "timeout" else None)
    numbers = rank_numbers(dead)
    text = _of_ranks(numbers, dead[0]) if kind == "died" else _timeout_text(numbers, dead[0], others)
    return _ended(kind, numbers, restart, place, text, others)


def _ended(
    kind: str, numbers: tuple[int, ...], restart: int, place: Frame | None, text: str, others: Sequence[Process]
) -> Divergence:
    file, line, function = (place.file, place.line, place.function) if place else (None, None, "?")
    told = tuple(describe_ends(others))
    return Divergence(kind, numbers, restart, None, file, line, function, text, consequences=told)


def _first_place(ranks: Sequence[Process]) -> Frame | None:
    return next(filter(None, map(last_place, ranks)), None)


def _timeout_text(numbers: Sequence[int], item: Process, others: Sequence[Process]) -> str:
    """Which rank did not come to a collective, what it did last, and where the others waited for it."""
    timed_out = [each for each in others if each.uncaught is not None and _waited(each)]
    waiting = timed_out or list(others)
    where = list_some(sorted({_collective_text(each) for each in waiting} - {""}))
    does = "waited until the timeout" if timed_out else "went on"
    they = f"{name_ranks(waiting)} {does}"
    at = f" ({where})" if where else ""
    last = item.trace.last if item.trace else None
    own = "its" if len(numbers) == 1 else "their"
    if item.uncaught is not None:
        return f"{rank_list(numbers)} came only to {place_text(last_place(item)) or 'an unknown line'} while {they}{at}"
    if item.trace is not None and (stood := item.trace.stood) is not None:
        return f"{rank_list(numbers)} stood at {place_text(stood)} in {stood.function} and never came: {they}{at}"
    if last is None:
        return f"{rank_list(numbers)} never began {own} first collective: {they}{at}"
    did = "began" if last.is_async or last.op in POINT_TO_POINT else "finished"
    said = f"{did} {own} last collective ({_collective_text(item)}) and never began the next"
    return f"{rank_list(numbers)} {said}: {they}{at}"


def _collective_text(item: Process) -> str:
    """The collective that a rank was last in, with its line: ``train.py:31, all_reduce``."""
    place, last = last_place(item), item.trace.last if item.trace else None
    op = f", {last.op}" if place and last is not None and (last.file, last.line) == (place.file, place.line) else ""
    return f"{place_text(place)}{op}"


def _of_ranks(numbers: Sequence[int], item: Process) -> str:
    """How these ranks ended, all as ``item`` did, as a sentence."""
    many = len(numbers) > 1
    seen = "were last seen here" if many else "was last seen here"
    return f"{rank_list(numbers)} {describe_end(item, many=many) or seen}"


def describe_ends(ranks: Sequence[Process]) -> list[str]:
    """How ranks ended that did not end well, a sentence for each way."""
    groups = grouped((said, each) for each in ranks if (said := describe_end(each)) is not None)
    told = [_of_ranks([each.rank or 0 for each in group], group[0]) for group in groups.values()]
    more = len(told) - _LISTED
    return told[:_LISTED] + ([f"{count(more, 'more rank')} ended in other ways"] if more > 0 else [])
