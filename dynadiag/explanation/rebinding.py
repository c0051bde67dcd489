"""Where the program rebinds what a guard reads: an attribute that is set, a key that is added, a gradient set to None.

A place is given only where the sources leave no choice.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dynadiag.explanation.branches import SIZED, called_name
from dynadiag.explanation.identity import enclosing_function, nodes_of, parsed
from dynadiag.recording.records import GuardFailure, Recompile, Span
from dynadiag.recording.torch_text.sources import holder_of, is_global, last_name, source_text

_FIRST = ("__init__", "__post_init__", "__setstate__", "reset_parameters")  # functions that give the first value
_ADDING = ("append", "appendleft", "extend", "insert", "add")  # methods of containers that add an item
_REMOVING = ("pop", "popleft", "popitem", "remove", "discard", "clear")
DICTS = ("dict", "OrderedDict", "defaultdict", "Counter")
_READ = (ast.Name, ast.Attribute, ast.Subscript)  # how a value is read
_HELD = ("attribute", "module attribute", "object attribute", "held attribute", "optimizer", "global")


def added_item(fact: GuardFailure, item: Recompile, sources: Mapping[str, str]) -> tuple[str | None, Span] | None:
    """The key that the compiled code itself adds to the container of a guard, and where; no key of a list or a set.

    The compiled code is the function that was compiled again, the one that it calls where the guard is needed, and what
    stands at the guard's own line, such as a hook.
    """
    if fact.part not in ("length", "keys", "membership") and (fact.part, fact.was_type) != ("value", "set"):
        return None
    function = enclosing_function(sources.get(item.file or ""), item.line)
    containers = _written_as(source_text(fact.subject), function)
    guarded = [*_nodes_at(fact, sources)]
    called = enclosing_function(sources.get(fact.file or ""), fact.line)
    guarded += [] if called in (None, function) else list(ast.walk(called))
    here = [] if function is None else [(item.file, node) for node in ast.walk(function)]
    here = [(fact.file, node) for node in guarded] + here
    for file, node in here:
        for target in _targets(node) if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) else ():
            if not isinstance(target, ast.Subscript):
                continue
            own = getattr(target.value, "attr", None) == last_name(fact.subject) and node in guarded  # of its own self
            if not own and ast.unparse(target.value) not in containers:
                continue
            key = ast.unparse(target.slice)
            grows = fact.part == "length" and fact.now_type in DICTS and _length(fact.now) > _length(fact.was)
            if fact.index == key or (fact.index is None and (grows or isinstance(target.slice, ast.Constant))):
                return key, Span(file, target.lineno)
            if fact.part == "membership" and target.lineno == fact.line and isinstance(target.slice, ast.Name):
                return fact.index, Span(file, target.lineno)  # the line that asks for the key sets it
    for file, node in here:
        method = node.func if isinstance(node, ast.Call) else None
        if isinstance(method, ast.Attribute) and method.attr in _ADDING and ast.unparse(method.value) in containers:
            return None, Span(file, method.lineno)
    return None


def takes_out_again(added: tuple[str | None, Span] | None, sources: Mapping[str, str]) -> bool:
    """Whether the function that adds items to a list also removes items from it, so that its length may stay."""
    if added is None or added[0] is not None:
        return False
    function = enclosing_function(sources.get(added[1].file or ""), added[1].line)
    called = [node.func for node in ast.walk(function or ast.Pass()) if isinstance(node, ast.Call)]
    methods = [each for each in called if isinstance(each, ast.Attribute)]
    filled = {ast.unparse(each.value) for each in methods if each.attr in _ADDING and each.lineno == added[1].line}
    return any(each.attr in _REMOVING and ast.unparse(each.value) in filled for each in methods)


def _written_as(container: str, function: ast.AST | None) -> set[str]:
    """What a function may call a container: ``self.state[list(self.state)[0]]``, or ``state`` behind
    ``state = self.state[p]``."""
    texts = {container}
    for node in () if function is None else ast.walk(function):
        if isinstance(node, ast.Assign):
            value = node.value
            item = isinstance(value, ast.Subscript) and container.startswith(f"{ast.unparse(value.value)}[")
            texts |= {ast.unparse(each) for each in node.targets if item or ast.unparse(value) == container}
    return texts


def _length(value: str | None) -> int:
    """The number in a text such as ``length 2``; 0 where there is none."""
    number = (value or "").rpartition(" ")[2]
    return int(number) if number.isdecimal() else 0


def keyword_at_times(fact: GuardFailure, item: Recompile, sources: Mapping[str, str]) -> str | None:
    """The keyword argument that only some calls pass to a function that takes any."""
    function = enclosing_function(sources.get(item.file or ""), item.line)
    taken = "kwargs" if function is None or function.args.kwarg is None else function.args.kwarg.arg
    if fact.part == "membership" and fact.subject == f"L['{taken}']":
        return (fact.index or "").strip("'\"")
    inside = fact.part == "presence" and holder_of(fact.subject) == f"L['{taken}']"
    return last_name(fact.subject) if inside else None


def number_use(fact: GuardFailure, sources: Mapping[str, str]) -> tuple[str, Span] | None:
    """What an integer that is part of the code is for at the line of its guard: "loop", "text" (it is written into
    one), or the container that it picks an item of."""
    if fact.part != "value" or fact.was_type != "int":
        return None
    name = _written_at(fact, sources)
    for node in _nodes_at(fact, sources):
        place = Span(fact.file, getattr(node, "lineno", fact.line))
        called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        if isinstance(node, ast.Call) and called == "range" and any(ast.unparse(each) == name for each in node.args):
            return "loop", place
        if isinstance(node, ast.FormattedValue) and ast.unparse(node.value) == name:
            return "text", place
        if isinstance(node, ast.Subscript) and ast.unparse(node.slice) == name:
            return ast.unparse(node.value), place
    return None


def picks_by_name(fact: GuardFailure, sources: Mapping[str, str]) -> bool:
    """Whether the line of a guard picks an item by a variable. If that is the number, torch makes no symbol of it."""
    nodes = _nodes_at(fact, sources)
    return any(isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name) for node in nodes)


def number_sizes(fact: GuardFailure, sources: Mapping[str, str]) -> Span | None:
    """Where the function whose guard reads an integer slices by it, or gives it to a call that takes sizes."""
    function = enclosing_function(sources.get(fact.file or ""), fact.line)
    if fact.part != "value" or fact.was_type != "int" or function is None:
        return None
    name = _written_at(fact, sources)
    for node in ast.walk(function):
        if not (isinstance(node, ast.Slice) or (isinstance(node, ast.Call) and called_name(node) in SIZED)):
            continue
        parts = (each for part in ast.iter_child_nodes(node) for each in ast.walk(part))
        if any(isinstance(each, ast.expr) and ast.unparse(each) == name for each in parts):
            return Span(fact.file, node.lineno)
    return None


def _written_at(fact: GuardFailure, sources: Mapping[str, str]) -> str:
    """What the function at a guard's line calls that which it reads: ``self.pos`` in a method of what holds it."""
    name = source_text(fact.subject)
    function = enclosing_function(sources.get(fact.file or ""), fact.line)
    own = f"self.{last_name(fact.subject)}"
    written = set() if function is None else {ast.unparse(each) for each in ast.walk(function) if type(each) in _READ}
    return own if name not in written and own in written else name


