"""Calls of `torch.export` and of AOTInductor that failed, as findings: the line, what decides it, and what helps.

torch reports an expression of symbols that it made (``zuf0 > 1.0``), or a `Dim` that it found to be a constant, and
names no line for it. The recording has the line of each symbol and of each guard on one.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dynadiag.explanation.failures import telling_line
from dynadiag.explanation.findings import Advice, Cost, Fact, Finding
from dynadiag.explanation.formatting import count, list_some
from dynadiag.explanation.identity import enclosing_function, identity
from dynadiag.explanation.number_remedies import number_advice
from dynadiag.explanation.remedy import Remedy, Trial, advise
from dynadiag.explanation.rules import Rule
from dynadiag.explanation.run_end import read_frames
from dynadiag.explanation.run_records import Export, RunRecords
from dynadiag.explanation.source import ExplainedRecording, event_data
from dynadiag.explanation.unknown_values import (
    NumberCondition,
    asked_decision,
    called_name,
    condition_at,
    number_names,
    undecided,
)
from dynadiag.recording.code_origin import is_generated_file
from dynadiag.recording.json_values import int_or_none, list_or_empty, text_or_none
from dynadiag.recording.records import EXPORT, Span, Symbol
from dynadiag.recording.torch_text.breaks import missing_fake
from dynadiag.recording.torch_text.constraints import ViolatedConstraint, read_constraints, read_fixes
from dynadiag.recording.torch_text.exports import ExportFacts, read_export_failure
from dynadiag.recording.torch_text.expressions import as_written, symbols_in, undecided_in
from dynadiag.recording.torch_text.failures import read_failure, without_reference
from dynadiag.recording.torch_text.sources import source_text

__all__ = ["EXPORTS", "export_findings", "read_exports"]

_MOST_LINES = 3  # lines with guards on a size that are told
_CONVERTS = frozenset({"int", "float"})


def read_exports(recording: ExplainedRecording) -> tuple[Export, ...]:
    """Read the exports that ended, in their order, then what drafts of them assumed."""
    found: list[Export] = []
    begun = 0
    for _, data in event_data(recording, "dynadiag_export"):
        if data.get("outcome") == "begun":
            begun += 1
        else:
            ended = _export(f"{EXPORT}{max(begun - 1, 0)}", data)
            if found and _call_that_failed(found[-1]) == _call_that_failed(ended) is not None:
                found.pop()  # the exception was recorded on its way, and again as it ended the program
            found.append(ended)
    drafts = {each.id: each for each in found if each.api.endswith("draft_export") and each.error is None}
    return (*found, *_assumptions(recording, drafts)) if drafts else tuple(found)


def _call_that_failed(export: Export) -> tuple[object, ...] | None:
    return None if export.error is None else (export.id, export.api, export.callers, export.contents)


def _assumptions(recording: ExplainedRecording, drafts: Mapping[str, Export]) -> Iterator[Export]:
    """What drafts went on with, as exports of their own: without a draft each would fail there."""
    for each in recording.symbols():
        if each.event == "assumed" and each.compile_id in drafts and each.expression:
            yield replace(
                drafts[each.compile_id],
                stack=each.user_stack,
                condition=each.expression,
                symbols=undecided_in(each.expression),
                assumed=each.value or "",
            )
    operators = [str(data.get("op")) for _, data in event_data(recording, "missing_fake_kernel")]
    for operator in dict.fromkeys(map(_qualified, operators)):
        yield replace(next(iter(drafts.values())), operator=operator, assumed="")


def _qualified(operator: str) -> str:
    """``aten::mm`` of ``aten.mm.default``."""
    return operator.removesuffix(".default").replace(".", "::", 1)


def _export(id_: str, data: Mapping[str, Any]) -> Export:
    strict = data.get("strict")
    return Export(
        id=id_,
        api=str(data.get("api")),
        strict=strict if isinstance(strict, bool) else None,
        file=text_or_none(data.get("file")),
        line=int_or_none(data.get("line")),
        function=text_or_none(data.get("function")) or "a program",
        callers=tuple(read_frames(data.get("callers"))),
        stack=tuple(read_frames(data.get("stack"))),
        error=text_or_none(data.get("error")),
        message=text_or_none(data.get("message")) or "",
        condition=text_or_none(data.get("condition")),
        symbols=tuple(map(str, list_or_empty(data.get("symbols")))),
        contents=text_or_none(data.get("contents")),
    )


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
        if self.export.condition is None or (found is not None and (found.is_taken or found.origin_line != found.line)):
            return None
        is_made_here = self.span.line in self._unbacked_lines
        return condition_at(self._source, self.span) if is_made_here else None

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
    def is_of_example(self) -> bool:
        """Whether the size is a constant since the example has 0 or 1 there, which torch makes constants."""
        fixed = self.constant
        return fixed is not None and fixed.held in ("0", "1") and not self._specialized

    @property
    def _specialized(self) -> tuple[Symbol, ...]:
        held = {each.held for each in self.constraints if each.kind == "constant"}
        return tuple(each for each in self.symbols if each.event == "specialized" and each.value in held)

    @cached_property
    def guards(self) -> tuple[Symbol, ...]:
        """The guards in the program's lines because of which a size is not free, the first at each line."""
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
        lines: dict[Span, Symbol] = {}
        for each in found:
            if each.event == "guarded" and each.user_stack and each.user_stack[-1:] != call:
                lines.setdefault(Span(each.user_stack[-1].file, each.user_stack[-1].line), each)
        return tuple(lines.values())

    @cached_property
    def span(self) -> Span:
        """The line at fault: of the traced code, that with the first guard, or that of the call."""
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
        return read_export_failure(self.export.message)

    @property
    def _returns(self) -> Span | None:
        """The line that returns what torch cannot export, where the module has one such line."""
        source = self.run.sources.get(self.export.file or "")
        function = enclosing_function(source, self.export.line) if self.facts.kind in _RETURNED else None
        lines = [node.lineno for node in ast.walk(function) if isinstance(node, ast.Return)] if function else []
        return Span(self.export.file, lines[0]) if len(lines) == 1 else None

    @cached_property
    def operator(self) -> str | None:
        """The operator that has no fake kernel."""
        if self.export.error == "UnsupportedOperatorException":  # its message is the name of an operator of torch's
            return _qualified(self.export.message.partition("\n")[0])
        return self.export.operator or missing_fake(self.export.message)

    @cached_property
    def looped(self) -> str | None:
        """The number of steps of the loop at the line, where it is a number that a tensor holds."""
        function = enclosing_function(self._source, self.span.line) if self.decision is not None else None
        for node in ast.walk(function) if function is not None else ():
            if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and node.iter.lineno == self.span.line:
                steps = node.iter.args[-1:] if called_name(node.iter) == "range" else []
                return next((ast.get_source_segment(self._source or "", each) for each in steps), None)
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
                return ast.get_source_segment(self._source or "", node)
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
            return replace(first, held=self.fixes.get(first.size, first.held)).said
        if self.export.condition is not None:
            return f"{needed} cannot be decided while tracing: the values of a tensor decide it"
        if self.operator:
            return f"`{self.operator}` has no fake kernel: tracing does not know what it returns"
        if self.facts.kind is not None:
            return _GIVEN[self.facts.kind].format(name=self.facts.name)
        if self.export.contents in _CONTENTS:
            return _CONTENTS[self.export.contents]
        if self.export.contents not in (None, _WRITERS.get(self.export.api)):
            return f"the file was written by `{self.export.contents}`"
        text = without_reference(telling_line(read_failure(self.export.message)))
        return text or "no message was recorded"


