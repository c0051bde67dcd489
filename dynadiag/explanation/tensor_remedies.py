"""The remedies for recompiles because of tensors: sizes, conditions on sizes, and what else a tensor has."""

from __future__ import annotations

from collections.abc import Sequence

from dynadiag.explanation.formatting import count
from dynadiag.explanation.process_state import dispatch_change, is_other_device
from dynadiag.explanation.recompile_case import Needs, RecompileCase, is_special_size, of_sort
from dynadiag.explanation.remedy import Remedy, Slots, slots_if, tried
from dynadiag.recording.records import GuardFailure
from dynadiag.recording.torch_text.guards import excludes_zero_and_one
from dynadiag.recording.torch_text.sources import argument_description, source_text, without_part

__all__ = ["TENSORS", "markable_sizes"]

_MOST_DIMENSIONS = 4  # of sizes that are named one by one; with more, dynamic=True says it shorter


def markable_sizes(case: RecompileCase) -> tuple[GuardFailure, ...]:
    """The sizes that changed, without those that torch compiles apart, and without those of parameters."""
    if case.sort != "size" or case.fact.is_of_parameter:
        return ()
    return tuple(fact for fact in case.alike if not is_special_size(fact))


def _special_size(case: RecompileCase) -> Slots:
    fact = case.fact
    if case.sort == "size" and not fact.is_of_parameter and is_special_size(fact):
        return {"tensor": source_text(fact.subject), "dimension": fact.index or "?"}
    if case.sort != "shape" or fact.index != "above one" or fact.now not in (None, "0", "1"):
        return None
    tensor, part, dimension = without_part(fact.terms[0] if fact.terms else None)
    return slots_if(part == "size", tensor=source_text(tensor), dimension=dimension or "?")


def _parameter_size(case: RecompileCase) -> Slots:
    then = {
        "always": "with your `dynamic=True` they are symbols then",
        "never": "without your `dynamic=False` they become symbols when they first change",
    }.get(case.fact.dynamic or "", "they become symbols when they first change, with `dynamic=True` in the first call")
    return slots_if(case.sort == "size" and case.fact.is_of_parameter, name=case.name, then=then)


def _static(said: str | None) -> Needs:
    """That sizes changed before and are still constants, with this said of them: "automatic" of what is not marked."""

    def needs(case: RecompileCase) -> Slots:
        facts = markable_sizes(case)
        told = {fact.mark if fact.mark == "static" else fact.dynamic and "automatic" for fact in facts}
        never = any(fact.dynamic == "never" for fact in facts)
        return slots_if(facts and case.is_again and not never and told == {said}, names=case.names)

    return needs


def _changed_size(many: bool) -> Needs:
    def needs(case: RecompileCase) -> Slots:
        facts = markable_sizes(case)
        if not facts or case.is_again or any(fact.mark == "static" or fact.dynamic == "never" for fact in facts):
            return None
        dims = list(dict.fromkeys((source_text(fact.subject), fact.index) for fact in facts))
        if (len(dims) > _MOST_DIMENSIONS) != many:
            return None
        return {
            "calls": ", ".join(f"`torch._dynamo.mark_dynamic({name}, {index})`" for name, index in dims),
            "who": _who(facts),
        }

    return needs


def _who(facts: Sequence[GuardFailure]) -> str:
    """What the names stand for that no program has: those of a wrapper's ``*args, **kwargs``."""
    each = dict.fromkeys((source_text(fact.subject), argument_description(fact.subject)) for fact in facts)
    told = [f"`{name}` is {what}" for name, what in each if what]
    return f" ({', '.join(told)})" if told else ""


def _shape(*kinds: str | None) -> Needs:
    def needs(case: RecompileCase) -> Slots:
        fact = case.fact
        if case.sort != "shape" or fact.index not in kinds:
            return None
        others = len({change.fact.guard for change in case.changes if change.sort == "shape"}) - 1
        made = f"The code is dynamic, but made for `{source_text(fact.guard) or 'a condition that was not recorded'}`"
        if others:
            made += f" (and {count(others, 'more guard')} on the same sizes)"
        if excludes_zero_and_one(fact):
            made += " (the 2 is torch's own: it always compiles sizes 0 and 1 apart)"
        sized = fact.terms and without_part(fact.terms[0])[1] == "size"
        ranged = "; `torch._dynamo.mark_dynamic(tensor, dimension, min=..., max=...)` states a range" if sized else ""
        return {"made": made, "range": ranged}

    return needs


