"""The remedies for recompiles because of tensors: sizes, conditions on sizes, and what else a tensor has."""

from __future__ import annotations

from collections.abc import Sequence

from dynadiag.explanation.formatting import count, list_some
from dynadiag.explanation.process_state import dispatch_change, is_inference, is_other_device
from dynadiag.explanation.recompile_case import (
    Needs,
    RecompileCase,
    is_from_before_break,
    is_special_size,
    of_sort,
    place_text,
)
from dynadiag.explanation.remedy import Remedy, Slots, Subject, Trial, slots_if, tried
from dynadiag.explanation.value_remedies import ARITHMETIC, TENSOR_INSTEAD
from dynadiag.recording.code_origin import is_torch_file
from dynadiag.recording.records import GuardFailure
from dynadiag.recording.torch_text.guards import excludes_zero_and_one, is_plain_range
from dynadiag.recording.torch_text.sources import argument_description, source_text, without_part

_CACHES = "/transformers/cache_utils.py"  # the classes of key-value caches
_MOST_DIMENSIONS = 4  # of sizes that are named one by one; with more, dynamic=True says it shorter


def markable_sizes(case: RecompileCase) -> tuple[GuardFailure, ...]:
    """The sizes that changed, without those that torch compiles apart, those of parameters, and those of what the
    function had computed before a break, which no caller has."""
    if case.sort != "size" or case.fact.is_of_parameter:
        return ()
    given = (fact for fact in case.alike if fact.base != "before break")
    return tuple(fact for fact in given if not is_special_size(fact) and not is_from_before_break(fact, case.computed))


def _special_size(case: RecompileCase) -> Slots:
    """The sizes 0 and 1: of what failed, or of the condition that torch made of it."""
    sizes = [without_part(fact.source) for fact in case.alike if is_special_size(fact) and not fact.is_of_parameter]
    if case.sort == "shape" and case.fact.index == "above one" and case.fact.now in (None, "0", "1"):
        sizes = [without_part(term) for term in case.fact.terms[:1]]
    sizes = list(dict.fromkeys(size for size in sizes if size[1] == "size"))
    marks = _marks("torch._dynamo.decorators.mark_unbacked", [(tensor, index) for tensor, _, index in sizes], case)
    avoid = "drop the last short batch, pad" if {index for *_, index in sizes} == {"0"} else "pad"
    marked = "avoid them ({}), or, where nothing branches on the size or slices by it, call {calls} {where}{who}"
    many = len(sizes) > _MOST_DIMENSIONS or case.unmarkable
    return slots_if(
        sizes and case.sort in ("size", "shape"),
        ways=f"or avoid them ({avoid})" if many else marked.format(avoid, **marks),
    )


def _parameter_size(case: RecompileCase) -> Slots:
    """``options``: torch keeps what its own modules have apart from parameters and buffers of the program's."""
    then = {
        "always": "with your `dynamic=True` they are symbols then",
        "never": "leave your `dynamic=False` out, and they become symbols when they first change",
        "off": "with `torch.compile(..., dynamic=True)` they are symbols then",
    }.get(
        case.fact.dynamic or "", "they become symbols when they first change (with `dynamic=True`, in the first call)"
    )
    of_torch = "._modules[" in (case.fact.subject or "") or is_torch_file(case.recompile.file)
    options = ["force_parameter_static_shapes"] + ["force_nn_module_property_static_shapes"] * of_torch
    buffer = "._buffers[" in (case.fact.subject or "")
    numbers = _numbers_beside(case, "module attribute", "attribute")
    every = [f"`torch._dynamo.config.{each} = False`" for each in options]
    every += ["`torch._dynamo.config.allow_unspec_int_on_nn_module = True`"] * bool(numbers)
    return slots_if(
        case.sort == "size" and case.fact.is_of_parameter,
        name=case.name,
        sort="buffer" if buffer else "parameter",
        instance=" of another instance" if case.fact.is_new_owner else "",
        each="Expect one compile for each instance of other sizes; where they are many, set"
        if case.fact.is_new_owner
        else "Set",
        then=then,
        options=" and ".join([", ".join(every[:-1]), every[-1]] if every[1:] else every),
        beside=f" (as it keeps the number {list_some(numbers, 3)})" if numbers else "",
    )


