"""Finds the branch whose condition breaks the graph, and writes its condition as a tensor."""

from __future__ import annotations

import libcst as cst
from libcst import matchers as m

from dynadiag.fixes.edits import ParsedSource, callee_name
from dynadiag.recording.records import Span

UNIFORM = "random.uniform(0, 1)"  # it is 0 + (1 - 0) * random.random()
_TRUTHS = ("any", "all", "isnan", "isinf", "isfinite", "equal", "allclose", "isclose")


class Unsuitable(Exception):  # noqa: N818 - this branch is not of the form that the rewrite takes
    """The branch has a form that is not rewritten; the message says which."""


def position_of(file: ParsedSource, span: Span) -> int:
    """Where a span begins in the text of its file."""
    assert span.line is not None
    assert span.column is not None
    return file.offset(span.line, span.column)


def if_around(file: ParsedSource, span: Span) -> cst.If | cst.IfExp | None:
    """The innermost branch whose condition holds the span of the break."""
    if span.line is None or span.column is None:
        return None
    position = position_of(file, span)
    found: list[cst.If | cst.IfExp] = [*file.nodes(cst.If), *file.nodes(cst.IfExp)]
    holding = [node for node in found if file.range(node.test)[0] <= position < file.range(node.test)[1]]
    return min(holding, key=lambda node: file.range(node.test)[1] - file.range(node.test)[0], default=None)


def subscript_at(file: ParsedSource, span: Span) -> cst.Subscript | None:
    """The subscript at the span of the break."""
    return file.at(span, cst.Subscript)


def call_at(file: ParsedSource, span: Span) -> cst.Call | None:
    """The call at the span of the break."""
    return file.at(span, cst.Call)


def assert_at(file: ParsedSource, span: Span) -> cst.Assert | None:
    """The `assert` at the span of the break."""
    return file.at(span, cst.Assert)


def if_or_assert_at(file: ParsedSource, span: Span) -> cst.If | cst.IfExp | cst.Assert | None:
    """The branch whose condition holds the span of the break, else the `assert` there."""
    return if_around(file, span) or assert_at(file, span)


def condition_text(file: ParsedSource, test: cst.BaseExpression) -> str:
    """The condition as a tensor: without `bool()` and `.item()`, and with operators on tensors."""
    if isinstance(test, cst.BooleanOperation):
        sign = "&" if isinstance(test.operator, cst.And) else "|"
        if not all(isinstance(side, (cst.Comparison, cst.BooleanOperation)) for side in (test.left, test.right)):
            raise Unsuitable("the condition joins values that need not be tensors")
        return f"({condition_text(file, test.left)}) {sign} ({condition_text(file, test.right)})"
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return f"torch.logical_not({condition_text(file, test.expression)})"
    if isinstance(test, cst.Call) and m.matches(test.func, m.Name("bool")) and len(test.args) == 1:
        return condition_text(file, test.args[0].value)
    if isinstance(test, cst.Call) and isinstance(test.func, cst.Attribute) and callee_name(test) == "item":
        return condition_text(file, test.func.value)
    if isinstance(test, cst.Call) and (made := _of_elements(file, test) or _in_torch(file, test)) is not None:
        return made
    text = _without_item(file, test)
    if "random.random()" in text:  # torch takes the other function into the graph, and a number of it is no tensor
        return f"torch.as_tensor({text.replace('random.random()', UNIFORM)})"
    return text if is_truth(test) else f"{text} != 0"


def _of_elements(file: ParsedSource, test: cst.Call) -> str | None:
    """`any` or `all` of a condition for each of several tensors, as one tensor: these are elements of a stack."""
    loop = test.args[0].value if m.matches(test.func, m.Name("any") | m.Name("all")) and len(test.args) == 1 else None
    if not isinstance(loop, (cst.GeneratorExp, cst.ListComp)):
        return None
    start, inner, end = file.range(test.args[0])[0], file.range(loop.elt), file.range(test.args[0])[1]
    behind = file.text[inner[1] : end].rstrip()
    behind = behind[:-1] if isinstance(loop, cst.ListComp) or file.text[start] == "(" else behind
    return f"torch.stack([{condition_text(file, loop.elt)}{behind}]).{callee_name(test)}()"


def _in_torch(file: ParsedSource, test: cst.Call) -> str | None:
    """`torch.allclose`, and `math.isnan` and its like, as a tensor."""
    if m.matches(test.func, m.Attribute(m.Name("math"), m.Name("isnan") | m.Name("isinf") | m.Name("isfinite"))):
        value = test.args[0].value
        kept = _kept(file, value) if isinstance(value, cst.Call) else None
        return f"torch.{callee_name(test)}({kept or file.code(value)})"
    if file.code(test.func) != "torch.allclose":
        return None
    return f"torch.isclose{file.text[file.range(test.func)[1] : file.range(test)[1]]}.all()"


def is_truth(test: cst.BaseExpression) -> bool:
    """Whether a condition is true or false by itself, and not by being zero or not. NaN and infinity are true too."""
    return isinstance(test, cst.Comparison) or (isinstance(test, cst.Call) and callee_name(test) in _TRUTHS)


def _without_item(file: ParsedSource, test: cst.BaseExpression) -> str:
    if isinstance(test, cst.Comparison) and len(test.comparisons) != 1:
        raise Unsuitable("the condition is a chain of comparisons")
    start, text = file.range(test)[0], file.code(test)
    kept = [(file.range(call), made) for call in file.nodes(cst.Call, test) if (made := _kept(file, call)) is not None]
    outer = [(place, made) for place, made in kept if not any(_is_inside(place, other) for other, _ in kept)]
    for (first, last), made in reversed(outer):
        text = text[: first - start] + made + text[last - start :]
    return text


def _kept(file: ParsedSource, call: cst.Call) -> str | None:
    """The tensor that a call reads as a number, where a comparison of the tensor says the same."""
    if isinstance(call.func, cst.Attribute) and call.func.attr.value == "item" and not call.args:
        return file.code(call.func.value)
    if not isinstance(call.func, cst.Name) or call.func.value not in ("float", "int") or len(call.args) != 1:
        return None
    value = call.args[0].value
    inner = _kept(file, value) if isinstance(value, cst.Call) else None
    if call.func.value == "float":
        return inner or file.code(value)
    return f"{inner or file.code(value)}.to(torch.int64)" if isinstance(value, cst.Call) else None


def _is_inside(place: tuple[int, int], other: tuple[int, int]) -> bool:
    return place != other and other[0] <= place[0] and place[1] <= other[1]
