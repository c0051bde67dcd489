"""The smaller region: where graph breaks are left, the parts of the model that are whole are compiled in its place.

What is around them runs in Python then, without a break: the same operators or fewer run in graphs, and each part is
one graph. The change is to the statement of the program that compiles the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import libcst as cst
from libcst import matchers as m

from dynadiag.fixes.candidate import Candidate, Sources
from dynadiag.fixes.edits import Edit, EditConflict, ParsedSource, apply_edits, unified_diff
from dynadiag.fixes.fix_report import RegionEntry
from dynadiag.fixes.observation import CALL_BUILTIN
from dynadiag.fixes.proof import COMPARISONS, REGION, TIMED, Proof, evidence_of, first_objection
from dynadiag.fixes.prover import Prover
from dynadiag.fixes.rewrites.compiled_methods import compile_calls, options_text
from dynadiag.fixes.trials import Trials

_TITLE = "compile the parts that are whole, in place of the model"
_ATTRIBUTE = m.Name() | m.Attribute()


def smaller_region(
    trials: Trials, prover: Prover, sources: Sources, whole: Proof | None, message: Callable[[str], None]
) -> RegionEntry | None:
    """The region that is proved on top of the changes that are; ``None`` where no part is whole, or no statement of the
    program compiles a model.
    """
    place = place_of_compile(sources)
    if place is None:
        return None
    made = whole.candidate if whole is not None else Candidate(_TITLE, "source", (), "")
    if place.rest in made.edits:
        return None  # a proved change compiles something else in place of the model
    found = trials.whole_parts(made.edits)
    if found is None or not found.whole:
        return None
    parts = tuple(expressions(place.model, found.whole, found.modules))
    changed = replace(made, title=_TITLE, edits=(*made.edits, *place.edits(parts, watched=True)))
    try:
        proof, why = _prove(trials, prover, changed)
    except EditConflict:  # a proved change moved what is compiled
        return None
    message(f"{_TITLE}: {'proved' if why is None else f'rejected, {why}'}")
    own = {place.file.name: place.file.text}
    diff = unified_diff(own, apply_edits(own, list(place.edits(parts))))
    if why is not None:
        return RegionEntry("rejected", parts, diff, why, None, None)
    before, after = proof.baseline.recorded.compiled, proof.recorded.compiled
    ran = (before.ran, after.ran) if before is not None and after is not None else None
    return RegionEntry("proved", parts, diff, "", evidence_of(proof), ran)


def _prove(trials: Trials, prover: Prover, changed: Candidate) -> tuple[Proof, str | None]:
    """The proof of the change, and why it is rejected."""
    fresh = trials.from_first_call  # the user's own file changes
    unchanged = prover.as_from_beginning(prover.unchanged)
    recorded = trials.recorded(_TITLE, changed.edits, fresh=fresh, timed=True)
    proof = Proof((), changed, unchanged, unchanged.recorded.summary, recorded)
    if (why := first_objection(proof, REGION)) is not None:
        return proof, why
    proof = prover.timed(proof, fresh=fresh)
    if (why := first_objection(proof, TIMED)) is not None:
        return proof, why
    compared = trials.compared(f"{_TITLE}, with other inputs", changed, unchanged.reference, fresh=fresh)
    proof = replace(proof, compared=compared)
    return proof, first_objection(proof, COMPARISONS)


@dataclass(frozen=True, slots=True)
class CompilePlace:
    """The statement that compiles the model. ``model`` is a name of the model in front of it, ``options`` are those of
    `torch.compile` as they are written. ``rest`` is what the statement is without the compile, ``None`` where nothing
    is left of it.
    """

    file: ParsedSource
    statement: cst.CSTNode
    model: str
    bound: str  # the expression that the name is bound to first; empty if the program has the name
    options: str
    rest: Edit | None

    def edits(self, parts: Sequence[str], *, watched: bool = False) -> Iterator[Edit]:
        """Compile these parts in front of the statement; ``watched`` has the calls of the model compared."""
        pad, unit, end = self.file.indent(self.statement), self.file.indent_unit, self.file.newline
        lines = [f"{self.model} = {self.bound}"] if self.bound else []
        if len(parts) == 1 and not parts[0].startswith("*"):
            lines.append(f"{parts[0]}.compile({self.options})")
        else:
            part = self.file.free_name("part", of=self.statement)
            listed = f"({', '.join(parts)})" if len(parts) > 1 else parts[0].removeprefix("*")
            lines += [f"for {part} in {listed}:", f"{unit}{part}.compile({self.options})"]
        lines += [f"{CALL_BUILTIN}({self.model})"] if watched else []
        text = "".join(f"{pad}{line}{end}" for line in lines)
        if self.rest is None:
            yield self.file.replace_lines(self.statement, self.statement, text)
        else:
            yield self.file.insert_line(self.file.line(self.statement), text)
            yield self.rest


def place_of_compile(sources: Sources) -> CompilePlace | None:
    """The only statement of the program that compiles a model: with `torch.compile`, or the model's own `compile`."""
    file = sources.program()
    if file is None:
        return None
    with_torch = compile_calls(file)
    if len(with_torch) == 1:
        return _of_torch(file, with_torch[0])
    form = m.SimpleStatementLine([m.Expr(m.Call(m.Attribute(_ATTRIBUTE, m.Name("compile"))))])
    of_models = [
        call for call in file.nodes(cst.Call) if m.matches(file.statement(call), form) and _is_expression(file, call)
    ]
    if with_torch or len(of_models) != 1:
        return None
    (call,) = of_models
    assert isinstance(call.func, cst.Attribute)
    model, options = file.code(call.func.value), options_text(file, call.args)
    return CompilePlace(file, file.statement(call), model, "", options, None)