def decided_by(fact: GuardFailure, sources: Mapping[str, str]) -> Span | None:
    """The first branch that an integer decides in the function whose guard reads it; None where it decides none."""
    function = enclosing_function(sources.get(fact.file or ""), fact.line)
    if fact.part != "value" or fact.was_type != "int" or function is None:
        return None
    line = _branch_lines(function).get(_written_at(fact, sources))
    return None if line is None else Span(fact.file, line)


@functools.lru_cache(maxsize=32)
def _branch_lines(function: ast.AST) -> Mapping[str, int]:
    """The line of the first condition in a function that an expression is part of, by its text."""
    lines: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, (ast.If, ast.IfExp, ast.While, ast.Assert)):
            for each in ast.walk(node.test):
                if isinstance(each, ast.expr):
                    lines.setdefault(ast.unparse(each), node.test.lineno)
    return lines


def set_inside(fact: GuardFailure, item: Recompile, sources: Mapping[str, str]) -> Span | None:
    """Where the compiled function itself sets the attribute that a guard reads; None where other code may set it too.

    What is counted up there has no last value, and is left out. Of an item (``self.cache[0]``) it is where the
    container is set.
    """
    holder = fact.subject
    while holder is not None and holder.endswith("]") and (outer := holder_of(holder)) is not None:
        holder = outer
    fact = replace(fact, subject=holder)
    place = assignment(fact, sources)
    if place is None:
        return None
    function = enclosing_function(sources.get(place.file or ""), place.line)
    around = ((item.file, item.line), (fact.file, fact.line))
    own = [enclosing_function(sources.get(file or ""), line) for file, line in around]
    if function is None or function not in own:
        return None
    sets = [node for node in ast.walk(function) if isinstance(node, ast.Assign) and node.lineno == place.line]
    counts = fact.was_type == "int" and any(
        _reads_place_of(node.value, each) for node in sets for each in _targets(node)
    )
    return place if sets and not counts else None


