"""Conditions on numbers that a tensor holds: what is decided, and the line that takes the number.

Tracing has no values, so it cannot follow ``if n > 3`` after ``n = x.sum().item()``. torch names a symbol of its own
(``zuf0 > 3.0``) and advises to capture the number, which helps only where nothing is decided by it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from dynadiag.explanation.blocks import decides_a_loop
from dynadiag.explanation.branches import (
    KEPT,
    SHOWN,
    SIZED,
    Tested,
    called_name,
    compared,
    is_caught,
    kept_by,
    raises,
    shows,
    tests_at,
    tests_of,
    text_of,
    unpacked,
)
from dynadiag.explanation.identity import enclosing_function
from dynadiag.explanation.rebinding import makes_dict
from dynadiag.explanation.run_records import RunRecords
from dynadiag.recording.records import Break, Span, Symbol

TO_A_NUMBER = "aten._local_scalar_dense"  # the operator of item() and tolist()
_TAKES = frozenset({"item", "tolist", "int", "float", "bool"})  # calls that take numbers out of a tensor
_KNOWN = frozenset({"numel", "dim", "size", "len", "isinstance", "hasattr", "type", "ndimension", "is_floating_point"})
_ORDERS = frozenset(  # what compares numbers in Python
    {"sorted", "sort", "heappush", "heappushpop", "heapreplace", "heapify", "nlargest", "nsmallest", "index"}
    | {"bisect", "bisect_left", "bisect_right", "insort", "insort_left", "insort_right"}
)
_LOOKUPS = frozenset({"get", "pop", "setdefault"})
_SAME = frozenset({"int", "float", "abs", "min", "max", "round"})  # what makes a number of a number


@dataclass(frozen=True, slots=True)
class NumberCondition:
    """``condition`` at ``line`` (empty where the line has none), and what takes the number: ``origin``, at a line.

    ``origin`` is empty for a size that is unbacked although no line made it: the caller marked it so.

    ``comparison`` is the condition as an expression that has a truth value for tensors too, empty where it has none;
    ``negated`` is its opposite.
    ``required`` is what must hold where one side of the branch only raises, empty for every other branch.
    ``is_direct``: the number itself is compared, and not a size or another number that was made of it.
    ``is_taken``: `.item()` or its like takes it. ``is_expression``: it is the test of a conditional expression.
    ``is_skip``: a pass of a loop is left out where the number is 0. ``only_shows``: no side does more than to show or
    keep something.
    ``is_captured``: torch keeps such numbers in the graph already. ``is_whole``: the program demands one graph.
    ``is_exported``: the graph is that of an exported program. ``kept`` is what a side has without computing it.
    """

    condition: str
    line: int
    origin: str
    origin_line: int
    comparison: str = ""
    negated: str = ""
    required: str = ""
    is_direct: bool = False
    is_loop: bool = False
    is_expression: bool = False
    is_skip: bool = False
    only_shows: bool = False
    is_size: bool = False
    is_taken: bool = False
    is_captured: bool = False
    is_whole: bool = False
    is_exported: bool = False
    kept: str = ""


def asked_decision(symbols: Collection[str], compile_id: str, span: Span, run: RunRecords) -> NumberCondition | None:
    """What torch asks to be decided at a line, by the symbols that it names: the recording has their lines."""
    source = run.sources.get(span.file or "")
    if symbols and _marked(compile_id, run).issuperset(symbols):
        return _on_a_size(source, span)
    return _decision_at(source, span, _origin_lines(run.symbols, compile_id, span.file, symbols)) if symbols else None


def taken_at(symbols: Collection[str], compile_id: str, run: RunRecords) -> tuple[Span, str] | None:
    """The line that takes one of these numbers out of a tensor, and the number's name, empty where it has none."""
    for each in run.symbols:
        if each.name in symbols and (each.compile_id, each.event) == (compile_id, "unbacked") and each.user_stack:
            place = Span(each.user_stack[-1].file, each.user_stack[-1].line)
            function = enclosing_function(run.sources.get(place.file or ""), place.line)
            made = [target for target, _ in _bindings(function, place.line)] if function is not None else []
            return place, made[0].id if len(made) == 1 and isinstance(made[0], ast.Name) else ""
    return None


