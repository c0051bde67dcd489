"""A call of a library that Dynamo does not take: another call that does the same, and that it takes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst
from libcst import matchers as m

from dynadiag.fixes.candidate import Candidate, Site
from dynadiag.fixes.edits import ParsedSource, callee_name
from dynadiag.fixes.rewrites.conditions import UNIFORM

_COPY = re.compile(r"^(?:copy\.)?(?:deepcopy|copy)$")
_PLAIN = (cst.Name, cst.Attribute, cst.Call, cst.Subscript)
_SIMPLE = m.Name() | m.Integer() | m.Attribute() | m.Call() | m.UnaryOperation(expression=m.Integer())
_ROTATION = m.Call(m.Attribute(m.Name() | m.Attribute(), m.Name("rotate")))
# Their results depend on the arguments alone. No function here reads a clock, a file, the environment or a generator.
_PURE = re.compile(
    r"^(?:bisect\.(?:bisect(?:_left|_right)?)|json\.(?:dumps|loads)|statistics\.\w+|heapq\.(?:nlargest|nsmallest)"
    r"|struct\.(?:pack|unpack|calcsize)|zlib\.(?:crc32|adler32)|base64\.\w+|binascii\.\w+|textwrap\.\w+|string\.capwords"
    r"|fnmatch\.fnmatch(?:case)?|os\.path\.(?:join|basename|dirname|splitext)|colorsys\.\w+|calendar\.\w+"
    r"|difflib\.get_close_matches|unicodedata\.\w+|shlex\.(?:split|quote|join)|ast\.literal_eval|html\.(?:un)?escape)$"
)


def copies(site: Site[cst.Call]) -> Iterator[Candidate]:
    """`copy.copy` and `copy.deepcopy` of a tensor: a clone outside of autograd.

    This is right because a deep copy of a tensor has the same values in memory of its own and takes no part in the
    gradient of the original. The proof sees where the copy needs a gradient of its own, or keeps gaps in memory that a
    clone closes.
    """
    file, call = site.file, site.node
    if not _COPY.match(file.code(call.func)) or len(call.args) != 1:
        return
    value = call.args[0].value
    text = file.code(value) if isinstance(value, _PLAIN) else f"({file.code(value)})"
    why = "the copy has the same values in memory of its own"
    for method in ("detach().clone()", "clone()"):
        edit = file.replace(call, f"{text}.{method}")
        yield Candidate(f"copy the tensor with `{method}`", "source", (edit,), why)


def tensor_checks(site: Site[cst.Call]) -> Iterator[Candidate]:
    """A check that all elements of a tensor are true (`torch._check_tensor_all`): an assertion that is an operator.

    The check reads the tensor in Python. `torch._assert_async` reads it where the graph runs, and raises the same type
    of exception on a CPU; on a GPU it ends the process's use of the device, at some later call.
    """
    file, call = site.file, site.node
    if file.code(call.func) != "torch._check_tensor_all" or not call.args or call.args[0].keyword is not None:
        return
    value = call.args[0].value
    text = file.code(value) if isinstance(value, (cst.Name, cst.Attribute, cst.Call)) else f"({file.code(value)})"
    edit = file.replace(call, f"torch._assert_async({text}.all())")
    why = "it raises where an element is not true, when the graph runs"
    yield Candidate("check the tensor with `torch._assert_async`", "source", (edit,), why)


def uniform_bounds(site: Site[cst.Call]) -> Iterator[Candidate]:
    """`x.uniform_(**{"from": a, "to": b})`: both bounds by position, which is the same call.

    `from` is a word of Python, so the keyword is written that way, and Dynamo does not take it.
    """
    file, call = site.file, site.node
    while not file.code(call.func).endswith(".uniform_"):
        inner = call.func.value if isinstance(call.func, cst.Attribute) else None
        if not isinstance(inner, cst.Call):
            return
        call = inner
    if (bounds := _bounds(file, call)) is not None:
        edit = file.replace(call, f"{file.code(call.func)}({bounds})")
        yield Candidate("give the bounds of `uniform_` by position", "source", (edit,), "it is the same call")


def _bounds(file: ParsedSource, call: cst.Call) -> str | None:
    """The bounds by position; ``None`` where they are not written as one dict."""
    value = call.args[0].value if len(call.args) == 1 and call.args[0].star == "**" else None
    elements = value.elements if isinstance(value, cst.Dict) else ()
    items = [item for item in elements if isinstance(item, cst.DictElement)]
    texts = {file.code(item.key).strip("\"'"): file.code(item.value) for item in items}
    if len(items) != len(elements) or not texts or not texts.keys() <= {"from", "to"}:
        return None
    return f"{texts.get('from', '0.0')}, {texts.get('to', '1.0')}"


def python_calls(site: Site[cst.Call]) -> Iterator[Candidate]:
    """A call of Python's library whose result is known when Dynamo compiles, or is a number.

    A function that has one result for each of its arguments (`bisect.bisect`, `json.dumps`) is called while torch
    compiles: right because torch guards on the arguments, and calls it again for others. Not for a tensor's value, on
    which there is no guard, and not for a list that changes unseen; the proof changes both. `random.random()` becomes
    `random.uniform(0, 1)`, which torch takes: the same number, drawn from the same generator.
    """
    file, call = site.file, site.node
    while file.line(call) == site.problem.span.line:
        function = file.code(call.func)
        known = file.imports(function.partition(".")[0])
        if function == "random.random" and known:
            why = "it is the same number of the same generator"
            yield Candidate(f"draw the number with `{UNIFORM}`", "source", (file.replace(call, UNIFORM),), why)
        if _PURE.match(function) and known:
            name, end, unit = file.free_name(f"_{function.rpartition('.')[2]}", of=call), file.newline, file.indent_unit
            head = f"@torch.compiler.assume_constant_result{end}def {name}(*args, **kwargs):{end}"
            made = f"{head}{unit}return {function}(*args, **kwargs){end}{end}{end}"
            edits = (file.insert_line(file.line_above(call), made), file.replace(call.func, name))
            why = "it has one result for each of its arguments, and torch compiles again for others"
            yield Candidate(f"call `{function}` while torch compiles, by a function of its own", "source", edits, why)
        above = file.enclosing(call, cst.Call)
        if not isinstance(above, cst.Call):
            return
        call = above


def rotations(site: Site[cst.Call]) -> Iterator[Candidate]:
    """`queue.rotate(n)` of a deque: the items that leave at the right come in at the left.

    This is right because a rotation by n moves that many items, one after the other, and one of more than the deque's
    length moves the rest of the division. The items leave before they come in, so that a deque with a `maxlen` loses
    none. A class of the user's may rotate in another way, which the proof sees.
    """
    file, call = site.file, site.node
    if not m.matches(call, _ROTATION) or not isinstance(file.parent(call), cst.Expr):
        return
    assert isinstance(call.func, cst.Attribute)
    queue = file.code(call.func.value)
    given = [each.value for each in call.args if not each.star and each.keyword is None]
    if len(given) != len(call.args) or len(given) > 1 or any(name.value == "_" for name in file.nodes(cst.Name, call)):
        return
    count = file.code(given[0]) if given else "1"
    count = count if not given or m.matches(given[0], _SIMPLE) else f"({count})"
    text = f"{queue}.extendleft([{queue}.pop() for _ in range({count} % max(len({queue}), 1))])"
    why = "the items that leave at the right come in at the left, as many as the rotation moves"
    yield Candidate("rotate with `pop` and `extendleft`", "source", (file.replace(call, text),), why)


def counts(site: Site[cst.Call]) -> Iterator[Candidate]:
    """`torch.bincount` with a least length: a `scatter_add` of ones into a tensor of that length.

    The result of `bincount` is longer where a value is as large as the length, so its size depends on the data. This is
    right where no value is: then both have the same counts. A larger value raises an error in the changed program.
    """
    file, call = site.file, site.node
    if (counted := _counted(file, call)) is None:
        return
    values, length = counted
    text = f"{values}.new_zeros({length}).scatter_add(0, {values}, torch.ones_like({values}))"
    title = f"count into a tensor of length `{length}` instead of `bincount`"
    why = "no value is as large as the least length, so the result always has that length"
    yield Candidate(title, "source", (file.replace(call, text),), why)


def _counted(file: ParsedSource, call: cst.Call) -> tuple[str, str] | None:
    """What is counted, by its name, and the least length; ``None`` if there are weights."""
    if callee_name(call) != "bincount" or not isinstance(call.func, cst.Attribute):
        return None
    named = {each.keyword.value: file.code(each.value) for each in call.args if each.keyword is not None}
    values = [each.value for each in call.args if each.keyword is None]
    if file.code(call.func.value) != "torch":
        values.insert(0, call.func.value)
    if len(values) != 1 or named.keys() != {"minlength"} or not isinstance(values[0], (cst.Name, cst.Attribute)):
        return None
    return file.code(values[0]), named["minlength"]
