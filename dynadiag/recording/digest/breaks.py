"""Graph breaks: from torch's log text of each, and from what the recorder added."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dynadiag.recording.code_origin import is_user_file, original_name, path_in_packages, user_frames
from dynadiag.recording.digest.context import DigestContext, Payload, Reader
from dynadiag.recording.json_values import int_or_none, list_or_empty, text_or_none
from dynadiag.recording.records import Break, Event, Frame, Span

_ID = re.compile(r"/gb/(gb\d+)\.html")
_FRAME = re.compile(r'^ *File "([^"\n]*)", line (\d+), in (\S+)', re.MULTILINE)
_USER_CODE_AT = re.compile(r"^Graph break in user code at (.*):(\d+)$", re.MULTILINE)
_ITEM = re.compile(r"^  (Explanation|Hint|Developer debug context|Higher Order Operator): ?", re.MULTILINE)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_RAISED = re.compile(r"raised exception (?P<kind>[\w.]+)\((?P<message>[^\n]*)\)$", re.MULTILINE)
_CONSTANT = re.compile(r"\[ConstantVariable\(str: (?P<text>.*)\)\]")  # torch 2.11 shows its own object
_ONE_STRING = re.compile(r"(?P<quote>['\"])(?P<text>((?!(?P=quote)).)*)(?P=quote)")
# What torch says of an `assert` whose condition is constant (generic_jump, symbolic_convert.py).
_FALSE_CONDITION = re.compile(r"attempted to jump with ConstantVariable\(\w+: (?P<value>.*)\)")
_PREAMBLES = ("Encountered graph break when attempting to trace", "Failed to handle graph break gracefully")
# The exceptions of breaks that torch cannot continue after. All come from `unimplemented` and carry an id.
_RAISES_AS_BREAK = ("Unsupported", "UserError", "UncapturedHigherOrderOpError", "TorchRuntimeError")
_LEAVES_FRAME_TO_PYTHON = _RAISES_AS_BREAK[:2]


@dataclass(frozen=True, slots=True)
class BreakMessage:
    """The parts of a break's text."""

    gb_id: str | None
    gb_type: str
    reason: str
    explanation: str
    hints: tuple[str, ...]


def read_break(context: DigestContext, event: Event, _metadata: dict[str, Any], payload: Payload) -> Iterator[Break]:
    """Yield a break that split a frame or made Dynamo skip it."""
    text = payload()
    yield _build_break(context, event.compile_id, text, context.take("break", event.compile_id) or {}, fatal=False)


def read_compile_error(
    context: DigestContext, event: Event, _metadata: dict[str, Any], payload: Payload
) -> Iterator[Break]:
    """Yield the break of a failed compile. A raised break (``fullgraph=True``, ``torch.cond``) has no other event."""
    data = context.take("break", event.compile_id) or {}
    text = payload()
    last = text[text.rfind("\ntorch._dynamo.exc.") :] if "\ntorch._dynamo.exc." in text else text
    raised = data.get("raised") or _exception_name(last)
    fatal = bool(data.get("fatal", True))
    if context.breaks[event.compile_id] and not (data.get("fatal") or raised not in _LEAVES_FRAME_TO_PYTHON):
        return  # it was logged before Dynamo left the frame to Python
    if (event.compile_id, parse_message(last).gb_id, int_or_none(data.get("line"))) in context.sites:
        return  # it was logged before it was raised
    if raised in _RAISES_AS_BREAK and (_ID.search(last) or data.get("gb_type")):
        yield _build_break(context, event.compile_id, last, data, fatal=fatal)


def read_raised_break(context: DigestContext, data: dict[str, Any]) -> Iterator[Break]:
    """Yield a break that is known only from the exception that ended the program."""
    text = str(data.get("text"))
    if parse_message(text).gb_id in context.fatal:
        return  # another event has recorded it
    compile_id = context.unique_id(text_or_none(data.get("compile_id")) or "-")
    yield _build_break(context, compile_id, text, data, fatal=True)


def _exception_name(text: str) -> str | None:
    match = re.match(r"\s*torch\._dynamo\.exc\.(\w+)", text)
    return match[1] if match else None


def _build_break(context: DigestContext, compile_id: str, text: str, data: dict[str, Any], *, fatal: bool) -> Break:
    message = parse_message(text)
    stack = _user_stack(text)
    span = _span(data, text, stack)
    if span.file is None and (frames := context.stacks.get(compile_id, ())):  # tracing had not begun
        span, stack = Span(frames[-1].file, frames[-1].line), frames
    else:
        stack = (*parse_frames(data.get("callers")), *stack)
    function = text_or_none(data.get("function")) or (stack[-1].function if stack else "?")
    gb_type = (message.gb_id and message.gb_type) or text_or_none(data.get("gb_type")) or message.gb_type
    hints = data.get("hints")
    explanation = text_or_none(data.get("explanation")) or message.explanation
    context.breaks[compile_id] += 1
    if fatal:
        context.raised.add(compile_id)
        context.fatal.add(message.gb_id)
    context.sites.add((compile_id, message.gb_id, span.line))
    return Break(
        index=context.next_index("break"),
        compile_id=compile_id,
        gb_id=message.gb_id,
        gb_type=gb_type,
        reason=message.reason,
        explanation=explanation + (_exception(text, data) or _inner_location(stack, span, explanation)),
        hints=tuple(map(str, hints)) if isinstance(hints, list) and not message.hints else message.hints,
        span=span,
        function=original_name(function),
        user_stack=user_frames(stack),
        cause=None,
        fatal=fatal,
    )


