"""The content of the overview: what happened, and what to look at first. A function of the explanation."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile

from dynadiag.explanation.changes import GuardChange, main_changes
from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.findings import Finding
from dynadiag.explanation.formatting import brief, count, duration, list_some, shorten
from dynadiag.explanation.guard_text import described, what_changed
from dynadiag.explanation.rules import Rule
from dynadiag.explanation.search import RecordedSearch
from dynadiag.explanation.timing import PhaseShare, Timing
from dynadiag.recording.records import GuardFailure, Recompile, Run
from dynadiag.recording.torch_text.sources import source_text
from dynadiag.render.findings import finding_name, finding_text
from dynadiag.render.paths import fit_path, source_location
from dynadiag.render.wrap import truncate_start
from tui.location import Location, source_place
from tui.run_header import run_lines
from tui.search_summary import ReadSource, result_lines
from tui.styled_report import RolePrinter, first_sentence, span_text, styled_report_lines
from tui.styled_text import Fragment, Line, line, one_line
from tui.widgets.styled_lines import wrap_lines

_LISTED = (8, 12, 16, 20, 24, 32, 40, 48)  # findings, and compiles, that the overview lists: as many as fit
_MAX_VALUES = 1  # earlier values of a recompile: on a narrow screen more of them would cut off the new one
_MAX_LINES = 6  # line numbers of findings that say the same
_LONGEST = 200  # characters of a cause
_SKIPPED = 4  # skipped frames that the overview lists
_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL, signal.SIGTERM)
_ENDED = frozenset(code for number in _SIGNALS for code in (-number, 128 + number))  # exit codes after them
_GAVE_UP = "torch gave up on it  "
_ROLES = {"good": "good", "error": "error", "warning": "break", "note": ""}
_MAX_PATH_WIDTH = 32  # columns for a path; a wider one would push the rest off a screen of 80 columns
_WIDE_MAX_PATH_WIDTH = 50  # columns for a path in half of 150 columns
_LEGEND = 2  # parts of the compiler on a line of the legend
_BAR_WIDTH = 40  # columns of a bar of 100%
_COMPILE_BAR = 8  # columns of the bar of a compile
_NAME_AT = 29  # columns beside the name of a compile
_MIN_NAME = 22  # columns that the name has at least: a line fits in half of 110 columns
PARTS = {
    "dynamo": ("Dynamo", "bar"),
    "aot": ("AOTAutograd", "bar2"),
    "backend": ("backend", "bar2"),  # one that AOTAutograd is not known to be a part of
    "inductor": ("Inductor", "bar3"),
    "codegen": ("code generation", "bar4"),
    "cached": ("code from the cache", "bar4"),  # instead of code generation
    "other": ("other", "bar5"),
}


def overview_lines(
    explanation: Explanation,
    kernels: int,
    trials: int,
    *,
    live: bool,
    finding: RecordedSearch | None = None,
    beside: bool = False,
    wide: bool = False,
    columns: int = 0,
    rows: int = 0,
    source: ReadSource = lambda _file: None,
) -> list[Line]:
    """Return the overview; if the details of a finding are shown ``beside`` it, it does not repeat them.

    On a ``wide`` terminal paths are shortened less. It lists more of what there is where all of it still fits
    in ``rows`` of ``columns``.

    The recording of a search has only the search and its result, because no program is in it. ``source`` reads a source
    file of the recording.
    """
    run = explanation.run
    if finding is not None:
        head = line((" ".join((finding.command or "a search", *finding.options)), "strong"))
        trial_line = line(count(finding.trials, "trial"), (", one by one", "dim"), to=Location("trials"))
        result = result_lines(finding, run.cwd, source)
        return [*run_lines(run, live=live)[:2], Line(), head, *result, Line(), trial_line]
    groups, next_step = _groups(explanation), list[Line]()
    if has_failed(run) and not run.is_foreign:
        next_step = [
            line(("B", "key"), " finds the part of the compiler at fault (bisect)", to=Location("trials")),
            line(("M", "key"), " writes a small program with this failure (minify)", to=Location("trials")),
        ]

    def listing(number: int) -> list[Line]:
        sections = [
            run_lines(run, live=live),
            list(_headline(explanation, kernels, trials, live=live)),
            next_step,
            list(_findings(explanation, groups, number, beside=beside, wide=wide)),
            list(_skipped(explanation, wide=wide)),
            list(_time(explanation.timing, number, max(_MIN_NAME, columns - _NAME_AT))) if explanation.timing else [],
            [line(("note  ", "strong"), one_line(note)) for note in explanation.notes],
        ]
        return [each for section in sections if section for each in (*section, Line())][:-1]

    most = max(len(groups), len(explanation.timing.spent) if explanation.timing else 0)
    longer = (listing(number) for less, number in pairwise(_LISTED) if less < most)
    fitting = takewhile(lambda lines: len(wrap_lines(lines, columns)) <= rows, longer)
    return [listing(_LISTED[0]), *fitting][-1]


def has_failed(run: Run) -> bool:
    """Whether a program ended by itself, and not well. Whoever ended it with a signal knows why."""
    return run.exit_code not in (0, None, *_ENDED)


def finding_detail(explanation: Explanation, target: Location | None, columns: int) -> list[Line]:
    """Return the text of the finding that a line of the overview leads to; of the first if it leads elsewhere."""
    found = explanation.findings
    chosen = next((item for item in found if _target(item) == target), found[0] if found else None)
    if chosen is None:
        return []
    return styled_report_lines(finding_text(chosen, explanation, RolePrinter(columns)))


def _headline(explanation: Explanation, kernels: int, trials: int, *, live: bool) -> Iterator[Line]:
    found = explanation.headline
    fine = "recompile" if explanation.recompiles else "" if live else "good"
    role = fine if found.severity == "good" else _ROLES[found.severity]
    yield line(("so far: " if live else "", "dim"), (one_line(found.sentence), role))
    for why in found.why:
        yield line(("  ", ""), (one_line(why), "dim"))
    pairs = (
        (count(len(explanation.compiles), "compile"), "compiles"),
        (count(explanation.graph_count, "graph"), "compiles"),
        (count(explanation.split_count, "graph break"), "breaks"),
        (count(explanation.recompile_count, "recompile"), "recompiles"),
        (count(kernels, "kernel"), "kernels"),
        (count(len(explanation.skipped), "skipped frame"), ""),
        (count(trials, "trial"), "trials"),
    )
    yield line(", ".join(text for text, view in pairs if not text.startswith("0 ") or view in ("breaks", "recompiles")))


def _findings(
    explanation: Explanation, groups: Sequence[Sequence[Finding]], number: int, *, beside: bool, wide: bool
) -> Iterator[Line]:
    """A line for the findings of a kind in a file, the most important first, and below it what to do."""
    if not groups:
        return
    yield line(("Findings, the most important first", "title"), (f"  {len(groups):,}", "dim"))
    helped: set[str] = set()
    for group in groups[:number]:
        item, target = group[0], _target(group[0])
        yield line(*_finding_fragments(group, explanation, wide=wide), to=target)
        if item.cause and item.rule not in (Rule.BREAK, Rule.RECOMPILE_LIMIT) and not _is_in_title(item):
            causes = dict.fromkeys(one_line(each.cause or "")[:_LONGEST] for each in (item, group[-1]))
            yield replace(line(f"        {' … '.join(causes)}", to=target), continues=True)
        advice = [each.text for each in item.advice]
        if advice and advice[-1] not in helped and not beside:
            helped.add(advice[-1])
            first = item.advice[0]
            label = "hint" if first.checked == "unchecked" else "help"
            # Of torch's words more than one sentence: their first one may only begin to say something.
            is_torchs = first.source == "torch"
            text = shorten(one_line(first.text), _LONGEST) if is_torchs else first_sentence(first.text)
            yield replace(line((f"       {label}: ", "help"), (text, "dim"), to=target), continues=True)
    yield from _more_line(len(groups) - number, Location("breaks"))


def _skipped(explanation: Explanation, *, wide: bool) -> Iterator[Line]:
    """The functions that Dynamo left to Python which are no finding of their own, with the reason."""
    found = [item for item in explanation.findings if _is_left(item)]
    if found:
        yield line(("Functions left to Python", "title"), (f"  {len(found):,}", "dim"))
    for item in found[:_SKIPPED]:
        at = source_location(item.span.file, item.span.line, None, explanation.run.cwd)
        cause = None if item.caused_by is None else explanation.findings[item.caused_by]
        parts: list[str | Fragment] = [
            ("skipped ", "break"),
            (f"{fit_path(at, _WIDE_MAX_PATH_WIDTH if wide else _MAX_PATH_WIDTH)}  ", "dim"),
            (f"{one_line(item.function)}  ", "strong"),
        ]
        reason = item.title if cause is None else f"see {finding_name(cause)}"
        yield line(*parts, one_line(reason), to=source_place(item.span.file, item.span.line))
    if len(found) > _SKIPPED:
        yield line((f"and {len(found) - _SKIPPED:,} more", "dim"))


def _is_left(item: Finding) -> bool:
    """Whether a finding only says that a function was left to Python, for what another one tells or at no cost."""
    return item.rule == Rule.UNCOMPILED and item.severity == "note"


def _groups(explanation: Explanation) -> list[list[Finding]]:
    """The findings, the most important first.

    Breaks that say the same of one file are together, and so are the recompiles of a function for the same reason.
    """
    found: dict[object, list[Finding]] = {}
    for number, item in enumerate(explanation.findings):
        if _is_left(item):
            continue
        same: dict[str, object] = {
            "break": (item.id, item.title, item.span.file),
            "recompile": (item.span, item.function, item.title),
        }
        found.setdefault(same.get(item.rule, number), []).append(item)
    return list(found.values())


def _finding_fragments(group: Sequence[Finding], explanation: Explanation, *, wide: bool) -> Iterator[Fragment]:
    item = group[0]
    place = item.own_span
    at = source_location(place.file, place.line, None, explanation.run.cwd)
    at = fit_path(at, _WIDE_MAX_PATH_WIDTH if wide else _MAX_PATH_WIDTH)
    yield f"{one_line(item.label or item.rule.removeprefix('failed-')):<6}  ", item.rule.view.role
    yield f"{at}  ", "dim"
    yield _GAVE_UP if item.rule == Rule.RECOMPILE_LIMIT else "", "error"
    if item.rule in (Rule.BREAK, Rule.FAILED_COMPILE) and (blamed := span_text(explanation.sources, place)):
        yield f"{blamed}  ", "strong"
    of = "recompile of " if item.rule == Rule.RECOMPILE else ""
    if item.rule == Rule.UNCOMPILED and item.function not in item.title:
        of = f"{one_line(item.function)}: "
    yield f"{of}{one_line(item.title)}", ""
    spans = [span for each in group for span in (each.own_span, *each.places)]
    lines = sorted({span.line for span in spans if span.line and span.file == place.file})
    if len(lines) > 1:
        more = " …" if len(lines) > _MAX_LINES else ""
        yield f"  x {len(lines):,}", "strong"
        yield f": lines {', '.join(map(str, lines[:_MAX_LINES]))}{more}", "dim"
    yield _amount(group), "dim"


def _is_in_title(item: Finding) -> bool:
    """Whether the cause only says again, with more words around it, what the title says."""
    _, colon, message = one_line(item.title).rpartition(": ")
    return bool(colon) and message.rstrip(".") in one_line(item.cause or "")


def _target(item: Finding) -> Location:
    """The screen that has all of a finding."""
    if item.rule.is_recompile:
        return Location("recompiles", item=item.records[0])
    if item.records:
        return Location("breaks", item=item.records[0])
    compile_id = item.compile_ids[0] if item.compile_ids else None
    if item.node_value is not None:
        return Location("code", compile_id, item=item.node_value)
    if compile_id is None and item.own_span.file:
        return source_place(item.own_span.file, item.own_span.line)
    return Location("compiles", compile_id=compile_id)


def _amount(group: Sequence[Finding]) -> str:
    """How many graphs ended there, if any did, and how often it happened."""
    met = sum(len(item.records) for item in group)
    ended = sum(item.cost.graphs or 0 for item in group)
    if group[0].rule != Rule.BREAK:
        return f"  {count(met, 'time')}" if met > 1 else ""
    said = [f"{count(ended, 'graph')} ended here"] if ended else []
    said += [f"met {count(met, 'time')}"] if met > 1 else []
    return "  " + ", ".join(said) if said else ""


def guard_change_fragments(item: Recompile, reasons: Sequence[GuardFailure] | None = None) -> list[Fragment]:
    """Return the first change that the report tells of all reasons or of these, with its old and new value."""
    changed = guard_changes(item.reasons if reasons is None else reasons)
    if not changed:
        return [
            ("the recompile limit was reached", "error") if item.limit_reached else ("no reason was recorded", "dim")
        ]
    more = len(changed) - 1
    return [*changed[0], *([(f"  and {count(more, 'more guard')}", "dim")] if more else [])]


def guard_changes(reasons: Sequence[GuardFailure]) -> list[list[Fragment]]:
    """Return each change that the report tells of these reasons, with its old and new value."""
    return [_change(change) for change in main_changes(reasons)]


def _change(change: GuardChange) -> list[Fragment]:
    """A changed value: what the compiles so far were made for, and what it is now."""
    fact, was = change.fact, [brief(text) for text in change.was]
    source, now = source_text(fact.source), brief(fact.now)
    if change.sort == "freed":
        return [(one_line(what_changed(change)), "")]
    told = described(change)
    if not was or told != f"{source} was {list_some(was)}, now {now}":
        return [(one_line(told)[:_LONGEST], "")]
    before = ", ".join([*was[:_MAX_VALUES], *(["…"] if len(was) > _MAX_VALUES else [])])
    return [(f"{one_line(source)}: ", ""), (one_line(before), "remove"), (" → ", "dim"), (one_line(now), "add")]


def _time(timing: Timing, number: int, name_width: int) -> Iterator[Line]:
    yield line(("Where the time went", "title"), (f"  {duration(timing.total)} compiling", "dim"))
    ranked = sorted(timing.shares, key=lambda share: -share.seconds)
    yield line("  ", *_bar(timing.shares, timing.total))
    named = [share for share in ranked if timing.total and share.seconds >= timing.total / 200]
    for start in range(0, len(named), _LEGEND):
        legend: list[str | Fragment] = ["  "]
        for share in named[start : start + _LEGEND]:  # the color of a part of the compiler, and its share of the time
            name, role = PARTS[share.part]
            legend += [("■ ", role), f"{f'{name} {share.seconds / timing.total:.0%}':<24}"]
        yield line(*legend)
    longest = timing.spent[0].seconds if timing.spent else 0.0
    for spent in timing.spent[:number]:
        item = spent.compile
        parts: list[str | Fragment] = [
            (f"{one_line(item.compile_id):<6} ", "key"),
            f"{duration(spent.seconds):>8}  ",
            *_bar(spent.shares, longest, _COMPILE_BAR, pad=True),
            f"  {truncate_start(one_line(item.function), name_width)}",
            (" ↻" if spent.again else "", "recompile"),
        ]
        yield line(*parts, to=Location("compiles", compile_id=item.compile_id))
    yield from _more_line(len(timing.spent) - number, Location("compiles"))


def _bar(shares: Iterable[PhaseShare], whole: float, width: int = _BAR_WIDTH, *, pad: bool = False) -> list[Fragment]:
    """Return a bar with a segment for each part of the compiler. `whole` seconds take the full width."""
    pieces: list[Fragment] = []
    parts = list(shares)
    total = sum(share.seconds for share in parts)
    filled = round(total / whole * width) if whole and total else 0
    done = 0.0
    for share in parts:
        before, done = done, done + share.seconds
        cells = round(done / total * filled) - round(before / total * filled) if filled else 0
        if cells:
            pieces.append(("█" * cells, PARTS[share.part][1]))
    if pad:
        pieces.append((" " * (width - sum(len(text) for text, _ in pieces)), ""))
    return pieces


def _more_line(number: int, target: Location) -> Iterator[Line]:
    if number > 0:
        yield line((f"and {number:,} more", "dim"), to=target)