def _static(said: str | None) -> Needs:
    """That sizes changed before and are still constants, with this said of them: "automatic" of what is not marked."""

    def needs(case: RecompileCase) -> Slots:
        facts = markable_sizes(case)
        told = {fact.mark if fact.mark == "static" else fact.dynamic and "automatic" for fact in facts}
        never = any(fact.is_static for fact in facts)
        place = f" (`{place_text(case.needed_at)}`)" if case.needed_at else ""
        return slots_if(facts and case.is_constant and not never and told == {said}, names=case.names, place=place)

    return needs


def _changed_size(many: bool) -> Needs:
    def needs(case: RecompileCase) -> Slots:
        facts = tuple(fact for fact in markable_sizes(case) if not (fact.file or "").endswith(_CACHES))
        if not facts or case.is_constant or _numbers_beside(case) or any(_is_said_of(fact) for fact in facts):
            return None
        nested = any("._offsets" in (fact.subject or "") for fact in facts)  # dynamic=True leaves it a constant
        option = "" if nested else ", or use `torch.compile(..., dynamic=True)`"
        slots = {**_marks("torch._dynamo.mark_dynamic", _dimensions(facts), case), "option": option}
        # What the function computed before a break cannot be marked either, and a marked size may equal no constant.
        only_all = case.is_joined or case.unmarkable or len(_dimensions(facts)) > _MOST_DIMENSIONS
        return slots if only_all == many else None

    return needs


def _numbers_beside(case: RecompileCase, *bases: str) -> list[str]:
    """The integers, of these bases or any, that changed from and to the same number as a size.

    Where the code compares the two, torch raises an exception of a size that is marked while its integer is still a
    constant.
    """
    integers = (change.fact for change in case.changes if change.sort == "value" and change.fact.was_type == "int")
    own = (fact for fact in integers if not bases or fact.base in bases)
    return list(dict.fromkeys(f"`{source_text(fact.subject)}`" for fact in own))


def _size_and_number(case: RecompileCase) -> Slots:
    facts, numbers = markable_sizes(case), _numbers_beside(case)
    fits = facts and numbers and not case.is_constant and not any(_is_said_of(fact) for fact in facts)
    return slots_if(fits, names=case.names, numbers=Subject(list_some(numbers, 3), many=len(numbers) > 1))


def _is_said_of(fact: GuardFailure) -> bool:
    """Whether the program has said what torch makes of the size."""
    return fact.mark == "static" or fact.dynamic == "always" or fact.is_static


def _shared_symbol(case: RecompileCase) -> Slots:
    """A size that ``dynamic=True`` made a symbol, which was a number in one compile, and is none in the next."""
    facts = markable_sizes(case)
    fits = facts and case.was_number and not (case.became_number or case.unmarkable) and facts[0].dynamic == "always"
    marks = _marks("torch._dynamo.mark_dynamic", _dimensions(facts), case)
    return slots_if(fits, was=case.fact.was or "that size", **marks)


def _marks(function: str, sizes: Sequence[tuple[str | None, str | None]], case: RecompileCase) -> dict[str, str]:
    """The calls that mark sizes, where to make them, and what names in them stand for that no program has."""
    names = {} if case.made is None else case.made.names
    if case.made is None or not {subject for subject, _ in sizes} <= names.keys():
        calls = _calls(function, [(source_text(subject), index) for subject, index in sizes])
        return {"calls": calls, "where": "before the first call", "who": _who([subject for subject, _ in sizes])}
    place = place_text(case.made.place)
    where = f"before the call (`{place}`)" if case.made.function is None else f"in `{case.made.function}` (`{place}`)"
    return {"calls": _calls(function, [(names[each or ""], index) for each, index in sizes]), "where": where, "who": ""}


def _dimensions(facts: Sequence[GuardFailure]) -> list[tuple[str | None, str | None]]:
    return list(dict.fromkeys((fact.subject, fact.index) for fact in facts))


def _calls(function: str, sizes: Sequence[tuple[str, str | None]]) -> str:
    return ", ".join(f"`{function}({name}, {index})`" for name, index in sizes)


