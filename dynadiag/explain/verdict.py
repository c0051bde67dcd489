"""The answer in one sentence: is the whole one graph, and if nothing was compiled, why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dynadiag.explain.frame_origin import is_torch_file
from dynadiag.recording.records import Break, Compile, Graph, Run, SkippedFrame

__all__ = ["Verdict", "verdict"]

_REASONS = 3  # reasons for skipped frames that are named


@dataclass(frozen=True, slots=True)
class Verdict:
    """``kind`` for programs, ``sentence`` for people, ``why`` where there is more to say."""

    kind: str  # "one_graph" | "whole" | "given_up" | "split" | "failed" | "nothing"
    sentence: str
    why: tuple[str, ...] = ()


def verdict(
    run: Run,
    compiles: Sequence[Compile],
    graphs: Sequence[Graph],
    roots: Sequence[Break],
    skipped: Sequence[SkippedFrame],
    counts: Mapping[str, int],
    given_up: int = 0,
) -> Verdict:
    """What a run comes to. `counts` are the events that the recording holds, by kind; `given_up` the functions that
    torch stopped compiling at its limit of variants."""
    found = _verdict(run, compiles, graphs, roots, skipped, counts)
    if not given_up:
        return found
    worse = f" torch gave up compiling {_count(given_up, 'function')}, after too many recompiles."
    kind = "given_up" if found.kind in ("one_graph", "whole") else found.kind
    return replace(found, kind=kind, sentence=found.sentence + worse)


def _verdict(
    run: Run,
    compiles: Sequence[Compile],
    graphs: Sequence[Graph],
    roots: Sequence[Break],
    skipped: Sequence[SkippedFrame],
    counts: Mapping[str, int],
) -> Verdict:
    made = sum(graph.stage == "dynamo" for graph in graphs)
    split = [item for item in roots if not item.fatal]
    if not compiles and not made and not roots:
        return Verdict("nothing", "Nothing was compiled.", _why_nothing(run, skipped, counts))
    if any(item.fatal for item in roots):
        beside = f" Elsewhere: {_breaks(split)}." if split else ""
        return Verdict(
            "failed",
            f"torch raised an exception where the graph would break (fullgraph=True, torch.cond, an operator that "
            f"fails, ...).{beside}",
        )
    if not made and split:
        return Verdict("split", f"No graph was compiled: {_breaks(split)} left nothing to compile.")
    if not made:
        return Verdict("nothing", "No graph was compiled.", _why_no_graph(compiles, skipped))
    if split:
        return Verdict("split", f"Not one graph: {_breaks(split)} in the way.")
    functions = _functions(compiles)
    variants = f", in {made} variants" if made > functions else ""
    failed = [item for item in compiles if item.outcome == "error" and item.error]
    if failed:
        return Verdict("failed", f"{_count(len(failed), 'compile')} failed: {_failures(failed)}.")
    if functions == 1:
        return Verdict("one_graph", f"All that was compiled is one graph{variants}.")
    together = f"{variants} together" if variants else ""
    return Verdict("whole", f"No graph break: each of {functions} compiled functions is one graph{together}.")


def _breaks(split: Sequence[Break]) -> str:
    """How many breaks, and how many of them nobody but torch could end."""
    torchs = sum(is_torch_file(item.span.file) for item in split)
    own = len(split) - torchs
    if not own:
        return f"{_count(torchs, 'graph break')} of torch's own"
    return _count(own, "graph break") + (f" (and {torchs} of torch's own)" if torchs else "")


def _functions(compiles: Sequence[Compile]) -> int:
    """Functions that were compiled, whatever the number of their variants."""
    return len({(item.file, item.line, item.function) for item in compiles if item.outcome in ("ok", "break")}) or 1


def _why_nothing(run: Run, skipped: Sequence[SkippedFrame], counts: Mapping[str, int]) -> tuple[str, ...]:
    """What is known of the reason. The recorder's own notes (disabled, torch never imported) stand beside it."""
    if counts.get("dynadiag_trial"):
        return ("This is the recording of a search, whose trials compile elsewhere: `dynadiag browse` shows them.",)
    if skipped:
        return (f"Every frame that Dynamo looked at was left to Python: {_common(skipped)}.",)
    if run.notes:
        return ("The notes say what is known.",)
    if run.torch is None:
        return ("The program never imported torch.",)
    if not any(count for kind, count in counts.items() if not kind.startswith("dynadiag_")):
        return (
            "torch reported no event at all: nothing that `torch.compile` returned was called, compiling was "
            "disabled, or torch refused what was called before it looked at it (a generator function).",
        )
    return ("No call reached a function that `torch.compile` had returned.",)


def _why_no_graph(compiles: Sequence[Compile], skipped: Sequence[SkippedFrame]) -> tuple[str, ...]:
    failed = [item for item in compiles if item.outcome == "error"]
    if failed:
        return (f"{_count(len(failed), 'compile')} failed: {_failures(failed)}.",)
    if skipped:
        return (f"Frames were left to Python: {_common(skipped)}.",)
    reasons = list(dict.fromkeys(item.reason for item in compiles if item.reason))
    if reasons:
        return tuple(reasons[:_REASONS])
    return ("No frame held a tensor operation that Dynamo could put in a graph.",)


def _failures(failed: Sequence[Compile]) -> str:
    """What was raised, each once, with the beginning of what it said."""
    each = dict.fromkeys((item.error or "an exception", _beginning(item.reason or "")) for item in failed)
    return "; ".join(": ".join(part for part in one if part).rstrip(".") for one in each)


def _beginning(text: str) -> str:
    """The first line, and the next where it only leads to that (``backend='inductor' raised:``)."""
    lines = text.strip().splitlines()
    return " ".join(lines[:2] if lines and lines[0].endswith(":") else lines[:1])


def _common(skipped: Sequence[SkippedFrame]) -> str:
    """The most usual reasons, with how often each was given."""
    ranked = Counter(item.reason or "no reason was recorded" for item in skipped).most_common(_REASONS)
    return "; ".join(f"{reason} ({_count(count, 'frame')})" for reason, count in ranked)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
