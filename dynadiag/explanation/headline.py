"""The answer in one sentence: what failed, is the whole one graph, and if nothing was compiled, why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dynadiag.explanation.findings import Finding
from dynadiag.explanation.formatting import count, list_some
from dynadiag.explanation.program_end import bad_end
from dynadiag.explanation.recompile_case import place_text
from dynadiag.explanation.rules import Rule
from dynadiag.explanation.run_records import DDP, RunRecords
from dynadiag.explanation.share import share_text
from dynadiag.explanation.source_search import method_of_compiled
from dynadiag.explanation.warm_up import WarmUp
from dynadiag.recording.code_origin import is_torch_file, user_span
from dynadiag.recording.records import FULL, INTERRUPTED, Compile, SkippedFrame

# Where the size limit of a recording (`--limit`) hides what came later.
_FULL = "The recording reached its size limit before the end (`--limit GB`)."
_FULL_EARLY = "The recording reached its size limit: what was compiled later is not known. `--limit GB` raises it."
_REASONS = 3  # reasons that are named
_VALUES = (Rule.WRONG_VALUE, Rule.NOT_FINITE, Rule.LOW_PRECISION)


@dataclass(frozen=True, slots=True)
class Headline:
    """``severity`` is that of the worst finding, "good" where there is none; ``why`` has more where there is more.

    ``tells_end``: it says how the program ended, which was not well.
    """

    sentence: str
    severity: str  # "good" | "error" | "warning" | "note"
    why: tuple[str, ...] = ()
    tells_end: bool = False


def headline(
    run: RunRecords, findings: Sequence[Finding], events: Mapping[str, int], warm_up: WarmUp | None = None
) -> Headline:
    """What a run comes to. ``events`` counts the events that the recording holds, by kind.

    With ``warm_up`` the records are those of what was compiled after it, which leads.
    """
    if warm_up is None:
        return _of_run(run, findings, events)
    if not warm_up.late:
        return Headline(_FULL_EARLY, "warning") if FULL in run.run.notes else Headline(warm_up.text, "good")
    found = _of_run(run, findings, events)
    if found.severity != "good":
        return replace(found, sentence=f"{warm_up.text} {found.sentence}")
    places = {warm_up.named(each): place_text(user_span(each)) for each in reversed(run.compiles)}
    functions = list_some([f"{named} ({place})" for named, place in reversed(places.items())])
    return Headline(f"{warm_up.text.rstrip('.')}: {functions}.", "warning")


def _of_run(run: RunRecords, findings: Sequence[Finding], events: Mapping[str, int]) -> Headline:
    """What a run comes to."""
    failed = [item for item in findings if item.is_failed_compile]
    if failed:
        return Headline(_failed(failed, findings), "error", tells_end=run.end is not None and run.end.error is not None)
    found, ended = _with_value(_compiled(run, findings, events), findings), bad_end(run, findings)
    if FULL in run.run.notes:
        is_early = not (run.compiled or run.breaks or run.exports)
        found = Headline(_FULL_EARLY if is_early else f"{found.sentence} {_FULL}", "warning")
    if ended is None and found.severity == "good" and (cut := _cut_short(run)) is not None:
        how = "was still being compiled at the end of the recording"
        how = "was being compiled when it was interrupted" if cut.reason == INTERRUPTED else how
        return Headline(f"{cut.function} {how}.", "warning")
    if ended is None:
        return found
    rest = "" if found.severity == "good" else f" {found.sentence}"
    why = found.why if run.skipped or run.modes or run.breaks else ()  # else it ended before anything was compiled
    return Headline(f"{ended}{_no_failure(run)}{rest}", "error", why, tells_end=True)


def _with_value(found: Headline, findings: Sequence[Finding]) -> Headline:
    """The headline behind the first value that is wrong or not finite, where there is one: that was asked for."""
    told = next((item for item in findings if item.rule in _VALUES), None)
    if told is None:
        return found
    severity = "error" if "error" in (told.severity, found.severity) else "warning"
    return replace(found, sentence=f"A {told.rule.view.noun}: {told.title}. {found.sentence}", severity=severity)


def _no_failure(run: RunRecords) -> str:
    """That the program's end is no failed compile, or which compile it came in."""
    if (cut_short := _cut_short(run)) is not None:
        return f" {cut_short.function} was being compiled then."
    return " No compile failed." if run.compiles else ""


