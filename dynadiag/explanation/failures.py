"""Failed compiles as findings: at which stage, why in one telling line, and from which line of the user's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dynadiag.explanation.failure_remedies import FailureCase, failure_advice
from dynadiag.explanation.findings import Advice, Cost, Fact, Finding
from dynadiag.explanation.formatting import list_some, shorten, whole_sentences
from dynadiag.explanation.identity import identity
from dynadiag.explanation.number_remedies import number_advice
from dynadiag.explanation.owner import owner_and_entry
from dynadiag.explanation.rules import Rule
from dynadiag.explanation.run_records import RunRecords
from dynadiag.explanation.unknown_values import asked_decision, taken_at, undecided
from dynadiag.recording.records import Compile, Frame, Node, Span, Symbol
from dynadiag.recording.torch_text.expressions import as_written
from dynadiag.recording.torch_text.failures import FailureFacts, read_failure
from dynadiag.recording.torch_text.sources import source_text

_MAX_LINE = 300  # characters of the telling line
# The folders of torch that tell the stage: the last one that the traceback passes.
_STAGES = (
    (re.compile(r"/triton/(compiler|backends|runtime|language)/"), "Triton"),
    (re.compile(r"/torch/_inductor/(codegen/|scheduler|code|async_c|runtime/)"), "Inductor's code generation"),
    (re.compile(r"/torch/_inductor/(lowering|graph|ir|kernel/|select_algorithm)"), "Inductor's lowering"),
    (re.compile(r"/torch/_inductor/(fx_passes/|pattern_matcher|decomposition)"), "Inductor's graph passes"),
    (re.compile(r"/torch/_inductor/"), "Inductor"),
    (re.compile(r"/torch/_functorch/(_?aot_autograd|partitioners|_activation_)"), "AOTAutograd"),  # not torch.func
    (re.compile(r"/torch/_dynamo/(guards|convert_frame)\.py"), "Dynamo, while it makes guards"),
    (re.compile(r"/torch/_dynamo/"), "Dynamo"),
)
_KERNEL = re.compile(r"^(?P<name>\w+) = async_compile\.\w+\(", re.MULTILINE)  # in the generated code


@dataclass(frozen=True, slots=True)
class _Failure:
    """What is known of one failed compile. ``lines`` are those that may be at fault where no single one is known."""

    stage: str
    why: str
    span: Span | None
    lines: tuple[Span, ...]
    advice: tuple[Advice, ...]
    stack: tuple[Frame, ...] = ()  # the user's, to that line
    operation: str | None = None


def failure_findings(run: RunRecords, told: Iterable[str]) -> tuple[Finding, ...]:
    """A finding for each way in which compiles failed; ``told`` are the compiles that a break tells of."""
    known = set(told)
    groups: dict[tuple[object, ...], list[tuple[Compile, _Failure]]] = {}
    for item in run.compiles:
        if item.outcome == "error" and item.error and item.compile_id not in known:
            failure = _read(item, run)
            key = (item.file, item.line, item.function, failure.stage, failure.why, failure.span)
            groups.setdefault(key, []).append((item, failure))
    return tuple(_finding([item for item, _ in group], group[0][1], run) for group in groups.values())


def _finding(items: Sequence[Compile], failure: _Failure, run: RunRecords) -> Finding:
    item = items[0]
    function = run.named(item.function, (item.compile_id,))
    span = failure.span or Span(item.file, item.line)
    ids = tuple(each.compile_id for each in items)
    owner, entry = owner_and_entry(span.file, failure.stack, run.packages)
    return Finding(
        rule=Rule.FAILED_COMPILE,
        id=None,
        identity=identity(Rule.FAILED_COMPILE, None, item.function, (span,), run.sources, failure.stage),
        severity="error",
        span=span,
        function=item.function,
        title=f"compiling {function} failed in {failure.stage}",
        cause=failure.why,
        places=(span,),
        compile_ids=ids,
        cost=Cost(compile_seconds=run.seconds(ids), graphs=run.graphs_of(ids), functions_uncompiled=len(items)),
        advice=failure.advice,
        evidence=tuple(_evidence(items, failure)),
        called=tuple(frame for frame in item.user_stack[:-1] if (frame.file, frame.line) != (span.file, span.line)),
        owner=owner.name,
        entry=None if entry is None else Span(entry.file, entry.line),
    )


def _evidence(items: Sequence[Compile], failure: _Failure) -> Iterable[Fact]:
    ids = [each.compile_id for each in items]
    yield Fact("raised", items[0].error or "an exception")
    yield Fact("in", f"{items[0].function} (compile {list_some(ids)})")
    if failure.operation is not None:
        yield Fact("operation", f"`{failure.operation}`")
    if failure.span is None:
        unknown = "which line of the function is at fault was not recorded"
        yield Fact("note", f"{unknown}; the graph has these" if failure.lines else unknown)
        for line in failure.lines:
            yield Fact("line", "", line)


def _read(item: Compile, run: RunRecords) -> _Failure:
    """What torch's text and its traceback tell of a failed compile."""
    facts = read_failure(item.reason or "", run.tracebacks.get(item.compile_id, ""))
    owner, entry = owner_and_entry(facts.blamed.file if facts.blamed else None, facts.user_stack, run.packages)
    stage = _stage(item, facts)
    taken = taken_at(facts.symbols, item.compile_id, run) if stage.startswith("Inductor") else None
    case = FailureCase(
        facts,
        stage,
        item.error,
        item.function,
        item.line,
        run.is_rest(item),
        package=owner.name if entry else "",
        number=taken[1] if taken else "",
    )
    span, lines = (taken[0], ()) if taken else _blamed_spans(facts, item.compile_id, run)
    if item.error == "ConstraintViolationError" and (line := _guard_line(item, run)) is not None:
        span, lines = line, ()
    named = f"{stage} (backward)" if facts.is_backward else stage
    decision = None if span is None or taken else asked_decision(facts.symbols, item.compile_id, span, run)
    if decision is None:
        bound, own = facts.constraint, [each for each in run.symbols if each.compile_id == item.compile_id]
        constant = [each for each in own if each.event == "specialized" and bound and each.value == bound.held]
        given, operation = failure_advice(case), operation_of(constant, own)
        return _Failure(named, telling_line(facts), span, lines, given, facts.user_stack, operation)
    given = number_advice(replace(decision, is_captured=True, is_whole=True), torch=run.run.torch)
    return _Failure(named, undecided(decision), span, lines, given, facts.user_stack)


