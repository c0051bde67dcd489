"""A flag on which a model recompiles: each value gets a compiled method, and `forward` calls the right one.

This is right because both methods make the same call, with the same arguments. Each is compiled once, where one
function is compiled again at the first call with the other value. The flag is an attribute of the model, or an argument
that is true or false, given or not, or one of two texts. Hooks of the model and its modules run around the methods.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Sources
from dynadiag.fixes.edits import Edit, ParsedSource
from dynadiag.fixes.problems import FixProblem
from dynadiag.fixes.rewrites.compiled_methods import decorator_of_model, plain_parameters
from dynadiag.recording.torch_text.guards import literal_type
from dynadiag.recording.torch_text.sources import attribute_of, is_local, local_name


def candidates(problem: FixProblem, sources: Sources) -> Iterator[Candidate]:
    """The two methods, and the choice between them."""
    file = sources.file(problem.file)
    condition = _condition(problem, file) if file is not None and problem.kind == "recompile" else None
    if file is None or condition is None:
        return
    method = _method(file, problem.function)
    names = plain_parameters(method) if method is not None else None
    made = decorator_of_model(file, sources, method) if method is not None else None
    if method is None or names is None or made is None or names[:1] != ["self"]:
        return
    choice = _methods(file, method, names[1:], condition, made[0])
    head = file.range(method.name)
    renamed = file.free_name("_forward", of=method)
    yield Candidate(
        f"compile two methods, for `{condition}` and for what it is not",
        "source",
        (file.insert_line(file.line(method), choice), Edit(file.name, *head, renamed), made[1]),
        "both methods make the same call, and each is compiled once",
        whole_calls=("forward",),
        for_whole_graphs=True,
    )


def _condition(problem: FixProblem, file: ParsedSource) -> str | None:
    """The condition that tells the two values apart, in the method; ``None`` if there may be more than two."""
    owner, flag = attribute_of(problem.source) or ("", "")
    name = f"self.{flag}" if owner == "self" and flag != "training" else None
    name = local_name(problem.source) if is_local(problem.source) else name
    values = (*problem.was, problem.now or "")
    if name is None or name == "self" or len(values) != 2:
        return None
    if set(values) == {"False", "True"}:
        return name
    if values[0] == "None":
        return f"{name} is None"
    text = values[0].replace("'", '"') if values[0].replace("'", '"') in file.text else values[0]
    return f"{name} == {text}" if {*map(literal_type, values)} == {"str"} else None


def _method(file: ParsedSource, function: str) -> cst.FunctionDef | None:
    """The method of a class of the file."""
    class_, _, name = function.rpartition(".")
    for found in file.nodes(cst.FunctionDef):
        owner = file.enclosing(found, cst.ClassDef, cst.FunctionDef)
        if isinstance(owner, cst.ClassDef) and (owner.name.value, found.name.value) == (class_, name):
            return found
    return None


def _methods(file: ParsedSource, method: cst.FunctionDef, names: list[str], condition: str, decorator: str) -> str:
    """Return the text of `forward` and of the two compiled methods that it calls."""
    indent, unit, end = file.indent(method), file.indent_unit, file.newline
    given, body = ", ".join(names), file.free_name("_forward", of=method)
    own = [file.free_name(f"_forward_{side}", of=method) for side in ("if", "else")]
    head = file.text[file.range(method.name)[1] : file.range(method.body)[0]].strip()
    lines = [f"def forward{head}", f"{unit}if {condition}:", f"{unit * 2}return self.{own[0]}({given})"]
    lines += [f"{unit}return self.{own[1]}({given})", ""]
    for each in own:
        lines += [decorator, f"def {each}(self{''.join(f', {name}' for name in names)}):"]
        lines += [f"{unit}return self.{body}({given})", ""]
    return "".join(f"{indent}{line}{end}" if line else end for line in lines)