_RETURNED = ("output class", "traced output")
# What the program gave torch that it cannot export, write or load.
_GIVEN = {
    "input class": "an input is of the class `{name}`, and torch does not know the tensors in it",
    "output class": "the module returns an object of the class `{name}`, and torch does not know the tensors in it",
    "traced output": "the module returns an object of the class `{name}`, and torch does not know the tensors in it",
    "unnamed class": "`{name}` was registered without a name by which a file could refer to it",
    "shape of class": "`dynamic_shapes` has a shape for an input of the class `{name}`, which is no tensor to torch",
    "unregistered operator": "the exported program calls `{name}`, which is not registered in this process",
}
_CONTENTS = {
    "nothing": "there is no such file",
    "no archive": "the file is no archive: it is damaged, or something else wrote it",
    "another archive": "the file is an archive that torch did not write",
}
_WRITERS = {
    "torch.export.load": "torch.export.save",
    "torch._inductor.aoti_load_package": "torch._inductor.aoti_compile_and_package",
}
_LOADERS = {
    "torch.export.save": "torch.export.load",
    "torch._inductor.aoti_compile_and_package": "torch._inductor.aoti_load_package",
    "torch.jit.save": "torch.jit.load",
    "torch.save": "torch.load",
}
_Needs = Callable[[ExportCase], Mapping[str, str] | None]


