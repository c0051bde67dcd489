"""Graph breaks as findings: which reports are one cause, what it left uncompiled, and what to do.

torch reports a graph break once per frame, caller, layer and recompile that meets it. What a user can mend is the site:
the expression in the source and the type of break there. All reports of one site and type are one cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from dynadiag.explanation.blocks import handled_lines, is_last
from dynadiag.explanation.break_case import BreakCase, wrapper_of
from dynadiag.explanation.break_remedies import break_advice
from dynadiag.explanation.exceptions import link_exceptions, raised_in
from dynadiag.explanation.findings import Cost, Fact, Finding
from dynadiag.explanation.formatting import count, list_some, shorten
from dynadiag.explanation.identity import identity, place_text
from dynadiag.explanation.owner import owner_and_entry
from dynadiag.explanation.rules import Rule
from dynadiag.explanation.run_records import RunRecords
from dynadiag.explanation.runtime_cost import CallCost, costs, total
from dynadiag.explanation.share import uncompiled_rest
from dynadiag.explanation.unknown_values import undecided
from dynadiag.recording.code_origin import (
    is_resume_function,
    is_stdlib_file,
    is_torch_file,
    original_name,
    user_frame,
)
from dynadiag.recording.records import EXPORT, Break, SkippedFrame, Span
from dynadiag.recording.torch_text.reasons import without_address

_RECONSTRUCTION = frozenset({"GB0092", "GB0093", "GB8335"})
_BRANCHING = "Data-dependent branching"  # torch's own words list how the condition is computed, input by input
_RECOMPILE_LIMIT = "GB0039"
_MAX_ERROR = 200  # characters of an exception in a title
# The exception that a compile ended with -> why torch raised instead of going on (exc.py, convert_frame.py).
_EXCEPTIONS = {
    "Unsupported": "an exception instead of a split: fullgraph=True, or error_on_graph_break, asks for one",
    "UncapturedHigherOrderOpError": "an exception: what a higher-order operator (torch.cond, ...) is given must be one "
    "graph",
    "TorchRuntimeError": "an exception: the operator failed when torch ran it on tensors without data",
    "UserError": "an exception: torch does not allow this use",
}
_EXPORT = "an exported program"
_EXCEPTIONS[_EXPORT] = "an exception: an exported program is one graph"
_LIMIT = "an exception: with fullgraph=True nothing is left to Python"
_UNKNOWN = "an exception instead of a split (fullgraph=True, torch.cond, an operator that failed: it was not recorded)"


def break_findings(run: RunRecords) -> tuple[Finding, ...]:
    """A finding for each cause of breaks, whatever the number of lines that have it.

    What torch raises at the recompile limit is no break: the finding on the recompiles has it.
    """
    paid, records = costs(run.breaks, run.warm), {item.index: item for item in run.breaks}
    entries: dict[int, list[Break]] = {item.index: [] for item in run.breaks if item.cause is None}
    for item in run.breaks:
        entries[item.index if item.cause is None else item.cause].append(item)
    groups: dict[tuple[object, ...], list[list[Break]]] = {}
    for met in entries.values():
        for fatal in (True, False):  # a break and an exception at one place are two events
            same = [item for item in met if item.fatal is fatal]
            if same and not (fatal and {item.compile_id for item in same} <= run.at_limit):
                groups.setdefault(_cause(same[0]), []).append(same)
    found = _link_reconstructions([_finding(group, paid, run) for group in groups.values()], records)
    return _link_handlers(_link_rests(link_exceptions(found, records), run, records), run, records)


def _link_handlers(found: Sequence[Finding], run: RunRecords, records: Mapping[int, Break]) -> tuple[Finding, ...]:
    """The findings. Those that are met only while an exception of the traced code is handled are notes."""
    raised = [
        (index, [records[number] for number in item.records])
        for index, item in enumerate(found)
        if raised_in(records[item.records[0]]) and item.caused_by is None
    ]
    made = list(found)
    for index, item in enumerate(found):
        lines = handled_lines(run.sources.get(item.span.file or ""), item.span)
        if lines is None or item.severity == "error" or any(index == other for other, _ in raised):
            continue
        cause = next((other for other, met in raised if any(_came_from(each, item.span, lines) for each in met)), None)
        if cause is not None:
            made[index] = replace(item, severity="note", caused_by=cause, advice=())
    return tuple(made)


def _came_from(item: Break, handler: Span, lines: tuple[int, int]) -> bool:
    """Whether a break was met below the lines that a handler is for."""
    below = [(frame.file, frame.line) for frame in item.user_stack] + [(item.span.file, item.span.line)]
    return any(file == handler.file and lines[0] <= (line or 0) <= lines[1] for file, line in below)


def _link_reconstructions(found: Sequence[Finding], records: Mapping[int, Break]) -> list[Finding]:
    """The findings. Those that tell how torch failed to split the graph at another break are notes.

    It then cannot rebuild a value that is needed after the break, and leaves the function to Python because of both.
    """
    made = list(found)
    for index, item in enumerate(found):
        own = records[item.records[0]]
        if own.gb_id not in _RECONSTRUCTION:
            continue
        before = (records[number] for number in range(own.index) if number in records)
        split = next((each for each in before if _passes_through(each, own)), None)
        cause = next((at for at, each in enumerate(found) if split and split.index in each.records), None)
        if cause is not None and cause != index:
            _follow(made, index, cause)
    return made


def _link_rests(found: Sequence[Finding], run: RunRecords, records: Mapping[int, Break]) -> Sequence[Finding]:
    """The findings. An exception in the rest of a line that breaks is a note, where that rest was compiled before.

    What the line's break returned is what the exception is about: another value of it, or one that became a symbol.
    """
    made, compiles = list(found), {each.compile_id: each for each in run.compiles}
    for index, item in enumerate(found):
        record = records[item.records[0]]
        own = compiles.get(record.compile_id)
        if raised_in(record) is None or own is None or own.line != record.span.line or item.severity == "error":
            continue
        alike = [
            each for each in run.compiles if (each.file, each.line, each.function) == (own.file, own.line, own.function)
        ]
        place = Span(own.file, own.line)
        breaks = (at for at, each in enumerate(found) if raised_in(records[each.records[0]]) is None)
        cause = next((at for at in breaks if place in [Span(each.file, each.line) for each in found[at].places]), None)
        if cause is not None and any(each.outcome == "ok" for each in alike) and run.is_rest(own):
            _follow(made, index, cause)
    return made


def _follow(made: list[Finding], index: int, cause: int) -> None:
    """Make a finding a note of another one, which tells of it and counts what it left to Python."""
    item, first = made[index], made[cause]
    left = first.cost.functions_uncompiled + item.cost.functions_uncompiled
    made[cause] = replace(
        first,
        cost=replace(first.cost, functions_uncompiled=left),
        evidence=(*first.evidence, Fact("then", item.cause or item.title, item.span)),
    )
    made[index] = replace(item, severity="note", caused_by=cause, advice=())


def _passes_through(item: Break, other: Break) -> bool:
    """Whether a break was met in the same compile as another one, at its line or in what that line calls."""
    lines = {(frame.file, frame.line) for frame in item.user_stack} | {(item.span.file, item.span.line)}
    return item.compile_id == other.compile_id and (other.span.file, other.span.line) in lines


def _cause(root: Break) -> tuple[object, ...]:
    """What breaks of one function have in common that one explanation and one piece of advice fits."""
    if wrapper := wrapper_of(root):
        return (wrapper, root.fatal)
    about = raised_in(root) or root.facts.subject
    return (root.gb_id, root.gb_type, root.function, root.span.file, root.fatal, about)


def _finding(sites: Sequence[Sequence[Break]], paid: dict[int, CallCost], run: RunRecords) -> Finding:
    """The finding of some sites of one cause, each with all reports of it."""
    group, entries = [site[0] for site in sites], [item for site in sites for item in site]
    root, places = group[0], tuple(dict.fromkeys(item.span for item in group))
    rule, kind = Rule.FAILED_COMPILE if root.fatal else Rule.BREAK, root.gb_type or "graph break of unknown type"
    ids = tuple(dict.fromkeys(item.compile_id for item in entries))
    case = BreakCase(root, run, _left(entries, run), _whole(ids, run))
    cost = _cost(case, group, ids, paid)
    known = partial(identity, rule, root.gb_id, root.function, sources=run.sources, cause="" if root.gb_id else kind)
    owner, entry = owner_and_entry(root.span.file, root.user_stack, run.packages)
    return Finding(
        rule=rule,
        id=root.gb_id,
        identity=known(places=places),
        severity=_severity(case, cost),
        span=root.span,
        function=root.function,
        title=_title(case, kind),
        cause=_cause_text(case),
        places=places,
        place_identities=tuple(known(places=(place,)) for place in places),
        compile_ids=ids,
        cost=cost,
        advice=break_advice(case),
        evidence=tuple(_evidence(case, group, entries, cost)),
        called=tuple(
            frame
            for frame in root.user_stack
            if (frame.file, frame.line) != (root.span.file, root.span.line) and frame != entry
        ),
        records=tuple(item.index for item in entries),
        owner=owner.name,
        entry=None if entry is None else Span(entry.file, entry.line),
        by_design=case.is_torchs_own and not case.whole,
    )


def _title(case: BreakCase, kind: str) -> str:
    root, whole = case.item, case.whole
    said = _wrapper_title(case) or ("an assertion fails, whatever the tensors hold" if case.fails_always else None)
    said = said or operator_error(root) or kind
    if case.decision and not root.gb_id:
        said = "this line needs a number that a tensor holds"
    if root.fatal:
        doing = "exporting" if root.compile_id.startswith(EXPORT) else "compiling"
        return f"{doing} {root.function} failed: {said}"
    if case.is_torchs_own and not whole:
        return f"torch leaves {case.facts.subject} to Python" if case.is_skip else "torch's own break, by design"
    within = " inside activation checkpointing" if case.within_checkpoint else ""
    if not whole or raised_in(root):
        return f"{said}{within}"
    block = case.block
    return f"{said}{within}; {f'in {block}, so ' if block else ''}all of {list_some(whole)} is left to Python"


def _wrapper_title(case: BreakCase) -> str | None:
    """What a break of DDP's or FSDP2's is, in a line."""
    if case.wrapper == "DDP":
        compiled = case.run.is_compiled_below(case.item.compile_id)
        return "DDP's own forward runs in Python" + ("" if compiled else ", and nothing in it was compiled")
    return "FSDP2's hooks run in Python, around each module that `fully_shard` was called on" if case.wrapper else None


def operator_error(root: Break) -> str | None:
    """Return the exception of an operator that failed when torch ran it on tensors without data, else None."""
    error = root.facts.operator_error if root.fatal else None
    return error and shorten(error, _MAX_ERROR)


def _severity(case: BreakCase, cost: Cost) -> str:
    """A break in torch's own code that ends no graph and leaves nothing to Python costs nothing: it is an aside.

    DDP's forward always runs in Python, beside the module that it wraps, unless nothing in it was compiled.
    """
    root = case.item
    if root.fatal:
        return "error"
    idle = not cost.graphs and not cost.functions_uncompiled and not cost.operators_uncompiled
    wrapped = case.wrapper == "DDP"
    if wrapped and not case.run.is_compiled_below(root.compile_id):
        return "warning"
    return "note" if idle and (is_torch_file(root.span.file) or wrapped or case.is_torchs_own) else "warning"


def _cost(case: BreakCase, group: Sequence[Break], ids: Sequence[str], paid: dict[int, CallCost]) -> Cost:
    calls = [paid[item.index] for item in group if item.index in paid]
    call = total(calls) if calls else None
    return Cost(
        operators_uncompiled=None if call is None else round(call.operators),
        graphs=case.run.graphs_of(ids),
        functions_uncompiled=len(case.left) + len(case.whole),
        call=call,
    )


def _left(entries: Sequence[Break], run: RunRecords) -> tuple[SkippedFrame, ...]:
    """The functions that go on uncompiled where one of these breaks split them: outermost first, without repeats.

    A function that ends with the statement that breaks has nothing left. A rest that meets a break of its own is left
    because of that one.
    """
    met = {item.compile_id for item in run.breaks}
    own = {(each.file, each.line) for each in run.compiles if each.outcome == "skipped" and each.compile_id in met}
    split = {(frame.file, frame.line) for item in entries for frame in item.user_stack}
    rests = (item for item in reversed(run.skipped) if is_resume_function(item.function))
    return tuple(
        dict.fromkeys(
            rest
            for rest in rests
            if (rest.file, rest.line) in split - own
            and not is_last(run.sources.get(rest.file), Span(rest.file, rest.line))
        )
    )


def _whole(ids: Sequence[str], run: RunRecords) -> tuple[str, ...]:
    """The functions that a break left to Python from their first line on, without those of Python's own library.

    What is left may be the rest of a function that was split before.
    """
    left = [each for each in run.compiles if each.outcome == "skipped" and each.compile_id in set(ids)]
    names = (f"{each.function} from line {each.line} on" if run.is_rest(each) else each.function for each in left)
    return tuple(dict.fromkeys(name for each, name in zip(left, names, strict=True) if not is_stdlib_file(each.file)))


def _cause_text(case: BreakCase) -> str | None:
    """What the break comes from: the exception, the number that decides something, else torch's explanation."""
    root, decision = case.item, case.decision
    if raised := raised_in(root):
        return (
            f"Tracing raises {raised.text}. No traced code handles it, so the function is left to Python. (If Python "
            "does not raise it here, torch traces this line wrongly.)"
        )
    if case.fails_always:
        return f"The condition is {root.facts.condition} while tracing: it does not depend on what tensors hold."
    if decision is not None:
        if decision.origin_line == root.span.line and decision.line != root.span.line:
            return f"The number decides `{decision.condition}` at line {decision.line}, and tracing has no values."
        said = undecided(decision)
        return f"{said[:1].upper()}{said[1:]}."
    if case.drawn is not None:
        return f"`{case.drawn[0]}` is drawn at random at line {case.drawn[1]}, and this line needs its value."
    if case.is_item and (taken := case.taken):
        return f"`{taken}` takes a number out of a tensor, and tracing has no values."
    text = without_address(root.explanation or root.reason)
    if root.gb_type == _BRANCHING:
        text = (
            f"The values of a tensor decide a {'loop' if case.is_loop_condition else 'branch'}, and tracing has none."
        )
    inner = root.facts.inside
    if inner.file is None:
        return text or None
    file = case.run.packages.inside(inner.file) or inner.file
    apart = "\n" if "\n" in text.strip() else " "  # it goes on after a sentence, and below lines of code
    return f"{text}{apart}(It is inside what this line calls: {file}:{inner.line}, in {root.facts.inside_function}.)"


