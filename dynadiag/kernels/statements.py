"""Parse the statements of a generated kernel, in C++ and Triton, and tell which operators each can compute.

Inductor names values ``tmp3`` (accumulators ``tmp_acc0``, ``_tmp3``) and buffers ``in_ptr0``, ``out_ptr0`` or
``in_out_ptr0``, and writes one statement per line. A C++ loop has its statements twice: for whole vectors and for the
remainder. An operator is *single-statement* when one statement computes it. Others, such as a variance or an online
softmax, take several statements, whose text says nothing about the operator.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["REDUCTIONS", "Statement", "is_often_elided", "is_single_statement", "matches_operator", "parse_statements"]

_HELPER = "def _triton_helper"  # a helper function of a scan, which has none of the kernel's values
_TARGET = re.compile(r"_?(?:masked_)?tmp\w*")
_VARIABLE = re.compile(r"(?<![\w.])(?:_|masked_)?tmp\w*")
_POINTER = re.compile(r"\b(?:(?:in_out|in|out)_ptr\d+|local_buffer_data\w*)\b")
_ALIAS = re.compile(r"^\s*auto (\w+_ptr\d+) = (\w+_ptr\d+);")
_STORED = re.compile(r"\.store\(|\btl\.store\(|\batomic_\w+[<(]|^\s*\w+_ptr\d+\[.*\] \+?= ")
_TRANSPOSED = re.compile(r"^\s*(?:at::vec::)?transpose_mxn<.*\b(tmp\d+)\b")  # into an array, or out of one
_COPIED = re.compile(r"^\s*(tmp\w*)\.store\((tmp\w*)\b")  # into an array of the kernel's own
_RETURNED = re.compile(r"^\s*return (.*);$")
_LAMBDA = re.compile(r"=\s*\[&\]")
_NUMBER = re.compile(
    r"(?:static_cast<[^>]*>\(|tl\.full\(\[[^\]]*\], |^ *)(-?\d+(?:\.\d*)?(?:e[-+]?\d+)?|True|False|true|false)"
)
_INDEX = re.compile(r"\[.*?\]")


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement. `line` is 0-based in the kernel's source, `reads` are values, `pointers` are buffers."""

    line: int
    kind: str  # "load", "store", "constant" or "compute"
    text: str  # its right-hand side
    targets: tuple[str, ...]
    reads: tuple[str, ...]
    pointers: tuple[str, ...]
    number: float | None = None  # the value of a constant

    @property
    def accumulates(self) -> bool:
        """Whether it adds to an accumulator of a loop."""
        return any("tmp_acc" in one or one.startswith("_tmp") for one in self.targets)

    @property
    def reduces(self) -> bool:
        """Whether it adds to an accumulator of a loop or reads one."""
        return any("tmp_acc" in one or one.startswith("_tmp") for one in self.targets + self.reads)


def parse_statements(source: str) -> tuple[Statement, ...]:
    """Parse the statements of a kernel, in order. A kernel that Inductor did not write has none."""
    found = tuple(_parse_lines(source.splitlines()))
    read = {name for one in found for name in one.reads}
    return tuple(one for one in found if one.kind != "constant" or not read.isdisjoint(one.targets))


def _parse_lines(lines: Sequence[str]) -> Iterator[Statement]:
    aliases: dict[str, str] = {}
    lambdas: list[tuple[int, tuple[str, ...]]] = []
    helper = False
    for number, line in enumerate(lines):
        helper = line.startswith(_HELPER) or (helper and not line.startswith("def "))
        if helper:
            continue
        if found := _ALIAS.match(line):
            aliases[found[1]] = aliases.get(found[2], found[2])
        elif (found := _RETURNED.match(line)) and lambdas:
            opened, targets = lambdas.pop()
            yield _parse_statement(number, targets, found[1], aliases)
            yield _parse_statement(opened, targets, found[1], aliases)
        elif targets := _targets(line):
            if _LAMBDA.search(line):
                lambdas.append((number, targets))
            else:
                yield _parse_statement(number, targets, line.partition(" =")[2], aliases)
        elif (found := _TRANSPOSED.match(line)) and (pointers := _pointers(line, aliases)):
            into = line.find(pointers[0]) > found.start(1)
            yield (
                Statement(number, "store", line, (), (found[1],), pointers[:1])
                if into
                else Statement(number, "load", line, (found[1],), (), pointers[:1])
            )
        elif found := _COPIED.match(line):
            yield Statement(number, "compute", line, (found[2],), (found[1],), ())
        elif _STORED.search(line) and _POINTER.search(line):
            yield _parse_store(number, line, aliases)


