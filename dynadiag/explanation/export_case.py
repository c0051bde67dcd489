"""A failed export with all that is known of it: the line, what decides it, and what the program gave."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from functools import cached_property

from dynadiag.explanation.blocks import takes_packed
from dynadiag.explanation.branches import (
    called_name,
    condition_at,
    kept_side,
    may_resize,
    required_at,
    tensor_condition,
)
from dynadiag.explanation.failures import operation_of, telling_line
from dynadiag.explanation.identity import enclosing_function, segment
from dynadiag.explanation.run_records import Export, RunRecords
from dynadiag.explanation.unknown_values import (
    NumberCondition,
    asked_decision,
    ends_loop,
    number_names,
    undecided,
)
from dynadiag.recording.records import Span, Symbol
from dynadiag.recording.torch_text.breaks import missing_fake
from dynadiag.recording.torch_text.constraints import ViolatedConstraint, read_constraints, read_fixes
from dynadiag.recording.torch_text.exports import UNHASHABLE, ExportFacts, read_export_failure
from dynadiag.recording.torch_text.expressions import as_written, joins_sizes, symbols_in
from dynadiag.recording.torch_text.failures import read_failure, without_reference
from dynadiag.recording.torch_text.sources import source_text

_CONVERTS = frozenset({"int", "float"})


def qualified(operator: str) -> str:
    """Return ``aten::mm`` of ``aten.mm.default``."""
    return operator.removesuffix(".default").replace(".", "::", 1)


@dataclass(frozen=True)
class ExportCase:
    """A failed export with all that is known of it: what the predicates of remedies read."""

    export: Export
    run: RunRecords

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """The symbols of this export, and the guards on them."""
        return tuple(each for each in self.run.symbols if each.compile_id == self.export.id)

    @cached_property
    def decision(self) -> NumberCondition | None:
        """What was to be decided by values of tensors."""
        if self.export.condition is None:
            return None
        return asked_decision(self.export.symbols, self.export.id, self.span, self.run)

    @cached_property
    def tensor_condition(self) -> str | None:
        """The condition at the line, if the values of a tensor decide it and no number is taken of it before."""
        found = self.decision
        if (
            self.export.condition is None
            or self.facts.asks_size
            or (found is not None and (found.is_taken or found.origin_line != found.line))
        ):
            return None
        is_made_here = self.span.line in self._unbacked_lines
        return condition_at(self._source, self.span) if is_made_here else None

    @property
    def as_tensor(self) -> str:
        """The condition at the line, as one expression of tensors; ``condition`` where that is not known."""
        return tensor_condition(self._source, self.span) or "condition"

    @property
    def kept(self) -> str:
        """What a side of the branch at the line has without computing it."""
        return kept_side(self._source, self.span)

    @cached_property
    def tensor_required(self) -> str | None:
        """What must hold of tensors at the line, where one side of the branch there only raises."""
        return required_at(self._source, self.span) if self.tensor_condition is not None else None

    @cached_property
    def ended_loop(self) -> str | None:
        """The kind of loop ("for", "while") that values of a tensor end at the line."""
        return ends_loop(self._source, self.span) if self.tensor_condition is not None else None

    @cached_property
    def may_resize(self) -> bool:
        """Whether the sides of the branch at the line may have two sizes."""
        return may_resize(self._source, self.span)

    @cached_property
    def _unbacked_lines(self) -> set[int | None]:
        """The lines of the file that make numbers without a value."""
        stacks = [each.user_stack for each in self.symbols if each.event == "unbacked" and each.user_stack]
        return {stack[-1].line for stack in stacks if stack[-1].file == self.span.file}

    @property
    def _source(self) -> str | None:
        return self.run.sources.get(self.span.file or "")

    @cached_property
    def constraints(self) -> tuple[ViolatedConstraint, ...]:
        """What torch says of the sizes that are not free."""
        return read_constraints(self.export.message)

    @cached_property
    def fixes(self) -> dict[str, str]:
        """What torch suggests to write for the sizes."""
        return read_fixes(self.export.message)

    @cached_property
    def constant(self) -> ViolatedConstraint | None:
        """The first size that became a constant."""
        return next((each for each in self.constraints if each.kind == "constant"), None)

    @cached_property
    def excludes_one(self) -> bool:
        """Whether torch's suggestion has the size 1, of which it makes a constant all the same."""
        return any("min=1," in each or "min=1)" in each for each in self.fixes.values())

    @property
    def unstated(self) -> Symbol | None:
        """The guard by which several sizes make one number, which no range can say."""
        return next((each for each in self._all_guards if joins_sizes(each.expression)), None)

    @cached_property
    def decided_branch(self) -> str | None:
        """The condition on sizes that the example decided, where the export therefore holds for a part of them only."""
        if not (self.guards and self.constraints) or required_at(self._source, self.span) is not None:
            return None
        return condition_at(self._source, self.span)

    @property
    def operation(self) -> str | None:
        """The operator that made the size constant, with the sizes and numbers that it was given."""
        return operation_of(self._specialized, self.symbols)

    @cached_property
    def is_of_example(self) -> bool:
        """Whether the size is a constant because it is 0 or 1 in the example."""
        fixed = self.constant
        return fixed is not None and fixed.held in ("0", "1") and not self._specialized

    @property
    def _specialized(self) -> tuple[Symbol, ...]:
        held = {each.held for each in self.constraints if each.kind == "constant"}
        return tuple(each for each in self.symbols if each.event == "specialized" and each.value in held)

    @cached_property
    def guards(self) -> tuple[Symbol, ...]:
        """The guards in the program's lines because of which a size is not free, the first at each line."""
        lines: dict[Span, Symbol] = {}
        for each in self._all_guards:
            lines.setdefault(Span(each.user_stack[-1].file, each.user_stack[-1].line), each)
        return tuple(lines.values())

    @cached_property
    def _all_guards(self) -> tuple[Symbol, ...]:
        call, kinds = self.export.callers[-1:], {each.kind for each in self.constraints}
        made = [each for each in self.symbols if each.event == "created"]
        if "constant" in kinds:
            stacks, of = {each.user_stack for each in self._specialized}, self._specialized
        else:
            told = " ".join(each.held for each in self.constraints)
            stacks, of = None, tuple(each for each in made if source_text(each.source) in told) or tuple(made)
        names, least = {each.name for each in of}, 2 if kinds == {"related"} else 1
        found = [
            each
            for each in self.symbols
            if (stacks is None or each.user_stack in stacks)
            and names & symbols_in(each.expression)
            and len(symbols_in(each.expression)) >= least
        ]
        inside = (each for each in found if each.user_stack and each.user_stack[-1:] != call)
        return tuple(each for each in inside if each.event == "guarded")

    @cached_property
    def span(self) -> Span:
        """The line at fault: the line of the first guard in the traced code, or the line of the call."""
        if self.constraints and self.guards:
            frame = self.guards[0].user_stack[-1]
            return Span(frame.file, frame.line)
        if (told := read_failure(self.export.message).blamed or self._returns) is not None:
            return told
        frames = self.export.stack[-1:] or self.export.callers[-1:]
        return Span(frames[0].file, frames[0].line) if frames else Span(self.export.file, self.export.line)

    @cached_property
    def facts(self) -> ExportFacts:
        """What torch says of what the program gave the export."""
        found = read_export_failure(self.export.message)
        is_programs = found.kind == UNHASHABLE and bool(self.export.stack)
        return ExportFacts(checks=found.checks) if is_programs else found

    @property
    def _returns(self) -> Span | None:
        """The line that returns what torch cannot export, where the module has one such line."""
        source = self.run.sources.get(self.export.file or "")
        function = enclosing_function(source, self.export.line) if self.facts.kind in RETURNED else None
        lines = [node.lineno for node in ast.walk(function) if isinstance(node, ast.Return)] if function else []
        return Span(self.export.file, lines[0]) if len(lines) == 1 else None

    @cached_property
    def operator(self) -> str | None:
        """The operator that has no fake kernel."""
        if self.export.error == "UnsupportedOperatorException":  # its message is the name of an operator of torch's
            return qualified(self.export.message.partition("\n")[0])
        return self.export.operator or missing_fake(self.export.message)

    @property
    def takes_packed(self) -> bool:
        """Whether the line gives a packed sequence to a module, which takes a size from its values."""
        return self.export.error == "TypeError" and takes_packed(self._source, self.span)

    @cached_property
    def looped(self) -> str | None:
        """The number of steps of the loop at the line, where it is a number that a tensor holds."""
        function = enclosing_function(self._source, self.span.line) if self.decision is not None else None
        for node in ast.walk(function) if function is not None else ():
            if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and node.iter.lineno == self.span.line:
                steps = node.iter.args[-1:] if called_name(node.iter) == "range" else []
                return next((segment(self._source, each) for each in steps), None)
        return None

    @cached_property
    def taken_name(self) -> str | None:
        """A name at the line whose value is a number that a tensor holds."""
        if self.export.condition is None:
            return None
        return next(iter(number_names(self._source, self.span, self._unbacked_lines)), None)

    @cached_property
    def converted(self) -> str | None:
        """A size or number at the line that `int` or `float` is called on, which makes it a constant."""
        if not (self.constant or self.export.condition):
            return None
        function = enclosing_function(self._source, self.span.line)
        for node in ast.walk(function) if function is not None else ():
            if isinstance(node, ast.Call) and node.lineno == self.span.line and called_name(node) in _CONVERTS:
                return segment(self._source, node)
        return None

    def written(self, guard: Symbol) -> str:
        """A guard with the sizes as the program writes them: ``x.size()[1] == 16``."""
        names = {each.name: source_text(each.source) for each in self.symbols if each.event == "created"}
        return as_written(guard.expression, names)

    @property
    def why(self) -> str:
        """Why it failed, in a line."""
        found, needed = self.decision, f"`{self.export.condition}`"
        if self.tensor_condition is not None:
            return f"`{self.tensor_condition}` cannot be decided while tracing: the values of a tensor decide it"
        if found is not None and not found.condition and found.origin_line == found.line and not found.is_taken:
            name = f" (`{self.taken_name}`)" if self.taken_name else ""
            return f"this line needs to know whether {needed}, of a size that the values of a tensor decide{name}"
        if found is not None:
            return undecided(found)
        if self.is_of_example and self.constant is not None:
            size = self.constant.held
            return f"`{self.constant.size}` is dynamic, but the example has {size} there, which torch makes a constant"
        if self.constraints:
            first = self.constraints[0]
            said = replace(first, held=self.fixes.get(first.size, first.held)).said
            example = next((each for each in self.symbols if each.event == "created" and each.value), None)
            if self.decided_branch is None or example is None:
                return said
            at = f"`{source_text(example.source)}` is {example.value} in the example, which decides"
            return f"{said}: {at} `{self.decided_branch}`"
        if self.export.condition is not None:
            return f"{needed} cannot be decided while tracing: the values of a tensor decide it"
        if self.operator:
            return f"`{self.operator}` has no fake kernel: tracing does not know what it returns"
        if self.export.wrong_shape is not None:
            return self.export.wrong_shape
        if self.takes_packed:
            return "the module takes a size from the values of the packed sequence, and tracing has no values"
        if self.facts.kind is not None:
            return _GIVEN[self.facts.kind].format(name=self.facts.name)
        if self.export.contents in _CONTENTS:
            return _CONTENTS[self.export.contents]
        if self.export.contents not in (None, WRITERS.get(self.export.api)):
            return f"the file was written by `{self.export.contents}`"
        text = without_reference(telling_line(read_failure(self.export.message)))
        return text or "no message was recorded"


