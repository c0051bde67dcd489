"""Moves `torch.compile` from a model to methods of its class: what calls these methods then runs uncompiled."""

from __future__ import annotations

import libcst as cst
from libcst import matchers as m

from dynadiag.fixes.candidate import Sources
from dynadiag.fixes.edits import Edit, ParsedSource

_MODULE = ("nn.Module", "torch.nn.Module")


def decorator_of_model(file: ParsedSource, sources: Sources, method: cst.FunctionDef) -> tuple[str, Edit] | None:
    """The decorator that compiles a method as the program compiles the model, and the edit that no longer compiles the
    model; ``None`` unless the method is the `forward` of a module of the program, and is compiled in one place.
    """
    class_ = file.enclosing(method, cst.ClassDef)
    found = [call for call in file.nodes(cst.Call) if file.code(call.func) == "torch.compile"]
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
    text = ", ".join(file.code(each).rstrip(", ") for each in options)
    edit = file.replace(call, file.code(model.value))
    return f"@torch.compile({text})" if text else "@torch.compile", edit


def _is_constant(option: cst.Arg) -> bool:
    """Return whether an option of `torch.compile` is a literal, which means the same in front of the class."""
    literal = m.SimpleString() | m.Integer() | m.Name("True") | m.Name("False") | m.Name("None")
    return option.keyword is not None and m.matches(option.value, literal)


def plain_parameters(function: cst.FunctionDef) -> list[str] | None:
    """Return the names of the parameters, ``None`` if one of them cannot be given by position."""
    parameters = function.params
    other = parameters.kwonly_params or parameters.posonly_params or parameters.star_kwarg
    if other or isinstance(parameters.star_arg, (cst.Param, cst.ParamStar)) or function.asynchronous is not None:
        return None
    return [parameter.name.value for parameter in parameters.params]