def _exception(text: str, data: dict[str, Any]) -> str:
    """The exception that the traced code raised, and where, as lines of the explanation."""
    found = _RAISED.search(text)
    if found is None:
        return ""
    kind, message = found["kind"], found["message"].strip()
    message = constant["text"] if (constant := _CONSTANT.fullmatch(message)) else message
    message = alone["text"] if (alone := _ONE_STRING.fullmatch(message)) else message
    lines = f"\nThe exception: {kind}: {message}" if message else f"\nThe exception: {kind}"
    at = data.get("raised_at")
    if not isinstance(at, dict):
        return lines
    return f'{lines}\nRaised at: File "{at.get("file")}", line {at.get("line")}, in {at.get("function")}'


def _inner_location(stack: tuple[Frame, ...], span: Span, explanation: str) -> str:
    """The location inside torch or Python's library, when the user's line only calls the code that breaks.

    It goes on after a sentence, and below lines of code.
    """
    if not stack or span.file is None or not is_user_file(span.file) or is_user_file(stack[-1].file):
        return ""
    inner = stack[-1]
    file = path_in_packages(inner.file) or inner.file
    apart = "\n" if "\n" in explanation.strip() else " "
    return f"{apart}(It is inside what this line calls: {file}:{inner.line}, in {inner.function}.)"


def parse_frames(given: Any) -> tuple[Frame, ...]:
    """Parse the user's frames of one of our events."""
    return tuple(
        Frame(str(item.get("file")), int_or_none(item.get("line")), original_name(str(item.get("function"))))
        for item in list_or_empty(given)
        if isinstance(item, dict)
    )


def parse_message(text: str) -> BreakMessage:
    """Parse torch's message: the type on a line of its own, then indented items with labels."""
    body = _message_body(text)
    items = list(_ITEM.finditer(body))
    if not items:
        first = body.strip().split("\n\n")[0].strip()
        head, _, rest = first.partition("\n")
        return BreakMessage(_gb_id(text), head, head, rest.strip(), ())
    gb_type = body[: items[0].start()].strip().split("\n")[-1].strip()
    explanation, context, hints = "", "", []
    for item, following in zip(items, [*items[1:], None], strict=True):
        part = _dedent(body[item.end() : following.start() if following else None])
        if item[1] == "Explanation":
            explanation = part
        elif item[1] == "Hint":
            hints.append(part)
        elif item[1] == "Developer debug context":
            context = part
    if fails := _FALSE_CONDITION.search(context):
        explanation = f"The condition is {fails['value']} while tracing: it does not depend on what tensors hold."
        hints = []
    explanation = explanation or _ADDRESS.sub("", context)  # some types have no explanation but the exception here
    reason = f"{gb_type}: {explanation.splitlines()[0]}" if explanation else gb_type
    return BreakMessage(_gb_id(text), gb_type, reason, explanation, tuple(hints))


def _message_body(text: str) -> str:
    """The message itself: after the heading, before the traceback and the link."""
    _, found, after = text.partition("Graph Break Reason: ")
    body = after if found else re.sub(r"^\s*torch\._dynamo\.exc\.\w+: ", "", text)
    for end in (
        "\n*** While handling this",
        "\n For more details",
        "\nUser code traceback:",
        "\nfrom user code:",
        "\nTraceback (most recent",
    ):
        body = body.partition(end)[0]
    if body.startswith(_PREAMBLES):
        body = body.partition("\n\n")[2] or body
    return body


def _dedent(part: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in part.strip("\n").split("\n")).strip()


def _gb_id(text: str) -> str | None:
    found = _ID.search(text)
    return found[1].upper() if found else None


def _user_stack(text: str) -> tuple[Frame, ...]:
    """The user's frames, outermost first: the part of the text that is not torch's internal traceback."""
    for heading in ("\nUser code traceback:", "\nfrom user code:", "in the following user code:"):
        _, found, after = text.partition(heading)
        if found:
            part = after.partition("\nTraceback (most recent call last)")[0]
            return tuple(Frame(file, int(line), original_name(name)) for file, line, name in _FRAME.findall(part))
    return ()


def _span(data: dict[str, Any], text: str, stack: tuple[Frame, ...]) -> Span:
    if isinstance(data.get("file"), str):
        columns = (int_or_none(data.get(key)) for key in ("line", "column", "end_line", "end_column"))
        return Span(data["file"], *columns)
    if stack:
        return Span(stack[-1].file, stack[-1].line)
    place = _USER_CODE_AT.search(text)
    return Span(place[1], int(place[2])) if place else Span(None, None)


# By the name of the artifact, or the kind of an event that is none.
READERS: dict[str, Reader] = {
    "dynamo_graph_break_reason": read_break,
    "dynamo_error": read_compile_error,
}
