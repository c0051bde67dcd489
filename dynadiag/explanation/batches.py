"""Where the tensors of a call are made: by the line that calls, a generator of the program's, or a collator.

A size is marked where its tensor is made. A place is given only where the sources leave no choice, and where a mark
stays on the tensor: one that a worker process, pinned memory or ``.to`` has copied has none.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from dynadiag.explanation.identity import Function, enclosing_function, nodes_of, parsed
from dynadiag.recording.records import Frame, Recompile, Span
from dynadiag.recording.torch_text.sources import argument_steps

_COPIES = ("num_workers", "pin_memory")  # arguments of a DataLoader with which a batch is another tensor


@dataclass(frozen=True, slots=True)
class Made:
    """Where tensors are made that a function gets. ``names`` maps their sources to what they are called there.

    ``function`` is the generator or the collator of that place, None where it is the line of the call.
    """

    names: Mapping[str, str]
    place: Span
    function: str | None = None


def made_at(
    subjects: Collection[str], item: Recompile, caller: Frame | None, sources: Mapping[str, str]
) -> Made | None:
    """Where the tensors with these sources are made that a function was compiled again for. ``caller`` is the frame of
    the program that called it, None where a library did.
    """
    text = sources.get(caller.file) if caller is not None else None
    if caller is None or text is None or not subjects:
        return None
    parameters = _parameters(sources.get(item.file or ""), item.line)
    steps = {subject: argument_steps(subject, parameters) for subject in subjects}
    ways = [
        [_argument(call, *step) if step else None for step in steps.values()]
        for call in _calls_at(text, caller.line, item.function)
    ]
    known = [[each for each in way if each is not None] for way in ways if None not in way]
    if len(known) != 1:
        return None
    rests = [step[2] for step in steps.values() if step]
    here = Made(_named(subjects, known[0], rests), Span(caller.file, caller.line))
    inner = _in_the_batching(known[0], text, caller.line)
    if inner is None:
        return here
    name, line, arguments = inner
    return Made(_named(subjects, arguments, rests), Span(caller.file, line), name)


def _named(subjects: Collection[str], arguments: list[ast.expr], rests: list[str]) -> dict[str, str]:
    each = zip(subjects, arguments, rests, strict=True)
    return {subject: f"{ast.unparse(argument)}{rest}" for subject, argument, rest in each}


def _parameters(source: str | None, line: int | None) -> list[str]:
    """The names of the arguments that a caller of the function gives by position."""
    function = enclosing_function(source, line)
    names = [] if function is None else [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    return names[1:] if function is not None and _is_method(function, source or "") else names


def _is_method(function: Function, source: str) -> bool:
    """Whether a class defines the function as a method: its first argument is the object, whatever its name."""
    classes = nodes_of(source, ast.ClassDef)
    is_static = any(ast.unparse(each) == "staticmethod" for each in getattr(function, "decorator_list", ()))
    return not is_static and any(function in each.body for each in classes)


def _calls_at(text: str, line: int | None, function: str) -> list[ast.Call]:
    """The calls on a line that may be the one of a compiled function. Of several, those that are known to be it."""
    tree = parsed(text)
    calls = [each for each in nodes_of(text, ast.Call) if each.lineno == line]
    if tree is None or len(calls) == 1:
        return calls
    names = {function, *_compiled_names(tree)}
    return [each for each in calls if ast.unparse(each.func) in names]


def _compiled_names(tree: ast.Module) -> Iterator[str]:
    """What a program gives the result of `torch.compile`, or decorates with it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _compiles(node.value):
            yield from map(ast.unparse, node.targets)
        elif isinstance(node, ast.FunctionDef) and any(map(_compiles, node.decorator_list)):
            yield node.name


def _compiles(node: ast.expr) -> bool:
    named = (each for each in ast.walk(node) if isinstance(each, (ast.Name, ast.Attribute)))
    return any(ast.unparse(each) in ("torch.compile", "compile") for each in named)


