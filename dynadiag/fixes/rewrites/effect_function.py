"""The function of the module that makes an effect, on a condition or not, with the values that the effect shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import libcst as cst

from dynadiag.fixes.edits import Edit, ParsedSource
from dynadiag.fixes.rewrites.conditions import Unsuitable
from dynadiag.fixes.rewrites.definitions import Definition
from dynadiag.fixes.rewrites.effect_ways import ORDER, WITHIN, Way, operator
from dynadiag.fixes.rewrites.kept_tensors import kept, kept_tensor
from dynadiag.fixes.rewrites.outer_contexts import is_read
from dynadiag.fixes.rewrites.side_expressions import check_expression
from dynadiag.fixes.rewrites.value_types import all_locals, type_in_text

_SCOPES = (cst.Lambda, cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)
_VARIABLES = (cst.Name, cst.Attribute)  # others may have another value each time
_Place = tuple[int, int]


@dataclass(slots=True)
class EffectFunction:
    """Its statements where the condition holds, and where not, and its arguments by parameter. ``types`` has the
    types of torch's schemas of those of which the text says it, and ``operands`` their arguments at the effect's place.
    """

    file: ParsedSource
    function: cst.FunctionDef
    sides: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    conditional: bool = True  # else all statements are on the first side
    kept: frozenset[str] = frozenset()  # names that the function has without being given them
    arguments: dict[str, str] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    operands: dict[str, str] = field(default_factory=dict)
    for_operator: bool = False  # parameters are sizes where they can be, and have the names of variables

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
        tensors = list(map(self.file.range, read))
        inside = [self.file.range(each) for each, _ in given]
        rest = [node for node in self._used(value) if not self._is_within(node, inside)]
        given += [(whole, self.file.code(whole)) for whole in (self._whole(node) for node in rest)]
        for each, text in given:
            check_expression(self.file, each)  # it is computed on the other side too
            again = [name for name, known in self.arguments.items() if known == text and isinstance(each, _VARIABLES)]
            own = each.value if self.for_operator and isinstance(each, cst.Name) else None
            name = again[0] if again else own or f"value_{len(self.arguments) + 1}"
            self.arguments[name] = text
            type_ = "Tensor" if self.file.range(each) in tensors else type_in_text(self.function, each)
            if type_ is not None:
                self.types[name], self.operands[name] = type_, self.file.code(each)
            yield self.file.range(each), name

    def _whole(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """A name with the attributes that are read of it; for an operator, the size that is."""
        around = (each for each in self._expressions_around(node) if type_in_text(self.function, each) is not None)
        if self.for_operator and (size := next(around, None)) is not None:
            return size
        above = self.file.parent(node)
        while isinstance(above, cst.Attribute):
            call = self.file.parent(above)
            if isinstance(call, cst.Call) and call.func is above:
                break
            node, above = above, call
        return node

    def _expressions_around(self, node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
        """A name, and what is read of it: attributes, calls, items."""
        here: cst.CSTNode | None = node
        while isinstance(here, (cst.BaseExpression, cst.Arg)):
            if isinstance(here, (cst.Name, cst.Attribute, cst.Call, cst.Subscript)):
                yield here
            here = self.file.parent(here)

    @property
    def is_operator(self) -> bool:
        """Whether it can be an operator of its own in the graph: the type of each argument is known."""
        return self.types.keys() == self.arguments.keys()

    def written(self, name: str, way: Way, *condition: str) -> tuple[tuple[Edit, ...], str]:
        """Return the edits that insert the function above the compiled function, and the text of its call.

        ``condition`` is the text of the condition, a tensor, where there is one.
        """
        given, edits = {**dict(zip(["condition"], condition, strict=False)), **self.arguments}, list[Edit]()
        if way is WITHIN and self.is_operator:
            order, first = Definition.of_helpers(self.file, ORDER), self.file.free_name("order", of=self.function)
            types = {**dict.fromkeys(["condition"][: len(condition)], "Tensor"), **self.types}
            way, edits = operator(self.file, name, first, types), [*order.edits]
            given = {first: order.name, **given, **self.operands}
        text, more = way.definition(self.file, name, f"def {name}({', '.join(given)}):", *self._lines())
        end, call = self.file.newline, f"{name}({', '.join(given.values())})"
        above = self.file.insert_line(self.file.line_above(self.function), f"{text}{end}{end}{end}")
        return (*edits, *more, above), call

    def _lines(self) -> list[str]:
        unit = self.file.indent_unit
        if not self.conditional:
            return [f"{unit}{each}" for each in self.sides[0]]
        heads = ("if condition:", "else:" if self.sides[0] else "if not condition:")
        sides = [(head, side) for head, side in zip(heads, self.sides, strict=True) if side]
        return [line for head, side in sides for line in (f"{unit}{head}", *(f"{unit * 2}{each}" for each in side))]


def operator_of(file: ParsedSource, function: cst.FunctionDef, effect: cst.Call) -> EffectFunction | None:
    """The function for a call that can be an operator of its own in the graph. ``None`` if its types are not known, or
    if it uses what only the function has: an import, what a `with` gives, a variable of a function around it.
    """
    others = all_locals(function).difference(local_names(file, function))
    used = {node.value for node in file.nodes(cst.Name, effect)}
    if used & others or file.enclosing(function, cst.FunctionDef) is not None:
        return None
    made = EffectFunction(file, function, conditional=False, for_operator=True)
    with suppress(Unsuitable):
        made.add(0, effect, values_of(effect))
        return made if made.is_operator else None
    return None


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