RETURNED = ("output class", "traced output", UNHASHABLE)
# What the program gave torch that it cannot export, write or load.
_GIVEN = {
    "input class": "an input is of the class `{name}`, and torch does not know the tensors in it",
    "output class": "the module returns an object of the class `{name}`, and torch does not know the tensors in it",
    "traced output": "the module returns an object of the class `{name}`, and torch does not know the tensors in it",
    UNHASHABLE: "the module returns an object of the class `{name}`, and torch does not know the tensors in it",
    "unnamed class": "`{name}` was registered without a name by which a file could refer to it",
    "shape of class": "`dynamic_shapes` has a shape for an input of the class `{name}`, which is no tensor to torch",
    "unregistered operator": "the exported program calls `{name}`, which is not registered in this process",
    "operator of a package": "the package calls `{name}`, which is not registered in this process",
}
_CONTENTS = {
    "nothing": "there is no such file",
    "no archive": "the file is no archive: it is damaged, or something else wrote it",
    "another archive": "the file is an archive that torch did not write",
}
WRITERS = {
    "torch.export.load": "torch.export.save",
    "torch._inductor.aoti_load_package": "torch._inductor.aoti_compile_and_package",
}
LOADERS = {
    "torch.export.save": "torch.export.load",
    "torch._inductor.aoti_compile_and_package": "torch._inductor.aoti_load_package",
    "torch.jit.save": "torch.jit.load",
    "torch.save": "torch.load",
}