def _evidence(case: BreakCase, group: Sequence[Break], entries: Sequence[Break], cost: Cost) -> Iterator[Fact]:
    root, run = case.item, case.run
    where = "in" if case.owner.is_user else "function"
    export = next((each for each in run.exports if each.id == root.compile_id), None)
    within = export.call if export else f"compile {root.compile_id}"
    yield Fact(where, root.function if root.compile_id == "-" else f"{root.function} ({within})")
    told = {(root.span.file, root.span.line)}
    for place in (item.span for item in group):
        if (place.file, place.line) not in told:
            told.add((place.file, place.line))
            yield Fact("also", "", place)
    if consequences := "; ".join(_consequences(case, entries, cost)):
        yield Fact("led to", consequences)
    if root.fatal and root.user_stack and root.user_stack[0] != root.user_stack[-1]:
        caller = root.user_stack[0]
        yield Fact("raised at", "", Span(caller.file, caller.line))
    if case.owner.is_user and not place_text(run.sources.get(root.span.file or ""), root.span):
        yield Fact("note", "the source of this line was not recorded")


def _consequences(case: BreakCase, entries: Sequence[Break], cost: Cost) -> Iterator[str]:
    """In words: what the break did to the program."""
    root, run = case.item, case.run
    if root.fatal:
        ended = [(each.compile_id, each.error) for each in run.compiles] + [(each.id, _EXPORT) for each in run.exports]
        error = next((error for id_, error in ended if id_ == root.compile_id), None)
        yield _LIMIT if root.gb_id == _RECOMPILE_LIMIT else _EXCEPTIONS.get(error or "", _UNKNOWN)
    if case.whole:
        yield f"all of {list_some(case.whole)} ran uncompiled"
    elif case.within_checkpoint and not root.fatal:
        yield f"all of {root.function}, which `checkpoint` calls, ran uncompiled"
    if cost.graphs:
        yield f"{count(cost.graphs, 'graph')} ended here"
    ids = tuple(dict.fromkeys(item.compile_id for item in entries))
    if len(entries) > 1:
        yield f"met {count(len(entries), 'time')}, in compiles {list_some(ids)}"
    functions = tuple(dict.fromkeys(item.function for item in entries))
    if len(functions) > 1:
        yield f"it split the frames of {list_some(functions)}"
    if case.left:
        names, first = tuple(dict.fromkeys(original_name(frame.function) for frame in case.left)), case.left[0]
        limits = {(each.file, each.line) for each in run.recompiles if each.limit_reached}
        why = "torch gave it up after too many recompiles" if (first.file, first.line) in limits else first.reason
        yield f"what follows in {list_some(names)} ran uncompiled ({why})"
    elif not case.whole and (rest := uncompiled_rest(root, run)) is not None:
        yield f"what follows in {rest.function} runs uncompiled: {rest.why}"
    again = tuple(each.compile_id for each in run.recompiles if each.compile_id in ids)
    if again:
        yield f"recompiles among them: {list_some(again)}"


