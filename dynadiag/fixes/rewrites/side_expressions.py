"""What a side of a branch computes: whether it only computes, which operands may do harm where it is not taken, and its
text with other names.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

import libcst as cst

from dynadiag.explanation.branches import is_of_an_operand
from dynadiag.fixes.edits import ParsedSource, callee_name
from dynadiag.fixes.rewrites.conditions import Unsuitable

# Functions with values, or slopes, that are not finite everywhere.
_PARTIAL = re.compile(
    r"^(?:r?sqrt|log(?:2|10|1p)?|reciprocal|(?:float_)?pow(?:er)?|(?:true_|floor_)?div(?:ide)?|remainder|fmod|a(?:rc)?(?:cos|sin)h?"
    r"|a(?:rc)?tan(?:h|2)|exp(?:2|m1)?|sinh|cosh|logit|lgamma|digamma|xlogy|(?:vector_)?norm|std|var|normalize"
    r"|cosine_similarity|rms_norm|inv(?:erse)?|solve|cholesky|det|s?logdet)$"
)
_DIVISIONS = (cst.Divide, cst.FloorDivide, cst.Modulo)
_SCOPES = (cst.Lambda, cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp, cst.NamedExpr, cst.Await, cst.Yield)


def cond_call(condition: str, taken: str, other: str) -> str:
    """A call of `torch.cond`."""
    return f"torch.cond({condition}, lambda: {taken}, lambda: {other})"


def new_tensor(text: str) -> str:
    """The value of a side: `torch.cond` takes none that is an operand itself, or a view of one."""
    return f"{text}.clone()" if is_of_an_operand(ast.parse(f"({text})", mode="eval").body) else text


def effect_of(code: str) -> str:
    """Why a statement on a side stands in the way."""
    line = code.strip().partition("\n")[0]
    return f"`{line[:60]}` has an effect, which is there on one side alone"


def tuple_parts(value: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The elements of a tuple; of another expression, itself."""
    return [element.value for element in value.elements] if isinstance(value, cst.Tuple) else [value]


def check_expression(file: ParsedSource, expression: cst.BaseExpression) -> None:
    """Raises where an expression may do more than compute, or has names of its own."""
    for scope in _SCOPES:
        if next(file.nodes(scope, expression), None) is not None:
            raise Unsuitable(f"`{file.code(expression)[:60]}` has names of its own")
    for call in file.nodes(cst.Call, expression):
        name = callee_name(call)
        if name is None or (name.endswith("_") and not name.endswith("__")) or name in ("print", "setattr", "append"):
            raise Unsuitable(effect_of(file.code(call)))


def risky_names(file: ParsedSource, expressions: Sequence[cst.BaseExpression]) -> list[str]:
    """Local names that a root, a logarithm, a division or the like is taken of."""
    found = list[str]()
    for expression in expressions:
        for operand in _risky_operands(file, expression):
            found += [node.value for node in _variables(file, operand)]
    return list(dict.fromkeys(found))


def _risky_operands(file: ParsedSource, expression: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    for operation in file.nodes(cst.BinaryOperation, expression):
        if isinstance(operation.operator, _DIVISIONS):
            yield operation.right
        elif isinstance(operation.operator, cst.Power):
            yield operation.left
            yield operation.right
    for call in file.nodes(cst.Call, expression):
        if _PARTIAL.match(callee_name(call) or ""):
            yield from (argument.value for argument in call.args)
            if isinstance(call.func, cst.Attribute):
                yield call.func.value


def _variables(file: ParsedSource, expression: cst.BaseExpression) -> Iterator[cst.Name]:
    """Names of variables that are read, not those of attributes, keywords, functions, or objects with attributes."""
    for node in file.nodes(cst.Name, expression):
        parent = file.parent(node)
        if isinstance(parent, (cst.Attribute, cst.Arg)) and not _is_value(parent, node, file):
            continue
        if isinstance(parent, cst.Call) and parent.func is node:
            continue
        yield node


def _is_value(parent: cst.Attribute | cst.Arg, node: cst.Name, file: ParsedSource) -> bool:
    """Whether a name stands for a tensor here: `x` in `x.sqrt()` and in `f(x)`, not `self` in `self.scale`."""
    if parent.value is not node:
        return False
    if isinstance(parent, cst.Arg):
        return True
    above = file.parent(parent)
    is_method = isinstance(above, cst.Call) and above.func is parent
    return is_method and node.value not in ("torch", "F", "math", "np", "nn", "self", "cls")


def renamed(file: ParsedSource, expression: cst.BaseExpression, names: Mapping[str, str]) -> str:
    """The text of an expression with variables renamed."""
    start, text = file.range(expression)[0], file.code(expression)
    for node in reversed(list(_variables(file, expression))):
        if node.value in names:
            place = file.range(node)
            text = text[: place[0] - start] + names[node.value] + text[place[1] - start :]
    return f"({text})" if "\n" in text else text


def assigned_text(
    file: ParsedSource, item: tuple[str, cst.BaseExpression, str | None], names: Mapping[str, str]
) -> str:
    name, expression, operator = item
    text = renamed(file, expression, names)
    return text if operator is None else f"{names.get(name, name)} {operator} ({text})"
