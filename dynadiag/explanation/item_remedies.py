"""The remedies for recompiles because of the items of a container, and because of an object that is another one."""

from __future__ import annotations

from dynadiag.explanation.changes import HELD_IN
from dynadiag.explanation.rebinding import DICTS
from dynadiag.explanation.recompile_case import Needs, RecompileCase, is_special_size, of_sort, place_text
from dynadiag.explanation.remedy import Remedy, Slots, slots_if, tried
from dynadiag.explanation.value_remedies import ATTRIBUTES
from dynadiag.recording.torch_text.guards import was_empty
from dynadiag.recording.torch_text.sources import (
    MODULE_OF_TORCH,
    ends_in_attribute,
    holder_of,
    is_global,
    last_name,
    local_name,
    source_text,
)


def _length(case: RecompileCase) -> bool:
    return case.sort == "length" and case.fact.index is None


def _first_call(case: RecompileCase) -> Slots:
    apart = [change.fact for change in case.changes if is_special_size(change.fact)]
    else_ = ". Or initialize it before the first compiled call."
    if apart:
        size = source_text(apart[0].source)
        else_ = f", also where it is initialized before: `{size}` was {apart[0].was} and is {apart[0].now} now, and "
        else_ += "torch compiles the sizes 0 and 1 apart."
    return slots_if(case.sort == "first call", name=case.name, else_=else_)


def _added(*, with_key: bool) -> Needs:
    def needs(case: RecompileCase) -> Slots:
        if case.added is None or (case.added[0] is not None) != with_key:
            return None
        key, place = case.added
        once = "put the key in before the first call, or "  # where the number goes on changing it is another key
        return {
            "names": case.names,
            "key": key or "",
            "place": place_text(place),
            "once": "" if case.goes_on else once,
        }

    return needs


def _filled(case: RecompileCase) -> Slots:
    empty = was_empty(case.fact) and not (case.goes_on or case.takes_out) and case.fact.base != "argument"
    return slots_if(_length(case) and empty and case.added is None and _of_torch(case) is None, names=case.names)


def _more_items(*, given: bool) -> Needs:
    """``given``: of an argument, which the caller makes, or of another object."""

    def needs(case: RecompileCase) -> Slots:
        is_given = case.fact.base == "argument" or case.fact.is_new_owner is True
        is_kind = not (given and case.fact.now_type in DICTS) and not _modules(case)
        fits = _length(case) and is_kind and is_given == given
        return slots_if(fits and _filled(case) is None and _of_torch(case) is None, names=case.names)

    return needs


def _of_torch(case: RecompileCase) -> Slots:
    """A container that is a global of a module of torch's."""
    in_torch = (case.fact.subject or "").startswith(MODULE_OF_TORCH)
    return slots_if(case.sort in ("length", "keys", "membership") and in_torch, names=case.names)


def _modules(case: RecompileCase) -> bool:
    return _length(case) and (case.fact.subject or "").endswith("._modules")


def _other_keys(case: RecompileCase) -> Slots:
    is_dict = case.fact.now_type in DICTS
    is_given = case.fact.base == "argument"
    fits = case.sort == "keys" or (_length(case) and is_dict and is_given and not _modules(case))
    known = case.added is not None or _filled(case) is not None or _of_torch(case) is not None
    return slots_if(fits and not known, names=case.names)


def _identity(*, function: bool) -> Needs:
    def needs(case: RecompileCase) -> Slots:
        types = {case.fact.was_type, case.fact.now_type}
        is_function = not types.isdisjoint(("code", "function", "method", "builtin_function_or_method"))
        fits = case.sort == "identity" and not case.is_other_callable
        return slots_if(fits and is_function == function, names=case.names)

    return needs


def _freed(*, gradient: bool) -> Needs:
    def needs(case: RecompileCase) -> Slots:
        is_gradient = last_name(case.fact.subject) == "grad"
        of_class = (case.fact.subject or "").startswith("type(")
        return slots_if(case.sort == "freed" and is_gradient == gradient and not of_class, name=case.name)

    return needs


def _class_anew(case: RecompileCase) -> Slots:
    """A class that was freed, or of which another one of the same name came."""
    fact = case.fact
    if case.sort == "freed" and (fact.subject or "").startswith("type("):
        return {"what": f"The class {case.name} that the code was made for is gone"}
    return slots_if(
        case.sort == "type" and fact.now is not None and fact.now in case.changes[0].was,
        what=f"{case.name} is of another class of the same name, `{fact.now_type}`: it was defined anew",
    )


def _other_type(case: RecompileCase) -> Slots:
    fact, of_module = case.fact, case.fact.base in ("module attribute", "parameter") and not case.fact.is_new_owner
    number = case.sort == "value" and None not in (fact.was_type, fact.now_type) and fact.was_type != fact.now_type
    known = _class_anew(case) is not None or case.is_other_callable or _types(case) in (_TENSORS, *_STRUCTURES)
    advice = "Set it before the first call, or expect one compile for each." if of_module else "Pass one type always."
    known = known or _of_instances(case) is not None
    return slots_if((case.sort == "type" or number) and not known, names=case.names, advice=advice)