def group_breaks(breaks: Sequence[Break]) -> tuple[Break, ...]:
    """The breaks in their order, each `cause` ``None`` for a root or the index of its root.

    A cause that the recording already knows is kept, and led on to the root of the one it names. Functions
    that torch made to resume a split one carry the original's name.
    """
    root = _root_of_each(breaks, _leaders(breaks))
    return tuple(
        replace(
            item,
            function=original_name(item.function),
            cause=None if root[item.index] == item.index else root[item.index],
        )
        for item in breaks
    )


def roots(breaks: Sequence[Break]) -> tuple[Break, ...]:
    """The breaks that are causes of their own, fatal where torch raised one of their reports."""
    raised = {item.index if item.cause is None else item.cause for item in breaks if item.fatal}
    return tuple(replace(item, fatal=item.index in raised) for item in breaks if item.cause is None)


def _leaders(breaks: Sequence[Break]) -> dict[int, int]:
    """Index of each break -> index of the first break of the same site and type."""
    sites: dict[tuple[object, ...], list[Break]] = {}
    leaders: dict[int, int] = {}
    for item in breaks:
        met = sites.setdefault(_line_key(item), [])
        leader = next((other for other in met if _same_span(item.span, other.span)), None)
        leaders[item.index] = item.index if leader is None else leader.index
        if leader is None:
            met.append(item)
    return leaders


