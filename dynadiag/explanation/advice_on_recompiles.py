"""What helps against recompiles: the remedies, each with what its text presupposes.

torch compiles code for what it saw, and again when a guard on that fails. Whether that is a waste depends on what
changed: a size can be a symbol, a dtype cannot. What is said of torch was tried on torch 2.13, with four values in turn
(compiles): a float, wherever it is kept, and an integer that is an argument, an item or an attribute of a plain object
2, with ``dynamic=True`` 1, with ``dynamic=False`` 4; an integer that is a global or in one, a closure's variable, a
default or a module's attribute 4, whatever ``dynamic`` is.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dynadiag.explanation.findings import Advice
from dynadiag.explanation.formatting import count
from dynadiag.explanation.process_state import backend_change, dispatch_change
from dynadiag.explanation.recompile_case import RecompileCase
from dynadiag.explanation.remedy import MOST, Remedy, Trial, advise
from dynadiag.recording.records import GuardFailure, Span
from dynadiag.recording.torch_text.guards import literal_type
from dynadiag.recording.torch_text.sources import (
    argument_description,
    holder_of,
    is_global,
    last_name,
    source_text,
    without_part,
)

__all__ = ["REMEDIES", "advise_on"]

_Slots = Mapping[str, str] | None
_Needs = Callable[[RecompileCase], _Slots]
_SWITCHED = "that is different code, and one compile for each is expected. Warm up both; do not switch inside a loop."
_MOST_DIMENSIONS = 4  # of sizes that are named one by one; with more, dynamic=True says it shorter


def _tried(*programs: str) -> tuple[Trial, ...]:
    return tuple(Trial(program) for program in programs)


def _if(holds: object, **slots: str) -> _Slots:
    """The slots, if the presuppositions hold."""
    return slots if holds else None


def _sort(*sorts: str) -> _Needs:
    """That the failure is of one of these sorts."""
    return lambda case: _if(case.sort in sorts, name=case.name, names=case.names)


def _state(*names: str) -> _Needs:
    """That a global state changed whose name begins so."""
    return lambda case: _if(case.sort == "state" and (case.fact.index or "").startswith(names))


# Sizes and shapes.


def _sizes(case: RecompileCase) -> tuple[GuardFailure, ...]:
    """The sizes that changed, without those that torch compiles apart, and without those of parameters."""
    if case.sort != "size" or case.fact.is_of_parameter:
        return ()
    return tuple(fact for fact in case.alike if not _is_special(fact))


def _is_special(fact: GuardFailure) -> bool:
    """Whether a size is, or was, one of those that torch compiles apart from all others."""
    return not {fact.was, fact.now}.isdisjoint(("0", "1"))


def _special_size(case: RecompileCase) -> _Slots:
    fact = case.fact
    if case.sort == "size" and not fact.is_of_parameter and _is_special(fact):
        return {"tensor": source_text(fact.subject), "dimension": fact.index or "?"}
    if case.sort != "shape" or fact.index != "above one" or fact.now not in (None, "0", "1"):
        return None
    tensor, part, dimension = without_part(fact.terms[0] if fact.terms else None)
    return _if(part == "size", tensor=source_text(tensor), dimension=dimension or "?")


def _parameter_size(case: RecompileCase) -> _Slots:
    then = {
        "always": "with your `dynamic=True` they are symbols then",
        "never": "without your `dynamic=False` they become symbols when they first change",
    }.get(case.fact.dynamic or "", "they become symbols when they first change, with `dynamic=True` in the first call")
    return _if(case.sort == "size" and case.fact.is_of_parameter, name=case.name, then=then)


def _static(said: str | None) -> _Needs:
    """That sizes changed before and are still constants, with this said of them: "automatic" of what is not marked."""

    def needs(case: RecompileCase) -> _Slots:
        facts = _sizes(case)
        told = {fact.mark if fact.mark == "static" else fact.dynamic and "automatic" for fact in facts}
        never = any(fact.dynamic == "never" for fact in facts)
        return _if(facts and case.is_again and not never and told == {said}, names=case.names)

    return needs


def _changed_size(many: bool) -> _Needs:
    def needs(case: RecompileCase) -> _Slots:
        facts = _sizes(case)
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


def _shape(*kinds: str | None) -> _Needs:
    def needs(case: RecompileCase) -> _Slots:
        fact = case.fact
        if case.sort != "shape" or fact.index not in kinds:
            return None
        others = len({change.fact.guard for change in case.changes if change.sort == "shape"}) - 1
        made = f"The code is dynamic, but made for `{source_text(fact.guard) or 'a condition that was not recorded'}`"
        if others:
            made += f" (and {count(others, 'more guard')} on the same sizes)"
        if fact.guard.startswith("2 <= ") and fact.index == "range":
            made += " (the 2 is torch's own: it always compiles sizes 0 and 1 apart)"
        sized = fact.terms and without_part(fact.terms[0])[1] == "size"
        ranged = "; `torch._dynamo.mark_dynamic(tensor, dimension, min=..., max=...)` states a range" if sized else ""
        return {"made": made, "range": ranged}

    return needs


# Tensors.


def _gradients(*, of_parameter: bool, moved: bool | None) -> _Needs:
    """``moved``: whether it is the parameter of another instance than the one that was compiled for."""

    def needs(case: RecompileCase) -> _Slots:
        is_parameter = case.fact.base == "parameter"
        known = not of_parameter or case.fact.is_new_owner is moved
        return _if(case.sort == "requires_grad" and is_parameter == of_parameter and known, names=case.names)

    return needs


def _dispatch(case: RecompileCase, kind: str) -> _Slots:
    """``kind``: "device", "inference tensor", or "" for all others."""
    change = dispatch_change(case.fact) if case.sort == "dispatch keys" else None
    is_kind = "device" if (change or "").startswith("is on another device") else ""
    is_kind = is_kind or ("inference tensor" if case.fact.index == "an inference tensor" else "")
    return _if(change and is_kind == kind, name=case.name, names=case.names, change=change or "")


def _device(case: RecompileCase) -> _Slots:
    return {"names": case.names} if case.sort == "device" else _dispatch(case, "device")


# Values and objects.


def _type_of(fact: GuardFailure) -> str:
    """What sort of a number a value was: "other" of what is none."""
    name = fact.was_type or literal_type(fact.was) or "other"
    return name if name in ("int", "float") else "other"


def _value(case: RecompileCase, *bases: str, type_: str | None = None, again: bool | None = None) -> bool:
    """Whether a value changed that is kept in such a place, of such a type, and that was (not) another one before.

    Of a value of another type than before the type is what changed.
    """
    fact = case.fact
    same = fact.now_type in (None, fact.was_type) or fact.was_type is None
    named = last_name(fact.subject) == "training" and fact.now in (None, "True", "False")
    return (
        case.sort == "value"
        and case.key_of is None
        and not case.is_other_callable
        and same
        and not named
        and (not bases or fact.base in bases)
        and type_ in (None, _type_of(fact))
        and again in (None, case.is_again)
    )


_ATTRIBUTE = ("attribute", "module attribute", "object attribute", "optimizer", "parameter")


def _integer_attribute(case: RecompileCase) -> _Slots:
    option = "set `torch._dynamo.config.allow_unspec_int_on_nn_module = True`"
    by = {"module attribute": f", or {option}", "attribute": f", or, on a module, {option}"}
    plain = (
        case.fact.base in ("attribute", "object attribute") and not case.is_again and not is_global(case.fact.subject)
    )
    return _if(
        _value(case, *_ATTRIBUTE, type_="int") and case.fact.dynamic != "never",
        name=case.name,
        option=by.get(case.fact.base or "", ""),
        plain=" On an object that is no module torch makes it a symbol from now on." if plain else "",
    )


def _integer_of_caller(case: RecompileCase, *, again: bool) -> _Slots:
    """An integer that torch can make a symbol: an argument, or a variable that the compiled function closes over."""
    own_cell = case.fact.base == "closure" and holder_of(case.fact.subject) is None
    fits = _value(case, "argument", "closure", type_="int", again=again) and (own_cell or case.fact.base == "argument")
    return _if(fits and case.fact.dynamic != "never", name=case.name, why=_why_constant(case.fact))


def _static_number(case: RecompileCase) -> _Slots:
    """A number that would be a symbol, or an input of the graph, but for ``dynamic=False``."""
    fact = case.fact
    is_integer = _value(case, "argument", "closure", *_ATTRIBUTE, type_="int")
    option = " and set `torch._dynamo.config.allow_unspec_int_on_nn_module = True`"
    by = {"module attribute": option, "attribute": f" and, on a module,{option.removeprefix(' and')}"}
    fits = is_integer or (_value(case, type_="float") and fact.base != "default")
    return _if(
        fits and fact.dynamic == "never", name=case.name, option=by.get(fact.base or "", "") if is_integer else ""
    )


def _is_closed_over(case: RecompileCase) -> bool:
    """Whether a value is part of the code that an inner function closes over."""
    own_integer = _type_of(case.fact) == "int" and holder_of(case.fact.subject) is None
    return _value(case, "closure") and _type_of(case.fact) != "float" and not own_integer


def _closed_over(case: RecompileCase) -> str:
    """A variable that a function closes over: by its name, or else by that of the function."""
    holder = holder_of(case.fact.subject)
    return (
        f"that the function `{source_text(holder)}` closes over"
        if holder
        else f"{case.name} that the function closes over"
    )


def _float(*, again: bool) -> _Needs:
    def needs(case: RecompileCase) -> _Slots:
        fact = case.fact
        fits = _value(case, type_="float", again=again) and fact.dynamic != "never"
        if not fits or fact.base == "default" or _learning_rate(case):
            return None
        holder = {
            "closure": f"A float {_closed_over(case)}",
            "global": f"The global {case.name}, a float,",
        }.get(fact.base or "", f"The float {'attribute ' if fact.base in _ATTRIBUTE else ''}{case.name}")
        return {"what": holder, "why": _why_constant(fact)}

    return needs


def _why_constant(fact: GuardFailure) -> str:
    """Why a number that changed before is still a constant, where it is known."""
    if fact.dynamic is not None:
        return "Python code needs to know it"
    return "it was compiled with `dynamic=False`, or Python code needs to know it"


def _key(case: RecompileCase) -> _Slots:
    if case.key_of is None:
        return None
    container, place = case.key_of
    shared = " Each instance has a key of its own, and all instances share the function's code and its limit."
    return {
        "name": case.name,
        "container": container,
        "place": _at(place),
        "shared": shared if case.fact.is_new_owner else "",
    }


def _at(place: Span) -> str:
    return f"{posixpath.basename(place.file or '')}:{place.line}"


def _learning_rate(case: RecompileCase) -> _Slots:
    fact = case.fact
    is_rate = fact.base == "optimizer" and last_name(fact.subject) == "lr" and _type_of(fact) == "float"
    return _if(case.sort == "value" and is_rate and fact.dynamic != "never", name=case.name)


def _length(case: RecompileCase) -> bool:
    return case.sort == "length" and case.fact.index is None


def _added(case: RecompileCase) -> _Slots:
    if case.added is None:
        return None
    key, place = case.added
    return {"names": case.names, "key": key, "place": _at(place)}


def _filled(case: RecompileCase) -> _Slots:
    empty = case.fact.was == "length 0" and not case.goes_on and case.fact.base != "argument"
    return _if(_length(case) and empty and case.added is None, names=case.names)


def _more_items(case: RecompileCase) -> _Slots:
    is_dict = case.fact.now_type in ("dict", "OrderedDict", "defaultdict")
    return _if(_length(case) and not is_dict and _filled(case) is None, names=case.names)


def _other_keys(case: RecompileCase) -> _Slots:
    is_dict = case.fact.now_type in ("dict", "OrderedDict", "defaultdict")
    fits = case.sort == "keys" or (_length(case) and is_dict)
    return _if(fits and case.added is None and _filled(case) is None, names=case.names)


def _identity(*, function: bool) -> _Needs:
    def needs(case: RecompileCase) -> _Slots:
        types = {case.fact.was_type, case.fact.now_type}
        is_function = not types.isdisjoint(("code", "function", "method", "builtin_function_or_method"))
        fits = case.sort == "identity" and not case.is_other_callable
        return _if(fits and is_function == function, names=case.names)

    return needs


def _freed(*, gradient: bool) -> _Needs:
    def needs(case: RecompileCase) -> _Slots:
        is_gradient = last_name(case.fact.subject) == "grad"
        of_class = (case.fact.subject or "").startswith("type(")
        return _if(case.sort == "freed" and is_gradient == gradient and not of_class, name=case.name)

    return needs


def _class_anew(case: RecompileCase) -> _Slots:
    """A class that was freed, or of which another one of the same name came."""
    fact = case.fact
    if case.sort == "freed" and (fact.subject or "").startswith("type("):
        return {"what": f"The class {case.name} that the code was made for is gone"}
    return _if(
        case.sort == "type" and fact.now is not None and fact.now in case.changes[0].was,
        what=f"{case.name} is of another class of the same name, `{fact.now_type}`: it was defined anew",
    )


def _other_type(case: RecompileCase) -> _Slots:
    fact = case.fact
    number = case.sort == "value" and None not in (fact.was_type, fact.now_type) and fact.was_type != fact.now_type
    known = _class_anew(case) is not None or case.is_other_callable
    return _if((case.sort == "type" or number) and not known, names=case.names)


def _none(*, attribute: bool) -> _Needs:
    return lambda case: _if(case.sort == "none" and (case.fact.base in _ATTRIBUTE) == attribute, names=case.names)


def _presence(case: RecompileCase) -> _Slots:
    now = {"absent": "there in the call before, and missing in this one", "present": "not there before"}.get(
        case.fact.now or "", "there in one call, and not in the other"
    )
    return _if(case.sort == "presence" and case.fact.base in (*_ATTRIBUTE, "global"), names=case.names, now=now)


def _fewer_items(case: RecompileCase) -> _Slots:
    return _if(case.sort == "presence" and case.fact.base not in (*_ATTRIBUTE, "global"), names=case.names)


# In this order: of several that fit, the first that ends the recompile leads.
_FITTING: tuple[Remedy[RecompileCase], ...] = (
    Remedy(
        "recompile.shared_wrapper",
        "Another callable than before: torch compiles what has no Python function of its own (a builtin, a partial, a "
        "callable object, a module of `torch.nn`) by way of one function, and all of these share its variants and "
        "their limit. Where they are many, write a function around each: `torch.compile(lambda x: fn(x))`.",
        lambda case: _if(case.is_other_callable),
        trials=_tried("partials"),
    ),
    Remedy(
        "break.compiled_apart",
        "`{function}` is compiled by itself only because the break at `{place}` leaves its caller `{caller}` to "
        "Python. End that break first: it is then a part of the caller's graph, and what changes from one of its calls "
        "to the next, but not for `{caller}`, is no reason to compile again.",
        lambda case: dict(zip(("function", "caller", "place"), case.apart, strict=True)) if case.apart else None,
        trials=_tried("a_loop_with_a_break"),
    ),
    Remedy(
        "size.parameter",
        "{name} is a parameter, and torch treats shapes of parameters as constants, whatever `dynamic` is: one compile "
        "for each. Set `torch._dynamo.config.force_parameter_static_shapes = False` before the first call: {then}.",
        _parameter_size,
        trials=_tried("a_parameter_of_another_size", "a_parameter_as_an_argument"),
    ),
    Remedy(
        "size.zero_or_one",
        "torch always compiles sizes 0 and 1 apart from all others: avoid them (drop the last short batch, "
        "pad), or `torch._dynamo.decorators.mark_unbacked({tensor}, {dimension})`.",
        _special_size,
        trials=_tried("a_size_of_one"),
    ),
    Remedy(
        "size.static",
        "The size of {names} changed, and each size is compiled apart, because of `dynamic=False`. Leave that out, "
        "or pad to a few sizes.",
        lambda case: _if(any(fact.dynamic == "never" for fact in _sizes(case)), names=case.names),
        trials=_tried("static_sizes"),
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
        trials=_tried("many_sizes"),
    ),
    Remedy(
        "size.changed",
        "The size changes: call {calls} before the first call{who}, or use `torch.compile(..., dynamic=True)`. (By "
        "itself torch makes a size a symbol when it first changes, at the price of this recompile.)",
        _changed_size(many=False),
        edit="dynamic_sizes",
        trials=_tried("a_size", "a_size_marked"),
    ),
    Remedy(
        "size.computed",
        "{names:is} computed before the graph break, and its size follows from those of the arguments: end the break, "
        "or use `torch.compile(..., dynamic=True)`.",
        _sort("computed size"),
        trials=_tried("a_size_after_a_break"),
    ),
    Remedy(
        "shape.multiple",
        "{made}: the program, or an operator, takes another way for other sizes. Pad to such a multiple before the "
        "call, or expect one compile for each way.",
        _shape("multiple"),
        trials=_tried("a_multiple"),
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
        trials=_tried("two_sizes"),
    ),
    Remedy(
        "shape.branch",
        "{made}: a branch on it, in the program or in torch, takes another way beyond. Keep to one side, or "
        "expect one compile for each{range}.",
        lambda case: _shape("range", "above one")(case) if _special_size(case) is None else None,
        trials=_tried("a_range_of_sizes"),
    ),
    Remedy(
        "tensor.rank",
        "{names} came with another number of dimensions: that always needs code of its own. Reshape "
        "to one (`unsqueeze`, `view`) before the call.",
        _sort("rank"),
        trials=_tried("a_rank"),
    ),
    Remedy(
        "tensor.dtype",
        "{names} came in another dtype: code is made for each dtype. Convert before the call, or expect one "
        "compile for each and call each once to warm up. Under autocast, check that every call is inside it.",
        _sort("dtype"),
        trials=_tried("a_dtype"),
    ),
    Remedy(
        "tensor.stride",
        "{names} came with another memory layout: call `.contiguous()` on it before the compiled call.",
        _sort("stride"),
        trials=_tried("a_stride"),
    ),
    Remedy(
        "tensor.device",
        "{names} came on another device: code is made for each device. Move it before the call.",
        _device,
        trials=_tried("a_device"),
    ),
    Remedy(
        "tensor.requires_grad",
        "{names} came with another `requires_grad`: with and without gradients is different code. Expect one "
        "compile for each, or `detach()` before the call where no gradient is wanted.",
        _gradients(of_parameter=False, moved=None),
        trials=_tried("gradients"),
    ),
    Remedy(
        "tensor.frozen",
        "{names:was} frozen or unfrozen (`requires_grad`) after the first compile: that is different code. Do it "
        "before the first call, or expect one compile for each.",
        _gradients(of_parameter=True, moved=False),
        trials=_tried("a_frozen_parameter"),
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
        _sort("alias"),
        trials=_tried("the_same_tensor"),
    ),
    Remedy(
        "tensor.inference",
        "{name} was made under `torch.inference_mode` in one call and not in the other, which is different code. "
        "Make it the same way for every call; under `torch.no_grad` tensors are ordinary ones.",
        lambda case: _dispatch(case, "inference tensor"),
        trials=_tried("an_inference_tensor"),
    ),
    Remedy(
        "tensor.dispatch",
        "{name} {change}: that is different code. Make it the same way for every call.",
        lambda case: _dispatch(case, ""),
        trials=_tried("a_conjugated_view", "a_transform"),
    ),
    Remedy(
        "state.inference_mode",
        f"Called inside and outside `torch.inference_mode`: {_SWITCHED}",
        _state("inference_mode"),
        trials=_tried("inference_mode"),
    ),
    Remedy(
        "state.grad_mode",
        f"Called with gradients on and off (`torch.no_grad`, `torch.set_grad_enabled`): {_SWITCHED}",
        _state("grad_mode"),
        trials=_tried("grad_mode"),
    ),
    Remedy(
        "state.autocast_state",
        "Called inside and outside autocast, or under another one: enter `torch.autocast` around every call, or none.",
        _state("autocast_enabled", "autocast_state"),
        trials=_tried("autocast"),
    ),
    Remedy(
        "state.autocast_dtype",
        "Called under autocast with different dtypes: that is different code. Use one dtype for every call.",
        _state("autocast_dtype"),
        trials=_tried("autocast_dtypes"),
    ),
    Remedy(
        "state.num_threads",
        "The number of threads changed after the first compile: call `torch.set_num_threads` at the start.",
        _state("num_threads"),
        trials=_tried("threads"),
    ),
    Remedy(
        "state.default_dtype",
        "The default dtype changed after the first compile: set it at the start.",
        _state("default_dtype"),
        trials=_tried("default_dtype"),
    ),
    Remedy(
        "state.deterministic_algorithms",
        "`torch.use_deterministic_algorithms` changed after the first compile: set it at the start.",
        _state("deterministic_algorithms"),
        trials=_tried("deterministic"),
    ),
    Remedy(
        "state.allow_",
        "The precision of matrix products changed after the first compile (`torch.set_float32_matmul_precision`, "
        "`torch.backends.cuda.matmul`): set it at the start.",
        _state("allow_", "cuda_matmul_precision"),
        trials=_tried("matmul_precision"),
    ),
    Remedy(
        "state.torch function modes",
        "A torch function mode (a `TorchFunctionMode`, or `with torch.device(...)`) was entered "
        "around one call and not around the other: enter it around every call, or around none.",
        _state("torch function modes"),
        trials=_tried("function_mode"),
    ),
    Remedy(
        "state.default device",
        "The default device changed (`torch.set_default_device`, `with torch.device(...)`): set it once, "
        "before the first call.",
        _state("default device"),
        trials=_tried("default_device"),
    ),
    Remedy(
        "state.saved tensor hooks",
        "Hooks on saved tensors that are graph modules (`torch.autograd.graph.saved_tensors_hooks`) "
        "were active in one call and not in the other: enter them around every call, or around none.",
        _state("saved tensor hooks"),
        trials=_tried("saved_tensor_hooks"),
    ),
    Remedy(
        "state.torch.func transforms",
        f"Called inside and outside a `torch.func` transform (`vmap`, `grad`, ...): {_SWITCHED}",
        _state("torch.func transforms"),
    ),
    Remedy(
        "state.forward AD level",
        f"Called inside and outside `torch.autograd.forward_ad.dual_level`: {_SWITCHED}",
        _state("forward AD level"),
        trials=_tried("dual_level"),
    ),
    Remedy(
        "state.torch_function",
        f"Called with `__torch_function__` on and off: {_SWITCHED}",
        _state("torch_function"),
        trials=_tried("torch_function_off"),
    ),
    Remedy(
        "state.race",
        "Where threads call a function together, one compiles what another is about to compile, and each such compile "
        "is wasted. Call the function once in each shape before the threads start.",
        _sort("race"),
    ),
    Remedy(
        "backend",
        "Another `torch.compile` of the same function ({change}): torch keeps the code of each, and both count towards "
        "the recompile limit. Call `torch.compile` once and keep its result; to compare backends, call "
        "`torch.compiler.reset()` between them.",
        lambda case: _if(case.sort == "backend", change=backend_change(case.fact)),
        trials=_tried("two_backends"),
    ),
    Remedy(
        "value.key",
        "{name} is a key of the dict `{container}` ({place}), so its value is part of the code: no symbol or tensor "
        "can be a key.{shared} Look the entry up outside of the compiled function and pass it, or keep it on the "
        "object under one name (an attribute, a buffer).",
        _key,
        trials=_tried("a_key_of_a_dict"),
    ),
    Remedy(
        "value.training",
        "{name} switched (`model.train()`, `model.eval()`): one compile for each mode is expected, and "
        "both are kept. Warm up both; do not switch inside a loop.",
        lambda case: _if(case.sort == "value" and last_name(case.fact.subject) == "training", name=case.name),
        trials=_tried("training"),
    ),
    Remedy(
        "value.learning_rate",
        "{name} changed, as a scheduler changes it, and is a constant of the compiled step at first. From now on "
        "torch makes it an input of the graph; an optimizer that is made with `lr=torch.tensor(...)` needs no "
        "recompile.",
        _learning_rate,
        trials=_tried("a_learning_rate"),
    ),
    Remedy(
        "value.closed_over",
        "A variable {which} changed, and its value is part of the code: one compile for each. Pass it as an argument.",
        lambda case: _if(_is_closed_over(case), which=_closed_over(case)),
        trials=_tried("a_closure"),
    ),
    Remedy(
        "value.global_integer",
        "The global {name} changed, and its value is part of the code: pass it as an argument.",
        lambda case: _if(_value(case, "global", type_="int"), name=case.name),
        trials=_tried("a_global"),
    ),
    Remedy(
        "value.global",
        "The global {name} changed, and its value is part of the code: set it once, before the first call.",
        lambda case: _if(_value(case, "global", type_="other"), name=case.name),
        trials=_tried("a_global_text"),
    ),
    Remedy(
        "value.static",
        "{name} changed, and with your `dynamic=False` each value of a number is compiled apart, whatever else is set. "
        "Use `dynamic=True` instead{option} (with neither it becomes a symbol when it first changes), or keep the "
        "number in a tensor (`register_buffer` on a module).",
        _static_number,
        trials=_tried("a_static_integer", "a_float_again", "a_static_counter", "a_static_counter_in_a_tensor"),
    ),
    Remedy(
        "value.integer_attribute",
        "The integer attribute {name} changed, and its value is part of the code: one compile for each. "
        "Keep it in a tensor (`register_buffer`), pass it as an argument{option}.{plain}",
        _integer_attribute,
        trials=_tried("an_integer_attribute", "an_integer_attribute_unspecialized"),
    ),
    Remedy(
        "value.attribute",
        "The attribute {name} changed, and its value is part of the code: set it once, before the first call. Where "
        "each call brings another object, each value is compiled apart: with few, call each once to warm up.",
        lambda case: _if(_value(case, *_ATTRIBUTE, type_="other"), name=case.name),
        trials=_tried("an_attribute"),
    ),
    Remedy(
        "value.integer_again",
        "The integer {name} changed before and is still a constant: {why} (a loop count, an index, a branch). Pass a "
        "tensor, or take that code out of the function.",
        lambda case: _integer_of_caller(case, again=True),
        trials=_tried("a_loop_count"),
    ),
    Remedy(
        "value.integer",
        "The integer {name} changed. From now on torch makes it a symbol (with `dynamic=False`, never); "
        "`torch.compile(..., dynamic=True)` does so from the first call on. (0 and 1 remain constants, and so "
        "does an integer that Python code needs to know.)",
        lambda case: _integer_of_caller(case, again=False),
        trials=_tried("an_integer"),
    ),
    Remedy(
        "value.constant",
        "{name} is a constant of the code: each value of it is compiled apart. With few values call each once "
        "to warm up; with many, take the choice out of the compiled function.",
        lambda case: _if(_value(case, "argument", type_="other") or _value(case, "default"), name=case.name),
        trials=_tried("a_text", "another_member"),
    ),
    Remedy(
        "value.float_again",
        "{what} changed before and is still a constant: {why} (a branch, a conversion). Keep it in a tensor, or take "
        "that code out of the function.",
        _float(again=True),
    ),
    Remedy(
        "value.float",
        "{what} changed. From now on torch makes it an input of the graph (with `dynamic=False`, or where an operator "
        "needs the number itself, never); `torch.compile(..., dynamic=True)`, or a tensor instead (`register_buffer` "
        "on a module), does so from the first call on.",
        _float(again=False),
        trials=_tried("a_float", "a_float_in_a_tensor"),
    ),
    Remedy(
        "items.added",
        "The compiled code itself adds the key {key} to {names} (`{place}`), so the next call with it has another "
        "number of keys: put the key in before the first call, or return the value and add it outside.",
        _added,
        trials=_tried("a_key_that_is_added", "a_filled_dict"),
    ),
    Remedy(
        "items.filled",
        "{names:was} empty in the first call and is not any more: the code for the empty one is not used again. Fill "
        "it before the first compiled call. Where each call adds to it, add outside of the compiled code, from what it "
        "returns.",
        _filled,
        trials=_tried("a_list_that_is_added_to"),
    ),
    Remedy(
        "items.length",
        "{names:has} another number of items, and each number is code of its own. Stack the items into one tensor, pad "
        "to one length, or loop outside and compile what is done to one item. Where the compiled code adds to it, add "
        "outside of it, from what it returns.",
        _more_items,
        trials=_tried("a_length"),
    ),
    Remedy(
        "items.arguments",
        "The call passes another number of arguments to a function that takes any (`*args, **kwargs`): each number is "
        "code of its own. Pass the same ones always, with a default where there is nothing to pass.",
        lambda case: _if(case.sort == "length" and case.fact.index == "arguments"),
        trials=_tried("keyword_arguments"),
    ),
    Remedy(
        "items.keys",
        "{names:has} other keys, or in another order: use the same keys for every call, in the same order.",
        _other_keys,
        trials=_tried("keys"),
    ),
    Remedy(
        "items.membership",
        "What {names} contains changed, and the code asked: look it up before the call and pass the answer.",
        lambda case: _if(case.sort == "membership" and case.added is None, names=case.names),
        trials=_tried("membership"),
    ),
    Remedy(
        "items.presence",
        "{names:was} there in one call and not in the other: pass the same items always.",
        _fewer_items,
        ends=False,
    ),
    Remedy(
        "object.own_attribute",
        "{names:was} the class's in one call, and the object's own in the other: set it on the object from the start "
        "(in `__init__`).",
        _sort("own attribute"),
        trials=_tried("an_attribute_of_its_own"),
    ),
    Remedy(
        "object.function",
        "{names:is} another function than before: each is compiled apart. Pass the same one always, or expect one "
        "compile for each. (A `def` or `lambda` that runs again gives the same code, which needs no other compile.)",
        _identity(function=True),
        trials=_tried("another_function"),
    ),
    Remedy(
        "object.identity",
        "Another object came as {names}, and the code is bound to the object. Pass the same "
        "one, or pass the tensors and numbers in it instead.",
        _identity(function=False),
        trials=_tried("another_object"),
    ),
    Remedy(
        "object.gradient",
        "The code is made for the gradient tensor {name}, and that was freed: `.grad` was set to None, and the next "
        "backward makes another tensor. Keep it (`zero_grad(set_to_none=False)`, `.grad.zero_()`), or pass the "
        "gradient to the compiled function as an argument.",
        _freed(gradient=True),
        trials=_tried("a_gradient_set_to_none"),
    ),
    Remedy(
        "object.freed",
        "The object {name} that the code was made for is gone, and each new one is compiled anew. Make it once and use "
        "it again: start an optimizer over with `load_state_dict`, a module with `reset_parameters` or "
        "`load_state_dict`.",
        _freed(gradient=False),
        trials=_tried("a_freed_optimizer"),
    ),
    Remedy(
        "object.class_anew",
        "{what}. A `class` statement that runs again makes another class, and code is made for each, while the "
        "functions in it share one limit. Define the class once, outside of what runs again.",
        _class_anew,
        trials=_tried("a_class_defined_anew"),
    ),
    Remedy(
        "object.first_call",
        "{name} is set in the first call (a cache that is filled, a lazy module): what is compiled for the first call "
        "is not used again, so expect one compile more. Or initialize it before the first compiled call.",
        _sort("first call"),
        trials=_tried("a_cache"),
    ),
    Remedy(
        "object.type",
        "{names:is} of another type than before: code is made for each type. Pass one type always.",
        _other_type,
        trials=_tried("a_type"),
    ),
    Remedy(
        "object.none",
        "{names:was} None in one call and not in the other: with and without it is different code. Expect one "
        "compile for each and warm up both, or always pass something (a default, an empty tensor).",
        _none(attribute=False),
        trials=_tried("none"),
    ),
    Remedy(
        "object.none_attribute",
        "{names:was} None in one call and not in the other: with and without it is different code. Set it once, before "
        "the first call, or expect one compile for each.",
        _none(attribute=True),
        trials=_tried("a_bias_taken_away"),
    ),
    Remedy(
        "object.presence",
        "{names:was} {now}, and the code asked for it: define it from the start (in `__init__`), before the first "
        "call.",
        _presence,
        trials=_tried("presence"),
    ),
    Remedy(
        "break.left_over",
        "What was computed at a graph break is handed to the rest of the function, which was compiled for its "
        "value: end that break, and this recompile ends too.",
        _sort("left over"),
        trials=_tried("a_value_from_a_break"),
    ),
)


# What is said where nothing else fits.
_GENERAL: tuple[Remedy[RecompileCase], ...] = (
    Remedy(
        "state.other",
        "A global setting of torch changed between the calls. The code is made for each: set it once, before the first "
        "call.",
        _sort("state"),
        ends=False,
    ),
    Remedy(
        "recompile.other",
        "{names} changed: keep it the same for every call, or pass what depends on it as a tensor.",
        lambda case: _if(case.sort in ("other", "value") and case.fact.subject, names=case.names),
        ends=False,
    ),
    Remedy(
        "recompile.unknown",
        "What this guard reads changed between the calls; nothing more is known of it.",
        lambda case: _if(case.sort == "other" and not case.fact.subject),
        ends=False,
    ),
)
_LIMIT: Remedy[RecompileCase] = Remedy(
    "recompile.limit",
    "End the recompiles first; raise the limit (`torch._dynamo.config.recompile_limit`) only if all variants are "
    "wanted.",
    lambda case: _if(case.recompile.limit_reached),
    ends=False,
)
REMEDIES = (*_FITTING, *_GENERAL, _LIMIT)


def advise_on(cases: Sequence[RecompileCase], torch: str | None = None) -> tuple[Advice, ...]:
    """What to do about a recompile: for its only cause what fits, for several causes one remedy each, the first few.

    ``torch`` is the version that the recompile was recorded on.
    """
    cases = _with_sizes_together(cases)
    most = MOST if len(cases) == 1 else 1
    each = [
        advise(_FITTING, case, torch=torch, most=most) or advise(_GENERAL, case, torch=torch, most=1) for case in cases
    ]
    limit = [advice for case in cases[:1] if (advice := _LIMIT.advice(case, torch=torch)) is not None]
    return tuple(dict.fromkeys([*(advice for given in each for advice in given), *limit]))[:MOST]


def _with_sizes_together(cases: Sequence[RecompileCase]) -> list[RecompileCase]:
    """The causes, those of sizes that can be marked as one: they are marked together."""
    sizes = [case for case in cases if _sizes(case) and not case.is_computed]
    if len(sizes) < 2:
        return list(cases)
    together = replace(sizes[0], changes=tuple(change for case in sizes for change in case.changes))
    return [together if case is sizes[0] else case for case in cases if case is sizes[0] or case not in sizes]