def counted_inside(fact: GuardFailure, sources: Mapping[str, str]) -> Span | None:
    """Where compiled code adds to a global number, or to one in a global: in the function whose guard reads it."""
    function = enclosing_function(sources.get(fact.file or ""), fact.line)
    if function is None or not is_global(fact.subject):
        return None
    for node in ast.walk(function):
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            counted = (each for each in _targets(node) if _is_read(each, fact))
            if any(isinstance(node, ast.AugAssign) or _reads_place_of(node.value, each) for each in counted):
                return Span(fact.file, node.lineno)
    return None


def _is_read(target: ast.expr, fact: GuardFailure) -> bool:
    """Whether what is assigned to is what a guard reads, or an item of that container by a key with a name."""
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Name):
        return (fact.subject or "").endswith("]") and ast.unparse(target.value) == source_text(holder_of(fact.subject))
    return ast.unparse(target) == source_text(fact.subject)


def _reads_place_of(value: ast.expr, target: ast.expr) -> bool:
    """Whether a value is made of what stood at the place that it is assigned to: ``d[k]`` or ``d.get(k, 0)``."""
    held = ast.unparse(target.value) if isinstance(target, ast.Subscript) else ast.unparse(target)
    return any(isinstance(node, ast.expr) and ast.unparse(node) == held for node in ast.walk(value))


def _nodes_at(fact: GuardFailure, sources: Mapping[str, str]) -> Iterator[ast.AST]:
    """The nodes at the line of a guard."""
    text = sources.get(fact.file or "") or ""
    around = enclosing_function(text, fact.line) or parsed(text)
    yield from (node for node in ast.walk(around) if getattr(node, "lineno", None) == fact.line) if around else ()


def key_place(fact: GuardFailure, sources: Mapping[str, str]) -> tuple[str, Span] | None:
    """The dict that the value of a guard is a key of, and where it is looked up: ``CACHE`` of ``CACHE[self.key]``.

    What an integer picks of may be a list or a tensor, and what is asked for a value (``in``) any container: it is a
    dict where the program makes one of that name.
    """
    text = sources.get(fact.file or "")
    if fact.part != "value" or fact.was_type not in ("int", "float", "str"):
        return None
    name = source_text(fact.subject)
    for node in _nodes_at(fact, sources):
        match node:
            case ast.Subscript(value=container, slice=key):
                is_dict = fact.was_type != "int"
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[container]):
                is_dict = False
            case ast.Call(func=ast.Attribute(value=container, attr="get" | "setdefault" | "pop"), args=[key, *_]):
                is_dict = True
            case _:
                continue
        held = ast.unparse(container)
        if ast.unparse(key) == name and (is_dict or any(makes_dict(each) for each in _values_of(text, held))):
            return held, Span(fact.file, fact.line)
    return None


