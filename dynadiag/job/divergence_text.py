"""A divergence in words: what one rank did and the others did not, at which line of the user's, why, and what helps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dynadiag.explanation.advice_table import advice
from dynadiag.explanation.breaks import operator_error
from dynadiag.explanation.changes import main_changes
from dynadiag.explanation.formatting import duration
from dynadiag.explanation.guard_text import described
from dynadiag.explanation.guards import complete
from dynadiag.job.causes import option_cause, value_cause
from dynadiag.job.collective_text import describe_collectives
from dynadiag.job.differences import RankDifference
from dynadiag.job.divergence import Divergence, DivergenceText, Location, compile_location
from dynadiag.job.ended import describe_ends
from dynadiag.job.graph_text import describe_graphs
from dynadiag.job.processes import Process
from dynadiag.job.ranks import does_not, name_ranks, rank_numbers, with_verb
from dynadiag.job.trace import CollectiveStep, CompileStep
from dynadiag.recording.code_origin import is_user_file, user_frame
from dynadiag.recording.records import Compile, Recompile

__all__ = ["describe_divergence"]

Sides = tuple[Sequence[Process], Sequence[Process]]


def describe_divergence(found: RankDifference, sides: Sides, restart: int) -> Divergence:
    """Return the divergence of two sets of ranks. The sides are those of the difference, with all their ranks."""
    doing, others = sides[found.unusual], sides[1 - found.unusual]
    specific = _DESCRIBERS[found.kind](found, doing, others)
    fewer = others if len(others) < len(doing) else doing
    step = found.step if isinstance(found.step, CompileStep) else found.other_step
    file, line, function = specific.location
    return Divergence(
        kind=found.kind,
        ranks=tuple(sorted(rank_numbers(fewer))),
        restart=restart,
        compile_id=step.compile.compile_id if isinstance(step, CompileStep) else None,
        file=file,
        line=line,
        function=function,
        text=specific.text,
        cause=specific.cause,
        consequences=(*specific.follows, *describe_ends([*doing, *others])),
        advice=tuple(map(advice, specific.advice)),
    )


def _recompile(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> DivergenceText:
    step = found.step
    assert isinstance(step, CompileStep)
    assert step.recompile is not None
    own = main_changes([complete(each) for each in step.recompile.reasons])
    why = described(own[0]) if own else "no reason was recorded"
    again = [each for each in (doing[0].trace.compiles if doing[0].trace else ()) if each.recompile is not None]
    same = [each for each in again if each.label == step.label]
    text = (
        f"{with_verb(doing, 'compile')} {step.compile.function} again (compile {step.compile.compile_id}), "
        f"{does_not(others)}: {why}"
    )
    spent = sum(each.compile.seconds.total or 0.0 for each in same)
    follows = (
        f"{name_ranks(doing[:1])} compiles it again {len(same)} times in all, "
        f"{duration(spent)} in which the others wait",
    )
    return DivergenceText(
        text,
        _recompile_location(step.recompile, step.compile),
        option_cause(found, doing, others) or why,
        ("ranks.sizes", "ranks.collectives_agree")
        if own and own[0].parsed.kind in ("size", "stride", "shape")
        else ("ranks.value",),
        follows if len(same) > 1 else (),
    )


def _recompile_location(item: Recompile, compile_: Compile) -> Location:
    """The user's line of the guard that failed, else that of the function."""
    reason = next((each for each in item.reasons if is_user_file(each.file)), None)
    return (reason.file, reason.line, item.function) if reason is not None else compile_location(compile_)