def _who(subjects: Sequence[str | None]) -> str:
    """What the names stand for that no program has: those of a wrapper's ``*args, **kwargs``."""
    each = dict.fromkeys((source_text(subject), argument_description(subject)) for subject in subjects)
    told = [f"`{name}` is {what}" for name, what in each if what]
    return f" ({', '.join(told)})" if told else ""


def _shape(*kinds: str | None, sizes: bool = False) -> Needs:
    """A condition of one of these kinds that torch made of the code. ``sizes``: that it is over nothing else."""

    def needs(case: RecompileCase) -> Slots:
        fact = case.fact
        parts = {without_part(term)[1] for term in fact.terms}
        if case.sort != "shape" or fact.index not in kinds or parts & {"stride", "offset"} or (sizes and None in parts):
            return None
        others = len({change.fact.guard for change in case.changes if change.sort == "shape"}) - 1
        made = f"The code is dynamic, but made for `{source_text(fact.guard) or 'a condition that was not recorded'}`"
        if others:
            made += f" (and {count(others, 'more guard')} on the same {'numbers' if None in parts else 'sizes'})"
        if excludes_zero_and_one(fact):
            made += " (the 2 is torch's own: it always compiles sizes 0 and 1 apart)"
        ranged = "; `torch._dynamo.mark_dynamic(tensor, dimension, min=..., max=...)` states a range"
        ranged = ranged if "size" in parts and is_plain_range(fact) else ""
        return {"made": made, "range": ranged}

    return needs


def _needed_number(case: RecompileCase) -> Slots:
    slots = _shape("number")(case) if _shape("number", sizes=True)(case) is None else None
    return slots and {**slots, "plain": f" {ARITHMETIC}" if case.fact.now_type == "float" else ""}


def _together(case: RecompileCase) -> Slots:
    slots = _shape("together")(case)
    apart = ", mark both (`torch._dynamo.mark_dynamic`), or set `torch.fx.experimental._config.use_duck_shape = False`"
    of_sizes = _shape("together", sizes=True)(case) is not None
    return slots and {**slots, "apart": apart if of_sizes else "", "kind": "sizes" if of_sizes else "numbers"}


def _branched(case: RecompileCase) -> Slots:
    """A condition that is no equality, or a multiple of what is no size."""
    if _special_size(case) is not None or _shape("multiple", sizes=True)(case) is not None:
        return None
    return _shape("range", "above one", "multiple")(case)


def _offset(case: RecompileCase) -> Slots:
    """A condition on where a tensor begins in its storage."""
    parts = {without_part(term)[1] for term in case.fact.terms}
    return slots_if(case.sort == "shape" and parts == {"offset"} and case.fact.subject, names=case.names)


def _layout(case: RecompileCase) -> Slots:
    """Another stride, or a condition on one."""
    strided = case.sort == "shape" and any(without_part(term)[1] == "stride" for term in case.fact.terms)
    fits = case.sort == "stride" or (strided and case.fact.subject)
    return slots_if(fits and not case.fact.is_of_parameter, names=case.names)


def _converted(case: RecompileCase) -> Slots:
    """What ``module.to(...)`` changes, of a parameter or a buffer."""
    fits = case.fact.is_of_parameter and case.sort in ("dtype", "device", "stride")
    what = {"dtype": "dtype", "device": "device", "stride": "memory layout"}.get(case.sort, "")
    return slots_if(fits and case.fact.is_new_owner is not True, names=case.names, what=what)


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
    made = case.fact.index == "an inference tensor"
    is_kind = is_kind or ("inference tensor" if made or is_inference(case.fact) else "")
    how = "made" if made else "made, or passed,"
    return slots_if(change and is_kind == kind, name=case.name, names=case.names, change=change or "", made=how)


def _device(case: RecompileCase) -> Slots:
    if case.fact.is_of_parameter:
        return None
    return {"names": case.names} if case.sort == "device" else _dispatch(case, "device")


def _is_tied(case: RecompileCase) -> bool:
    """Whether two parameters or buffers are, or were, one tensor."""
    terms = case.fact.terms
    return (
        case.sort == "alias"
        and len(terms) == 2
        and all("._parameters[" in each or "._buffers[" in each for each in terms)
    )