def _gradients(*, of_parameter: bool, moved: bool | None) -> Needs:
    """``moved``: whether it is the parameter of another instance than the one that was compiled for."""

    def needs(case: RecompileCase) -> Slots:
        is_parameter = case.fact.base == "parameter"
        known = not of_parameter or case.fact.is_new_owner is moved
        return slots_if(case.sort == "requires_grad" and is_parameter == of_parameter and known, names=case.names)

    return needs


def _dispatch(case: RecompileCase, kind: str) -> Slots:
    """``kind``: "device", "inference tensor", or "" for all others."""
    change = dispatch_change(case.fact) if case.sort == "dispatch keys" else None
    is_kind = "device" if is_other_device(case.fact) else ""
    is_kind = is_kind or ("inference tensor" if case.fact.index == "an inference tensor" else "")
    return slots_if(change and is_kind == kind, name=case.name, names=case.names, change=change or "")


def _device(case: RecompileCase) -> Slots:
    return {"names": case.names} if case.sort == "device" else _dispatch(case, "device")


TENSORS: tuple[Remedy[RecompileCase], ...] = (
    Remedy(
        "size.parameter",
        "{name} is a parameter, and torch treats shapes of parameters as constants, whatever `dynamic` is: one compile "
        "for each. Set `torch._dynamo.config.force_parameter_static_shapes = False` before the first call: {then}.",
        _parameter_size,
        trials=tried("a_parameter_of_another_size", "a_parameter_as_an_argument"),
    ),
    Remedy(
        "size.zero_or_one",
        "torch always compiles sizes 0 and 1 apart from all others: avoid them (drop the last short batch, "
        "pad), or `torch._dynamo.decorators.mark_unbacked({tensor}, {dimension})`.",
        _special_size,
        trials=tried("a_size_of_one"),
    ),
    Remedy(
        "size.static",
        "The size of {names} changed, and each size is compiled apart, because of `dynamic=False`. Leave that out, "
        "or pad to a few sizes.",
        lambda case: slots_if(any(fact.dynamic == "never" for fact in markable_sizes(case)), names=case.names),
        trials=tried("static_sizes"),
    ),
    Remedy(
        "size.marked_static",
        "The size of {names} changed before, and each is compiled apart, because the dimension is marked static "
        "(`torch._dynamo.mark_static`). Leave that out, or pad to a few sizes.",
        _static("static"),
    ),
    Remedy(
        "size.number",
        "The size of {names} changed before, and is still a constant of the code: something in the function needs it "
        "as a number. Avoid that, or pad to a few sizes.",
        _static("automatic"),
    ),
    Remedy(
        "size.unknown",
        "The size of {names} changed before, and the code was still made for one size only: the program was compiled "
        "with `dynamic=False`, the dimension is marked static, or Python code needs its number. Remove that, or "
        "pad to a few sizes.",
        _static(None),
    ),
    Remedy(
        "size.many",
        "Sizes change: `torch.compile(..., dynamic=True)` makes them symbols from the first call on. (By itself "
        "torch makes a size a symbol when it first changes, at the price of this recompile.)",
        _changed_size(many=True),
        trials=tried("many_sizes"),
    ),
    Remedy(
        "size.changed",
        "The size changes: call {calls} before the first call{who}, or use `torch.compile(..., dynamic=True)`. (By "
        "itself torch makes a size a symbol when it first changes, at the price of this recompile.)",
        _changed_size(many=False),
        trials=tried("a_size", "a_size_marked"),
    ),
    Remedy(
        "size.computed",
        "{names:is} computed before the graph break, and its size follows from those of the arguments: end the break, "
        "or use `torch.compile(..., dynamic=True)`.",
        of_sort("computed size"),
        trials=tried("a_size_after_a_break"),
    ),
    Remedy(
        "shape.multiple",
        "{made}: the program, or an operator, takes another way for other sizes. Pad to such a multiple before the "
        "call, or expect one compile for each way.",
        _shape("multiple"),
        trials=tried("a_multiple"),
    ),
    Remedy(
        "shape.number",
        "{made}: something needs that size as a number (Python code, an operator). Avoid it, or pad to one size.",
        _shape("number"),
    ),
    Remedy(
        "shape.together",
        "{made}: in the calls before, these sizes went together. Where they need not, make them differ in "
        "the first call, or mark both with `torch._dynamo.mark_dynamic`.",
        _shape("together"),
        trials=tried("two_sizes"),
    ),
    Remedy(
        "shape.branch",
        "{made}: a branch on it, in the program or in torch, takes another way beyond. Keep to one side, or "
        "expect one compile for each{range}.",
        lambda case: _shape("range", "above one")(case) if _special_size(case) is None else None,
        trials=tried("a_range_of_sizes"),
    ),
    Remedy(
        "tensor.rank",
        "{names} came with another number of dimensions: that always needs code of its own. Reshape "
        "to one (`unsqueeze`, `view`) before the call.",
        of_sort("rank"),
        trials=tried("a_rank"),
    ),
    Remedy(
        "tensor.dtype",
        "{names} came in another dtype: code is made for each dtype. Convert before the call, or expect one "
        "compile for each and call each once to warm up. Under autocast, check that every call is inside it.",
        of_sort("dtype"),
        trials=tried("a_dtype"),
    ),
    Remedy(
        "tensor.stride",
        "{names} came with another memory layout: call `.contiguous()` on it before the compiled call.",
        of_sort("stride"),
        trials=tried("a_stride"),
    ),
    Remedy(
        "tensor.device",
        "{names} came on another device: code is made for each device. Move it before the call.",
        _device,
        trials=tried("a_device"),
    ),
    Remedy(
        "tensor.requires_grad",
        "{names} came with another `requires_grad`: with and without gradients is different code. Expect one "
        "compile for each, or `detach()` before the call where no gradient is wanted.",
        _gradients(of_parameter=False, moved=None),
        trials=tried("gradients"),
    ),
    Remedy(
        "tensor.frozen",
        "{names:was} frozen or unfrozen (`requires_grad`) after the first compile: that is different code. Do it "
        "before the first call, or expect one compile for each.",
        _gradients(of_parameter=True, moved=False),
        trials=tried("a_frozen_parameter"),
    ),
    Remedy(
        "tensor.frozen_instance",
        "{names:has} another `requires_grad` than in the instance that was compiled before: instances that are frozen "
        "and instances that are not are different code. Expect one compile for each sort of instance, and warm up "
        "each.",
        _gradients(of_parameter=True, moved=True),
        ends=False,
    ),
    Remedy(
        "tensor.frozen_or_other",
        "{names:has} another `requires_grad` than before: it was frozen or unfrozen, or is that of another instance. "
        "That is different code: expect one compile for each.",
        _gradients(of_parameter=True, moved=None),
        ends=False,
    ),
    Remedy(
        "tensor.alias",
        "Two arguments were the same tensor (or shared memory) in one call and not in the other: `clone()` one "
        "of them, or always pass them alike.",
        of_sort("alias"),
        trials=tried("the_same_tensor"),
    ),
    Remedy(
        "tensor.inference",
        "{name} was made under `torch.inference_mode` in one call and not in the other, which is different code. "
        "Make it the same way for every call; under `torch.no_grad` tensors are ordinary ones.",
        lambda case: _dispatch(case, "inference tensor"),
        trials=tried("an_inference_tensor"),
    ),
    Remedy(
        "tensor.dispatch",
        "{name} {change}: that is different code. Make it the same way for every call.",
        lambda case: _dispatch(case, ""),
        trials=tried("a_conjugated_view", "a_transform"),
    ),
)
