"""Graph breaks: from torch's log text of each, and from what the recorder added."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dynadiag.recording.code_origin import is_polyfill, is_user_file, named_frames, original_name, user_frames
from dynadiag.recording.digest.context import DigestContext, Payload, Reader
from dynadiag.recording.json_values import int_or_none, list_or_empty, text_or_none
from dynadiag.recording.records import EXPORT, Break, Event, Frame, Span
from dynadiag.recording.torch_text.breaks import (
    exception_name,
    has_id,
    parse_message,
    read_facts,
    user_code_at,
    user_stack,
)

# The exceptions of breaks that torch cannot continue after. All come from `unimplemented` and carry an id.
_RAISES_AS_BREAK = ("Unsupported", "UserError", "UncapturedHigherOrderOpError", "TorchRuntimeError")
_LEAVES_FRAME_TO_PYTHON = _RAISES_AS_BREAK[:2]


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
    raised = data.get("raised") or exception_name(last)
    fatal = bool(data.get("fatal", True))
    if context.breaks[event.compile_id] and not (data.get("fatal") or raised not in _LEAVES_FRAME_TO_PYTHON):
        return  # it was logged before Dynamo left the frame to Python
    if (event.compile_id, parse_message(last).gb_id, int_or_none(data.get("line"))) in context.sites:
        return  # it was logged before it was raised
    if raised in _RAISES_AS_BREAK and (has_id(last) or data.get("gb_type")):
        yield _build_break(context, event.compile_id, last, data, fatal=fatal)


def read_raised_break(context: DigestContext, data: dict[str, Any]) -> Iterator[Break]:
    """Yield a break that is known only from the exception that ended the program."""
    text = str(data.get("text"))
    if parse_message(text).gb_id in context.fatal:
        return  # another event has recorded it
    compile_id = context.unique_id(text_or_none(data.get("compile_id")) or "-")
    yield _build_break(context, compile_id, text, data, fatal=True)


def read_export(context: DigestContext, data: dict[str, Any]) -> Iterator[Break]:
    """Note that an export goes on, or has ended; yield the break that it failed at, if Dynamo met one.

    What happens while it goes on gets its id, as torch has none for it: "export/0".
    """
    if data.get("outcome") == "begun":
        context.export = f"{EXPORT}{context.exports}"
        context.exports += 1
        return
    compile_id = context.export or f"{EXPORT}{context.exports}"
    context.exports += context.export is None
    context.export = None
    text, stack = str(data.get("message")), parse_frames(data.get("stack"))
    if text_or_none(data.get("gb_type")) is None or not has_id(text):
        return
    made = {"calls": data.get("stack"), "gb_type": data["gb_type"], "callers": data.get("callers")}
    if stack:
        exported = str(data.get("function"))
        is_own = (data.get("file"), exported.rpartition(".")[2]) == (stack[-1].file, stack[-1].function)
        made |= {"file": stack[-1].file, "line": stack[-1].line, "function": exported if is_own else stack[-1].function}
    yield _build_break(context, compile_id, text, made, fatal=True)


def _build_break(context: DigestContext, compile_id: str, text: str, data: dict[str, Any], *, fatal: bool) -> Break:
    message = parse_message(text)
    stack = user_stack(text)
    span = _span(data, text, stack)
    if span.file is None and (frames := context.stacks.get(compile_id, ())):  # tracing had not begun
        span, stack = Span(frames[-1].file, frames[-1].line), frames
    else:
        stack = (*parse_frames(data.get("callers")), *_with_calls(stack, parse_frames(data.get("calls"))))
    function = text_or_none(data.get("function")) or (stack[-1].function if stack else "?")
    gb_type = (message.gb_id and message.gb_type) or text_or_none(data.get("gb_type")) or message.gb_type
    hints = data.get("hints")
    explanation = text_or_none(data.get("explanation")) or message.explanation
    context.breaks[compile_id] += 1
    if fatal:
        context.raised.add(compile_id)
        context.fatal.add(message.gb_id)
    context.sites.add((compile_id, message.gb_id, span.line))
    index = context.next_index("break")
    facts = read_facts(explanation or message.reason, index=index, context=message.context, text=text, data=data)
    if inner := _inner_frame(stack, span):
        facts = replace(facts, inside=Span(inner.file, inner.line), inside_function=inner.function)
    return Break(
        index=index,
        compile_id=compile_id,
        gb_id=message.gb_id,
        gb_type=gb_type,
        reason=message.reason,
        explanation=explanation,
        hints=tuple(map(str, hints)) if isinstance(hints, list) and not message.hints else message.hints,
        span=span,
        function=original_name(function),
        user_stack=user_frames(stack),
        cause=None,
        fatal=fatal,
        facts=facts,
    )


def _with_calls(stack: tuple[Frame, ...], calls: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """A stack with the traced calls that it leaves out before its last frame."""
    missing = [frame for frame in calls[:-1] if frame not in stack]
    return (*stack[:-1], *missing, *stack[-1:])


def _inner_frame(stack: tuple[Frame, ...], span: Span) -> Frame | None:
    """The frame in torch or Python's library, when the user's line only calls the code that breaks.

    A builtin is no such code: where Dynamo traces Python of its own for it, the line is what breaks.
    """
    calls = stack and span.file is not None and is_user_file(span.file) and not is_user_file(stack[-1].file)
    if calls and is_polyfill(stack[-1].file):
        return None
    return stack[-1] if calls else None


def parse_frames(given: Any) -> tuple[Frame, ...]:
    """Parse the user's frames of one of our events."""
    return named_frames(
        Frame(str(item.get("file")), int_or_none(item.get("line")), str(item.get("function")))
        for item in list_or_empty(given)
        if isinstance(item, dict)
    )


def _span(data: dict[str, Any], text: str, stack: tuple[Frame, ...]) -> Span:
    if isinstance(data.get("file"), str):
        columns = (int_or_none(data.get(key)) for key in ("line", "column", "end_line", "end_column"))
        return Span(data["file"], *columns)
    if stack:
        return Span(stack[-1].file, stack[-1].line)
    return user_code_at(text)


# By the name of the artifact, or the kind of an event that is none.
READERS: dict[str, Reader] = {
    "dynamo_graph_break_reason": read_break,
    "dynamo_error": read_compile_error,
}