def _is_of_key(case: RecompileCase) -> bool:
    """Whether one of two objects is a key of a dict, which tensors seldom are."""
    return any(each.startswith("list(dict.keys(") for each in case.fact.terms)


TENSORS: tuple[Remedy[RecompileCase], ...] = (
    Remedy(
        "size.parameter",
        "{name} is a {sort}{instance}, whose shape torch keeps constant, whatever `dynamic` is{beside}. {each} "
        "{options} before the first call: {then}.",
        _parameter_size,
        trials=tried(
            "a_parameter_of_another_size",
            "a_parameter_as_an_argument",
            "a_parameter_of_torchs_module",
            "a_buffer_of_another_size",
            "a_parameter_and_its_size",
        ),
    ),
    Remedy(
        "size.zero_or_one",
        "torch always compiles sizes 0 and 1 apart from all others: expect one compile for such calls, {ways}.",
        _special_size,
        trials=tried("a_size_of_one", "sizes_of_one"),
    ),
    Remedy(
        "size.static",
        "The size of {names} changed, and each size is compiled apart, because of `dynamic=False`. Leave that out, "
        "or pad to a few sizes.",
        lambda case: slots_if(any(fact.dynamic == "never" for fact in markable_sizes(case)), names=case.names),
        trials=tried("static_sizes"),
    ),
    Remedy(
        "size.off",
        "The size of {names} changed, and each size is compiled apart, because of `torch._dynamo.config."
        "automatic_dynamic_shapes = False`. Leave that out, or use `torch.compile(..., dynamic=True)`, or pad to a few "
        "sizes.",
        lambda case: slots_if(any(fact.dynamic == "off" for fact in markable_sizes(case)), names=case.names),
        trials=tried("sizes_without_automatic"),
    ),
    Remedy(
        "size.marked_static",
        "The size of {names} changed before, and each is compiled apart, because the dimension is marked static "
        "(`torch._dynamo.mark_static`). Leave that out, or pad to a few sizes.",
        _static("static"),
    ),
    Remedy(
        "size.number",
        "Each size of {names} is compiled apart: something in the function needs it as a number{place}. Avoid that, or "
        "pad to a few sizes.",
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
        "size.shared",
        "With your `dynamic=True` this size is a symbol, but equal sizes share one symbol, and where another size of "
        "{was} had to be a number, so had this one. Call {calls} {where}{who}, let the sizes differ in "
        "it, or set `torch.fx.experimental._config.use_duck_shape = False`.",
        _shared_symbol,
        trials=tried("equal_sizes", "equal_sizes_apart"),
    ),
    Remedy(
        "size.and_number",
        "The size of {names} changes, and {numbers:has} the same number, which cannot be marked: use "
        "`torch.compile(..., dynamic=True)`. (By itself torch makes both symbols when they first change, at the price "
        "of this recompile. A size that is marked alone, while the code compares it with the number, is an error.)",
        _size_and_number,
        trials=tried("a_size_and_its_number"),
    ),
    Remedy(
        "size.cache",
        "The key-value cache of transformers grows with each token. One of a fixed size serves all of them with one "
        'code: `generate(..., cache_implementation="static")`, or a `StaticCache` as `past_key_values`.',
        lambda case: slots_if(any((fact.file or "").endswith(_CACHES) for fact in markable_sizes(case))),
        trials=tried("writes_tokens"),
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
        "The size changes: call {calls} {where}{who}{option}. (By itself torch makes a size a symbol when it first "
        "changes, at the price of this recompile.)",
        _changed_size(many=False),
        trials=tried("a_size", "a_size_marked", "a_nested_batch"),
    ),
    Remedy(
        "size.computed",
        "{names:is} computed before the graph break, and its size follows from the arguments: end the break, or use "
        "`torch.compile(..., dynamic=True)`.",
        of_sort("computed size"),
        trials=tried("a_size_after_a_break"),
    ),
    Remedy(
        "shape.multiple",
        "{made}: the program, or an operator, takes another way for other sizes. Pad to such a multiple before the "
        "call, or expect one compile for each way.",
        _shape("multiple", sizes=True),
        trials=tried("a_multiple"),
    ),
    Remedy(
        "shape.number",
        "{made}: something needs that size as a number (Python code, an operator). Avoid it, or pad to one size.",
        _shape("number", sizes=True),
    ),
    Remedy(
        "shape.value",
        "{made}: an operator, or Python code, needs that number itself, and each is compiled apart.{plain} Or compute "
        f"the number before the call, and {TENSOR_INSTEAD}; else expect one compile for each.",
        _needed_number,
        trials=(
            *tried("a_rate_of_each_block"),
            Trial("a_float_as_negative_alpha", ("2.13",)),  # 2.11 and 2.15 have the value itself in their guard
        ),
    ),
    Remedy(
        "shape.together",
        "{made}: in the calls before, these {kind} went together. Where they need not, make them differ in the first "
        "call{apart}.",
        _together,
        trials=tried("two_sizes", "two_sizes_marked", "two_sizes_apart"),
    ),
    Remedy(
        "shape.branch",
        "{made}: a branch on it, in the program or in torch, takes another way otherwise. Keep to one side, or "
        "expect one compile for each{range}.",
        _branched,
        trials=tried("a_range_of_sizes"),
    ),
    Remedy(
        "tensor.rank",
        "{names} came with another number of dimensions: that always needs code of its own. Bring all to one shape "
        "before the call (`view`; `unsqueeze` and then `expand`, for a size of 1 needs code of its own too), or make a "
        "call of each kind to warm up.",
        of_sort("rank"),
        trials=(*tried("a_rank"), *tried("a_step_for_each_token")),
    ),
    Remedy(
        "tensor.dtype",
        "{names} came in another dtype: code is made for each dtype. Convert before the call, or expect one "
        "compile for each and call each once to warm up. Under autocast, check that every call is inside it.",
        lambda case: None if case.fact.is_of_parameter else of_sort("dtype")(case),
        trials=tried("a_dtype"),
    ),
    Remedy(
        "parameter.converted",
        "{names:has} another {what} than at the first compile, as `module.to(...)`, `.half()` and their like change "
        "it: that is different code. Convert the module before the first call.",
        _converted,
        trials=(Trial("a_converted_module", ("2.13", "2.14", "2.15")),),  # 2.11 does not compile again
    ),
    Remedy(
        "tensor.stride",
        "{names} came with another memory layout: give every call the same one, such as by `.contiguous()` before it.",
        _layout,
        trials=tried("a_stride", "a_slice_of_many_sizes"),
    ),
    Remedy(
        "tensor.offset",
        "{names:has} another place in its storage: a slice that begins behind its first item in some calls, and at it "
        "in others. Pass a copy of the slice (`.clone()`), which is a tensor of its own.",
        _offset,
        trials=tried("a_slice_with_an_offset"),
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
        trials=(Trial("a_frozen_parameter", ("2.13", "2.14", "2.15")),),
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
        "tensor.tied",
        "{both} were one tensor in one call and two in the other, which is different code: tie them, or untie them, "
        "before the first call, or expect one compile for each.",
        lambda case: slots_if(
            _is_tied(case), both=" and ".join(f"`{source_text(each)}`" for each in case.fact.terms[:2])
        ),
        trials=tried("a_tied_weight"),
    ),
    Remedy(
        "tensor.alias",
        "Two arguments were the same tensor (or shared memory) in one call and not in the other: `clone()` one "
        "of them, or always pass them alike.",
        lambda case: slots_if(case.sort == "alias" and not (_is_tied(case) or _is_of_key(case))),
        trials=tried("the_same_tensor"),
    ),
    Remedy(
        "tensor.inference",
        "{name} was {made} under `torch.inference_mode` in one call and not in the other, which is different code. "
        "Do it the same way for every call; under `torch.no_grad` tensors are ordinary ones.",
        lambda case: _dispatch(case, "inference tensor"),
        trials=tried("an_inference_tensor", "an_inference_tensor_first"),
    ),
    Remedy(
        "tensor.dispatch",
        "{name} {change}: that is different code. Make it the same way for every call.",
        lambda case: _dispatch(case, ""),
        trials=tried("a_conjugated_view"),
    ),
)