def _cut_short(run: RunRecords) -> Compile | None:
    """The compile that the recording ends in."""
    return next((item for item in run.compiles if item.outcome == "error" and not item.error), None)


def _compiled(run: RunRecords, findings: Sequence[Finding], events: Mapping[str, int]) -> Headline:
    """What was compiled, where no compile failed."""
    made = len(run.compiled)
    if run.exports and not run.compiles:
        if (cut := next((each for each in run.exports if each.is_open), None)) is not None:
            return Headline(f"{cut.function} was still being exported at the end of the recording.", "warning")
        return Headline(_exported(run), _severity(findings))
    if not run.compiles and not made and not run.breaks:
        return Headline("Nothing was compiled.", "note", _why_nothing(run, findings, events))
    breaks = _breaks(findings)
    given_up = sum(item.rule == Rule.RECOMPILE_LIMIT for item in findings)
    worse = f" torch gave up compiling {count(given_up, 'function')}, after too many recompiles." if given_up else ""
    if not made:
        split = f"No graph was compiled: {breaks} left nothing to compile."
        return Headline(split if breaks else "No graph was compiled.", "warning", () if breaks else _why_no_graph(run))
    left = _left(run, findings)
    without = sum(each.what == "skipped" for each in run.cuda_graphs)
    if without:
        runs = "runs" if without == 1 else "run"
        worse += f" {count(without, 'piece')} of compiled code {runs} without a CUDA graph."
    share = _share(run)
    if left and not breaks:
        return Headline(f"{left}{worse}{share}", "warning")
    if breaks:
        return Headline(f"{left or f'Not one graph: {breaks} in the way.'}{worse}{share}", "warning")
    return Headline(f"{_whole(run, made)}{worse}{share}", "warning" if given_up or without else "good")


def _exported(run: RunRecords) -> str:
    """What was exported, where nothing was compiled and no export failed."""
    named = list(dict.fromkeys(each.function for each in run.exports if each.file))
    assumed = sum(each.assumed is not None for each in run.exports)
    made = f"{list_some(named) or 'A program'} was exported; `torch.compile` compiled nothing."
    if not assumed:
        return made
    return (
        f"Not all of {list_some(named) or 'a program'} can be exported: the draft made {count(assumed, 'assumption')}."
    )


def _severity(findings: Sequence[Finding]) -> str:
    return findings[0].severity if findings else "good"


def _left(run: RunRecords, findings: Sequence[Finding]) -> str:
    """What was given to `torch.compile` and has no graph, where others have; empty where there is none."""
    broken = [item for item in findings if item.rule == Rule.BREAK and item.severity == "warning" and item.compile_ids]
    made = {(each.file, each.function) for each in run.compiles if each.compile_id in run.compiled}
    for item in broken:
        first = next((each for each in run.compiles if each.compile_id == item.compile_ids[0]), None)
        given = first is not None and (first.function.startswith(DDP) or run.begins_calls(first.file, first.function))
        if first is None or not given or (first.file, first.function) in made:
            continue  # a part of it that stands before a break has a graph
        below = " itself is compiled, only what it calls" if run.is_compiled_below(first.compile_id) else " is compiled"
        return f"Nothing of {first.function}{below}: {item.title}."
    skipped = [item for item in findings if item.rule == Rule.UNCOMPILED and item.advice]
    return f"Not all is compiled: {skipped[0].title}." if skipped else ""


def _share(run: RunRecords) -> str:
    """How much runs compiled: as it was counted, else by the graphs of a function whose rest has none."""
    counted = run.coverage
    calls = counted.compiled + counted.uncompiled if counted is not None else 0
    if counted is not None and calls:
        return f" {counted.compiled / calls:.0%} of the operator calls ran compiled."
    return f" {text}" if (text := share_text(run)) else ""