def operation_of(constant: Iterable[Symbol], symbols: Iterable[Symbol]) -> str | None:
    """The operator that made one of these sizes constant, with the sizes and numbers that it was given."""
    found = next((each.expression for each in constant if each.expression), None)
    names = {each.name: source_text(each.source) for each in symbols if each.event == "created"}
    return found and as_written(found, names)


def _guard_line(item: Compile, run: RunRecords) -> Span | None:
    """The one line of the program that guards on the sizes of a compile; None where there are several."""
    stacks = [each.user_stack for each in run.symbols if (each.compile_id, each.event) == (item.compile_id, "guarded")]
    lines = {Span(stack[-1].file, stack[-1].line) for stack in stacks if stack}
    return lines.pop() if len(lines) == 1 else None


def _stage(item: Compile, facts: FailureFacts) -> str:
    if facts.is_cpp:
        return "the C++ compiler"
    if item.error == "ConstraintViolationError":
        return "Dynamo, while it makes guards"
    passed = [stage for file in facts.files if (stage := stage_of(file))]
    if facts.backend:  # whatever runs below it passes Dynamo's wrappers (`_disable_dynamo`)
        passed = [stage for stage in passed if not stage.startswith("Dynamo")]
    if passed:
        return passed[-1]
    if facts.backend:
        return f"the backend `{facts.backend}`"
    if facts.is_lowering:
        return "Inductor's lowering"
    return "Inductor" if item.error == "InductorError" else "Dynamo"


def stage_of(file: str) -> str | None:
    """The stage of compiling that a file of torch's belongs to, None for another file."""
    return next((name for pattern, name in _STAGES if pattern.search(file)), None)


def telling_line(facts: FailureFacts) -> str:
    """The one line that tells why: a compiler's first error, the constraint with its value, else the exception."""
    if facts.constraint is not None:
        return facts.constraint.said
    if facts.compiler_error is not None:
        return shorten(facts.compiler_error, _MAX_LINE)
    if facts.lacks == "constant":
        return "this line needs the value of a number that torch has made a symbol"
    if facts.inside is not None:
        return whole_sentences(f"{facts.operator or 'a higher-order operator'}: {facts.inside}", _MAX_LINE)
    return whole_sentences(facts.message, _MAX_LINE) or "no reason was recorded"


def _blamed_spans(facts: FailureFacts, compile_id: str, run: RunRecords) -> tuple[Span | None, tuple[Span, ...]]:
    """The user's line: torch names it, or the operators that the text names have one; else the lines of the graph."""
    if facts.blamed is not None:
        return facts.blamed, ()
    nodes = [node for node in run.nodes.get(compile_id, ()) if node.op.startswith("call_") and node.span.file]
    named = [node for node in nodes if node.target.endswith(tuple(facts.operators))]
    at_fault = named or _of_kernel(facts.quoted, run.code.get(compile_id, ""), nodes) or nodes
    lines = tuple(dict.fromkeys(node.span for node in at_fault))
    return (lines[0], ()) if len(lines) == 1 else (None, lines)


def _of_kernel(quoted: str | None, code: str, nodes: Sequence[Node]) -> list[Node]:
    """The nodes of the kernel whose code the compiler quotes: a kernel is named by its operators."""
    at = code.find(quoted) if quoted else -1
    before = [match["name"] for match in _KERNEL.finditer(code, 0, max(at, 0))]
    operators = set(before[-1].split("_")) if before else set()
    return [node for node in nodes if node.target.rpartition(".")[2] in operators or node.name in operators]