def _when(holds: Callable[[ExportCase], bool], /, **slots: Callable[[ExportCase], str]) -> _Needs:
    return lambda case: {name: slot(case) for name, slot in slots.items()} if holds(case) else None


def _condition(case: ExportCase) -> str:
    return case.tensor_condition or ""


def _held(case: ExportCase) -> str:
    return case.constant.held if case.constant else ""


def _size(case: ExportCase) -> str:
    return case.constraints[0].size


def _fixes(case: ExportCase) -> str:
    """The assignments that torch suggests, those that others need first."""
    ordered = sorted(case.fixes.items(), key=lambda fix: not fix[1].startswith("Dim("))
    return " and ".join(f"`{name} = {value}`" for name, value in ordered)


def _other_size(case: ExportCase) -> str:
    return next((value for name, value in case.fixes.items() if value.isidentifier()), "")


def _is_range(case: ExportCase) -> bool:
    return not case.constant and bool(case.fixes) and not _other_size(case)


def _is_of_another(case: ExportCase) -> bool:
    """Whether another function than the one that was called loads the file."""
    return case.export.contents in _LOADERS and case.export.contents != _WRITERS.get(case.export.api)


def _of_kind(*kinds: str) -> Callable[[ExportCase], bool]:
    return lambda case: case.facts.kind in kinds


def _class(case: ExportCase) -> str:
    return case.facts.name


