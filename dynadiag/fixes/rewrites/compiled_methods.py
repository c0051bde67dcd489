"""Moves `torch.compile` to a part of what it compiles: to methods of a model's class, or to a function that another one
of its name calls. What calls the part then runs uncompiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import libcst as cst
from libcst import matchers as m

from dynadiag.fixes.candidate import Sources
from dynadiag.fixes.edits import Edit, ParsedSource

_MODULE = ("nn.Module", "torch.nn.Module")


def compile_calls(file: ParsedSource) -> list[cst.Call]:
    """The calls of `torch.compile` in a file."""
    return [call for call in file.nodes(cst.Call) if file.code(call.func) == "torch.compile"]


def options_text(file: ParsedSource, options: Iterable[cst.Arg]) -> str:
    """The options of `torch.compile` as they are written."""
    return ", ".join(file.code(each).rstrip(", ") for each in options)


def decorator_of_model(file: ParsedSource, sources: Sources, method: cst.FunctionDef) -> tuple[str, Edit] | None:
    """The decorator that compiles a method as the program compiles the model, and the edit that no longer compiles the
    model; ``None`` unless the method is the `forward` of a module of the program, and is compiled in one place.
    """
    class_ = file.enclosing(method, cst.ClassDef)
    found = compile_calls(file)
    bases = [file.code(base.value) for base in class_.bases] if isinstance(class_, cst.ClassDef) else []
    if not sources.is_program(file) or bases not in ([_MODULE[0]], [_MODULE[1]]) or class_ not in file.module.body:
        return None
    if len(found) != 1 or method.name.value != "forward" or method.decorators:
        return None
    return decorator_of(file, found[0])


def decorator_of(file: ParsedSource, call: cst.Call) -> tuple[str, Edit] | None:
    """The decorator that compiles as a call of `torch.compile` does, and the edit that takes the call away; ``None`` if
    its options may mean something else elsewhere.
    """
    model, *options = call.args
    if model.keyword is not None or not all(map(_is_constant, options)) or isinstance(model.value, cst.Lambda):
        return None
    text = options_text(file, options)
    edit = file.replace(call, file.code(model.value))
    return f"@torch.compile({text})" if text else "@torch.compile", edit


def _is_constant(option: cst.Arg) -> bool:
    """Return whether an option of `torch.compile` is a literal, which means the same in front of the class."""
    literal = m.SimpleString() | m.Integer() | m.Name("True") | m.Name("False") | m.Name("None")
    return option.keyword is not None and m.matches(option.value, literal)


@dataclass(frozen=True, slots=True)
class CompiledPart:
    """What a compiled function becomes if another function of its name calls it: its new name, its decorator, how it is
    called, and the edits elsewhere.
    """

    name: str
    decorator: str
    called: str
    more: tuple[Edit, ...]

    def around(self, file: ParsedSource, node: cst.FunctionDef, lines: Sequence[str]) -> Iterator[Edit]:
        """Rename the function, and add one of its old name and parameters with these lines behind it."""
        pad, end = file.indent(node), file.newline
        yield file.replace(node.name, self.name)
        if self.decorator:
            yield file.insert_line(file.line(node), f"{pad}{self.decorator}{end}")
        returns = f" -> {file.code(node.returns.annotation)}" if node.returns is not None else ""
        head = f"def {node.name.value}({file.code(node.params)}){returns}:"
        text = "".join(f"{pad}{line}{end}" for line in (head, *(f"{file.indent_unit}{line}" for line in lines)))
        yield file.insert_line(file.end_line(node) + 1, f"{end if pad else end * 2}{text}")


def compiled_part(file: ParsedSource, node: cst.FunctionDef, sources: Sources) -> CompiledPart | None:
    """The function as a part of another one; ``None`` unless one place of the program says how it is compiled."""
    if isinstance(file.enclosing(node, cst.ClassDef), cst.ClassDef):
        made = decorator_of_model(file, sources, node)
        name = file.free_name(f"_compiled_{node.name.value}", of=node)
        return CompiledPart(name, made[0], f"self.{name}", (made[1],)) if made is not None else None
    if node not in file.module.body:
        return None
    decorators = [file.code(each.decorator) for each in node.decorators]
    name = file.free_name(f"_compiled_{node.name.value.strip('_')}", of=node)
    if decorators:
        is_compiled = len(decorators) == 1 and decorators[0].startswith("torch.compile")
        return CompiledPart(name, "", name, ()) if is_compiled else None
    named = [each for each in file.nodes(cst.Name) if each.value == node.name.value and each is not node.name]
    argument = file.parent(named[0]) if len(named) == 1 and sources.is_program(file) else None
    call = file.parent(argument) if isinstance(argument, cst.Arg) else None
    if not isinstance(call, cst.Call) or file.code(call.func) != "torch.compile" or call.args[0] is not argument:
        return None
    made = decorator_of(file, call)
    return CompiledPart(name, made[0], name, (made[1],)) if made is not None else None


def plain_parameters(function: cst.FunctionDef) -> list[str] | None:
    """Return the names of the parameters, ``None`` if one of them cannot be given by position."""
    parameters = function.params
    other = parameters.kwonly_params or parameters.posonly_params or parameters.star_kwarg
    if other or isinstance(parameters.star_arg, (cst.Param, cst.ParamStar)) or function.asynchronous is not None:
        return None
    return [parameter.name.value for parameter in parameters.params]
