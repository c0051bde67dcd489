"""A tensor read as Python numbers (`.item()`, `.tolist()`, `float()`, `int()`, `math` functions): kept as a tensor. It
is right if the number only enters arithmetic: a tensor without dimensions behaves there as a number does. It is
detached, because a number has no gradient, and cloned if the tensor may change later, because a number does not. If the
number decides a branch, is returned or stored, the proof sees the difference. Python computes in float64; so may the
tensor.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
from libcst import matchers as m

from dynadiag.fixes.candidate import Candidate, Site
from dynadiag.fixes.edits import Edit, ParsedSource
from dynadiag.fixes.rewrites.kept_tensors import kept, kept_tensor, math_name, read_tensor, whole
from dynadiag.fixes.rewrites.printing import called_after

_WHY = "a tensor without dimensions enters arithmetic as a number does; detached, it has no gradient either"
_EXACT = ", in float64 as Python has them"


def candidates(site: Site[cst.Call]) -> Iterator[Candidate]:
    """The tensor in place of the number."""
    file, call = site.file, site.node
    if (values := _unpacked(file, call)) is not None:
        title = f"keep the values of `{file.code(values)}` tensors instead of reading them as numbers"
        for dtype in ("", ".double()"):
            edit = file.replace(call, f"{kept(file, values)}{dtype}.unbind()")
            yield Candidate(f"{title}{_EXACT if dtype else ''}", "source", (edit,), _WHY)
    if (found := read_tensor(call)) is None or _is_in_other_math(file, call):
        return
    title = f"keep `{file.code(found)}` a tensor instead of reading it as a number"
    yield Candidate(title, "source", (_edit(file, call),), _WHY)
    printing = file.enclosing(call, cst.Call)
    while printing is not None and not isinstance(file.parent(printing), cst.Expr):
        printing = file.enclosing(printing, cst.Call)
    if isinstance(printing, cst.Call):
        reads = [
            each for each in file.nodes(cst.Call, printing) if each is not printing and read_tensor(each) is not None
        ]
        inner = {id(each) for read in reads for each in file.nodes(cst.Call, read) if each is not read}
        for later in called_after(file, printing):
            edits = (*(_edit(file, each) for each in reads if id(each) not in inner), *later.edits)
            yield Candidate(f"{title}, and {later.title}", "source", edits, f"{_WHY}; {later.why}")
    elif not whole(file, call) and file.code(call.func) != "bool":
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
    found = read_tensor(call)
    assert found is not None
    tensor = kept(file, found) + whole(file, call) + dtype
    outer, function = _math(file, call)
    if len(outer.args) == 2 and function:
        tensor = ", ".join(kept_tensor(file, argument.value) + dtype for argument in outer.args)
    text = f"torch.{function}({tensor})" if function else tensor
    quote = next((mark for mark in "\"'" if mark not in text), None)
    if quote is not None and _is_printed(file, outer):  # formatted, a tensor without dimensions prints as a number
        text = f"f{quote}{{{text}}}{quote}"
    return file.replace(outer, text)


def _is_printed(file: ParsedSource, value: cst.BaseExpression) -> bool:
    """Whether a value is an argument of `print` by itself."""
    argument = file.parent(value)
    call = file.parent(argument) if isinstance(argument, cst.Arg) and argument.keyword is None else None
    return isinstance(call, cst.Call) and file.code(call.func) == "print"


def _math(file: ParsedSource, call: cst.Call) -> tuple[cst.Call, str | None]:
    """The call of a `math` function around a number, and its name in torch; the call itself where there is none."""
    argument = file.parent(call)
    outer = file.parent(argument) if isinstance(argument, cst.Arg) else None
    around = next((each for each in (call, outer) if isinstance(each, cst.Call) and math_name(each)), None)
    return (around, math_name(around)) if around is not None else (call, None)


def _is_in_other_math(file: ParsedSource, call: cst.Call) -> bool:
    """Whether a number goes into a function of `math` that has no tensors."""
    argument = file.parent(call)
    outer = file.parent(argument) if isinstance(argument, cst.Arg) else None
    of_math = isinstance(outer, cst.Call) and m.matches(outer.func, m.Attribute(value=m.Name("math")))
    return of_math and _math(file, call)[1] is None