EXPORTS = (
    Remedy(
        "export.class.register",
        "Register the class before the export: a dataclass by `torch.export.register_dataclass({name})`, another one "
        "by `torch.utils._pytree.register_pytree_node`, with a `serialized_type_name` and a `flatten_with_keys_fn`.",
        _when(_of_kind(*_RETURNED, "input class", "shape of class", "unnamed class"), name=_class),
        trials=(
            Trial("exports_a_dataclass"),
            Trial("exports_a_class_that_is_returned"),
            Trial("exports_a_class_that_is_given"),
            Trial("exports_a_class_with_a_shape"),
        ),
    ),
    Remedy(
        "export.class.tensors",
        "Or return the tensors in a tuple or a dict.",
        _when(_of_kind(*_RETURNED)),
        trials=(Trial("exports_a_tuple"),),
    ),
    Remedy(
        "export.class.shapes",
        "Its shapes are then a list with one for each of its tensors, in the order of `flatten_fn`.",
        _when(_of_kind("input class", "shape of class")),
        ends=False,
        trials=(Trial("exports_a_class_with_a_shape"),),
    ),
    Remedy(
        "export.load.operator",
        "Import the module that registers `{name}` before the file is loaded.",
        _when(_of_kind("unregistered operator"), name=_class),
    ),
    Remedy(
        "export.load.other",
        "Load it with `{loader}`, or write it with `{writer}`.",
        _when(
            _is_of_another,
            loader=lambda case: _LOADERS[case.export.contents or ""],
            writer=lambda case: _WRITERS[case.export.api],
        ),
    ),
    Remedy(
        "export.tensor.where",
        "Where both sides are cheap and free of side effects, compute both and choose: "
        "`torch.where({condition}, a, b)`.",
        _when(lambda case: case.tensor_condition is not None, condition=_condition),
        trials=(Trial("exports_a_tensor_branch"),),
    ),
    Remedy(
        "export.tensor.cond",
        "Where only one side may run: `torch.cond({condition}, true_fn, false_fn, operands)`.",
        _when(lambda case: case.tensor_condition is not None, condition=_condition),
        trials=(Trial("exports_one_side"),),
    ),
    Remedy(
        "export.convert",
        "Take `{converted}` without the conversion (of a tensor: `.item()`). In export without `strict=True` it runs "
        "as Python's own, which needs a value.",
        _when(
            lambda case: bool(case.converted) and case.export.strict is False,
            converted=lambda case: case.converted or "",
        ),
        trials=(Trial("exports_an_int_of_a_tensor"), Trial("exports_an_int_of_a_size")),
    ),
    Remedy(
        "export.number.range",
        "State before this line what always holds of the number, for instance `torch._check({name} > 0)`; export then "
        "knows the answer, and a run for which it does not hold raises an exception.",
        _when(
            lambda case: case.taken_name is not None and not (case.decision and case.decision.condition),
            name=lambda case: case.taken_name or "",
        ),
        trials=(Trial("exports_a_view_of_a_slice", ("2.13",)),),
    ),
    Remedy(
        "export.number.loop",
        "Loop over a size that tracing knows, and let the steps beyond keep what they had: `state = torch.where(step < "
        "{steps}, new, state)`.",
        _when(lambda case: bool(case.looped), steps=lambda case: (case.looped or "").removesuffix(".item()")),
        trials=(Trial("exports_a_loop"),),
    ),
    Remedy(
        "export.check",
        "State before this line which of the two always holds: `torch._check({first})` or `torch._check({second})`. "
        "A run for which it does not hold raises an exception.",
        _when(
            lambda case: (
                len(case.facts.checks) == 2
                and case.taken_name is None
                and case.tensor_condition is None
                and not (case.decision and case.decision.condition)
            ),
            first=lambda case: case.facts.checks[1],
            second=lambda case: case.facts.checks[0],
        ),
        trials=(Trial("exports_attention_over_what_is_kept"),),
    ),
    Remedy(
        "export.example",
        "Export with an example that has 2 or more there: torch makes a size of 0 or 1 of the example a constant, "
        "whatever the `Dim`.",
        _when(lambda case: case.is_of_example),
        trials=(Trial("exports_a_batch_of_one"),),
    ),
    Remedy(
        "export.constant.code",
        "If the size may vary, take the {held} out of the code at this line.",
        _when(
            lambda case: case.constant is not None and bool(case.guards) and not case.converted,
            held=_held,
        ),
        trials=(Trial("exports_a_fixed_length"),),
    ),
    Remedy(
        "export.constant.static",
        "If it is always {held}, leave `{size}` out of `dynamic_shapes`, or write `Dim.AUTO`, which lets it be a "
        "constant.",
        _when(
            lambda case: case.constant is not None and not case.is_of_example and not case.converted,
            size=_size,
            held=_held,
        ),
        trials=(Trial("exports_a_length_that_is_static"), Trial("exports_a_length_that_is_automatic")),
    ),
    Remedy(
        "export.same",
        "Use one `Dim` for both: write `{other}` in the place of `{size}`.",
        _when(lambda case: not case.constant and bool(_other_size(case)), size=_size, other=_other_size),
        trials=(Trial("exports_two_sizes_that_are_one"),),
    ),
    Remedy(
        "export.range",
        "Write what the code holds for: {fixes}.",
        _when(_is_range, fixes=_fixes),
        trials=(Trial("exports_a_strided_sum"), Trial("exports_windows")),
    ),
    Remedy(
        "export.automatic",
        "Or write `Dim.AUTO` for the size: torch then finds the range or the relation by itself, and the exported "
        "program checks it.",
        _when(lambda case: bool(case.constraints) and not case.constant),
        ends=False,
        trials=(Trial("exports_windows_automatically"),),
    ),
    Remedy(
        "export.fake",
        "Tell torch the shape and dtype of what `{name}` returns: `torch.library.register_fake`.",
        _when(
            lambda case: bool(case.operator) and not (case.operator or "").startswith("aten::"),
            name=lambda case: case.operator or "",
        ),
        trials=(Trial("exports_an_operator_without_a_fake"),),
    ),
    Remedy(
        "export.fake.own",
        "Call it in an operator of your own, with a fake kernel: `torch.library.custom_op` and `register_fake`.",
        _when(lambda case: (case.operator or "").startswith("aten::")),
        trials=(Trial("exports_a_sparse_product"),),
    ),
)