def branch_decision(item: Break, run: RunRecords) -> NumberCondition | None:
    """The condition on a number that a break is at, or that the number which it takes is for."""
    source = run.sources.get(item.span.file or "")
    if "branching" in item.gb_type:
        lines = _origin_lines(run.symbols, item.compile_id, item.span.file)
        found = _decision_at(source, item.span, lines)
        if not lines and _marked(item.compile_id, run) and any(map(_reads_size, tests_at(source, item.span))):
            found = _on_a_size(source, item.span)
        return found if found is not None and found.condition else None
    if ".item()" in item.gb_type or item.facts.operator == TO_A_NUMBER:
        here = (each for each in run.breaks if each.span.file == item.span.file)
        branches = {each.span.line for each in here if "branching" in each.gb_type}
        return _decision_by(source, item.span, branches)
    return asked_decision(item.facts.symbols, item.compile_id, item.span, run)


def _marked(compile_id: str, run: RunRecords) -> set[str]:
    """The symbols of sizes that the caller marked unbacked."""
    return {each.name for each in run.symbols if (each.compile_id, each.event) == (compile_id, "marked")}


def _reads_size(node: Tested | ast.Assert) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr in ("shape", "size") for each in ast.walk(node.test))


def _origin_lines(
    symbols: Sequence[Symbol], compile_id: str, file: str | None, names: Collection[str] = ()
) -> set[int]:
    """The lines of a file that make numbers which tracing does not know: of these symbols, or of a whole compile."""
    return {
        each.user_stack[-1].line or 0
        for each in symbols
        if each.event == "unbacked" and each.compile_id == compile_id and each.user_stack
        if each.user_stack[-1].file == file and (not names or each.name in names)
    }


def _decision_at(source: str | None, span: Span, lines: Collection[int]) -> NumberCondition | None:
    """The condition at a span that one of these lines decides; where there is none, the line and the latest of them."""
    function = enclosing_function(source, span.line)
    if source is None or function is None or span.line is None:
        return None
    for node in tests_at(source, span):
        origin = _origin(function, node.test, lines)
        return None if origin is None else _decision(source, function, node, origin)
    origin = max((line for line in lines if line <= span.line), default=None)
    if origin is None:
        return None
    taken = any(called_name(each) in _TAKES for each in _calls_at(function, origin))
    return NumberCondition("", span.line, _value_at(source, function, origin), origin, is_taken=taken)


def _on_a_size(source: str | None, span: Span) -> NumberCondition | None:
    """The condition at a span on sizes that come unbacked from outside of the function."""
    node = next(iter(tests_at(source, span)), None)
    if node is None or source is None:
        return None
    condition = text_of(source, node.test)
    return NumberCondition(condition, node.test.lineno, "", node.test.lineno, condition)


def _decision_by(source: str | None, span: Span, branches: Collection[int | None]) -> NumberCondition | None:
    """The first condition that a number which is taken at a place decides.

    ``branches`` are the lines of conditions on tensors, which broke the graph themselves: such a tensor may have been
    computed with the number, but to capture the number does not decide its condition.
    """
    function, line = enclosing_function(source, span.line), span.line
    if source is None or function is None or line is None:
        return None
    taken = _taken_number(function, source, span)
    for node in tests_of(function):
        if node.test.lineno in branches:
            continue
        inside = any(each is taken for each in ast.walk(node.test)) if taken is not None else False
        before = node.test.lineno > line or (node.test.lineno == line and taken is None)
        if inside or (before and _origin(function, node.test, {line})):
            return _decision(source, function, node, line)
    return None


def taken_number(source: str | None, span: Span) -> str | None:
    """Return the call at a place that takes a number out of a tensor; None where it is not known."""
    function = enclosing_function(source, span.line)
    taken = None if function is None or source is None else _taken_number(function, source, span)
    return None if taken is None or source is None else text_of(source, taken) or None


def takes_from_arguments(source: str | None, span: Span) -> bool:
    """Whether the number that is taken at a place comes from the function's arguments alone, as they were given."""
    function = enclosing_function(source, span.line)
    taken = None if function is None or source is None else _taken_number(function, source, span)
    if function is None or taken is None:
        return False
    arguments = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)} - {"self"}
    bound = {name for target, _ in _bindings(function) for name in _names(target)}
    return _names(taken) - {"int", "float", "bool"} <= arguments - bound