def _failed(failed: Sequence[Finding], findings: Sequence[Finding]) -> str:
    first = failed[0]
    more = f" {len(failed) - 1} more failed." if failed[1:] else ""
    breaks = _breaks(findings)
    beside = f" Elsewhere: {breaks}." if breaks else ""
    title = first.title[:1].upper() + first.title[1:]
    is_told = first.id or not first.cause or first.rule == Rule.RECOMPILE_LIMIT  # or an exception without words
    told = title if is_told else f"{title}: {(first.cause or '').rstrip(': ')}"
    return f"{told}{'' if told.endswith(('.', '?', '!', '…')) else '.'}{more}{beside}"


def _breaks(findings: Sequence[Finding]) -> str:
    """How many places break a graph, and how many of them are torch's own; empty where none does.

    A break that follows from another one is in the way as well.
    """
    found = [item for item in findings if item.rule == Rule.BREAK and not item.is_free]
    torchs = sum(len(item.places) for item in found if item.by_design or is_torch_file(item.span.file))
    own = sum(len(item.places) for item in found) - torchs
    if not own:
        return f"{count(torchs, 'graph break')} of torch's own" if torchs else ""
    return count(own, "graph break") + (f" (and {torchs} of torch's own)" if torchs else "")


def _whole(run: RunRecords, made: int) -> str:
    functions = len({(each.file, each.line, each.function) for each in run.compiles if each.compile_id in run.compiled})
    variants = f", in {made} variants" if made > max(functions, 1) else ""
    if functions <= 1:
        return f"All that was compiled is one graph{variants}."
    together = f"{variants} together" if variants else ""
    return f"No graph break: each of {functions} compiled functions is one graph{together}."


def _why_nothing(run: RunRecords, findings: Sequence[Finding], events: Mapping[str, int]) -> tuple[str, ...]:
    """What is known of the reason. The recorder's own notes (disabled, torch never imported) stand beside it."""
    if events.get("dynadiag_trial"):
        return ("This is the recording of a search, whose trials compile elsewhere: `dynadiag browse` shows them.",)
    if run.modes:
        return tuple(f"{item.title}." for item in findings if item.rule == Rule.UNCOMPILED)
    if run.skipped:
        return (f"Every frame that Dynamo looked at was left to Python: {_common(run.skipped)}.",)
    if run.run.notes:
        return ()
    if run.run.torch is None:
        return ("The program never imported torch.",)
    if not any(number for kind, number in events.items() if not kind.startswith("dynadiag_")):
        if (found := method_of_compiled(run.sources)) is not None:
            name, method, place = found
            return (
                f"`{name}.{method}` is called ({place_text(place)}), and never `{name}(...)`: of what "
                f"`torch.compile(module)` returns only a call of the module is compiled. Compile the method "
                f"(`{name}.{method} = torch.compile({name}.{method})`); where it calls the module (`self(...)`), call "
                "`module.compile()` instead of `torch.compile(module)`.",
            )
        return (
            "torch reported no event at all: nothing that `torch.compile` returned was called, compiling was "
            "disabled, torch refused what was called before it looked at it (a generator function), or it was torch's "
            "own code, such as an `nn.Sequential` after `.compile()` (`torch.compile(module)` compiles one).",
        )
    if events.get("describe_tensor"):
        return ("No call reached a function that `torch.compile` had returned. Something was traced without Dynamo.",)
    return ("No call reached a function that `torch.compile` had returned.",)


def _why_no_graph(run: RunRecords) -> tuple[str, ...]:
    if run.skipped:
        return (f"Frames were left to Python: {_common(run.skipped)}.",)
    reasons = list(dict.fromkeys(item.reason for item in run.compiles if item.reason))
    return tuple(reasons[:_REASONS]) or ("No frame held a tensor operation that Dynamo could put in a graph.",)


def _common(skipped: Sequence[SkippedFrame]) -> str:
    """The most usual reasons, with how often each was given."""
    ranked = Counter(item.reason or "no reason was recorded" for item in skipped).most_common(_REASONS)
    return "; ".join(f"{reason} ({count(number, 'frame')})" for reason, number in ranked)