def makes_dict(value: ast.expr | None) -> bool:
    """Whether an expression makes a dict: ``{}``, ``defaultdict(list)``."""
    made = isinstance(value, ast.Call) and called_name(value) in DICTS
    return made or isinstance(value, (ast.Dict, ast.DictComp))


def _values_of(text: str | None, name: str) -> Iterator[ast.expr | None]:
    """The values that a file gives to a name or an attribute."""
    assigned: list[ast.Assign | ast.AnnAssign] = [*nodes_of(text, ast.Assign), *nodes_of(text, ast.AnnAssign)]
    return (node.value for node in assigned if name in map(ast.unparse, _targets(node)))


def assignment(fact: GuardFailure, sources: Mapping[str, str]) -> Span | None:
    """The one statement of the program's that gives what a guard reads another value; None if there may be others.

    A local object that is another one than before was not rebound. The first value, in a constructor or at the top of a
    file, is no other one.
    """
    name = last_name(fact.subject)
    freed = fact.part in ("freed", "identity") and name != "grad"
    scheduled = fact.base == "optimizer" and any("lr_scheduler" in text for text in sources.values())
    if name is None or fact.base not in _HELD or fact.is_new_owner or freed or scheduled:
        return None
    places = [
        Span(file, node.lineno)
        for file, text in sources.items()
        for node in _statements(text, None if fact.base != "global" else name)
        if any(_binds(target, name, fact.base) for target in _targets(node)) or _sets(node, name)
    ]
    return places[0] if len(places) == 1 else None


def _statements(text: str, global_: str | None) -> Iterator[ast.stmt | ast.expr]:
    """The statements and calls of a file that may give another value than the first.

    The first assignment at the top of a file gives a global its first value.
    """
    parts = _setting_nodes(text)
    makers = (top for top, _ in parts if any(_binds(each, global_ or "", "global") for each in _targets(top)))
    first = next(makers, None)
    for top, nodes in parts:
        if top is not first or isinstance(top, ast.For):
            yield from nodes


@functools.lru_cache(maxsize=16)
def _setting_nodes(text: str) -> Sequence[tuple[ast.stmt, Sequence[ast.stmt | ast.expr]]]:
    """The statements at the top of a file, each with what sets something in it outside of constructors."""
    tree = parsed(text)
    return [(top, [*_setting(top)]) for top in tree.body] if tree is not None else []


def _setting(top: ast.stmt) -> Iterator[ast.stmt | ast.expr]:
    stack: list[ast.AST] = [top]
    while stack:
        node = stack.pop()
        if not (isinstance(node, ast.FunctionDef) and node.name in _FIRST):
            if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.Delete, ast.Call)):
                yield node
            stack += ast.iter_child_nodes(node)


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    """The places that a statement assigns to."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from target.elts if isinstance(target, (ast.Tuple, ast.List)) else (target,)
    elif isinstance(node, (ast.AugAssign, ast.For)) or (isinstance(node, ast.AnnAssign) and node.value is not None):
        yield node.target
    elif isinstance(node, ast.Delete):
        yield from node.targets


def _binds(target: ast.expr, name: str, base: str | None) -> bool:
    if isinstance(target, ast.Attribute):
        return target.attr == name and base != "global"
    if isinstance(target, ast.Subscript):
        return isinstance(target.slice, ast.Constant) and target.slice.value == name and base != "global"
    return isinstance(target, ast.Name) and target.id == name and base == "global"


def _sets(node: ast.AST, name: str) -> bool:
    """Whether a call sets an attribute or a key of this name: ``setattr(a, "k", v)``, ``d.update(k=v)``, or, of a
    gradient, ``zero_grad()``."""
    if not isinstance(node, ast.Call):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    named = [keyword.arg for keyword in node.keywords]
    if called == "zero_grad" and name == "grad":
        return "set_to_none" not in named and not node.args
    if called in ("setattr", "setdefault", "pop"):
        return any(isinstance(argument, ast.Constant) and argument.value == name for argument in node.args)
    return called == "update" and name in named