def export_findings(run: RunRecords, told: set[str]) -> tuple[Finding, ...]:
    """A finding for each way in which exports failed, and for each assumption of a draft.

    ``told`` are the exports that a break tells of. Where Dynamo's own compile failed, that is told.
    """
    failed = {each.reason.partition("\n")[0] for each in run.compiles if each.outcome == "error" and each.reason}
    groups: dict[tuple[object, ...], list[ExportCase]] = {}
    for each in run.exports:
        is_new = each.id not in told and each.message.partition("\n")[0] not in failed
        if each.assumed is not None or (each.error is not None and is_new):
            case = ExportCase(each, run)
            groups.setdefault((each.function, case.span, case.why, each.assumed), []).append(case)
    return tuple(_finding(cases) for cases in groups.values())


def _finding(cases: Sequence[ExportCase]) -> Finding:
    case, export = cases[0], cases[0].export
    rule = Rule.FAILED_COMPILE if export.assumed is None else Rule.ASSUMED
    called = [each for each in (*export.callers, *export.stack) if not is_generated_file(each.file)]
    return Finding(
        rule=rule,
        id=None,
        identity=identity(rule, None, export.function, (case.span,), case.run.sources, export.api),
        severity="error" if export.assumed is None else "warning",
        span=case.span,
        function=export.function,
        title=_title(case),
        cause=case.why,
        places=(case.span,),
        cost=Cost(functions_uncompiled=export.assumed is None),
        advice=_advice(case),
        evidence=tuple(_evidence(cases)),
        called=tuple(frame for frame in called if (frame.file, frame.line) != (case.span.file, case.span.line)),
    )


def _title(case: ExportCase) -> str:
    export = case.export
    if export.assumed is None:
        doing = _DOING.get(export.api.rpartition(".")[2])
        return f"{doing or f'exporting {export.function}'} failed"
    if export.operator:
        return f"the draft ran `{export.operator}` on the example: an export fails there"
    condition = case.decision.condition if case.decision and case.decision.condition else export.condition
    return f"the draft takes `{condition}` to be {export.assumed}, as in the example: an export fails there"


_DOING = {
    "aoti_compile_and_package": "compiling the exported program",
    "aot_compile": "compiling the exported program",
    "aoti_load_package": "loading the package",
    "load": "loading the exported program",
    "save": "saving the exported program",
}


def _advice(case: ExportCase) -> tuple[Advice, ...]:
    torch, decision = case.run.run.torch, case.decision
    given = advise(EXPORTS, case, torch=torch)
    if given or decision is None or case.tensor_condition is not None:
        return given
    return number_advice(replace(decision, is_captured=True), torch=torch)


def _evidence(cases: Sequence[ExportCase]) -> Iterator[Fact]:
    case, export = cases[0], cases[0].export
    if export.error:
        yield Fact("raised", export.error)
    yield Fact("in", list_some(list(dict.fromkeys(each.export.call for each in cases))))
    if export.condition and export.condition not in case.why:
        yield Fact("asked", f"`{export.condition}`, of numbers without a value")
    guards = case.guards if case.constraints else ()
    for guard in guards[:_MOST_LINES]:
        frame = guard.user_stack[-1]
        yield Fact("made so by", f"`{case.written(guard)}`", Span(frame.file, frame.line))
    if len(guards) > _MOST_LINES:
        yield Fact("and", f"{count(len(guards) - _MOST_LINES, 'more line')} with guards on it")
