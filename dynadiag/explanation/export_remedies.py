"""The remedies for calls of `torch.export` and of AOTInductor that fail.

The programs of the trials are in `tests/explanation/export_programs.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dynadiag.explanation.export_case import LOADERS, RETURNED, WRITERS, ExportCase
from dynadiag.explanation.remedy import Remedy, Trial, copied

_Needs = Callable[[ExportCase], Mapping[str, str] | None]


def _when(holds: Callable[[ExportCase], bool], /, **slots: Callable[[ExportCase], str]) -> _Needs:
    return lambda case: {name: slot(case) for name, slot in slots.items()} if holds(case) else None


def _chooses(case: ExportCase) -> bool:
    """Whether values of a tensor choose what runs: no side only raises, or ends a loop."""
    return case.tensor_condition is not None and not (case.tensor_required or case.ended_loop)


def _condition(case: ExportCase) -> str:
    return case.as_tensor


def _held(case: ExportCase) -> str:
    return case.constant.held if case.constant else ""


def _size(case: ExportCase) -> str:
    return case.constraints[0].size


def _fixes(case: ExportCase) -> str:
    """The assignments that torch suggests, those that others need first."""
    ordered = sorted(case.fixes.items(), key=lambda fix: not fix[1].startswith("Dim("))
    return " and ".join(f"`{name} = {value}`" for name, value in ordered)


def _least(case: ExportCase) -> str:
    """What is to be known of a range: that it begins at 2 and not at 1, and what it does not say."""
    said = " It begins at 2 all the same, and not at 1: torch exports no size of 1." if case.excludes_one else ""
    if (guard := case.unstated) is not None:
        at = f"`{case.written(guard)}`, of line {guard.user_stack[-1].line}"
        said += f" No range says that {at}: the exported program raises where it does not hold."
    return said


def _other_size(case: ExportCase) -> str:
    return next((value for name, value in case.fixes.items() if value.isidentifier()), "")


def _is_range(case: ExportCase) -> bool:
    return not case.constant and bool(case.fixes) and not _other_size(case)


def _is_of_another(case: ExportCase) -> bool:
    """Whether another function than the one that was called loads the file."""
    return case.export.contents in LOADERS and case.export.contents != WRITERS.get(case.export.api)


def _of_kind(*kinds: str) -> Callable[[ExportCase], bool]:
    return lambda case: case.facts.kind in kinds


def _class(case: ExportCase) -> str:
    return case.facts.name


EXPORTS = (
    Remedy(
        "export.class.register",
        "Register the class before the export: a dataclass by `torch.export.register_dataclass({name})`, another one "
        "by `torch.utils._pytree.register_pytree_node`, with a `serialized_type_name` and a `flatten_with_keys_fn`.",
        _when(_of_kind(*RETURNED, "input class", "shape of class", "unnamed class"), name=_class),
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
        _when(_of_kind(*RETURNED)),
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
        "export.shapes",
        "`dynamic_shapes` is nested as the inputs are: write `{shapes}`, and in the place of None what else varies "
        "(`{{0: Dim.DYNAMIC}}`).",
        _when(lambda case: case.export.shapes is not None, shapes=lambda case: case.export.shapes or ""),
        trials=(Trial("exports_with_a_key_missing"), Trial("exports_with_a_dimension_too_many")),
    ),
    Remedy(
        "export.load.operator",
        "Import the module that registers `{name}` before the file is loaded.",
        _when(_of_kind("unregistered operator", "operator of a package"), name=_class),
    ),
    Remedy(
        "export.load.other",
        "Load it with `{loader}`, or write it with `{writer}`.",
        _when(
            _is_of_another,
            loader=lambda case: LOADERS[case.export.contents or ""],
            writer=lambda case: WRITERS[case.export.api],
        ),
    ),
    Remedy(
        "export.tensor.require",
        "This only checks: write `torch._assert_async({condition}, message)` in its place. The check is then part of "
        "the exported program, and raises a RuntimeError.",
        _when(lambda case: bool(case.tensor_required), condition=lambda case: case.tensor_required or ""),
        trials=(Trial("exports_a_check"), Trial("exports_an_assert")),
    ),
    Remedy(
        "export.tensor.steps",
        "Let the loop make all its steps, and those after its end keep what there was: `done = done | ({condition})`, "
        "`state = torch.where(done, state, new)`.",
        _when(lambda case: case.ended_loop == "for" and not case.tensor_required, condition=_condition),
        trials=(Trial("exports_a_loop_that_returns"),),
    ),
    Remedy(
        "export.tensor.loop",
        "Let the graph loop, where shapes stay: `torch.while_loop(condition_fn, body_fn, operands)`.",
        _when(lambda case: case.ended_loop is not None and not case.tensor_required),
        trials=(Trial("exports_a_while"),),
    ),
    Remedy(
        "export.tensor.where",
        "Where both sides are cheap and free of side effects, compute both and choose: "
        "`torch.where({condition}, a, b)`.",
        _when(lambda case: _chooses(case) and not case.may_resize, condition=_condition),
        trials=(Trial("exports_a_tensor_branch"),),
    ),
    Remedy(
        "export.tensor.cond",
        "Where only one side may run: `torch.cond({condition}, true_fn, false_fn, operands)`.{copy}",
        _when(_chooses, condition=_condition, copy=lambda case: copied(case.kept)),
        trials=(Trial("exports_one_side"), Trial("exports_a_slice_or_all")),
    ),
    Remedy(
        "export.padded",
        "torch exports no packed sequence: pass the padded batch, and take of each sequence its last step, "
        "`out[torch.arange(len(lengths)), lengths - 1]`; a bidirectional module would read the padding.",
        _when(lambda case: case.takes_packed),
        trials=(Trial("exports_a_packed_sequence"),),
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
            lambda case: (
                case.taken_name is not None and not (case.looped or (case.decision and case.decision.condition))
            ),
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
            first=lambda case: case.facts.checks[0],
            second=lambda case: case.facts.checks[1],
        ),
        trials=(Trial("exports_attention_over_what_is_kept", ("2.11", "2.13", "2.14")),),
    ),
    Remedy(
        "export.example",
        "Export with an example that has 2 or more there: torch makes a size of 0 or 1 of the example a constant, "
        "whatever the `Dim`.",
        _when(lambda case: case.is_of_example),
        trials=(Trial("exports_a_batch_of_one"), Trial("exports_a_dynamic_batch_of_one")),
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
        "Write what the code holds for: {fixes}.{least}",
        _when(_is_range, fixes=_fixes, least=_least),
        trials=(Trial("exports_a_strided_sum"), Trial("exports_windows"), Trial("exports_a_difference")),
    ),
    Remedy(
        "export.both_sides",
        "The export keeps the side that the example took. For both: `torch.cond({condition}, true_fn, false_fn, "
        "operands)`.{copy}",
        _when(
            lambda case: case.decided_branch is not None and not case.may_resize,
            condition=lambda case: case.decided_branch or "",
            copy=lambda case: copied(case.kept),
        ),
        trials=(Trial("exports_both_sides"),),
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
        trials=(Trial("exports_a_sparse_product", ("2.13", "2.14", "2.15")),),
    ),
)