def _argument(call: ast.Call, position: int | None, keyword: str, _rest: str) -> ast.expr | None:
    """The argument of a call: a name, or an item of the dict that is given as ``**batch``."""
    given = next((each.value for each in call.keywords if each.arg == keyword), None)
    if given is None and position is not None and not any(isinstance(each, ast.Starred) for each in call.args):
        given = call.args[position] if position < len(call.args) else None
    if given is None:
        spread = [each.value for each in call.keywords if each.arg is None]
        if len(spread) == 1 and isinstance(spread[0], ast.Name):
            return ast.Subscript(spread[0], ast.Constant(keyword), ast.Load())
    return given if isinstance(given, ast.Name) else None


def _in_the_batching(arguments: list[ast.expr], text: str, line: int | None) -> tuple[str, int, list[ast.expr]] | None:
    """The generator or the collator of the loop around a call, the line where it gives the batch, and its names."""
    tree = parsed(text)
    if tree is None:
        return None
    loops = [
        each
        for each in ast.walk(tree)
        if isinstance(each, ast.For) and each.lineno <= (line or 0) <= (each.end_lineno or 0)
    ]
    loop = max(loops, key=lambda each: each.lineno, default=None)
    if loop is None or any(_is_bound_again(each, loop) for each in arguments):
        return None
    made = next((each for each in _functions(tree) if each.name == _maker(loop.iter, tree)), None)
    given = [
        node
        for node in (ast.walk(made) if made else ())
        if isinstance(node, (ast.Return, ast.Yield)) and node.value is not None
    ]
    if made is None or len(given) != 1 or given[0].value is None:
        return None
    found = [_given_as(each, loop.target, given[0].value) for each in arguments]
    names = [each for each in found if each is not None]
    return (made.name, given[0].lineno, names) if len(names) == len(arguments) else None


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]


def _is_bound_again(argument: ast.expr, loop: ast.For) -> bool:
    """Whether the body of a loop gives a name another value, such as ``x = x.to(device)``."""
    name = argument.value if isinstance(argument, ast.Subscript) else argument
    stored = (each for part in loop.body for each in ast.walk(part) if isinstance(each, ast.Name))
    return any(isinstance(each.ctx, ast.Store) and each.id == getattr(name, "id", None) for each in stored)


def _maker(iterated: ast.expr, tree: ast.Module) -> str | None:
    """The name of the function that makes what a loop goes over: a generator, or the collator of a DataLoader."""
    if isinstance(iterated, ast.Name):
        bound = [
            each.value
            for each in ast.walk(tree)
            if isinstance(each, ast.Assign) and [ast.unparse(target) for target in each.targets] == [iterated.id]
        ]
        return _maker(bound[0], tree) if len(bound) == 1 and isinstance(bound[0], ast.Call) else None
    if not isinstance(iterated, ast.Call):
        return None
    name = ast.unparse(iterated.func).rpartition(".")[2]
    if name == "DataLoader":
        given = {each.arg: each.value for each in iterated.keywords}
        collator = given.get("collate_fn")
        return collator.id if isinstance(collator, ast.Name) and given.keys().isdisjoint(_COPIES) else None
    return name if isinstance(iterated.func, ast.Name) else None


def _given_as(argument: ast.expr, target: ast.expr, value: ast.expr) -> ast.expr | None:
    """What a generator calls an argument of the loop: the name at its position, or the key of a dict that it makes."""
    if isinstance(argument, ast.Subscript):
        is_whole = ast.unparse(argument.value) == ast.unparse(target) and isinstance(value, ast.Dict)
        keys = [ast.unparse(key) if key else "" for key in value.keys] if isinstance(value, ast.Dict) else []
        key = ast.unparse(argument.slice)
        given = value.values[keys.index(key)] if is_whole and isinstance(value, ast.Dict) and key in keys else None
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        names = [ast.unparse(each) for each in target.elts]
        given = value.elts[names.index(ast.unparse(argument))] if ast.unparse(argument) in names else None
    else:
        given = value if ast.unparse(argument) == ast.unparse(target) else None
    return given if isinstance(given, ast.Name) else None
