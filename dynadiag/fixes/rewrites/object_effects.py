"""`if` on a tensor's value with an effect on the object (`self.spikes += 1`, `self.seen.append(x)`): all effects of
both sides, as they are, in a function of the module that gets the object, and that torch runs in the graph. What the
sides compute besides is chosen with `torch.where`.

This is right where nothing in the graph depends on what the effects change: they run at their place among the
operators, once for each call. Code that torch compiled reads the object as it was. The proof compares what is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Condition, Site
from dynadiag.fixes.edits import ParsedSource
from dynadiag.fixes.rewrites.branch_statement import CONDITION
from dynadiag.fixes.rewrites.conditions import Unsuitable
from dynadiag.fixes.rewrites.effect_function import WITHIN
from dynadiag.fixes.rewrites.side_effects import is_effect, name_of, split_effects

__all__ = ["candidates", "check_unread", "is_effect_on_object"]

_WHY = "torch runs the statements as they are, at their place in the graph, and nothing in it depends on them"


def candidates(site: Site[cst.If | cst.IfExp]) -> Iterator[Candidate]:
    """The function with the object, and its call in place of the effects of an `if`."""
    file, found = site.file, site.node
    if not isinstance(found, cst.If):
        return
    with suppress(Unsuitable):
        statement, made = split_effects(file, found, site.problem.span, lambda each: is_effect_on_object(file, each))
        for side, effects in enumerate(each.effects for each in statement.sides):
            for effect in effects:
                made.add_whole(side, effect)
        check_unread(file, made.function, [effect for each in statement.sides for effect in each.effects])
        if "self" in made.arguments:
            name = file.free_name(f"_{name_of(statement)}_if", of=found)
            edits = made.definition(name, WITHIN), statement.edit(made.call(name, CONDITION))
            both = tuple(Condition(file.name, *file.range(test)) for test in statement.tests)
            title = f"run what is done on the condition in a function of its own, which torch {WITHIN.when}"
            yield Candidate(title, "source", edits, _WHY, both)


def is_effect_on_object(file: ParsedSource, statement: cst.CSTNode) -> bool:
    """Whether a statement has an effect, or changes an attribute of the object by a number."""
    return is_effect(file, statement) or _changed_attribute(file, statement) is not None


def _changed_attribute(file: ParsedSource, statement: cst.CSTNode) -> str | None:
    """The attribute of the object that a statement changes by a number: `self.count` of `self.count += 1`."""
    if not isinstance(statement, cst.AugAssign) or not isinstance(statement.value, (cst.Integer, cst.Float)):
        return None
    text = file.code(statement.target)
    return text if text.startswith("self.") else None


def check_unread(file: ParsedSource, function: cst.FunctionDef, effects: list[cst.CSTNode]) -> None:
    """Raises where the function reads an attribute that an effect changes: torch has the value from before."""
    changed, places = {_changed_attribute(file, effect) for effect in effects}, list(map(file.range, effects))
    for read in file.nodes(cst.Attribute, function):
        place = file.range(read)[0]
        if file.code(read) in changed and not any(first <= place < last for first, last in places):
            raise Unsuitable(f"`{file.code(read)}` is read in the graph")