def _of_torch(file: ParsedSource, call: cst.Call) -> CompilePlace | None:
    statement = file.statement(call)
    if not call.args or call.args[0].keyword is not None or not isinstance(statement, cst.SimpleStatementLine):
        return None
    model, bound = file.code(call.args[0].value), ""
    if not m.matches(call.args[0].value, _ATTRIBUTE):
        model, bound = file.free_name("model", "whole_model", of=call), model
    rest = file.replace(call, model)
    return CompilePlace(file, statement, model, bound, options_text(file, call.args[1:]), rest)


def _is_expression(file: ParsedSource, call: cst.Call) -> bool:
    return isinstance(file.parent(call), cst.Expr)


def expressions(model: str, names: Sequence[str], modules: Sequence[str]) -> Iterator[str]:
    """Expressions of modules by name: ``encoder.layers.0`` and all that are like it become ``*model.encoder.layers``.

    A name whose numbers may be any, as far as ``modules`` has such, is written as a loop; else each by itself.
    """
    left = list(names)
    while left:
        path = left[0].split(".")
        numbers = [position for position, word in enumerate(path) if word.isdigit()]
        like = [name for name in modules if _is_like(name.split("."), path, numbers)]
        if numbers and len(like) > 1 and set(like) <= set(left):
            yield _loop(model, path, numbers)
            left = [name for name in left if name not in like]
        else:
            yield _member(model, path)
            del left[0]


def _is_like(path: Sequence[str], other: Sequence[str], numbers: Sequence[int]) -> bool:
    """Whether two names differ at these positions alone, in numbers."""
    return len(path) == len(other) and all(
        word.isdigit() if position in numbers else word == other[position] for position, word in enumerate(path)
    )


def _loop(model: str, path: Sequence[str], numbers: Sequence[int]) -> str:
    """An expression of all modules whose names differ from ``path`` in its numbers alone."""
    if numbers[-1] == len(path) - 1 and len(numbers) == 1:
        return f"*{_member(model, path[:-1])}"
    clauses, here, start = [], model, 0
    for level, position in enumerate(numbers):
        name = f"each{level + 1 if len(numbers) > 1 else ''}"
        clauses.append(f"for {name} in {_member(here, path[start:position])}")
        here, start = name, position + 1
    return f"*({_member(here, path[start:])} {' '.join(clauses)})"


def _member(model: str, path: Sequence[str]) -> str:
    words = (f".{word}" if word.isidentifier() else f"[{word if word.isdigit() else repr(word)}]" for word in path)
    return model + "".join(words)
