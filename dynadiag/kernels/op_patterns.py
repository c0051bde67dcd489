"""How code generators write each operator: which statements of a kernel can compute which node.

An operator is *single-statement* when one statement computes it. Others, such as a variance or an online softmax, take
several statements, whose text says nothing about the operator.
"""

from __future__ import annotations

import re

__all__ = ["REDUCTIONS", "is_often_elided", "is_single_statement", "matches_operator"]

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