def _line_key(item: Break) -> tuple[object, ...]:
    """What two reports of one cause share; without a place, only torch's own words are left to go by."""
    if item.span.file is None or item.span.line is None:
        return (None, item.gb_type, original_name(item.function), item.reason)
    return (item.span.file, item.span.line, item.gb_type)


def _same_span(one: Span, other: Span) -> bool:
    """Whether two spans of one line are one site. Without columns (a foreign log) the line is all there is."""
    if one.column is None or other.column is None:
        return True
    return one.column == other.column and (
        (one.end_line, one.end_column) == (other.end_line, other.end_column)
        or one.end_column is None
        or other.end_column is None
    )


def _root_of_each(breaks: Sequence[Break], leaders: dict[int, int]) -> dict[int, int]:
    """Index of each break -> index of its root, which is its own for a root.

    A cause comes before its consequence; one that claims otherwise (a damaged recording) is not heeded, so
    the way to the root always ends.
    """
    found: dict[int, int] = {}
    sites: dict[tuple[str | None, int | None], int] = {}
    for item in sorted(breaks, key=lambda item: item.index):
        ahead = item.cause if item.cause is not None and item.cause in found else leaders[item.index]
        if ahead == item.index:
            ahead = _calling_break(item, sites)
        found[item.index] = found.get(ahead, item.index)
        sites[item.span.file, item.span.line] = found[item.index]
    return found


def _calling_break(item: Break, sites: Mapping[tuple[str | None, int | None], int]) -> int:
    """The break whose line calls the library's code that breaks here, else the break itself.

    After a break Python runs the call, and torch looks at each function of torch or Python's library in it anew.
    """
    frame = user_frame(item)
    if frame is None or not (is_torch_file(item.span.file) or is_stdlib_file(item.span.file)):
        return item.index
    return sites.get((frame.file, frame.line), item.index)
