"""A tensor read as Python numbers (`.item()`, `.tolist()`, `float()`, `int()`, `math` functions): kept as a tensor. It
is right if the number only enters arithmetic: a tensor without dimensions behaves there as a number does. It is
detached, because a number has no gradient, and cloned if the tensor may change later, because a number does not. If the
number decides a branch, is returned or stored, the proof sees the difference. Python computes in float64; so may the
tensor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst
from libcst import matchers as m

from dynadiag.fixes.candidate import Candidate, Site
from dynadiag.fixes.edits import Edit, ParsedSource, callee_name
from dynadiag.fixes.rewrites.conditions import is_truth
from dynadiag.fixes.rewrites.printing import called_after

_CONVERSIONS = ("float", "int", "bool")
_MATH = re.compile(r"^(?:sqrt|exp|log|log2|log10|log1p|expm1|a?sin|a?cos|a?tan|tanh|sinh|cosh|erf|floor|ceil|fabs)$")
_WHY = "a tensor without dimensions enters arithmetic as a number does; detached, it has no gradient either"
_EXACT = ", in float64 as Python has them"
_OF_TWO = ("atan2", "hypot", "fmod", "copysign")
_RENAMED = {"fabs": "abs"}


def candidates(site: Site[cst.Call]) -> Iterator[Candidate]:
    """The tensor in place of the number."""
    file, call = site.file, site.node
    if (values := _unpacked(file, call)) is not None:
        title = f"keep the values of `{file.code(values)}` tensors instead of reading them as numbers"
        for dtype in ("", ".double()"):
            edit = file.replace(call, f"{kept(file, values)}{dtype}.unbind()")
            yield Candidate(f"{title}{_EXACT if dtype else ''}", "source", (edit,), _WHY)
    if (found := _read(call)) is None or _is_in_other_math(file, call):
        return
    title = f"keep `{file.code(found)}` a tensor instead of reading it as a number"
    yield Candidate(title, "source", (_edit(file, call),), _WHY)
    printing = file.enclosing(call, cst.Call)
    while printing is not None and not isinstance(file.parent(printing), cst.Expr):
        printing = file.enclosing(printing, cst.Call)
    if isinstance(printing, cst.Call):
        reads = [each for each in file.nodes(cst.Call, printing) if each is not printing and _read(each) is not None]
        inner = {id(each) for read in reads for each in file.nodes(cst.Call, read) if each is not read}
        for later in called_after(file, printing):
            edits = (*(_edit(file, each) for each in reads if id(each) not in inner), *later.edits)
            yield Candidate(f"{title}, and {later.title}", "source", edits, f"{_WHY}; {later.why}")
    elif not _whole(file, call) and file.code(call.func) != "bool":
        yield Candidate(f"{title}{_EXACT}", "source", (_edit(file, call, ".double()"),), _WHY)


def _unpacked(file: ParsedSource, call: cst.Call) -> cst.BaseExpression | None:
    """The tensor whose values a call of `tolist` gives to names, or that are added up or gone through one by one:
    `low, high = bounds.tolist()`.
    """
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "tolist" or call.args:
        return None
    holder = file.parent(call)
    names = isinstance(holder, cst.Assign) and isinstance(holder.targets[0].target, (cst.Tuple, cst.List))
    above = file.parent(holder) if isinstance(holder, cst.Arg) else None
    added = isinstance(above, cst.Call) and file.code(above.func) == "sum"
    return call.func.value if names or added or isinstance(holder, (cst.For, cst.CompFor)) else None


def _edit(file: ParsedSource, call: cst.Call, dtype: str = "") -> Edit:
    """The edit that puts the tensor in the place of a call that reads it."""
    found = _read(call)
    assert found is not None
    tensor = kept(file, found) + _whole(file, call) + dtype
    outer, function = _math(file, call)
    if len(outer.args) == 2 and function:
        tensor = ", ".join(kept_tensor(file, argument.value) + dtype for argument in outer.args)
    text = f"torch.{function}({tensor})" if function else tensor
    quote = next((mark for mark in "\"'" if mark not in text), None)
    if quote is not None and _is_printed(file, outer):  # formatted, a tensor without dimensions prints as a number
        text = f"f{quote}{{{text}}}{quote}"
    return file.replace(outer, text)


def _whole(file: ParsedSource, call: cst.Call) -> str:
    """What makes a tensor whole numbers, or truths, where a call does."""
    function = file.code(call.func)
    if function == "bool" and not is_truth(call.args[0].value):
        return ".to(torch.bool)"
    return ".to(torch.int64)" if function == "int" else ""


def kept_tensor(file: ParsedSource, value: cst.BaseExpression) -> str:
    """The text of a value, with the tensor itself where it reads one as a number."""
    found = _read(value) if isinstance(value, cst.Call) else None
    if found is None or not isinstance(value, cst.Call):
        return file.code(value)
    return kept(file, found) + _whole(file, value)


def _read(call: cst.Call) -> cst.BaseExpression | None:
    """The tensor that a call reads as a number."""
    if isinstance(call.func, cst.Attribute) and call.func.attr.value == "item" and not call.args:
        return call.func.value
    if len(call.args) != 1 or not isinstance(call.func, (cst.Name, cst.Attribute)):
        return None
    name = call.func.value if isinstance(call.func, cst.Name) else None
    value = call.args[0].value
    if name in _CONVERSIONS or _math_name(call) is not None:
        return _read(value) or value if isinstance(value, cst.Call) else value
    return None


def kept(file: ParsedSource, value: cst.BaseExpression) -> str:
    """The text of a tensor that is kept as its value is now, without a gradient."""
    text = file.code(value)
    if isinstance(value, (cst.Name, cst.Attribute, cst.Subscript)):  # memory that the program may change later
        return f"{text}.detach().clone()"
    return f"{text}.detach()" if isinstance(value, cst.Call) or value.lpar else f"({text}).detach()"


def _is_printed(file: ParsedSource, value: cst.BaseExpression) -> bool:
    """Whether a value is an argument of `print` by itself."""
    argument = file.parent(value)
    call = file.parent(argument) if isinstance(argument, cst.Arg) and argument.keyword is None else None
    return isinstance(call, cst.Call) and file.code(call.func) == "print"


def _math(file: ParsedSource, call: cst.Call) -> tuple[cst.Call, str | None]:
    """The call of a `math` function around a number, and its name in torch; the call itself where there is none."""
    argument = file.parent(call)
    outer = file.parent(argument) if isinstance(argument, cst.Arg) else None
    around = next((each for each in (call, outer) if isinstance(each, cst.Call) and _math_name(each)), None)
    return (around, _math_name(around)) if around is not None else (call, None)


def _math_name(call: cst.Call) -> str | None:
    """The torch function that computes what a function of `math` does; ``None`` for any other call."""
    if not m.matches(call.func, m.Attribute(value=m.Name("math"))):
        return None
    name = callee_name(call) or ""
    if len(call.args) == 2:
        read = [isinstance(each.value, cst.Call) and _read(each.value) is not None for each in call.args]
        return name if name in _OF_TWO and all(read) else None
    return _RENAMED.get(name, name) if len(call.args) == 1 and _MATH.match(name) else None


def _is_in_other_math(file: ParsedSource, call: cst.Call) -> bool:
    """Whether a number goes into a function of `math` that has no tensors."""
    argument = file.parent(call)
    outer = file.parent(argument) if isinstance(argument, cst.Arg) else None
    of_math = isinstance(outer, cst.Call) and m.matches(outer.func, m.Attribute(value=m.Name("math")))
    return of_math and _math(file, call)[1] is None
