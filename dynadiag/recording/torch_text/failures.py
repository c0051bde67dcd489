"""Reads what torch and the compilers below it write of a failed compile, and of a collective that failed."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from dynadiag.recording.code_origin import is_stdlib_file, is_torch_file
from dynadiag.recording.records import Frame, Span
from dynadiag.recording.torch_text.breaks import OPERATOR_ITEM, asked_expression, needed_symbols, operator_error
from dynadiag.recording.torch_text.constraints import ViolatedConstraint, read_constraints

_MAX_TEXT = 200_000  # characters of a compiler's output that are looked at
_MAX_NAMED = 2000  # characters in which operators are looked for: no message names one later
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
_CPP = "CppCompileError"
_OUTPUT = "\nOutput:\n"  # of it: what the compiler printed follows
_LINKER = re.compile(  # of GNU, LLVM and Apple; what its driver adds, "ld returned 1 exit status", tells nothing
    r"^(?:.*?: )?(?P<text>"
    r"(?:cannot find|unable to find library|library not found for) -l.*|undefined (?:reference|symbol).*)$"
)
_NOT_FOUND = (  # what a linker, and a compiler, do not find
    ("library", re.compile(r"(?:cannot find|unable to find library|library not found for) -l:?(?P<name>[^\s:]+)")),
    ("header", re.compile(r"""['"]?(?P<name>[^\s:'"]+)['"]?(?:: No such file or directory| file not found)""")),
)
_ERROR_AT = re.compile(r"^[^\s:][^:\n]*:\d+:(?:\d+:)? (?:fatal )?error: (?P<text>.*)$", re.MULTILINE)
_ERROR_MARK = "error: "  # how compilers mark an error
_CODE = re.compile(r"^ *\d+ \| ?(?P<code>.*)$", re.MULTILINE)
_COMMAND = re.compile(r"^Command:\n(?P<command>.*?)\n\n", re.MULTILINE | re.DOTALL)
_CODE_OF_ERROR = re.compile(r"\berror: [^\n]*\n\s*\d+ \| (?P<code>[^\n]*)")
# What torch could not trace of a function that a higher-order operator was given (higher_order_ops.py).
_RAISED = re.compile(r"""raised exception \w+\((?P<quote>["'])(?P<text>.*)(?P=quote)\)""")  # 2.15
_IN_OPERATOR = re.compile(r"Got graph break/error:\s*(?P<why>\S[^\n]*)")
_CONSTANT = re.compile(r"""ConstantVariable\(str: ["'](?P<text>[^\n]*)["']\)""")
_NAMED_OPERATOR = re.compile(r"\b(?:torch\.ops\.)?(?P<name>\w+\.\w+\.\w+)\b")
_LACKS = {
    "driver": "0 active drivers",  # Triton
    "autograd": "no autograd formula was registered",
    "compiler": "No working C++ compiler found",
    "resume": "resume function for generator, coroutine",
    "constant": "SymNodeVariable() is not a constant",
}
# What gloo and NCCL say of a rank that they wait for, or that is gone.
_TIMED_OUT = re.compile(r"timed out|timeout", re.IGNORECASE)
_PEER_IS_GONE = re.compile(
    r"connection (?:closed|reset|refused)|closed by peer|read error|write error|broken pipe|socket"
    r"|remote (?:worker|process)|NCCL (?:communicator|error)|ncclRemoteError|watchdog",
    re.IGNORECASE,
)
_WHAT = re.compile(r"^\s*what\(\):\s*(?:kernel, \S+, )?(\S.*)", re.M)
_COMPARISON = re.compile(r"(Tensor-likes|Scalars) are not (close|equal)!")  # of torch.testing
_MISMATCHED = re.compile(r"Mismatched elements: (\d+) / (\d+)")
_SCALARS = re.compile(r"Expected (\S+) but got (\S+)\.$", re.M)
_LARGEST = re.compile(r"Greatest absolute difference: ([-+.\de]+|nan|inf)")
# What torch puts around an error: the message has its type and its own message.
_WRAPPERS = ("BackendCompilerFailed", "InductorError", "InternalTorchDynamoError", "LoweringException")
_INNER = re.compile(r"(?:backend='[^']*' raised:\s*)?(?P<type>[\w.]+): (?P<message>.*)", re.DOTALL)
# What another process raised, which torch raises again: "Caught KeyError in DataLoader worker process 0."
_CAUGHT = re.compile(
    r"Caught \w+ in [^\n]*\nOriginal Traceback [^\n]*\n(?:[ \n][^\n]*\n)*(?P<type>[\w.]+): (?P<message>.*)", re.DOTALL
)
_EXPLAINED = re.compile(r"\n\s*Explanation: ")
_REFERENCE = re.compile(r"\s*(?:For more information|Please use `)[^\n]*$")
_FAKE_CALL = "RuntimeError when making fake tensor call"  # torch's words for an operator that failed without values
_CHECK_HINT = "Consider annotating your code using torch._check*(). "  # stands before what happened
_CPP_PLACE = re.compile(r"^\[[^\]\s]*:\d+\]\s*")


@dataclass(frozen=True, slots=True)
class FailureFacts:
    """What torch says of a failed compile.

    ``message`` is the first line of the exception without what torch puts before it, with what it says was found.
    ``backend`` is the one that raised it, ``files`` those that its traceback passes, outermost first, below the call of
    the backend if there is one. ``is_cpp`` and ``is_lowering``: the C++ compiler, or Inductor's lowering, raised it.
    ``user_stack`` leads to the user's line that torch names, ``operators`` are the operators that it names, ``quoted``
    the generated line that a compiler quotes. ``constraint`` is how the code binds a size that was marked dynamic.
    ``inside`` is what torch could not trace in a function that ``operator``, a higher-order operator, was given.
    ``lacks``: Triton's ``driver``, a C++ ``compiler``, a ``library`` or ``header`` (``absent`` is its name), an
    operator's ``autograd`` formula, a way to ``resume`` in a coroutine, or a ``constant`` where a symbol is. ``asked``
    is the expression on ``symbols`` that torch cannot decide.
    """

    message: str
    is_backward: bool = False
    backend: str | None = None
    files: tuple[str, ...] = ()
    is_cpp: bool = False
    is_lowering: bool = False
    user_stack: tuple[Frame, ...] = ()
    operators: frozenset[str] = frozenset()
    quoted: str | None = None
    compiler_error: str | None = None
    constraint: ViolatedConstraint | None = None
    operator: str | None = None
    inside: str | None = None
    lacks: str | None = None
    absent: str | None = None
    symbols: tuple[str, ...] = ()
    asked: str = ""

    @property
    def blamed(self) -> Span | None:
        """The user's line that torch names."""
        return Span(self.user_stack[-1].file, self.user_stack[-1].line) if self.user_stack else None


def read_failure(reason: str, traceback: str = "") -> FailureFacts:
    """Return what the text of a failed compile says: the exception, and the traceback before it."""
    reason, traceback = reason[:_MAX_TEXT], traceback[-_MAX_TEXT:]
    is_backward = reason.startswith(_BACKWARD)
    reason = reason.removeprefix(_BACKWARD)
    backend, told = _BACKEND.match(reason), f"{reason}\n{traceback}"
    below = traceback[traceback.rfind(_CALLS_BACKEND) :] if backend and _CALLS_BACKEND in traceback else traceback
    error = first_error(reason.split("\n")) if _OUTPUT in reason else ""
    absent = next(((what, found["name"]) for what, text in _NOT_FOUND if (found := text.search(error))), None)
    inside, operator, quoted = _IN_OPERATOR.search(reason), OPERATOR_ITEM.search(traceback), _CODE_OF_ERROR.search(told)
    raised = operator_error(reason) if reason.startswith(_FAKE_CALL) else None
    message = _message(_BACKEND.sub("", raised or reason, count=1))
    return FailureFacts(
        message=message,
        is_backward=is_backward,
        backend=backend and backend["name"],
        files=tuple(frame["file"] for frame in _FILE.finditer(below)),
        is_cpp=_CPP in reason.partition("\n")[0],
        is_lowering=reason.startswith("LoweringException"),
        user_stack=_user_stack(reason, traceback),
        operators=frozenset(match["name"] for match in _NAMED_OPERATOR.finditer(told[:_MAX_NAMED])),
        quoted=(quoted and quoted["code"].strip()) or None,
        compiler_error=error or None,
        constraint=next(iter(read_constraints(reason)), None),
        operator=operator and operator["name"],
        inside=inside and _RAISED.sub(r"\g<text>", _CONSTANT.sub(r"\g<text>", inside["why"])),
        lacks=absent[0] if absent else next((what for what, said in _LACKS.items() if said in message), None),
        absent=absent and absent[1],
        symbols=needed_symbols(reason),
        asked=asked_expression(reason),
    )


def _message(text: str) -> str:
    """The first line of an exception, with the next where it announces that ("... have same metadata but found:")."""
    first, _, rest = text.strip().removeprefix(_CHECK_HINT).partition("\n")
    following = rest.strip().partition("\n")[0] if first.endswith(" found:") else ""
    return f"{first} {following}" if following else first.removesuffix(":")


def _user_stack(reason: str, traceback: str) -> tuple[Frame, ...]:
    """The user's stack that torch adds to its message, without frames of torch and of Python at its end."""
    for text, heading in itertools.product((reason, traceback), _USER_STACKS):
        found = _FILE.finditer(text.partition(heading)[2])
        frames = [Frame(each["file"], int(each["line"]), each["name"]) for each in found]
        while frames and (is_torch_file(frames[-1].file) or is_stdlib_file(frames[-1].file)):
            frames.pop()
        if frames:
            return tuple(frames)
    return ()


@dataclass(frozen=True, slots=True)
class CompilerOutput:
    """What a C++ or Triton compiler said of generated code.

    ``error`` is its first error, ``code`` the generated line that it is about, ``more`` the other errors. ``code`` is
    empty if the compiler did not print the line, ``command`` if torch did not report it.
    """

    error: str
    code: str
    more: tuple[str, ...]
    command: str


def parse_compiler_output(reason: str) -> CompilerOutput | None:
    """Return what a compiler said, read from torch's error; None if no compiler wrote it."""
    errors = list(_ERROR_AT.finditer(reason))
    if not errors:
        return None
    code = _CODE.search(reason, errors[0].end(), errors[1].start() if errors[1:] else len(reason))
    command = _COMMAND.search(reason)
    first, *more = dict.fromkeys(item["text"].strip() for item in errors)
    return CompilerOutput(
        first, code["code"].strip() if code else "", tuple(more), command["command"].strip() if command else ""
    )


def first_error(lines: list[str]) -> str:
    """Return the first error of a compiler or linker in the lines of a message; empty if there is none.

    >>> first_error(["ld: cannot find -lgomp: No such file or directory", "collect2: error: ld returned 1 exit status"])
    'error: cannot find -lgomp: No such file or directory'
    """
    if linked := next(filter(None, map(_LINKER.match, lines)), None):
        return f"{_ERROR_MARK}{linked['text']}"
    return next((text[text.find(_ERROR_MARK) :] for text in lines if _ERROR_MARK in text), "")


def unwrapped_error(type_: str, message: str) -> tuple[str, str]:
    """Return the type and the message of the error itself, without the wrappers that torch puts around it. Of what
    Dynamo does not support the first line is the kind, with the explanation that follows it; of what a C++ compiler
    refuses, its first error; of what a worker raised, its error.

    >>> unwrapped_error("torch._inductor.exc.InductorError", "LoweringException: ValueError: no")
    ('ValueError', 'no')
    >>> unwrapped_error("ValueError", "of ours: no")
    ('ValueError', 'of ours: no')
    >>> unwrapped_error("torch._dynamo.exc.Unsupported", "Unsupported call\\n  Explanation: It is `f`.\\n  Hint: no")
    ('Unsupported', 'Unsupported call: It is `f`.\\n  Hint: no')
    >>> unwrapped_error("InductorError", "CppCompileError: C++ compile error\\n\\nOutput:\\na.cpp:1:2: error: no 'x'")
    ('CppCompileError', "error: no 'x'")
    """
    caught = _CAUGHT.match(message)
    if caught is not None and "\nTraceback (" not in caught["message"]:  # else this is the cause of another
        type_, message = caught["type"], caught["message"]
    type_ = type_.rpartition(".")[2]
    while type_ in _WRAPPERS and (inner := _INNER.match(message)) and inner["type"].rpartition(".")[2].isidentifier():
        type_, message = inner["type"].rpartition(".")[2], inner["message"]
    if type_ == _CPP and (diagnostic := first_error(message.splitlines())):
        return type_, diagnostic
    return type_, _EXPLAINED.sub(": ", message, count=1) if type_ == "Unsupported" else message


def words_of_abort(output: str) -> str:
    """Return what C++ says of the exception that ended a process, without a generated file's name; empty if nothing.

    >>> words_of_abort("terminate called\\n  what():  kernel, c1.main.cpp:29, index out of bounds: 0 <= tmp7 < 3L\\n")
    'index out of bounds: 0 <= tmp7 < 3L'
    """
    return next(reversed(_WHAT.findall(output)), "")


def compared_values(message: str) -> str | None:
    """Return what `torch.testing` found in values that differ, as a line; None if the message is none of its.

    >>> compared_values("Tensor-likes are not close!\\n\\nMismatched elements: 2 / 24 (8.3%)")
    '2 of 24 elements differ'
    >>> nan = "Greatest absolute difference: nan at index (0,) (up to 1e-05 allowed)"
    >>> compared_values(f"Tensor-likes are not close!\\n\\nMismatched elements: 1 / 2 (50.0%)\\n{nan}")
    '1 of 2 elements differ'
    >>> compared_values("Scalars are not close!\\n\\nExpected 3.0 but got inf.")
    'inf instead of 3.0'
    """
    if _COMPARISON.match(message) is None:
        return None
    apart, largest, scalars = _MISMATCHED.search(message), _LARGEST.search(message), _SCALARS.search(message)
    if apart is None:
        return f"{scalars[2]} instead of {scalars[1]}" if scalars else message.partition("\n")[0]
    by = f", by up to {float(largest[1]):.3g}" if largest and largest[1] != "nan" else ""
    return f"{apart[1]} of {apart[2]} elements differ{by}"


def is_timeout(message: str | None) -> bool:
    """Whether a collective gave up on a rank that did not come."""
    return _TIMED_OUT.search(message or "") is not None


def is_peer_gone(message: str | None) -> bool:
    """Whether a collective failed because another rank had gone."""
    return _PEER_IS_GONE.search(message or "") is not None


def without_place(message: str) -> str:
    """Return a message without the place in C++ that it begins with."""
    return _CPP_PLACE.sub("", message)


def without_reference(text: str) -> str:
    """A line of a message without a reference to torch's pages, or to a function to use, at its end."""
    return _REFERENCE.sub("", text)
