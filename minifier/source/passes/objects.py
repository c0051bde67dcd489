"""Passes that remove classes: methods become functions, attributes become variables."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping
from typing import Any

from minifier.source.calls import Calls
from minifier.source.observed import Seen
from minifier.source.scopes import bound_names, classes, names_read, new_name, scope_of, use_counts, uses_of
from minifier.source.trees import Edit, Replacement, call_arguments, expression, parents_of, substitute

_CALL_METHODS = ("__call__", "forward")


def _self_name(method: ast.FunctionDef) -> str | None:
    if any(ast.unparse(d) == "staticmethod" for d in method.decorator_list) or not method.args.args:
        return None
    return method.args.args[0].arg


def _without_self(method: ast.FunctionDef, name: str) -> ast.FunctionDef:
    spec = method.args
    drop = int(_self_name(method) is not None)
    args = ast.arguments(
        spec.posonlyargs, spec.args[drop:], spec.vararg, spec.kwonlyargs, spec.kw_defaults, spec.kwarg, spec.defaults
    )
    decorators = [d for d in method.decorator_list if ast.unparse(d) not in ("staticmethod", "classmethod", "property")]
    function = copy.copy(method)
    function.name, function.args, function.decorator_list, function.returns = name, args, decorators, None
    return function


def _reads_self(method: ast.FunctionDef) -> bool:
    own = _self_name(method)
    read = {name for part in method.body for name in names_read(part)}
    return bool(read & {own, "super"})


def _module_statement(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> ast.stmt | None:
    while node in parents and not isinstance(parents[node], ast.Module):
        node = parents[node]
    return node if isinstance(node, ast.stmt) else None


def methods_to_functions(tree: ast.Module, seen: Seen) -> Iterator[list[Edit]]:
    """Make a method that does not use its object a function of the module."""
    calls, parents, taken = Calls(tree, seen), parents_of(tree), bound_names(tree)
    for method, owner in calls.owners.items():
        assert isinstance(method, ast.FunctionDef)
        place = _module_statement(owner, parents)
        if method.name.startswith("__") or place is None:
            continue
        name = new_name(method.name, taken)
        uses = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == method.name]
        function = _without_self(method, name)
        edit: dict[ast.AST, ast.AST | tuple[ast.AST, ...]] = {method: (), place: (function, place)}
        if not _reads_self(method):
            for use in uses:
                edit[use] = ast.Name(name, ast.Load())
        else:
            function.args = method.args
            for use in uses:
                call, plain = parents.get(use), ast.Name(name, ast.Load())
                made = parents.get(call) if call is not None else None
                if isinstance(call, ast.Call) and call.func is use:
                    edit[call] = ast.Call(plain, [use.value, *call.args], call.keywords)
                elif isinstance(made, ast.Call) and made.func is call:  # torch.compile(obj.method)(x)
                    edit |= {use: plain, made: ast.Call(call, [use.value, *made.args], made.keywords)}
        yield [edit]


def classes_to_functions(tree: ast.Module, seen: Seen) -> Iterator[list[Edit]]:
    """Make a class that is only called a function: its `__call__` or `forward`, if that does not use the object."""
    calls = Calls(tree, seen)
    made = [(call, owner) for call, owner, _ in calls.constructors()]
    for owner in calls.classes.values():
        for method in owner.body:
            if not isinstance(method, ast.FunctionDef) or method.name not in _CALL_METHODS or _reads_self(method):
                continue
            function = _without_self(method, owner.name)
            names: Edit = {call: ast.Name(owner.name, ast.Load()) for call, of in made if of is owner}
            yield [{owner: function, **names}]


def collapse_classes(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """Replace a class without a body of its own by its base, or move what a base has into its only subclass."""
    found = {owner.name: owner for owner in classes(tree)}
    counts = use_counts(tree)
    for owner in found.values():
        bases = [base for base in owner.bases if isinstance(base, ast.Name) and base.id in found]
        if len(owner.bases) == 1 and all(isinstance(part, ast.Pass) for part in owner.body):
            uses = uses_of(tree, owner.name)
            yield [{owner: (), **dict.fromkeys(uses, owner.bases[0])}]
        for base in bases:
            inherited = found[base.id]
            if counts[base.id] == 1:
                own = {getattr(part, "name", None) for part in owner.body} - {None}
                kept = [part for part in inherited.body if getattr(part, "name", None) not in own]
                merged = copy.copy(owner)
                merged.body = [*kept, *owner.body]
                merged.bases = [b for old in owner.bases for b in (inherited.bases if old is base else [old])]
                yield [{owner: merged, inherited: ()}]


def callables_to_functions(tree: ast.Module, seen: Seen) -> Iterator[list[Edit]]:
    """Make a class whose only method besides `__init__` is called, or iterates, a function, with its attributes as
    parameters.
    """
    calls = Calls(tree, seen)
    for owner in calls.classes.values():
        methods = {m.name: m for m in owner.body if isinstance(m, ast.FunctionDef)}
        names = [name for name in methods if name != "__init__"]
        made = [(call, init) for call, of, init in calls.constructors() if of is owner]
        if len(names) != 1 or len(made) != 1 or len(methods) != len(owner.body):
            continue
        if names[0] not in (*_CALL_METHODS, "__iter__"):
            continue
        method, (construction, init) = methods[names[0]], made[0]
        own = _self_name(method)
        arguments = call_arguments(init, construction, 1) if init is not None else {}
        values = _values_of_attributes(init, arguments) if arguments is not None else None
        if own is None or values is None:
            continue
        function = _without_self(method, owner.name)
        function.args.args = [*(ast.arg(name) for name in values), *function.args.args]
        function.body = [_attributes_as_names(copy.deepcopy(part), own) for part in method.body]
        made_by, given = ast.Name(owner.name, ast.Load()), copy.deepcopy(list(values.values()))
        if names[0] == "__iter__":
            yield [{owner: function, construction: ast.Call(made_by, given, [])}]
            continue
        edit: dict[ast.AST, ast.AST] = {owner: function, construction: made_by}
        for call in _calls_of_object(tree, construction):
            edit[call] = ast.Call(call.func, [*copy.deepcopy(given), *call.args], call.keywords)
        yield [edit]


def _calls_of_object(tree: ast.Module, construction: ast.Call) -> Iterator[ast.Call]:
    """The calls of an object, or of what was made of it (``torch.compile(obj)``) and has a name."""
    made: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                inside = list(ast.walk(value))
                if construction in inside or any(isinstance(n, ast.Name) and n.id in made for n in inside):
                    made.add(name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Call):
            inside = list(ast.walk(node.func))
            if construction in inside or any(isinstance(n, ast.Name) and n.id in made for n in inside):
                yield node


def _values_of_attributes(init: ast.FunctionDef | None, arguments: dict[str, ast.expr]) -> dict[str, ast.expr] | None:
    """The attributes that `__init__` sets, with their values; None if it does anything else."""
    found: dict[str, ast.expr] = {}
    for part in init.body if init is not None else ():
        match part:
            case ast.Pass():
                continue
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(), attr=name)], value=value):
                found[name] = substitute(value, arguments)
            case _:
                return None
    return found


def attributes_to_variables(tree: ast.Module, seen: Seen) -> Iterator[list[Edit]]:
    """Replace an attribute that `__init__` sets by a variable of the module, or by its value."""
    calls, parents, shared = Calls(tree, seen), parents_of(tree), bound_names(tree)
    stores = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store | ast.Del)]
    for node in _attribute_assignments(tree):
        target = node.targets[0]
        assert isinstance(target, ast.Attribute)
        same = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == target.attr and n is not target]
        loads = [n for n in same if n not in stores]
        if sum(store.attr == target.attr for store in stores) != 1:  # of several classes
            if names_read(node.value) <= shared:
                yield [{load: node.value} for load in loads]
            continue
        method = parents[node]
        variants = [node.value]
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            for call, bound in calls.callers(method):
                arguments = call_arguments(method, call, bound)
                if arguments is not None:
                    variants.append(substitute(node.value, arguments))
        for value in reversed(variants):
            yield from _as_variable(tree, node, target.attr, loads, value, parents)
        if loads and (seen.values(loads[0])):
            literal = expression(seen.values(loads[0])[0])
            yield [{node: (), **dict.fromkeys(loads, literal)}]
    for owner in calls.classes.values():  # an attribute of the class itself
        for item in owner.body:
            if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
                name = item.targets[0].id
                loads = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == name]
                if loads:
                    yield [{item: (), **dict.fromkeys(loads, item.value)}]


def _attribute_assignments(tree: ast.AST) -> list[ast.Assign]:
    return [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.Assign) and len(n.targets) == 1 and isinstance(n.targets[0], ast.Attribute)
    ]


def _as_variable(
    tree: ast.Module,
    node: ast.Assign,
    name: str,
    loads: list[ast.Attribute],
    value: ast.expr,
    parents: dict[ast.AST, ast.AST],
) -> Iterator[list[Edit]]:
    yield [{node: (), **dict.fromkeys(loads, value)}]
    variable = new_name(name, bound_names(tree))
    places = [_module_statement(load, parents) for load in loads]
    callers = [n for n in tree.body if not isinstance(n, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom)]
    for place in [*callers[:1], *places[:1]]:
        if place is not None:
            read: Edit = {load: ast.Name(variable, ast.Load()) for load in loads}
            yield [{node: (), place: (ast.Assign([ast.Name(variable, ast.Store())], value), place), **read}]


def drop_fields(tree: ast.Module, seen: Seen) -> Iterator[list[Edit]]:
    """Remove fields of dataclasses and named tuples that nothing reads, with their arguments in each construction."""
    calls = Calls(tree, seen)
    read = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    edits: list[Edit] = []
    for owner in calls.classes.values():
        made = [call for call, of, init in calls.constructors() if of is owner and init is None]
        for place, field in enumerate(_fields(owner)):
            name = ast.unparse(field.target)
            if name not in read:
                given = [a for call in made for a in [*call.args[place : place + 1], *call.keywords]]
                gone = [a for a in given if not isinstance(a, ast.keyword) or a.arg == name]
                edits.append(dict.fromkeys([field, *gone], ()))
    yield edits


def _fields(owner: ast.ClassDef) -> list[ast.AnnAssign]:
    return [item for item in owner.body if isinstance(item, ast.AnnAssign)]


def objects_to_arguments(tree: ast.Module, seen: Seen) -> Iterator[list[Edit]]:
    """Pass the attributes that a function reads of an object in place of the object: `f(1, 2)` for `f(C(1, 2))`."""
    calls = Calls(tree, seen)
    made: dict[ast.expr | None, dict[str, ast.expr]] = {
        call: values for call, of, init in calls.constructors() if (values := _values(call, of, init))
    }
    for function in calls.plain.values():
        callers = [call_arguments(function, call, bound) or {} for call, bound in calls.callers(function)]
        for parameter in function.args.args[: len(function.args.args) - len(function.args.defaults)]:
            uses = uses_of(function, parameter.arg)
            reads = [n for n in ast.walk(function) if isinstance(n, ast.Attribute) and n.value in uses]
            names = list(dict.fromkeys(n.attr for n in reads))
            given = [arguments.get(parameter.arg) for arguments in callers]
            plain = len(reads) == len(uses) and given and not bound_names(function) & set(names)
            if names and plain and all(made.get(a, {}).keys() >= set(names) for a in given):
                edit: dict[ast.AST, Replacement] = {n: ast.Name(n.attr, n.ctx) for n in reads}
                edit[parameter] = [ast.arg(name) for name in names]
                yield [edit | {a: [made[a][name] for name in names] for a in given if a is not None}]


def _values(call: ast.Call, owner: ast.ClassDef, init: ast.FunctionDef | None) -> dict[str, ast.expr] | None:
    """The attributes of a new object with their values; None if they are not plain."""
    if init is not None:
        arguments = call_arguments(init, call, 1)
        return _values_of_attributes(init, arguments) if arguments is not None else None
    fields = _fields(owner)
    names = [ast.unparse(field.target) for field in fields]
    found = {name: field.value for name, field in zip(names, fields, strict=True) if field.value is not None}
    found |= zip(names, call.args, strict=False)
    return found | {k.arg: k.value for k in call.keywords if k.arg is not None}


def objects_to_values(tree: ast.Module, seen: Seen) -> Iterator[list[Edit]]:
    """Replace an object that has one attribute and no methods by the value of that attribute."""
    calls = Calls(tree, seen)
    for owner in calls.classes.values():
        if len(owner.body) != 1:
            continue
        name, value = _only_attribute(owner)
        edit: dict[ast.AST, ast.AST | tuple[()]] = {owner: ()}
        for call, of, init in calls.constructors():
            if of is not owner:
                continue
            if init is None:  # a dataclass
                given = [*call.args, *(k.value for k in call.keywords), *([value] if value is not None else [])]
                if given:
                    edit[call] = given[0]
            elif value is not None and (arguments := call_arguments(init, call, 1)) is not None:
                edit[call] = substitute(value, arguments)
        if name is None or len(edit) == 1:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr == name and not _is_own(node):
                edit[node] = node.value
        yield [edit]


def _only_attribute(owner: ast.ClassDef) -> tuple[str | None, ast.expr | None]:
    """The attribute that a class sets and its value, or the field of a dataclass and its default."""
    match owner.body[0]:
        case ast.AnnAssign(target=ast.Name(id=name), value=value):
            return name, value
        case ast.FunctionDef(
            name="__init__", body=[ast.Assign(targets=[ast.Attribute(attr=name) as target], value=value)]
        ):
            return (name, value) if _is_own(target) else (None, None)
    return None, None


def _is_own(node: ast.Attribute) -> bool:
    """Whether an assignment sets an attribute of `self`."""
    return isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"


def objects_to_variables(tree: ast.Module, seen: Seen) -> Iterator[list[Edit]]:
    """Replace the attributes of an object that has a name by variables of the function, or module, that makes it."""
    calls, parents = Calls(tree, seen), parents_of(tree)
    for call, owner, init in calls.constructors():
        statement = parents.get(call)
        if isinstance(statement, ast.Expr):
            name = ""
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
        else:
            continue
        scope = scope_of(statement, parents)
        arguments = call_arguments(init, call, 1) if init is not None else {}
        if arguments is None:
            continue
        taken = bound_names(scope)
        own = _self_name(init) if init is not None else None
        reads = [n for n in ast.walk(scope) if isinstance(n, ast.Attribute) and ast.unparse(n.value) == name]
        variables = {n.attr: new_name(n.attr, taken - {n.attr}) for n in reads}
        body = [_attributes_as_names(substitute(s, arguments), own) for s in (init.body if init is not None else ())]
        fields = _fields_of(owner, {} if init is not None else _values(call, owner, init) or {})
        kept = [*fields, *(s for s in body if not isinstance(s, ast.Pass))]
        stored = {n: variables[n.attr] for n in reads if not isinstance(n.ctx, ast.Load)}
        declared = _declarations(scope, stored, parents)
        yield [{statement: tuple(kept), **{n: ast.Name(variables[n.attr], n.ctx) for n in reads}, **declared}]


def _fields_of(owner: ast.ClassDef, given: Mapping[str, ast.expr]) -> Iterator[ast.Assign]:
    """Assignments of what a class's body sets, and of what a dataclass was ``given``."""
    own = {ast.unparse(s.targets[0]): s.value for s in owner.body if isinstance(s, ast.Assign)}
    for name, value in {**own, **given}.items():
        match value:
            case ast.Call(func=function, keywords=[ast.keyword(arg="default_factory", value=factory)]):
                if ast.unparse(function).rpartition(".")[2] == "field":
                    value = ast.Call(factory, [], [])
        yield ast.Assign([ast.Name(name, ast.Store())], value)


def _declarations(scope: ast.AST, stored: dict[ast.Attribute, str], parents: dict[ast.AST, ast.AST]) -> Edit:
    """The edit that declares the names that functions inside a scope store there."""
    names: dict[ast.FunctionDef, list[str]] = {}
    for node, name in stored.items():
        function = scope_of(node, parents)
        if isinstance(function, ast.FunctionDef) and function is not scope:
            names.setdefault(function, []).append(name)
    declare = ast.Global if isinstance(scope, ast.Module) else ast.Nonlocal
    return {f.body[0]: (declare(sorted({*found})), f.body[0]) for f, found in names.items()}


class _AttributesAsNames(ast.NodeTransformer):
    def __init__(self, holder: str | None) -> None:
        self._holder = holder

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == self._holder:
            return ast.Name(node.attr, node.ctx)
        return node


def _attributes_as_names(node: ast.AST, holder: str | None) -> Any:
    found: Any = _AttributesAsNames(holder).visit(node)
    return found
