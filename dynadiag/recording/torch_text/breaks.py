"""Reads what torch logs of a graph break: the parts of its message, and what they say as values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dynadiag.recording.code_origin import original_name
from dynadiag.recording.records import BreakFacts, Frame, Span

_ID = re.compile(r"/gb/(gb\d+)\.html")
_FRAME = re.compile(r'^ *File "([^"\n]*)", line (\d+), in (\S+)', re.MULTILINE)
_USER_CODE_AT = re.compile(r"^Graph break in user code at (.*):(\d+)$", re.MULTILINE)
_ITEM = re.compile(r"^  (Explanation|Hint|Developer debug context|Higher Order Operator): ?", re.MULTILINE)
_LISTED_FRAME = re.compile(r'# File "(?P<file>[^"\n]{1,500})", line (?P<line>\d{1,9}), in [^,\n]{1,200}, code: ')
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_PREAMBLES = ("Encountered graph break when attempting to trace", "Failed to handle graph break gracefully")
_THEN = "\n*** While handling this graph break, another graph break occurred: ***\n"

_NAMED = re.compile(r"`([^`]{1,200})`")  # what an explanation is about
_IN_FILE = re.compile(r"\b(?:in file|filename:) `(?P<file>[^`\n]+)`")  # 2.13 has it in the context of some types
_UNKNOWN = re.compile(r"method `(?P<name>\w+)` of class `<unknown type>`")
_UNRESOLVED = re.compile(r"GetAttrVariable\(.*, (?P<name>\w+)\) does not implement")  # from 2.14 on
_NATIVE = re.compile(r"builtin|C/C\+\+")
_TYPES = re.compile(r"with argument types \[(?P<types>.*?)\] \(has_kwargs (?P<keywords>\w+)\)")
_METHOD = re.compile(r"\b(?P<name>debug|info|warning|error|critical|exception|log)\b")
_ATEN = re.compile(r"Operator `(?P<name>aten\.\w+)")
_NO_FAKE = re.compile(r"There was no fake impl registered for <?(?:CustomOpDef\()?(?P<name>[\w:.]+)")
_NUMPY = re.compile(r"<Wrapped function <original (?P<name>\w+)>>")  # NumPy is traced by torch.Tensor, without a value
_OPTION = re.compile(r"torch\._dynamo\.config\.(?P<name>\w+) ?= ?True")
_FAILED = re.compile(r"""\bgot (?P<type>\w+)\((?P<quote>["'])(?P<text>.+?)(?P=quote)\)(?= ?\(|$|\n)""")
_NEEDED = re.compile(r"Could not (?:guard on|extract .{1,40} from) data-dependent expression (?P<text>.+?) \(unhinted")
_SYMBOL = re.compile(r"\bz?u[fi]?\d+\b")
# What torch says of an `assert` whose condition is constant (generic_jump, symbolic_convert.py).
_FALSE_CONDITION = re.compile(r"attempted to jump with ConstantVariable\(\w+: (?P<value>.*)\)")
_RAISED = re.compile(r"raised exception (?P<kind>[\w.]+)\((?P<message>[^\n]*)\)$", re.MULTILINE)
_CONSTANT = re.compile(r"\[ConstantVariable\(str: (?P<text>.*)\)\]")  # torch 2.11 shows its own object
_ONE_STRING = re.compile(r"(?P<quote>['\"])(?P<text>((?!(?P=quote)).)*)(?P=quote)")
OPERATOR_ITEM = re.compile(r"^\s*Higher Order Operator: (?P<name>\S+)", re.MULTILINE)
_OPERATOR_FRAME = re.compile(
    r'^ *File "[^"\n]*variables[/\\]higher_order_ops\.py", line \d+, in \w*call_', re.MULTILINE
)
SOME_OPERATOR = "a higher-order operator"  # a log of torch's alone does not name it


@dataclass(frozen=True, slots=True)
class BreakMessage:
    """The parts of a break's text. ``context`` is what torch tells its own developers."""

    gb_id: str | None
    gb_type: str
    reason: str
    explanation: str
    hints: tuple[str, ...]
    context: str = ""


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
    explanation = explanation or _ADDRESS.sub("", context)  # some types have no explanation but the exception here
    reason = f"{gb_type}: {explanation.splitlines()[0]}" if explanation else gb_type
    return BreakMessage(_gb_id(text), gb_type, reason, explanation, tuple(hints), context)


def read_facts(
    explanation: str, *, index: int = 0, context: str = "", text: str = "", data: Mapping[str, object] | None = None
) -> BreakFacts:
    """Return what a message says as values.

    ``explanation`` and ``context`` are its parts, ``text`` is all that torch logged, and ``data`` what the recorder
    added: ``within`` (the higher-order operator) and ``raised_at`` (a frame).
    """
    first, data = explanation.partition("\n")[0], data or {}
    about, types, unknown = (
        _NAMED.search(first),
        _TYPES.search(first),
        _UNKNOWN.search(first) or _UNRESOLVED.match(context),
    )
    file = _IN_FILE.search(first) or _IN_FILE.search(context)
    kind, message = _raised(text)
    fails, method = _FALSE_CONDITION.search(context), _METHOD.search(explanation)
    option = _OPTION.search(explanation)
    within = data.get("within")
    return BreakFacts(
        index=index,
        subject=f"<unknown type>.{unknown['name']}"
        if unknown
        else about and about[1].rstrip(".").removeprefix("<unknown module>."),
        subject_file=file and file["file"],
        is_native=_NATIVE.search(explanation) is not None,
        argument_types=tuple(re.findall(r"\w+", types["types"])) if types else (),
        has_keywords=types is not None and types["keywords"] == "True",
        has_types=types is not None,
        method=method and method["name"],
        operator=_operator(explanation),
        lacks_fake=_NO_FAKE.search(explanation) is not None,
        operator_error=operator_error(explanation),
        symbols=needed_symbols(explanation),
        option=option and option["name"],
        condition=fails and fails["value"],
        within=within if isinstance(within, str) else _higher_order(text),
        then=_then(text),
        exception=kind,
        message=message,
        raised_at=_span(data.get("raised_at")),
    )


def is_torchs_assertion(error: str | None) -> bool:
    """Whether an error is that of an assertion in torch's own C++ code (``TORCH_INTERNAL_ASSERT``)."""
    return "INTERNAL ASSERT FAILED" in (error or "")


def is_number_of_numpys(error: str | None) -> bool:
    """Whether an operator failed since an array of NumPy's is none of its numbers (``round(np.floor(3.1))``)."""
    return "AttributeError: 'ndarray' object has no attribute '__" in (error or "")


def takes_no_array(explanation: str) -> bool:
    """Whether torch picked an item of a NumPy array by a number that it has made a symbol: its operator takes tensors
    alone, and raises.
    """
    return "wrapped_select" in explanation and "ndarray" in explanation


def is_in_loop(gb_type: str | None) -> bool:
    """Whether a type of break (GB7000) is that of a graph which cannot be split inside a loop."""
    return gb_type == "graph break in loop"


def saw_no_tensor(reason: str) -> bool:
    """Whether a function was left to Python because Dynamo saw no tensor in it (convert_frame.py, 2.13 to 2.15)."""
    return reason == "no tensor-related objects found in frame"


def operator_error(text: str) -> str | None:
    """Return the exception with which an operator failed without values, with its type; None where there is none."""
    failed = _FAILED.search(text)
    return failed and f"{failed['type']}: {_unescaped(failed['text'])}"


def needed_symbols(text: str) -> tuple[str, ...]:
    """Return the numbers without a value (``u0``) that a message asks for."""
    return tuple(dict.fromkeys(_SYMBOL.findall(asked_expression(text))))


def asked_expression(text: str) -> str:
    """Return the expression on such numbers (``u0 < 0``) that a message asks for; empty where it asks for none."""
    needed = _NEEDED.search(text)
    return needed["text"] if needed else ""


def missing_fake(text: str) -> str | None:
    """Return the operator that a message says has no fake kernel."""
    found = _NO_FAKE.search(text)
    return found and found["name"]


def exception_name(text: str) -> str | None:
    """Return the type of the exception of Dynamo's that a text begins with."""
    match = re.match(r"\s*torch\._dynamo\.exc\.(\w+)", text)
    return match[1] if match else None


def has_id(text: str) -> bool:
    """Whether a text links to an entry of torch's registry of graph breaks."""
    return _ID.search(text) is not None


def user_stack(text: str) -> tuple[Frame, ...]:
    """Return the user's frames, outermost first: the part of the text that is not torch's internal traceback."""
    for heading in ("\nUser code traceback:", "\nfrom user code:", "in the following user code:"):
        _, found, after = text.partition(heading)
        if found:
            part = after.partition("\nTraceback (most recent call last)")[0]
            return tuple(Frame(file, int(line), original_name(name)) for file, line, name in _FRAME.findall(part))
    return ()


def user_code_at(text: str) -> Span:
    """Return the line that the head of a message names."""
    place = _USER_CODE_AT.search(text)
    return Span(place[1], int(place[2])) if place else Span(None, None)


def with_places(text: str, place: Callable[[str, int], str]) -> str:
    """Return an explanation with torch's comments on where a line of a graph is from (``# File ...``) made short."""
    return _LISTED_FRAME.sub(lambda match: f"# {place(match['file'], int(match['line']))}: ", text)


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


def _then(text: str) -> str | None:
    """The type of the break that torch met when it was to split the graph at this one."""
    lines = text.partition(_THEN)[2].partition("\nUser code traceback:")[0].strip().split("\n")
    return lines[0].strip() or None


def _higher_order(text: str) -> str | None:
    named = OPERATOR_ITEM.search(text)
    return named["name"] if named else SOME_OPERATOR if _OPERATOR_FRAME.search(text) else None


def _operator(explanation: str) -> str | None:
    aten, fake, numpy = (pattern.search(explanation) for pattern in (_ATEN, _NO_FAKE, _NUMPY))
    named = aten or fake
    return named["name"] if named else f"numpy.{numpy['name']}" if numpy else None


def _raised(text: str) -> tuple[str | None, str | None]:
    """The type and the message of the exception that the traced code raised."""
    found = _RAISED.search(text)
    if found is None:
        return None, None
    message = found["message"].strip()
    message = constant["text"] if (constant := _CONSTANT.fullmatch(message)) else message
    return found["kind"], alone["text"] if (alone := _ONE_STRING.fullmatch(message)) else message


def _span(at: object) -> Span:
    if not isinstance(at, dict):
        return Span(None, None)
    file, line = at.get("file"), at.get("line")
    return Span(file if isinstance(file, str) else None, line if isinstance(line, int) else None)


def _unescaped(text: str) -> str:
    return text.replace("\\n", " ").replace("\\'", "'")


def _dedent(part: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in part.strip("\n").split("\n")).strip()


def _gb_id(text: str) -> str | None:
    found = _ID.search(text)
    return found[1].upper() if found else None