def _break(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> DivergenceText:
    item = found.brk
    assert item is not None
    frame = None if is_user_file(item.span.file) else user_frame(item)
    location = (frame.file, frame.line, frame.function) if frame else (item.span.file, item.span.line, item.function)
    id_ = f"{item.gb_id}, " if item.gb_id else ""
    follows = _other_collectives(found, doing, others)
    text = f"{with_verb(doing, 'break')} the graph of {item.function} ({id_}{item.gb_type or item.reason})"
    if item.fatal:
        text = (
            f"{with_verb(doing, 'fail')} to compile {item.function} ({operator_error(item) or f'{id_}{item.gb_type}'})"
        )
    return DivergenceText(
        f"{text}, {does_not(others)}",
        location,
        value_cause(found, doing, others, location) or item.reason or None,
        ("ranks.code",),
        follows,
    )


def _other_collectives(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> tuple[str, ...]:
    """That the collectives of the graphs differ too, where they do: most often that is what stops the job."""
    numbers = [
        sum(len(graph.collectives) for graph in step.graphs) if isinstance(step, CompileStep) else 0
        for step in (found.step, found.other_step)
    ]
    if numbers[0] == numbers[1]:
        return ()
    return (
        f"the first graph of {name_ranks(doing)} then has {numbers[0]} of the collectives, "
        f"that of {name_ranks(others)} has {numbers[1]}",
    )


def _skip(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> DivergenceText:
    step = found.other_step
    assert isinstance(step, CompileStep)
    skipped = found.step
    if isinstance(skipped, CompileStep):
        why = skipped.compile.reason or "Dynamo left it to Python"
    else:
        why = _why_not_compiled(doing[0], step.compile)
    collectives = sum(len(graph.collectives) for graph in step.graphs)
    issued = [each for each in (doing[0].trace.steps if doing[0].trace else ()) if isinstance(each, CollectiveStep)]
    inside = [each for each in issued if each.collective.function == step.compile.function.rpartition(".")[2]]
    follows = (
        f"the compiled graph of {name_ranks(others)} has {collectives} collectives, which Inductor may bucket; "
        f"{name_ranks(doing)} issues its own one by one",
    )
    return DivergenceText(
        f"{with_verb(others, 'compile')} {step.compile.function}, {name_ranks(doing)} "
        f"{'runs' if len(doing) == 1 else 'run'} it uncompiled or not at all: {why}",
        compile_location(step.compile),
        why,
        ("ranks.compile",),
        follows if collectives and inside else (),
    )


def _why_not_compiled(item: Process, compiled: Compile) -> str:
    """What is known of why a rank compiled nothing."""
    trace = item.trace
    if trace is not None:
        if trace.stances:
            return f"torch.compiler.set_stance({', '.join(map(repr, sorted(trace.stances)))}) is set there"
        if trace.disabled:
            return "the environment disables torch.compile there"
        for frame in trace.skipped:
            if (frame.file, frame.line) == (compiled.file, compiled.line):
                return frame.reason
        if not trace.compiles:
            return "no call of a compiled function was recorded there"
    return "no call of it through torch.compile was recorded there"


def _cache(found: RankDifference, doing: Sequence[Process], others: Sequence[Process]) -> DivergenceText:
    step, other = found.step, found.other_step
    assert isinstance(step, CompileStep)
    assert isinstance(other, CompileStep)
    spent, saved = step.compile.seconds.total, other.compile.seconds.total
    text = (
        f"the FX graph cache answers {step.compile.function} with a {step.compile.cache} on {name_ranks(doing)}, "
        f"with a {other.compile.cache} on {name_ranks(others)}"
    )
    if step.compile.cache is None:
        text = (
            f"{with_verb(doing, 'compile')} {step.compile.function} without the FX graph cache, "
            f"a hit on {name_ranks(others)}"
        )
    times = f": {duration(spent)} there, {duration(saved)} here" if spent is not None and saved is not None else ""
    return DivergenceText(
        text + times,
        compile_location(step.compile),
        option_cause(found, doing, others),
        ("ranks.cache",),
    )


_DESCRIBERS: dict[str, Callable[[RankDifference, Sequence[Process], Sequence[Process]], DivergenceText]] = {
    "recompile": _recompile,
    "break": _break,
    "graph": describe_graphs,
    "collective": describe_collectives,
    "skip": _skip,
    "cache": _cache,
}