def _of_instances(case: RecompileCase) -> Slots:
    """That an object, or what it holds, is of another class in another instance."""
    is_self = case.fact.subject == "L['self']"
    what = f"{case.name} is of another class in this instance than in the one before"
    if is_self:
        what = f"{case.name} is of another class than before, which has the function from a class that both share"
    elif case.sort == "none":
        what = f"{case.names:is} None in one instance and not in another"
    fits = case.sort in ("type", "none") and _class_anew(case) is None and not case.is_other_callable
    return slots_if(fits and (is_self or (case.fact.is_new_owner and holder_of(case.fact.subject))), what=what)


_TENSORS = {"Parameter", "Tensor"}
_STRUCTURES = tuple({"Tensor", container} for container in ("list", "tuple", "dict"))


def _types(case: RecompileCase) -> set[str | None]:
    return {case.fact.was_type, case.fact.now_type} if case.sort == "type" else set()


def _none(*, attribute: bool) -> Needs:
    """``attribute``: of the module or of a global object. Those of an argument are the caller's, as it is itself."""

    def needs(case: RecompileCase) -> Slots:
        own = local_name(case.fact.subject) == "self" or is_global(case.fact.subject)
        fits = case.sort == "none" and (own and case.fact.base in ATTRIBUTES) == attribute
        return slots_if(fits and _of_instances(case) is None, names=case.names)

    return needs


def _presence(case: RecompileCase) -> Slots:
    now = {"absent": "there in the call before, and missing in this one", "present": "not there before"}.get(
        case.fact.now or "", "there in one call, and not in the other"
    )
    if case.fact.is_new_owner:
        now = "there in one instance, and missing in another"
    return slots_if(case.sort == "presence" and _is_attribute(case), names=case.names, now=now)


def _is_attribute(case: RecompileCase) -> bool:
    """Whether it is an attribute or a global, rather than an item that a container has."""
    is_own = ends_in_attribute(case.fact.subject) or last_name(holder_of(case.fact.subject)) in HELD_IN
    return case.fact.base == "global" or (case.fact.base in ATTRIBUTES and is_own)


def _fewer_items(case: RecompileCase) -> Slots:
    fits = case.sort == "presence" and case.keyword is None and not _is_attribute(case)
    return slots_if(fits and case.fact.base not in ATTRIBUTES, names=case.names)


def _asked_for(case: RecompileCase) -> Slots:
    """A container that the code asked for an item that it has, or has not."""
    known = case.added is not None or case.keyword is not None or _of_torch(case) is not None
    held = case.sort == "presence" and case.fact.base in ATTRIBUTES and not _is_attribute(case)
    names = f"`{source_text(holder_of(case.fact.subject))}`" if held else case.names
    return slots_if((case.sort == "membership" or held) and not known, names=names)


