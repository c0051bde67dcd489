"""A number attribute of a module that changes from call to call becomes a buffer, or an integer becomes a symbol.

The buffer is right if the code computes with it: torch guards on the value of a number in an attribute, and not on that
of a tensor. The buffer is not persistent, so that checkpoints stay as they are. It is replaced and not written in
place, so that a gradient that needs its old value finds it. Other readers of the attribute get a tensor, and the proof
compares what the program prints. The symbol changes no value. Where the code needs the number, torch compiles again
all the same, and the proof sees that.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Sources
from dynadiag.fixes.edits import Edit, ParsedSource
from dynadiag.fixes.problems import FixProblem
from dynadiag.fixes.rewrites.config_lines import config_line
from dynadiag.fixes.rewrites.dynamic_sizes import dynamic_compiles
from dynadiag.fixes.rewrites.number_arguments import is_float, is_number
from dynadiag.recording.torch_text.sources import attribute_of, ends_in_attribute

_WHY = "torch compiles with a symbol for the"
_SETTING = "torch._dynamo.config.allow_unspec_int_on_nn_module = True"


def candidates(problem: FixProblem, sources: Sources) -> Iterator[Candidate]:
    """A buffer in place of the attribute, then a symbol for it."""
    file = sources.file(problem.file)
    if problem.kind != "recompile" or file is None or not is_number(problem):
        return
    yield from _buffer(problem, file)
    if ends_in_attribute(problem.source):
        yield from _symbol(file, is_float(problem))


def _symbol(file: ParsedSource, fractions: bool) -> Iterator[Candidate]:
    """A symbol in place of the number, from the first call on. Integers of a module need a setting for it."""
    for title, edit in dynamic_compiles(file):
        if fractions:
            yield Candidate(title, "argument", (edit,), f"{_WHY} float, and no value changes")
        else:
            edits = (config_line(file, _SETTING), edit)
            yield Candidate(f"{title} and `{_SETTING}`", "config", edits, f"{_WHY} integer, and no value changes")


def _buffer(problem: FixProblem, file: ParsedSource) -> Iterator[Candidate]:
    owner, name = attribute_of(problem.source) or ("", "")
    class_ = _class(file, problem.function)
    if owner != "self" or class_ is None or (made := _first_assignment(file, class_, name)) is None:
        return
    edits = [_kept_in_buffer(file, class_, made, is_float(problem)), *_later(file, made, name)]
    yield Candidate(
        f"keep `self.{name}` in a {'buffer' if _is_module(file, class_) else 'tensor'}",
        "source",
        tuple(edits),
        "torch guards on the value of a number in an attribute, and not on that of a tensor",
        as_tensors=(name,),
        for_whole_graphs=True,
    )


def _kept_in_buffer(file: ParsedSource, class_: cst.ClassDef, made: cst.Assign, fraction: bool) -> Edit:
    """The edit that keeps a number from its first assignment on in a buffer; in a tensor if the class is no module."""
    target = file.code(made.targets[0].target)
    value = f"torch.tensor({file.code(made.value)}{', dtype=torch.float64' if fraction else ''})"
    buffer = f'self.register_buffer("{target.partition(".")[2]}", {value}, persistent=False)'
    return file.replace(made, buffer if _is_module(file, class_) else f"{target} = {value}")


def _is_module(file: ParsedSource, class_: cst.ClassDef) -> bool:
    return any("Module" in file.code(base) for base in class_.bases)


def counters(file: ParsedSource, inside: cst.If, names: Collection[str]) -> tuple[tuple[Edit, ...], tuple[str, ...]]:
    """The edits that keep those of the attributes that are numbers in buffers, and their names. Only the constructor
    and this branch set them.
    """
    class_, edits, found = file.enclosing(inside, cst.ClassDef), [], []
    if not isinstance(class_, cst.ClassDef):
        return (), ()
    for name in names:
        made = _first_assignment(file, class_, name)
        if made is not None and isinstance(made.value, (cst.Integer, cst.Float)):
            edits.append(_kept_in_buffer(file, class_, made, isinstance(made.value, cst.Float)))
            found.append(name)
    return tuple(edits), tuple(found)


def _class(file: ParsedSource, function: str) -> cst.ClassDef | None:
    name = function.split(".")[-2] if "." in function else None
    return next((each for each in file.nodes(cst.ClassDef) if each.name.value == name), None)


def _first_assignment(file: ParsedSource, class_: cst.ClassDef, attribute: str) -> cst.Assign | None:
    """The assignment in the constructor; ``None`` if there is not exactly one."""
    found = [
        assign
        for function in file.nodes(cst.FunctionDef, class_)
        if function.name.value == "__init__"
        for assign in file.nodes(cst.Assign, function)
        if len(assign.targets) == 1 and file.code(assign.targets[0].target) == f"self.{attribute}"
    ]
    return found[0] if len(found) == 1 else None


def _later(file: ParsedSource, made: cst.Assign, attribute: str) -> Iterator[Edit]:
    """Later assignments of a number become those of a tensor's value."""
    for change in file.nodes(cst.AugAssign):
        target = file.code(change.target)
        if target.endswith(f".{attribute}"):
            operator = file.code(change.operator).rstrip("=")
            value = file.code(change.value)
            simple = isinstance(change.value, (cst.Name, cst.Attribute, cst.Integer, cst.Float, cst.Call))
            yield file.replace(change, f"{target} = {target} {operator} {value if simple else f'({value})'}")
    for assign in file.nodes(cst.Assign):
        target = file.code(assign.targets[0].target)
        if assign is made or not target.endswith(f".{attribute}") or len(assign.targets) != 1:
            continue
        if not re.search(rf"\b{re.escape(target)}\b", file.code(assign.value)):
            yield file.replace(assign, f"{target} = torch.full_like({target}, {file.code(assign.value)})")
