"""What a change adds to a module: helpers behind its imports, and a definition that uses them, behind a statement."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst
from libcst import matchers as m

from dynadiag.fixes.edits import Edit, ParsedSource

TRACED = "torch.compiler.is_dynamo_compiling()"
_DOCSTRING = m.SimpleStatementLine([m.Expr(m.SimpleString() | m.ConcatenatedString())])


@dataclass(frozen=True, slots=True)
class Helpers:
    """The text of helpers, with the names that it defines and the modules that it imports. The last name is that of the
    function that makes a definition.
    """

    text: str
    names: tuple[str, ...]
    imports: tuple[str, ...] = ("torch",)


def giving_object(name: str, holder: str) -> str:
    """The text of the function ``name``, which torch calls while it compiles, and which keeps an object of the compiled
    function in the class ``holder``. An object that the same call has changed before is kept as ``None``.
    """
    return f'''def {name}(context):
    """Keep the object that is the local variable `value`; torch calls this while it compiles."""
    variable = context.get_local("value")._i_will_not_complain_if_bc_breaks_VariableTracker().realize()
    effects = context._i_will_not_complain_if_bc_breaks_InstructionTranslator().output.side_effects
    usable = variable.source is not None and not effects.is_modified(variable)
    {holder}.given += (getattr(variable, "value", None) if usable else None,)
'''


@dataclass(frozen=True, slots=True)
class Definition:
    """A name that a module gets, and the edits that define it."""

    name: str
    edits: tuple[Edit, ...]

    @classmethod
    def of(cls, file: ParsedSource, helpers: Helpers, name: str, arguments: str, beside: cst.CSTNode) -> Definition:
        """Define ``name``, or one like it that is free, behind the statement of ``beside``, by a call of the helpers'
        last function. Changes that use the same helpers share them.
        """
        made, end = cls.of_helpers(file, helpers), file.newline
        free = file.free_name(name, of=file.statement(beside))
        definition = file.insert_line(_line_behind(file, beside), f"{end}{end}{free} = {made.name}({arguments}){end}")
        return cls(free, (*made.edits, definition))

    @classmethod
    def of_helpers(cls, file: ParsedSource, helpers: Helpers) -> Definition:
        """Define the helpers behind the imports. The name is that of their last function."""
        names = [file.free_name(each, of=file.module) for each in helpers.names]
        text, end = helpers.text, file.newline
        for old, new in zip(helpers.names, names, strict=True):
            text = text.replace(old, new)
        # Each changed file gets `import torch` where it has none.
        wanted = [each for each in helpers.imports if each != "torch"]
        imports = [f"import {each}" for each in wanted if "." in each or not file.imports(each)]
        text = ("\n".join([*imports, ""]) + text.replace("    ", file.indent_unit)).replace("\n", end)
        return cls(names[-1], (file.insert_line(file.after_imports(), text),))

    def before(self, file: ParsedSource, first: cst.BaseStatement, *lines: str) -> tuple[Edit, ...]:
        """The edits after which these lines run in front of the statement ``first`` and the comments above it, where
        torch traces it. ``{call}`` is the name of this one.
        """
        pad, unit, end = file.indent(first), file.indent_unit, file.newline
        begun = [f"{pad}if {TRACED}:", *(f"{pad}{unit}{line.format(call=self.name)}" for line in lines)]
        above = itertools.takewhile(lambda line: line.comment, reversed(first.leading_lines))  # type: ignore[attr-defined]  # each kind of statement has them
        return (
            *self.edits,
            file.insert_line(file.line(first) - len(list(above)), "".join(f"{line}{end}" for line in begun)),
        )


def body_of(function: cst.FunctionDef) -> Sequence[cst.BaseStatement]:
    """The statements of a function without its docstring; none of one on a single line."""
    if not isinstance(function.body, cst.IndentedBlock):
        return []
    return [each for each in function.body.body if not m.matches(each, _DOCSTRING)]


def _line_behind(file: ParsedSource, node: cst.CSTNode) -> int:
    """The line behind the statement of the module that a node is in."""
    top = node
    while (above := file.parent(top)) is not None and above is not file.module:
        top = above
    return file.end_line(top) + 1