ITEMS: tuple[Remedy[RecompileCase], ...] = (
    Remedy(
        "items.added",
        "The compiled code itself adds the key `{key}` to {names} ({place}), and each number of keys is code of its "
        "own: {once}return the value and add it outside.",
        _added(with_key=True),
        trials=tried("a_key_that_is_added", "a_filled_dict", "a_key_in_a_store"),
    ),
    Remedy(
        "items.appended",
        "The compiled code itself adds an item to {names} (`{place}`), and each length is code of its own. Return the "
        "item, and add it after the compiled call. Where the items are tensors, what needs them all can take one "
        "(`torch.stack`).",
        _added(with_key=False),
        trials=tried("a_list_that_is_added_to", "a_list_of_losses"),
    ),
    Remedy(
        "items.filled",
        "{names:was} empty in the first call, and filled later: the code for the empty one is not used again. Fill it "
        "before the first compiled call.",
        _filled,
        trials=tried("a_list_that_is_filled"),
    ),
    Remedy(
        "items.length",
        "{names:has} another number of items, and each number is code of its own. Where they are tensors, stack them "
        "into one, or pad to one length; or loop outside and compile what is done to one item.",
        _more_items(given=True),
        trials=tried("a_length"),
    ),
    Remedy(
        "items.held",
        "{names:has} another number of items than in the call before, and each number is code of its own. Give it all "
        "of them before the first call, or expect one compile for each number.",
        _more_items(given=False),
        trials=tried("a_list_that_is_extended"),
    ),
    Remedy(
        "items.of_torch",
        "{names:is} torch's own, and what the program does around the call changes it, such as a context manager of "
        "torch's (`parametrize.cached()`): that is different code. Leave that out, or expect one compile more.",
        _of_torch,
        trials=tried("a_cache_of_torchs"),
    ),
    Remedy(
        "items.modules",
        "{names:has} another number of modules, and each number is code of its own. Compile the modules in it, each "
        "by itself (`for module in {name}: module.compile()`), and not what loops over them; or expect one compile "
        "for each number.",
        lambda case: slots_if(_modules(case), names=case.names, name=source_text(case.fact.subject)),
        trials=tried("a_list_of_modules_that_grows"),
    ),
    Remedy(
        "items.arguments",
        "The call passes another number of arguments to a function that takes any (`*args, **kwargs`): each number is "
        "code of its own. Pass the same ones always, with a default where there is nothing to pass.",
        lambda case: slots_if(case.sort == "length" and case.fact.index == "arguments"),
        trials=tried("keyword_arguments"),
    ),
    Remedy(
        "items.keyword",
        "Some calls pass the keyword argument {key} and some do not, which is different code: pass it always, with a "
        "value that changes nothing, or expect one compile for each.",
        lambda case: slots_if(case.keyword, key=f"`{case.keyword}`"),
        trials=tried("a_keyword_at_times"),
    ),
    Remedy(
        "items.keys",
        "{names:has} other keys, or in another order: use the same keys for every call, in the same order.",
        _other_keys,
        trials=tried("keys"),
    ),
    Remedy(
        "items.membership",
        "What {names} contains changed, and the code asked: look it up before the call and pass the answer.",
        _asked_for,
        trials=tried("membership"),
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
        of_sort("own attribute"),
        trials=tried("an_attribute_of_its_own"),
    ),
    Remedy(
        "object.function",
        "{names:is} another function than before: each is compiled apart. Pass the same one always, or expect one "
        "compile for each. (A `def` or `lambda` that runs again gives the same code, which needs no other compile.)",
        _identity(function=True),
        trials=tried("another_function"),
    ),
    Remedy(
        "object.identity",
        "Another object came as {names}, and the code is bound to the object. Pass the same "
        "one, or pass the tensors and numbers in it instead.",
        _identity(function=False),
        trials=tried("another_object"),
    ),
    Remedy(
        "object.gradient",
        "The code is made for the gradient tensor {name}, and that was freed: `.grad` was set to None, and the next "
        "backward makes another tensor. Keep it (`zero_grad(set_to_none=False)`, `.grad.zero_()`), or pass the "
        "gradient to the compiled function as an argument.",
        _freed(gradient=True),
        trials=tried("a_gradient_set_to_none"),
    ),
    Remedy(
        "object.freed",
        "The object {name} that the code was made for is gone, and each new one is compiled anew. Make it once and use "
        "it again: start an optimizer over with `load_state_dict`, a module with `reset_parameters` or "
        "`load_state_dict`.",
        _freed(gradient=False),
        trials=tried("a_freed_optimizer"),
    ),
    Remedy(
        "object.class_anew",
        "{what}. A `class` statement that runs again makes another class, and code is made for each, while the "
        "functions in it share one limit. Define the class once, outside of what runs again.",
        _class_anew,
        trials=tried("a_class_defined_anew"),
    ),
    Remedy(
        "object.first_call",
        "{name} is set in the first call (a cache that is filled, a lazy module): the code of that call is only for "
        "what is not initialized yet, so expect one compile more{else_}",
        _first_call,
        trials=tried("a_cache"),
    ),
    Remedy(
        "object.parameter",
        "{names:is} a `Parameter` in one call and a plain tensor in another, and code is made for each class. Expect "
        "one compile for each; or pass `p.view_as(p)` of a parameter `p`, a plain tensor with the same gradient.",
        lambda case: slots_if(_types(case) == _TENSORS, names=case.names),
        trials=tried("a_parameter_or_a_tensor"),
    ),
    Remedy(
        "object.structure",
        "{names:is} a tensor in one call and a {container} in another: how what is passed is nested is part of the "
        "code, and each form is compiled apart. Compile what is done to one item, and go through them outside.",
        lambda case: slots_if(
            _types(case) in _STRUCTURES,
            names=case.names,
            container=next((each for each in _types(case) if each and each != "Tensor"), ""),
        ),
        trials=tried("a_tree"),
    ),
    Remedy(
        "object.class_of_instances",
        "{what}, and code is made for each: expect one compile for each, or compile what calls the instances, one "
        "after the other, so that they are parts of its graph.",
        _of_instances,
        trials=tried("layers_of_two_classes", "layers_with_two_activations", "layers_with_and_without"),
    ),
    Remedy(
        "object.type",
        "{names:is} of another type than before: code is made for each type. {advice}",
        _other_type,
        trials=tried("a_type", "a_layer_put_in_place"),
    ),
    Remedy(
        "object.none",
        "{names:was} None in one call and not in the other: with and without it is different code. Expect one "
        "compile for each and warm up both, or always pass something (a default, an empty tensor).",
        _none(attribute=False),
        trials=tried("none"),
    ),
    Remedy(
        "object.none_attribute",
        "{names:was} None in one call and not in the other: with and without it is different code. Set it once, before "
        "the first call, or expect one compile for each.",
        _none(attribute=True),
        trials=tried("a_bias_taken_away"),
    ),
    Remedy(
        "object.presence",
        "{names:was} {now}, and the code asked for it: define it from the start (in `__init__`), before the first "
        "call, or expect one compile for each.",
        _presence,
        trials=tried("presence"),
    ),
    Remedy(
        "break.left_over",
        "What was computed at a graph break is handed to the rest of the function, which was compiled for its "
        "value: end that break, and this recompile ends too.",
        of_sort("left over"),
        trials=tried("a_value_from_a_break"),
    ),
)
