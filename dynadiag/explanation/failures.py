"""Failed compiles as findings: at which stage, why in one telling line, and from which line of the user's."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dynadiag.explanation.advice_table import advice
from dynadiag.explanation.break_remedies import number_advice
from dynadiag.explanation.findings import Advice, Cost, Fact, Finding
from dynadiag.explanation.formatting import list_some
from dynadiag.explanation.identity import identity
from dynadiag.explanation.run_records import RunRecords
from dynadiag.explanation.unknown_values import asked_decision, undecided
from dynadiag.recording.code_origin import is_stdlib_file, is_torch_file
from dynadiag.recording.records import Compile, Node, Span
from dynadiag.recording.torch_text.breaks import needed_symbols
from dynadiag.recording.torch_text.sources import source_text

__all__ = ["failure_findings"]

_MAX_TEXT = 200_000  # characters of a compiler's output that are looked at
_MAX_LINE = 300  # characters of the telling line
# The folders of torch that tell the stage: the last one that the traceback passes.
_STAGES = (
    (re.compile(r"/triton/(compiler|backends|runtime|language)/"), "Triton"),
    (
        re.compile(r"/torch/_inductor/(codegen/|scheduler|code|async_c|runtime/)"),
        "Inductor's code generation",
    ),
    (re.compile(r"/torch/_inductor/(lowering|graph|ir|kernel/|select_algorithm)"), "Inductor's lowering"),
    (re.compile(r"/torch/_inductor/(fx_passes/|pattern_matcher|decomposition)"), "Inductor's graph passes"),
    (re.compile(r"/torch/_inductor/"), "Inductor"),
    (re.compile(r"/torch/_functorch/"), "AOTAutograd"),
    (re.compile(r"/torch/_dynamo/(guards|convert_frame)\.py"), "Dynamo, while it makes guards"),
    (re.compile(r"/torch/_dynamo/"), "Dynamo"),
)
_CALLS_BACKEND = "_call_user_compiler"  # output_graph.py: all below is the backend's
_FILE = re.compile(r'^\s*File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<name>[^\n,]+)', re.MULTILINE)
_BACKEND = re.compile(r"backend='(?P<name>[^'\n]*)' raised:\s*")
_BACKWARD = "in the backward: "  # the digest's mark on what failed after the forward had been compiled
_USER_STACKS = (
    "\nUser stack:",
    "\nUser Stack (most recent call last):",
    "\nFound from :",
    "\nfrom user code:",
    "\nOriginal traceback:",
)
_COMPILER_ERROR = re.compile(r"^.*?\b(?:fatal )?error: (?P<text>.*)$", re.MULTILINE)
_KERNEL = re.compile(r"^(?P<name>\w+) = async_compile\.\w+\(", re.MULTILINE)
_CODE_OF_ERROR = re.compile(r"\berror: [^\n]*\n\s*\d+ \| (?P<code>[^\n]*)")
# What torch could not trace of a function that a higher-order operator was given (higher_order_ops.py).
_RAISED = re.compile(r"""raised exception \w+\((?P<quote>["'])(?P<text>.*)(?P=quote)\)""")  # 2.15
_IN_OPERATOR = re.compile(r"Got graph break/error:\s*(?P<why>\S[^\n]*)")
_HIGHER_ORDER = re.compile(r"^\s*Higher Order Operator: (?P<name>\S+)", re.MULTILINE)
_CONSTANT = re.compile(r"""ConstantVariable\(str: ["'](?P<text>[^\n]*)["']\)""")
_OPERATOR = re.compile(r"\b(?:torch\.ops\.)?(?P<name>\w+\.\w+\.\w+)\b")
_CONSTRAINT = re.compile(
    r"You marked (?P<size>\S+) as dynamic but your code specialized it to be a constant \((?P<value>[^)]*)\)"
)


_INTERNAL_ERRORS = ("AssertionError", "InternalTorchDynamoError")  # of Dynamo's own, which say nothing to a user
_RANGE = re.compile(
    r"Not all values of (?P<size>\S+) = \S+ in the specified range (?P<range>.+?) satisfy the generated guard "
    r"(?P<guard>[^\n]+?)\.?(?:\n|$)"
)
_RELATED = re.compile(
    r"The values of (?P<size>\S+) = \S+ (?:and|must always be related to the values of) (?P<other>\S+) = \S+ "
    r"(?:must always be equal|by)"
)


@dataclass(frozen=True, slots=True)
class _Failure:
    """What is known of one failed compile. ``lines`` are those that may be at fault where no single one is known."""

    stage: str
    why: str
    span: Span | None
    lines: tuple[Span, ...]
    advice: tuple[Advice, ...]


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
    return Finding(
        rule="failed-compile",
        id=None,
        identity=identity("failed-compile", None, item.function, (span,), run.sources, failure.stage),
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
    )


def _evidence(items: Sequence[Compile], failure: _Failure) -> Iterable[Fact]:
    ids = [each.compile_id for each in items]
    yield Fact("raised", items[0].error or "an exception")
    yield Fact("in", f"{items[0].function} (compile {list_some(ids)})")
    if failure.span is None:
        unknown = "which line of the function is at fault was not recorded"
        yield Fact("note", f"{unknown}; the graph has these" if failure.lines else unknown)
        for line in failure.lines:
            yield Fact("line", "", line)


def _read(item: Compile, run: RunRecords) -> _Failure:
    """Read the compiler's text, whose end is the exception itself, and the traceback before it."""
    reason = (item.reason or "")[:_MAX_TEXT]
    backward = reason.startswith(_BACKWARD)
    reason = reason.removeprefix(_BACKWARD)
    traceback = run.tracebacks.get(item.compile_id, "")[-_MAX_TEXT:]
    stage, why = _stage(item, reason, traceback), _why(reason, traceback)
    span, lines = _blamed_spans(reason, traceback, item.compile_id, run)
    if item.error == "ConstraintViolationError" and (line := _guard_line(item, run)) is not None:
        span, lines = line, ()
    named = f"{stage} (backward)" if backward else stage
    symbols = needed_symbols(reason)
    decision = None if span is None else asked_decision(symbols, item.compile_id, span, run)
    if decision is not None:
        given = number_advice(replace(decision, is_captured=True, is_whole=True), torch=run.run.torch)
        return _Failure(named, undecided(decision), span, lines, given)
    given = _advice(stage, reason, why)
    if stage == "Dynamo" and item.error in _INTERNAL_ERRORS and run.is_rest(item):
        given = (advice("failed.rest", function=item.function, line=item.line), *given)
    return _Failure(named, why, span, lines, given)


def _guard_line(item: Compile, run: RunRecords) -> Span | None:
    """The one line of the program that guards on the sizes of a compile; None where there are several."""
    stacks = [each.user_stack for each in run.symbols if (each.compile_id, each.event) == (item.compile_id, "guarded")]
    lines = {Span(stack[-1].file, stack[-1].line) for stack in stacks if stack}
    return lines.pop() if len(lines) == 1 else None


def _stage(item: Compile, reason: str, traceback: str) -> str:
    if "CppCompileError" in reason.partition("\n")[0]:
        return "the C++ compiler"
    if item.error == "ConstraintViolationError":
        return "Dynamo, while it makes guards"
    backend = _BACKEND.match(reason)
    below = traceback[traceback.rfind(_CALLS_BACKEND) :] if backend and _CALLS_BACKEND in traceback else traceback
    found = [stage for frame in _FILE.finditer(below) if (stage := _stage_of(frame["file"]))]
    if found and not (backend and found[-1].startswith("Dynamo")):
        return found[-1]
    if backend:
        return f"the backend `{backend['name']}`"
    if reason.startswith("LoweringException"):
        return "Inductor's lowering"
    return "Inductor" if item.error == "InductorError" else "Dynamo"


def _stage_of(file: str) -> str | None:
    return next((name for pattern, name in _STAGES if pattern.search(file)), None)


def _why(reason: str, traceback: str) -> str:
    """The one line that tells why: a compiler's first error, the constraint with its value, else the exception."""
    if constraint := _CONSTRAINT.search(reason):
        return f"`{source_text(constraint['size'])}` is marked dynamic, but the code fixes it to {constraint['value']}"
    if constraint := _RANGE.search(reason):
        size, marked, held = (source_text(constraint[name]) for name in ("size", "range", "guard"))
        return f"`{size}` is marked dynamic for `{marked}`, but the code holds only for `{held}`"
    if constraint := _RELATED.search(reason):
        size, other = (source_text(constraint[name]) for name in ("size", "other"))
        return f"`{size}` and `{other}` are marked dynamic, but the code fixes one by the other"
    if error := _COMPILER_ERROR.search(reason) if "\nOutput:\n" in reason else None:
        return f"error: {error['text']}"[:_MAX_LINE]
    if inside := _IN_OPERATOR.search(reason):
        text, operator = _CONSTANT.sub(r"\g<text>", inside["why"]), _HIGHER_ORDER.search(traceback)
        text = _RAISED.sub(r"\g<text>", text)
        return f"{operator['name'] if operator else 'a higher-order operator'}: {text}"[:_MAX_LINE]
    text = _BACKEND.sub("", reason, count=1).strip()
    first = text.partition("\n")[0].removesuffix(":")  # an exception without a message
    return first[:_MAX_LINE] or "no reason was recorded"


def _blamed_spans(
    reason: str, traceback: str, compile_id: str, run: RunRecords
) -> tuple[Span | None, tuple[Span, ...]]:
    """The user's line: torch names it, or the operators that the text names have one; else the lines of the graph."""
    for text, heading in itertools.product((reason, traceback), _USER_STACKS):
        _, found, after = text.partition(heading)
        frames = [Span(each["file"], int(each["line"])) for each in _FILE.finditer(after)]
        own = [span for span in frames if not is_torch_file(span.file) and not is_stdlib_file(span.file)]
        if found and own:
            return own[-1], ()
    nodes = [node for node in run.nodes.get(compile_id, ()) if node.op.startswith("call_") and node.span.file]
    told = f"{reason}\n{traceback}"
    at_fault = _named_in(told, nodes) or _of_kernel(told, run.code.get(compile_id, ""), nodes) or nodes
    lines = tuple(dict.fromkeys(node.span for node in at_fault))
    return (lines[0], ()) if len(lines) == 1 else (None, lines)


def _named_in(reason: str, nodes: Sequence[Node]) -> list[Node]:
    """The nodes of an operator that the text names (``mine.twice.default``)."""
    names = {match["name"] for match in _OPERATOR.finditer(reason[:2000])}
    return [node for node in nodes if any(node.target.endswith(name) for name in names)]


def _of_kernel(reason: str, code: str, nodes: Sequence[Node]) -> list[Node]:
    """The nodes of the kernel whose code the compiler quotes: a kernel is named by its operators."""
    quoted = _CODE_OF_ERROR.search(reason)
    at = code.find(quoted["code"].strip()) if quoted and quoted["code"].strip() else -1
    before = [match["name"] for match in _KERNEL.finditer(code, 0, max(at, 0))]
    if not before:
        return []
    operators = set(before[-1].split("_"))
    return [node for node in nodes if node.target.rpartition(".")[2] in operators or node.name in operators]


def _advice(stage: str, reason: str, why: str) -> tuple[Advice, ...]:
    if constraint := _CONSTRAINT.search(reason):
        return (advice("failed.mark_dynamic", value=constraint["value"]),)
    if constraint := _RANGE.search(reason):
        if " % " in constraint["guard"]:
            return (advice("failed.multiple", held=source_text(constraint["guard"])),)
        return (advice("failed.range", held=source_text(constraint["guard"])),)
    if "0 active drivers" in why:
        return (advice("failed.no_triton_driver"),)
    if "no autograd formula was registered" in why:
        return (advice("failed.no_autograd"),)
    if "resume function for generator, coroutine" in why:
        return (advice("failed.coroutine"),)
    if stage.startswith("the backend `"):
        return (advice("failed.backend", stage=stage),)
    return (advice("failed.bisect"), advice("failed.minify"))
