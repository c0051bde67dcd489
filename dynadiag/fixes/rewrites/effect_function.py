"""The function of the module that makes an effect, on a condition or not, with the values that the effect shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import libcst as cst

from dynadiag.fixes.edits import Edit, ParsedSource
from dynadiag.fixes.rewrites.conditions import Unsuitable
from dynadiag.fixes.rewrites.effect_ways import Way
from dynadiag.fixes.rewrites.numbers import kept, kept_tensor
from dynadiag.fixes.rewrites.outer_contexts import is_read
from dynadiag.fixes.rewrites.side_expressions import check_expression

_SCOPES = (cst.Lambda, cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)
_VARIABLES = (cst.Name, cst.Attribute)  # others may have another value each time
_Place = tuple[int, int]


@dataclass(slots=True)
class EffectFunction:
    """Its statements where the condition holds, and where not, and its arguments by parameter."""

    file: ParsedSource
    function: cst.FunctionDef
    sides: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    conditional: bool = True  # else all statements are on the first side
    kept: frozenset[str] = frozenset()  # names that the function has without being given them
    arguments: dict[str, str] = field(default_factory=dict)

    def add_whole(self, side: int, statement: cst.CSTNode) -> None:
        """Add a statement as it is; what it uses of the function is given."""
        used = {node.value for node in self.file.nodes(cst.Name, statement)}
        self.arguments.update({name: name for name in local_names(self.file, self.function) if name in used})
        self.sides[side].append(self.file.code(statement))

    def add(self, side: int, node: cst.CSTNode, values: Iterable[cst.BaseExpression], form: str = "{}") -> None:
        """Add a statement, or one that ``form`` makes of an expression. These values of it are given, and tensors that
        are read as numbers are read in the function. Raises `Unsuitable` if it uses more of the function.
        """
        places = [each for value in values if self._used(value) for each in self._parameters(value)]
        rest = [name for name in self._used(node) if name.value not in self.kept]
        if any(not self._is_within(name, [place for place, _ in places]) for name in rest):
            raise Unsuitable("the effect uses more than values")
        text, start = self.file.code(node), self.file.range(node)[0]
        for (first, last), name in sorted(places, reverse=True):
            text = text[: first - start] + name + text[last - start :]
        self.sides[side].append(form.replace("{}", text))

    def _used(self, inside: cst.CSTNode) -> list[cst.Name]:
        """The names of the function that are read there."""
        local = local_names(self.file, self.function)
        return [node for node in self.file.nodes(cst.Name, inside) if node.value in local and is_read(self.file, node)]

    def _is_within(self, node: cst.CSTNode, places: Iterable[_Place]) -> bool:
        return any(first <= self.file.range(node)[0] < last for first, last in places)

    def _parameters(self, value: cst.BaseExpression) -> Iterator[tuple[_Place, str]]:
        """Where parameters stand in a value."""
        read = (
            []
            if any(True for kind in _SCOPES for _ in self.file.nodes(kind, value))
            else [*read_as_numbers(self.file, value)]
        )
        given = [(each, kept(self.file, each)) for each in read] or [(value, kept_tensor(self.file, value))]
        inside = [self.file.range(each) for each, _ in given]
        rest = [node for node in self._used(value) if not self._is_within(node, inside)]
        given += [(whole, self.file.code(whole)) for whole in (self._whole(node) for node in rest)]
        for each, text in given:
            check_expression(self.file, each)  # it is computed on the other side too
            again = [name for name, known in self.arguments.items() if known == text and isinstance(each, _VARIABLES)]
            name = again[0] if again else f"value_{len(self.arguments) + 1}"
            self.arguments[name] = text
            yield self.file.range(each), name

    def _whole(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """A name with the attributes that are read of it."""
        above = self.file.parent(node)
        while isinstance(above, cst.Attribute):
            call = self.file.parent(above)
            if isinstance(call, cst.Call) and call.func is above:
                break
            node, above = above, call
        return node

    def definition(self, name: str, way: Way) -> tuple[Edit, ...]:
        """Return the edits that insert the function above the compiled function."""
        end, unit = self.file.newline, self.file.indent_unit
        heads = ("if condition:", "else:" if self.sides[0] else "if not condition:") if self.conditional else ()
        lines = list[str]()
        for head, statements in zip(heads, self.sides, strict=True) if heads else ():
            lines += [f"{unit}{head}", *(f"{unit * 2}{each}" for each in statements)] if statements else []
        lines += [] if heads else [f"{unit}{each}" for each in self.sides[0]]
        head = f"def {name}({', '.join([*(['condition'] if heads else []), *self.arguments])}):"
        text, edits = way.definition(self.file, name, head, *lines)
        return *edits, self.file.insert_line(self.file.line_above(self.function), f"{text}{end}{end}{end}")

    def call(self, name: str, *condition: str) -> str:
        """The call of the function."""
        return f"{name}({', '.join([*condition, *self.arguments.values()])})"


def formatted(value: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What is formatted where a value becomes a text: the values in an f-string, else the value."""
    if isinstance(value, cst.FormattedString):
        parts = value.parts
        yield from (part.expression for part in parts if isinstance(part, cst.FormattedStringExpression))
    else:
        yield value


def values_of(effect: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """What an effect formats or keeps: the arguments of its call, or of its exception, or what it assigns."""
    if isinstance(effect, cst.Assign):
        yield effect.value
        return
    call = effect.exc if isinstance(effect, cst.Raise) else effect.value if isinstance(effect, cst.Expr) else effect
    for each in call.args if isinstance(call, cst.Call) else ():
        yield from formatted(each.value)


def read_as_numbers(file: ParsedSource, value: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The tensors that a value reads as numbers."""
    end = 0
    for call in file.nodes(cst.Call, value):
        tensor = None
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in ("item", "tolist") and not call.args:
            tensor = call.func.value
        elif file.code(call.func) in ("float", "int") and call.args and isinstance(call.args[0].value, cst.Call):
            inner = list(read_as_numbers(file, call.args[0].value))
            tensor = None if inner else call.args[0].value
        if tensor is not None and file.range(call)[0] >= end:
            end = file.range(call)[1]
            yield tensor


def local_names(file: ParsedSource, function: cst.FunctionDef) -> list[str]:
    """The parameters and the assigned names of a function, in their order."""
    names = [parameter.name.value for parameter in file.nodes(cst.Param, function)]
    targets = [each.target for each in file.nodes(cst.AssignTarget, function)]
    targets += [each.target for each in file.nodes(cst.For, function)]
    plain = [target for target in targets if not isinstance(target, (cst.Attribute, cst.Subscript))]
    assigned = [name.value for target in plain for name in file.nodes(cst.Name, target)]
    return list(dict.fromkeys([*names, *assigned]))