def number_names(source: str | None, span: Span, lines: Collection[int | None]) -> tuple[str, ...]:
    """Return the names at a place that one of these lines has assigned a number to, out of a tensor."""
    function = enclosing_function(source, span.line)
    if function is None:
        return ()
    bindings = [pair for line in lines for pair in _bindings(function, line)]
    calls = [(target, node) for target, value in bindings for node in ast.walk(value) if isinstance(node, ast.Call)]
    assigned = {name for target, call in calls if called_name(call) in _TAKES for name in _names(target)}
    here = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.lineno == span.line]
    return tuple(dict.fromkeys(node.id for node in here if isinstance(node.ctx, ast.Load) and node.id in assigned))


def ends_loop(source: str | None, span: Span) -> str | None:
    """Return the kind of loop ("for", "while") that the condition at a line ends, None where it ends none."""
    function = enclosing_function(source, span.line)
    loops = _loops(function) if function is not None else []
    for node in tests_at(source, span):
        if decides_a_loop(node, loops):
            inner = [node] if isinstance(node, ast.While) else [each for each in loops if node in ast.walk(each)]
            return "for" if inner and isinstance(inner[-1], ast.For) else "while"
    return None


def uses_of_number(source: str | None, span: Span) -> frozenset[str]:
    """Return what the number that is taken from a tensor at a place is for, as far as the function shows it.

    Of "arithmetic" with tensors, "size" (of a tensor, a slice, a loop), "branch", "order" (of numbers in Python),
    "key" (of a dict), "list" (an item of one), "log", "store", "return", "other". What is stored is followed to where
    the function reads it afterwards.
    """
    function = enclosing_function(source, span.line)
    taken = None if function is None or source is None else _taken_number(function, source, span)
    if function is None or taken is None:
        return frozenset()
    parents = {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
    bound = [(path, value) for target, value in _bindings(function) for path in _paths(target)]
    kept = {path: "key" for path, value in bound if makes_dict(value)}
    kept |= {path: "list" for path, value in bound if _makes_list(value)}
    found, waiting, named = set[str](), [taken], set[str]()
    while waiting:
        use, names = _use(waiting.pop(0), parents, kept, named)
        found |= {use} if use else set()
        fresh = names - named
        named |= fresh
        waiting += [
            node
            for node in ast.walk(function)
            if isinstance(node, (ast.Name, ast.Attribute))
            and isinstance(node.ctx, ast.Load)
            and ast.unparse(node) in fresh
            and (isinstance(node, ast.Name) or node.lineno > taken.lineno)
        ]
    return frozenset(found)


def _use(
    node: ast.expr, parents: Mapping[ast.AST, ast.AST], kept: Mapping[str, str], numbers: Set[str]
) -> tuple[str | None, set[str]]:
    """Return the use of an expression, and the names that then stand for its value.

    ``kept`` has what picking an item of a dict or a list is, by its name, ``numbers`` are what is made of the number.
    """
    at: ast.AST = node
    below: ast.AST | None = None
    while (parent := parents.get(at)) is not None:
        match parent:
            case ast.For(target=target) | ast.comprehension(target=target) if parent.iter is at:
                return None, _names(target)
            case ast.Call(func=ast.Name(id="zip" | "enumerate")) if (names := _passed(parent, at, parents)) is not None:
                return None, names
            case ast.Call():
                name = getattr(parent.func, "attr", None) or getattr(parent.func, "id", None)
                if name in _LOOKUPS and kept.get(ast.unparse(parent.func).rpartition(".")[0]) == "key":
                    return "key", set()
                if name not in _SAME:
                    owner = {ast.unparse(parent.func.value)} if isinstance(parent.func, ast.Attribute) else set()
                    return _use_in_call(str(name)), owner if name in KEPT else set()
            case ast.BinOp(left=left, right=right) if not _is_number(right if left is at else left, numbers):
                return "arithmetic", set()
            case ast.Subscript() if parent.slice is at:
                return kept.get(ast.unparse(parent.value), "size"), set()
            case ast.Return():
                return "return", set()
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                whole = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
                pairs = [pair for target in whole for pair in unpacked(target, parent.value or target)]
                targets = [place for place, value in pairs if value in (None, at, below)]
                named = {ast.unparse(each) for each in targets if isinstance(each, (ast.Name, ast.Attribute))}
                return None if all(isinstance(each, ast.Name) for each in targets) else "store", named
            case ast.If() | ast.While() | ast.Compare() | ast.BoolOp() | ast.Assert():
                return "branch", set()
            case ast.IfExp() if parent.test is at:
                return "branch", set()
            case ast.Expr():
                return None, set()
            case ast.stmt():
                return "other", set()
        below, at = at, parent
    return "other", set()


def _makes_list(value: ast.expr) -> bool:
    """Whether an expression makes a list: ``[]``, ``x.tolist()``."""
    made = isinstance(value, ast.Call) and called_name(value) in ("list", "tolist")
    return made or isinstance(value, (ast.List, ast.ListComp))


def _passed(call: ast.Call, at: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> set[str] | None:
    """The names that a loop gives to what it goes through beside other things; None where it is no loop over them."""
    loop = parents.get(call)
    target = loop.target if isinstance(loop, (ast.For, ast.comprehension)) else None
    first = 1 if called_name(call) == "enumerate" else 0
    pairs = zip(call.args, target.elts[first:], strict=False) if isinstance(target, ast.Tuple) else ()
    return next((_names(name) for given, name in pairs if given is at), None)


def _is_number(value: ast.expr, numbers: Set[str]) -> bool:
    """Whether it is a constant, or made of such numbers alone."""
    return isinstance(value, ast.Constant) or (bool(paths := _paths(value)) and paths <= numbers)


def _use_in_call(name: str) -> str:
    if name in SIZED:
        return "size"
    if name in _ORDERS:
        return "order"
    return "log" if name in SHOWN else "store" if name in KEPT else "other"


def _taken_number(function: ast.AST, source: str, span: Span) -> ast.expr | None:
    """The outermost call at a place that takes a number out of a tensor (``int(i.max())``)."""
    calls = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and node.lineno == span.line and called_name(node) in _TAKES
    ]
    if span.column is not None:
        line = source.split("\n")[(span.line or 1) - 1]
        column = len(line[: span.column].encode("utf-8", "replace"))
        calls = [node for node in calls if node.col_offset <= column < (node.end_col_offset or 0)] or calls
    return min(calls, key=lambda node: node.col_offset, default=None)


def undecided(found: NumberCondition) -> str:
    """Why tracing stops there, in a sentence."""
    if not found.origin:
        return f"`{found.condition}` cannot be decided while tracing: the size is unbacked, as `mark_unbacked` makes it"
    place = "" if found.origin_line == found.line else f" at line {found.origin_line}"
    held = f"the number that `{found.origin}` takes from a tensor{place}"
    if not found.is_taken:
        held = f"the size of `{found.origin}`{place}, which the values of a tensor decide"
    if found.condition:
        return f"`{found.condition}` cannot be decided while tracing: it depends on {held}"
    return f"this line needs {held}, and tracing has no values"


def _loops(function: ast.AST) -> list[ast.For | ast.While]:
    """The loops of a function, an outer one before those in it."""
    return [node for node in ast.walk(function) if isinstance(node, (ast.For, ast.While))]


def _decision(source: str, function: ast.AST, node: Tested | ast.Assert, origin: int) -> NumberCondition:
    condition = text_of(source, node.test)
    taken = _taken_at(function, origin)
    value = _value_at(source, function, origin)
    comparison, negated = compared(source, node.test)
    held = {path for target, item in _bindings(function, origin) if item in taken for path in _paths(target)}
    is_compared = any(_is_of(path, each) for path in _paths(node.test) for each in held)
    direct = bool(taken) and (is_compared or origin == node.test.lineno)
    required = comparison if isinstance(node, ast.Assert) else ""
    if isinstance(node, ast.If) and not is_caught(function, node.lineno):
        required = negated if raises(node.body) else comparison if raises(node.orelse) else ""
    return NumberCondition(
        condition,
        node.test.lineno,
        value,
        origin,
        comparison,
        negated,
        required,
        direct,
        is_loop=decides_a_loop(node, _loops(function)),
        is_expression=isinstance(node, ast.IfExp),
        is_skip=_skips(node),
        is_size="size" in uses_of_number(source, Span(None, origin)),
        only_shows=isinstance(node, ast.If) and shows(node, function),
        is_taken=bool(taken) or any(called_name(each) in _TAKES for each in _calls_at(function, origin)),
        kept=kept_by(source, function, node),
    )


def _skips(node: ast.AST) -> bool:
    """Whether it is ``if n == 0: continue`` or ``if not n: continue``."""
    match node:
        case ast.If(test=ast.Compare(ops=[ast.Eq()], comparators=[ast.Constant(value=0)]), body=[ast.Continue()]):
            return True
        case ast.If(test=ast.UnaryOp(op=ast.Not()), body=[ast.Continue()]):
            return True
    return False


def _origin(function: ast.AST, test: ast.expr, lines: Collection[int]) -> int | None:
    """Which of these lines the value of a condition comes from, through the names that are assigned before it."""
    if test.lineno in lines and any(map(_makes_number, ast.walk(test))):
        return test.lineno
    waiting, met = [(test, test.lineno)], set[str]()
    while waiting:
        value, before = waiting.pop()
        for path in _paths(value) - met:
            met.add(path)
            for line, assigned in _assigned(function, path, before):
                if line in lines:
                    return line
                waiting.append((assigned, line))
    return None


def _makes_number(node: ast.AST) -> bool:
    """Whether an expression may make a number that a tensor holds: a call, or a selection by a mask."""
    if isinstance(node, ast.Subscript):
        return any(isinstance(each, (ast.Name, ast.Compare)) for each in ast.walk(node.slice))
    return isinstance(node, ast.Call) and called_name(node) not in _KNOWN


def _names(value: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}


def _paths(value: ast.AST) -> set[str]:
    """Return the names in an expression and their attributes (``self.loss``), without called methods."""
    match value:
        case ast.Compare(ops=[ast.Is() | ast.IsNot()]):  # which object it is, and not its value
            return set()
        case ast.Call(func=ast.Attribute(value=owner)):
            return _paths(owner).union(*(_paths(each) for each in [*value.args, *value.keywords]))
        case ast.Name():
            return {value.id}
        case ast.Attribute() if not any(isinstance(each, (ast.Call, ast.Subscript)) for each in ast.walk(value)):
            return {ast.unparse(value)}
        case ast.Attribute(value=ast.Subscript(value=owner), attr=attr):  # of an item
            return {f"{path}.{attr}" for path in _paths(owner)}
    return set[str]().union(*(_paths(each) for each in ast.iter_child_nodes(value)))


def _assigned(function: ast.AST, path: str, before: int) -> Iterator[tuple[int, ast.expr]]:
    """The values that a name or attribute has had before a line, what it keeps, or what a loop over it goes through.

    An attribute of what keeps a value (``tracker.count``) need not be of that value.
    """
    loops = ((node.target, node.iter) for node in ast.walk(function) if isinstance(node, ast.For))
    for target, value in (*_bindings(function), *loops):
        keeps = isinstance(getattr(target, "ctx", None), ast.Load)
        if target.lineno <= before and any(path == each if keeps else _is_of(path, each) for each in _paths(target)):
            yield target.lineno, value


def _is_of(path: str, owner: str) -> bool:
    """Whether ``path`` is ``owner`` or an attribute of it."""
    return path == owner or path.startswith(f"{owner}.")


def _bindings(function: ast.AST, line: int | None = None) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target of an assignment with its value, and each list with what it is given to keep; at one line, or all."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=targets, value=value):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.AugAssign(target=target, value=value):
                targets = [target]
            case ast.NamedExpr(target=target, value=value):
                targets = [target]
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=kept, attr=attr), args=[*_, value])) if attr in KEPT:
                targets = [kept]
            case _:
                continue
        if line in (None, node.lineno):
            yield from ((target, value) for target in targets)


def _calls_at(function: ast.AST, line: int) -> list[ast.Call]:
    return [node for node in ast.walk(function) if isinstance(node, ast.Call) and node.lineno == line]


def _taken_at(function: ast.AST, line: int) -> list[ast.expr]:
    """The calls of ``item`` at a line."""
    return [node for node in _calls_at(function, line) if called_name(node) == "item"]


def _value_at(source: str, function: ast.AST, line: int) -> str:
    """What takes the number at a line: the call of ``item`` or ``int``, else what is assigned there, else what a mask
    selects, else the line.
    """
    takes = [node for node in _calls_at(function, line) if called_name(node) in _TAKES]
    selected = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Subscript) and node.lineno == line and _makes_number(node)
    ]
    found = [*_taken_at(function, line), *takes, *(value for _, value in _bindings(function, line)), *selected]
    return text_of(source, found[0]) if found else source.split("\n")[line - 1].strip()