def _targets(line: str) -> tuple[str, ...]:
    """The names that a line assigns: ``auto tmp3 = ...``, ``tmp3_mean, tmp3_m2 = ...``, ``float tmp_acc0[8] = ...``."""
    left, assigns, _ = line.partition(" =")
    if not assigns or "(" in left.replace("(0)", "") or line[len(left) + 2 : len(left) + 3] == "=":
        return ()
    names = [(part.split("[")[0].split() or [""])[-1] for part in left.rstrip(",").split(", ")]
    return tuple(names) if any(_TARGET.fullmatch(name) for name in names) else ()


def _parse_statement(number: int, targets: tuple[str, ...], text: str, aliases: dict[str, str]) -> Statement:
    reads, pointers = _variables(text), _pointers(text, aliases)
    constant = _NUMBER.search(text) if not reads and not pointers else None
    kind = "load" if pointers else "constant" if not reads else "compute"
    return Statement(number, kind, text, targets, reads, pointers, _parse_number(constant[1]) if constant else None)


def _parse_store(number: int, line: str, aliases: dict[str, str]) -> Statement:
    value = line.partition("] = ")[2] or line
    reads = _variables(_INDEX.sub("", value))
    return Statement(number, "store", line, (), reads, _pointers(line, aliases)[:1])


def _parse_number(text: str) -> float:
    return float(text.casefold() == "true") if text.isalpha() else float(text)


def _variables(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_VARIABLE.findall(text)))


def _pointers(text: str, aliases: dict[str, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(aliases.get(one, one) for one in _POINTER.findall(text)))


_FUNCTION_NAMES = (
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp", "exp2",
    "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "erf", "erfc", "erfinv", "lgamma", "digamma", "floor",
    "ceil", "trunc", "atan2", "hypot", "copysign", "nextafter", "fmod", "remainder", "isnan", "isinf", "signbit", "pow",
    "sigmoid",
)  # fmt: skip
_PATTERNS = {
    "rsqrt": r"rsqrt|1 / std::sqrt",
    "sigmoid": r"sigmoid|neg\(\)\.exp|std::exp\(-",
    "add": r" \+ ",
    "sub": r" - ",
    "rsub": r" - ",
    "mul": r" \* ",
    "square": r" \* ",
    "div": r" / |reciprocal|div_",
    "true_divide": r" / ",
    "reciprocal": r"reciprocal| / ",
    "neg": r"\bneg\(|-tmp|- tmp|decltype\(\w+\)\(-",
    "relu": r"clamp_min|max|relu",
    "maximum": r"max|clamp_min",
    "clamp_min": r"max|clamp_min",
    "clamp_max": r"min|clamp_max",
    "minimum": r"min|clamp_max",
    "abs": r"abs",
    "sign": r"sgn|sign|<|>",
    "round": r"round|nearbyint|rint",
    "eq": r"==",
    "ne": r"!=",
    "ge": r">=",
    "gt": r" > ",
    "le": r"<=",
    "lt": r" < ",
    "where": r"where|blendv|\?",
    "bitwise_and": r" & |&&",
    "logical_and": r" & |&&",
    "bitwise_or": r" \| |\|\|",
    "logical_or": r" \| |\|\|",
    "bitwise_xor": r" \^ ",
    "logical_xor": r" \^ ",
    "bitwise_not": r"~|!",
    "logical_not": r"~|!|== 0",
    "convert_element_type": r"\.to\(|static_cast|convert|!= 0",
    "full": r"full|static_cast",
    "scalar_tensor": r"full|static_cast",
}
_FUNCTION_PATTERNS = {name: rf"(?<![a-z]){name}(?![a-z0-9])" for name in _FUNCTION_NAMES}
_OPERATOR_PATTERNS = {name: re.compile(text) for name, text in {**_FUNCTION_PATTERNS, **_PATTERNS}.items()}
_REDUCTION_PATTERN = re.compile(
    r"tmp_acc|_tmp\d|tl\.(?:sum|max|min|reduce|xor)|(?:max|min|sum|any|prod)2?\(|vec_reduce|with_index"
)
_OFTEN_ELIDED = frozenset({"convert_element_type", "clone", "copy_", "copy", "full", "scalar_tensor", "constant_pad_nd",
                        "alias", "lift_fresh_copy", "fma", "rev"})  # fmt: skip

REDUCTIONS = frozenset({"sum", "mean", "amax", "amin", "max", "min", "prod", "any", "all", "argmax", "argmin"})


def is_single_statement(operator: str) -> bool:
    """Whether one statement computes the operator and its text is known."""
    return operator in _OPERATOR_PATTERNS or operator in REDUCTIONS


def is_often_elided(operator: str) -> bool:
    """Whether Inductor often needs no statement for the operator: a conversion, a copy, a constant."""
    return operator in _OFTEN_ELIDED


def matches_operator(operator: str, text: str) -> bool:
    """Whether a statement with this text can compute the operator."""
    if operator in REDUCTIONS:
        return bool(_REDUCTION_PATTERN.search(text))
    spelling = _OPERATOR_PATTERNS.get(operator)
    return bool(spelling and spelling.search(text))
