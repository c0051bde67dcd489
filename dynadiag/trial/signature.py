"""The identity of a failure: two runs with one bug have equal signatures, two bugs have different ones.

A message has parts that change from run to run: addresses, temporary names, sizes, the numbers of buffers and nodes.
`normalise` removes them. The `Signature` is what remains, with the kind, the type, the frame in torch and the line of
the program where the failure came out.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import Any

__all__ = ["Signature", "normalise"]

# In this order: a path may hold hexadecimal digits, a hash may hold decimal ones.
_REPLACEMENTS = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"(?<![\w.])(?:/[\w.+@~-]+){2,}"), "<path>"),
    (re.compile(r"0x[0-9a-fA-F]+"), "<address>"),
    (re.compile(r"\b(?=[a-z]*\d)[0-9a-z]{24,}\b"), "<hash>"),
    (re.compile(r"\b(tmp|c)[a-z0-9_]{8,}\b(?=\.|\b)"), "<name>"),
    (re.compile(r"\b(?:s|u|zf|zuf)\d+\b"), "#"),  # torch's symbols for sizes and values
    (re.compile(r"[-+]?\d+(?:\.\d+|\.(?=[],]))?(?:[eE][-+]?\d+)?"), "#"),
    (re.compile(r"_#"), "#"),
    (re.compile(r"[-+]?\b(?:nan|inf)\b"), "#"),
    (re.compile(r"(?:#[ ,x*]*){2,}"), "# "),
    (re.compile(r"(?<=[\[(])\s+|\s+(?=[\])])"), ""),  # torch prints tensors with room for a sign
    (re.compile(r"\s+"), " "),
)
_MESSAGE_LIMIT = 400  # characters that are compared; what follows are dumps of arguments
_BACKEND = re.compile(r"backend='[^']*' raised:\s*")
_DEVICE_ERROR = re.compile(r"(?:\b(?:CUDA|HIP) error|\bTriton Error \[\w+\]): (.+)")
_DIAGNOSTIC = re.compile(r"\berror:|^\s*target: ")


def normalise(message: str) -> str:
    """The part of a message that is the same whenever the same thing goes wrong.

    That is its first line, with the first later line that names the fault: a compiler diagnostic (`error:`) or the
    operator (`target:`).
    """
    lines = [line for line in _BACKEND.sub("", message).splitlines() if line.strip()]
    telling = [line for line in lines[1:] if _DIAGNOSTIC.search(line)][:1]
    text = " | ".join([*lines[:1], *telling])
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    return text.strip()[:_MESSAGE_LIMIT]


@dataclass(frozen=True, slots=True)
class Signature:
    """The identity of a failure.

    ``type`` is the exception's qualified name, a signal's name, or the exit code as text. ``where`` is the innermost
    frame in torch (``torch/_inductor/lowering.py:123 in f``), ``user`` the line of the program that was running
    (``train.py:31``). ``rung`` says where it was seen and is not part of the identity.
    """

    kind: str  # "exception" | "exit" | "signal" | "hang" | "wrong_result" | "nan" | "slow" | "memory"
    type: str
    message: str
    where: str | None = None
    user: str | None = None
    cause: str = ""  # the innermost exception's type, where torch wrapped it
    rung: str | None = None

    def same_as(self, other: Signature) -> bool:
        """Whether both are the same failure, seen at the same rung."""
        return self._identity() == other._identity()

    def same_across_rungs(self, other: Signature) -> bool:
        """Whether both may be the same failure, seen at two rungs.

        Another backend wraps the same exception in other words and other frames. So it is enough that the same line of
        the program fails with the same kind, or that the innermost exception has the same type.
        """
        if self.device_error and other.device_error:
            return True
        if self.kind != other.kind:
            return False
        if self.kind == "exception":
            return (self.user is not None and self.user == other.user) or self.cause == other.cause
        return self.type == other.type

    @property
    def device_error(self) -> str | None:
        """The message of an asynchronous device error, or ``None``. Whatever call comes next raises it."""
        found = _DEVICE_ERROR.search(self.message.partition("\n")[0])
        return found[1] if found else None

    def _identity(self) -> tuple[object, ...]:
        if self.device_error:
            return ("device", normalise(self.device_error))
        place = self.where if self.kind == "exception" else None
        message = normalise(self.message)
        if self.kind in ("wrong_result", "nan"):  # which output is the first wrong one may vary
            message = message.partition(": ")[0]
        return self.kind, self.type, message, place, self.user

    def to_json(self) -> dict[str, Any]:
        """The signature as plain data; `from_json` reads it."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Signature:
        """The signature in a record of `to_json`. Unknown keys are ignored."""
        names = {f.name for f in fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in names})
