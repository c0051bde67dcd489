"""The tensor that is kept in the place of a number that is read of it."""

from __future__ import annotations

import re

import libcst as cst
from libcst import matchers as m

from dynadiag.fixes.edits import ParsedSource, callee_name
from dynadiag.fixes.rewrites.conditions import is_truth

_CONVERSIONS = ("float", "int", "bool")
_MATH = re.compile(r"^(?:sqrt|exp|log|log2|log10|log1p|expm1|a?sin|a?cos|a?tan|tanh|sinh|cosh|erf|floor|ceil|fabs)$")
_OF_TWO = ("atan2", "hypot", "fmod", "copysign")
_RENAMED = {"fabs": "abs"}


def kept_tensor(file: ParsedSource, value: cst.BaseExpression) -> str:
    """The text of a value, with the tensor itself where it reads one as a number."""
    found = read_tensor(value) if isinstance(value, cst.Call) else None
    if found is None or not isinstance(value, cst.Call):
        return file.code(value)
    return kept(file, found) + whole(file, value)


def read_tensor(call: cst.Call) -> cst.BaseExpression | None:
    """The tensor that a call reads as a number."""
    if isinstance(call.func, cst.Attribute) and call.func.attr.value == "item" and not call.args:
        return call.func.value
    if len(call.args) != 1 or not isinstance(call.func, (cst.Name, cst.Attribute)):
        return None
    name = call.func.value if isinstance(call.func, cst.Name) else None
    value = call.args[0].value
    if name in _CONVERSIONS or math_name(call) is not None:
        return read_tensor(value) or value if isinstance(value, cst.Call) else value
    return None


def kept(file: ParsedSource, value: cst.BaseExpression) -> str:
    """The text of a tensor that is kept as its value is now, without a gradient."""
    text = file.code(value)
    if isinstance(value, (cst.Name, cst.Attribute, cst.Subscript)):  # memory that the program may change later
        return f"{text}.detach().clone()"
    return f"{text}.detach()" if isinstance(value, cst.Call) or value.lpar else f"({text}).detach()"


def whole(file: ParsedSource, call: cst.Call) -> str:
    """What makes a tensor whole numbers, or truths, where a call does."""
    function = file.code(call.func)
    if function == "bool" and not is_truth(call.args[0].value):
        return ".to(torch.bool)"
    return ".to(torch.int64)" if function == "int" else ""


def math_name(call: cst.Call) -> str | None:
    """The torch function that computes what a function of `math` does; ``None`` for any other call."""
    if not m.matches(call.func, m.Attribute(value=m.Name("math"))):
        return None
    name = callee_name(call) or ""
    if len(call.args) == 2:
        read = [isinstance(each.value, cst.Call) and read_tensor(each.value) is not None for each in call.args]
        return name if name in _OF_TWO and all(read) else None
    return _RENAMED.get(name, name) if len(call.args) == 1 and _MATH.match(name) else None
