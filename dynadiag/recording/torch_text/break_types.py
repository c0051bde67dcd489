"""Reads torch's registry of graph breaks: which types of break are alike, what a hint is worth, and its texts."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

# Types of break by family, after their names in the registries of 2.11 to 2.15. The first whose pattern is in the type
# holds, so the narrow ones stand first.
_FAMILIES = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "assertion": r"data-dependent assert",
        "branch": r"data-dependent branching|guard_scalar branch",
        "number": r"\.item\(|tolist|scalar_outputs|python constant|index\(Tensor\)|non-const(ant)? (key|argument|bool)",
        "shape": r"data.dependent operator|dynamic shape operator|nonzero|unique",
        "limit": r"recompile limit|cache limit|RestartAnalysis",
        "message": r"logg(er|ing)|\bprint|warnings",
        "asked": r"graph_break\(\)|skip_frame|step_unsupported|comptime",
        "not traced": r"marked as skipped|SkipFunctionVariable|function call \(delayed\)"
        r"|disable|force_skip|C function|builtin",
        "context manager": r"context ?manager|ContextWrapping|contextlib|with block",
        "nested tensor": r"NestedTensor|nested_tensor",
        "sparse": r"sparse",
        "random": r"random|torch\.Generator|uniform_|seed",
        "generator": r"generator|\bSEND\b|CLEANUP_THROW|comprehension|iterator",
        "autograd": r"requires_grad|grad_fn|retain_grad|hook|autograd|backward|ImperativeEngine|accumulate_grad",
        "memory": r"resize|set_\(|\.data\b|data_ptr|data pointer|storage|call_id|is_inference",
        "numpy": r"ndarray|numpy",
        "triton": r"triton",
        "higher-order operator": r"higher.order|HOP\b|torch\.cond\b|invoke_subgraph|wrap_with|executorch"
        r"|functor|single Tensor return",
        "no tensor": r"returned non-Tensor",
        "fake tensor": r"non-PT2|fake ?tensor|op packet|missing_fake|meta kernel|running FX node|real value",
        "exception": r"exception|\braise|StopIteration|undefined|not found|mismatch",
        "object": r"setattr|setitem|mutation|STORE_ATTR|delattr|getattr|getattribute|attribute|nn\.Module|OpaqueObject"
        r"|subscript|getitem|method",
        "python object": r"deepcopy|copy|import|\bid\(|weakref|metaclass|dataclass|pydantic|inspect|python_type"
        r"|typing|unregistered",
    }.items()
}
_MAX_TYPE = 500  # characters of a type that are looked at: a log may hold anything
_IDENTIFIER = re.compile(r"\w+(\(.*\))?")
# What torch's hints begin with that fit any break and help with none.
_GENERAL = (
    "It may be possible to write Dynamo tracing rules",
    "This graph break is fundamental",
    "This graph break may be difficult to debug",
    "This is likely to be a Dynamo bug",
    "Please report an issue",
)
_REPORT = re.compile(  # torch adds it to many breaks
    r"(if it is a Python builtin, )?(please )?(report|file|open) an issue\b[^.]*\.?", re.IGNORECASE
)
_SETTING = re.compile(r"torch\._dynamo\.(?:config\.)?(\w+) ?= ?True")  # torch leaves "config" out in one hint
_IGNORED = re.compile(r"Add the logging method to `(torch\._dynamo\.config\.\w+)`")
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")


FAMILY_NAMES = tuple(_FAMILIES)


@functools.lru_cache(maxsize=1024)
def family_name(gb_type: str) -> str | None:
    """Return the family that a type of break belongs to; None where it belongs to none."""
    text = gb_type[:_MAX_TYPE]
    return next((name for name, pattern in _FAMILIES.items() if pattern.search(text)), None)


def named_settings(hints: Sequence[str]) -> tuple[str, ...]:
    """Return the options of ``torch._dynamo.config`` that hints say to set to True, each once."""
    return tuple(dict.fromkeys(match[1] for hint in hints for match in _SETTING.finditer(hint)))


def ignoring_option(hints: Sequence[str]) -> str | None:
    """Return the option, a set of methods of loggers, that a hint says to add the method to; None if none does."""
    matches = (match for hint in hints if (match := _IGNORED.search(hint)))
    return next((match[1] for match in matches), None)


def is_general(hint: str) -> bool:
    """Whether a hint fits any break and helps with none."""
    return hint.startswith(_GENERAL)


def asks_for_report(hint: str) -> bool:
    """Whether a hint is no more than the request for a bug report."""
    return _REPORT.fullmatch(hint.strip()) is not None


def has_placeholder(text: str) -> bool:
    """Whether a text has a slot that torch fills in when it reports a break."""
    return _PLACEHOLDER.search(text) is not None


def is_code(text: str) -> bool:
    """Whether a wording is a name or an expression of torch's source, and no sentence."""
    return _IDENTIFIER.fullmatch(text.strip()) is not None or text.startswith("msg ")


def plain_text(text: str) -> str:
    """Return a sentence, also out of a wording that is a sum of Python string literals."""
    if text.lstrip().startswith(('"', 'f"')):
        text = " ".join(re.findall(r'"([^"]*)"', text))
    return " ".join(text.split())


def join_fragments(hints: Sequence[str]) -> tuple[str, ...]:
    """Whole sentences from the registry's hints, some of which it holds cut where a Python literal was cut.

    >>> join_fragments(["Use f() to ", "register it.", "Report it."])
    ('Use f() to register it.', 'Report it.')
    """
    joined: list[str] = []
    for hint in hints:
        goes_on = joined and (joined[-1][-1:].isspace() or hint[:1].islower())
        if goes_on:
            joined[-1] = f"{joined[-1].rstrip()} {hint}"
        else:
            joined.append(hint)
    return tuple(" ".join(hint.split()) for hint in joined if hint.strip())
