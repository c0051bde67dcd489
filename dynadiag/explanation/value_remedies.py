"""The remedies for recompiles because of values: numbers, texts and keys.

What is said of torch was tried on torch 2.13, with four values in turn
(compiles): a float, wherever it is kept, and an integer that is an argument, an item or an attribute of a plain object
2, with ``dynamic=True`` 1, with ``dynamic=False`` 4; an integer that is a global or in one, a closure's variable, a
default or a module's attribute 4, whatever ``dynamic`` is.
"""

from __future__ import annotations

from dynadiag.explanation.recompile_case import Needs, RecompileCase, place_text
from dynadiag.explanation.remedy import Remedy, Slots, Subject, slots_if, tried
from dynadiag.recording.code_origin import is_torch_file
from dynadiag.recording.records import GuardFailure, Span
from dynadiag.recording.torch_text.guards import literal_type
from dynadiag.recording.torch_text.sources import (
    holder_of,
    is_global,
    last_name,
    local_name,
    source_text,
)


def _type_of(fact: GuardFailure) -> str:
    """What sort of a number a value was: "other" of what is none."""
    name = fact.was_type or literal_type(fact.was) or "other"
    return name if name in ("int", "float") else "other"


def _value(case: RecompileCase, *bases: str, type_: str | None = None, constant: bool | None = None) -> bool:
    """Whether a value changed that is kept in such a place, of such a type, and that remains (or not) a constant.

    Of a value of another type than before the type is what changed.
    """
    fact = case.fact
    same = fact.now_type in (None, fact.was_type) or fact.was_type is None
    named = last_name(fact.subject) == "training" and fact.now in (None, "True", "False")
    return (
        case.sort == "value"
        and case.key_of is None
        and case.added is None
        and not case.is_other_callable
        and same
        and not named
        and (not bases or fact.base in bases)
        and type_ in (None, _type_of(fact))
        and constant in (None, case.is_constant)
    )


_CYCLED = ("betas", "momentum")  # what OneCycleLR and CyclicLR write beside the learning rate
_AS_INPUT = (
    "From now on torch makes it an input of the graph{unless}; where the step needs the number itself (that of "
    "{example} does), each value is compiled apart"
)
_OF_NUMBER = "Each value is compiled apart, whatever `dynamic` is: the step needs the number itself"
TENSOR_INSTEAD = (
    "pass a tensor where the operator takes one (`clamp`, `pow`, `lerp`, `where`, `masked_fill`, `full` and "
    "`bernoulli_` do; as `alpha`, `value`, `p`, `eps` or `beta`, or in a branch, a tensor may break the graph)"
)
ARITHMETIC = (
    "Numbers that only `+`, `-`, `*` and `/` use are inputs of the graph: write `a + s * b` for "
    "`torch.add(a, b, alpha=s)`."
)
_BUFFER = {"module attribute": " (`register_buffer`)", "attribute": " (`register_buffer` on a module)"}
_OF_MODULE = ("module attribute", "held attribute")  # what torch takes for a part of a module
ATTRIBUTES = ("attribute", *_OF_MODULE, "object attribute", "optimizer", "parameter")


def _integer_attribute(case: RecompileCase, use: str = "") -> Slots:
    """An integer that is an attribute. ``use``: it decides a branch, or sizes a slice or a tensor."""
    option = "set `torch._dynamo.config.allow_unspec_int_on_nn_module = True`"
    base = case.fact.base or ""
    by = {**dict.fromkeys(_OF_MODULE, f", or {option}"), "attribute": f", or, on a module, {option}"}.get(base, "")
    fits = _value(case, *ATTRIBUTES, type_="int") and not case.fact.is_static and not _is_callers(case)
    fits = fits and case.counted is None
    place = case.decides or case.sizes
    fits = fits and use == ("" if place is None else "sizes" if case.decides is None else "decides")
    plain = case.fact.base == "attribute" and not case.is_constant and not is_global(case.fact.subject)
    return slots_if(
        fits and not case.fact.is_new_owner,
        name=case.name,
        place=place_text(place) if place else "",
        buffer=_BUFFER.get(base, ""),
        argument=f"{',' if by else ' or'} pass it as an argument",
        option=by,
        plain=" On an object that is no module torch makes it a symbol from now on." if plain else "",
    )


def _of_instances(case: RecompileCase) -> Slots:
    """An attribute of a module that another instance has otherwise: an integer, a text."""
    is_int = _value(case, *ATTRIBUTES, type_="int")
    fits = (is_int or _value(case, *ATTRIBUTES, type_="other")) and case.fact.is_new_owner and not _is_callers(case)
    option = ", or set `torch._dynamo.config.allow_unspec_int_on_nn_module = True`: a number is then a symbol"
    of_module = is_int and case.fact.base in _OF_MODULE
    noun = "an integer" if is_int else "a value"
    helps = of_module and not case.picks_by_name
    return slots_if(fits and case.use is None, noun=noun, name=case.name, option=option if helps else "")


def _nouns(case: RecompileCase, noun: str) -> Subject:
    """``The integer `n` ``, ``The integers `n`, `m` ``."""
    many = len({fact.subject for fact in case.alike}) > 1
    return Subject(f"The {noun}{'s' if many else ''} {case.names}", many=many)


def _is_callers(case: RecompileCase) -> bool:
    """Whether it is kept where torch makes an integer a symbol: in an argument, a variable that the compiled function
    closes over, the state of an optimizer, an attribute of an object that is no module."""
    is_symbol = case.became_symbol and not _is_called_by_torch(case)
    own_cell = case.fact.base == "closure" and (holder_of(case.fact.subject) is None or is_symbol)
    of_object = case.fact.base == "object attribute" and local_name(case.fact.subject) is not None
    return own_cell or of_object or case.fact.base in ("argument", "optimizer")


def _integer_of_caller(case: RecompileCase, *, constant: bool) -> Slots:
    fits = _value(case, type_="int", constant=constant) and _is_callers(case)
    return slots_if(
        fits and not case.fact.is_static and case.use is None,
        what=_nouns(case, "integer"),
        why=_why_constant(case.fact),
        unless=_unless(case.fact),
    )


def _unless(fact: GuardFailure) -> str:
    """The condition on what torch does by itself, where it is not known what the program has said of sizes."""
    return "" if fact.dynamic is not None else " (with `dynamic=False`, never)"


def _use(use: str) -> Needs:
    """An integer that is part of the code, since it counts a loop, is part of a text, or picks an item ("item")."""

    def needs(case: RecompileCase) -> Slots:
        told, place = case.use or ("", Span(None, None))
        is_use = told == use if use != "item" else told not in ("", "loop", "text")
        # torch makes a symbol of what is written into a text, which breaks the graph
        fits = is_use and _value(case, type_="int") and (use == "text" or case.is_constant or not _is_callers(case))
        return slots_if(fits, name=case.name, container=told, place=place_text(place))

    return needs


def _static_number(case: RecompileCase) -> Slots:
    """A number that would be a symbol, or an input of the graph, but for what the program has said."""
    fact = case.fact
    is_integer = _value(case, "argument", "closure", *ATTRIBUTES, type_="int")
    option = " and set `torch._dynamo.config.allow_unspec_int_on_nn_module = True`"
    by = {**dict.fromkeys(_OF_MODULE, option), "attribute": f" and, on a module,{option.removeprefix(' and')}"}
    fits = is_integer or (_value(case, type_="float") and fact.base != "default")
    return slots_if(
        fits and fact.is_static and (case.use is None or case.use[0] != "text"),
        name=case.name,
        why="`dynamic=False`" if fact.dynamic == "never" else "`automatic_dynamic_shapes = False`",
        option=by.get(fact.base or "", "") if is_integer else "",
    )


def _is_closed_over(case: RecompileCase) -> bool:
    """Whether a value is part of the code that an inner function closes over."""
    own_integer = _type_of(case.fact) == "int" and _is_callers(case)
    return _value(case, "closure") and _type_of(case.fact) != "float" and not own_integer


def _is_called_by_torch(case: RecompileCase) -> bool:
    """Whether torch calls the function that closes over an integer, with arguments of its own: its own function was
    compiled, or it is one that says which scores of an attention count, and how much."""
    by_name = last_name(holder_of(case.fact.subject)) in ("mask_mod", "score_mod")
    return _type_of(case.fact) == "int" and (by_name or is_torch_file(case.recompile.file))


def _closed_over(case: RecompileCase, noun: str) -> str:
    """A variable that a function closes over, by its name where that is known, and by that of the function."""
    holder = holder_of(case.fact.subject)
    named = f"A {noun}" if last_name(case.fact.subject) == "cell_contents" else f"The {noun} {case.name}"
    return f"{named} that {f'the function `{source_text(holder)}`' if holder else 'the function'} closes over"


def _float(*, constant: bool) -> Needs:
    def needs(case: RecompileCase) -> Slots:
        fact = case.fact
        fits = _value(case, type_="float", constant=constant) and not fact.is_static
        if not fits or fact.base == "default" or _is_scheduled(case) or case.of_torch:
            return None
        bases = {each.base for each in case.alike}
        holder = {
            "closure": Subject(_closed_over(case, "float")),
            "global": Subject(f"The global {case.name}, a float,"),
        }.get(fact.base or "", _nouns(case, "float attribute" if bases <= {*ATTRIBUTES} else "float"))
        return {
            "what": holder,
            "why": _why_constant(fact),
            "unless": _unless(fact),
            "tensor": f"a tensor instead{_BUFFER.get(fact.base or '', '')}",
        }

    return needs


def _why_constant(fact: GuardFailure) -> str:
    """Why a number remains a constant, where it is known."""
    needed = "an operator or Python code needs to know it"
    return needed if fact.dynamic is not None else f"it was compiled with `dynamic=False`, or {needed}"


def _key(case: RecompileCase) -> Slots:
    if case.key_of is None:
        return None
    container, place = case.key_of
    shared = " Each instance has a key of its own, and all instances share the function's code and its limit."
    return {
        "name": case.name,
        "container": container,
        "place": place_text(place),
        "shared": shared if case.fact.is_new_owner else "",
    }


def _is_scheduled(case: RecompileCase) -> bool:
    """Whether it is a float of an optimizer's, as a scheduler writes it."""
    return _value(case, "optimizer", type_="float") and not case.fact.is_static


def _scheduled(*names: str, constant: bool | None = None) -> Needs:
    """A float of an optimizer's with one of these names, any other without names."""

    def needs(case: RecompileCase) -> Slots:
        has = {name for name in ("lr", *_CYCLED) if f"['{name}']" in (case.fact.subject or "")}
        named = bool(has & {*names}) if names else not has
        fits = _is_scheduled(case) and named and constant in (None, case.is_constant)
        then = _OF_NUMBER if case.is_constant else _AS_INPUT
        example = "`Adam`" if {*names} & {*_CYCLED} else "`SGD`"
        return slots_if(fits, name=case.name, then=then.format(unless=_unless(case.fact), example=example))

    return needs


VALUES: tuple[Remedy[RecompileCase], ...] = (
    Remedy(
        "value.index",
        "{name} picks an item of `{container}` (`{place}`), so its value is part of the code, and each is compiled "
        "apart. Pick the item before the call and pass it in; or, with few, call each once to warm up.",
        lambda case: _use("item")(case) if case.key_of is None else None,
        trials=tried("picks_a_module"),
    ),
    Remedy(
        "value.loop",
        "{name} is how often a loop runs (`{place}`), and torch unrolls the loop: each number is compiled apart, "
        "whatever `dynamic` is. Compile what the loop does once, and loop outside of it.",
        _use("loop"),
        trials=tried("counts_a_loop"),
    ),
    Remedy(
        "value.text",
        "{name} is written into a text (`{place}`), which needs the number: each is compiled apart, or the graph "
        "breaks there. Make the text, or pick what it names, before the call and pass it in.",
        _use("text"),
        trials=tried("picks_a_layer_by_name"),
    ),
    Remedy(
        "value.key",
        "{name} is a key of the dict `{container}` ({place}), so its value is part of the code: no symbol or tensor "
        "can be a key.{shared} Look the entry up outside of the compiled function and pass it, or keep it on the "
        "object under one name (an attribute, a buffer); or, with few keys, call each once to warm up.",
        _key,
        trials=tried("a_key_of_a_dict"),
    ),
    Remedy(
        "value.training",
        "{name} switched (`model.train()`, `model.eval()`): one compile for each mode is expected, and "
        "both are kept. Warm up both: a later switch compiles none.",
        lambda case: slots_if(case.sort == "value" and last_name(case.fact.subject) == "training", name=case.name),
        trials=tried("training"),
    ),
    Remedy(
        "value.learning_rate",
        "{name} changed, as a scheduler changes it. {then}. An optimizer that is made with `lr=torch.tensor(...)` "
        "needs no recompile.",
        _scheduled("lr"),
        trials=tried("a_learning_rate", "a_learning_rate_of_adam"),
    ),
    Remedy(
        "value.cycled",
        "{name} of the optimizer changed: `OneCycleLR` and `CyclicLR` write it, and with `cycle_momentum=False` they "
        "leave it alone. {then}.",
        _scheduled(*_CYCLED),
        trials=tried("a_cycled_momentum"),
    ),
    Remedy(
        "value.scheduled",
        "{name} of the optimizer changed, as a scheduler changes it. {then}; `torch.compile(..., dynamic=True)` makes "
        "it an input from the first call on where that is possible.",
        _scheduled(constant=False),
        trials=tried("a_weight_decay"),
    ),
    Remedy(
        "value.scheduled_again",
        "{name} of the optimizer changed, as a scheduler changes it. {then}. Change it in few steps, or leave this "
        "step uncompiled.",
        _scheduled(constant=True),
    ),
    Remedy(
        "value.closed_over",
        "{which} changed, and its value is part of the code: one compile for each. Pass it as an argument.",
        lambda case: slots_if(
            _is_closed_over(case) and not _is_called_by_torch(case), which=_closed_over(case, "variable")
        ),
        trials=tried("a_closure"),
    ),
    Remedy(
        "value.closed_over_by_torch",
        "{which} changed, and its value is part of the code: one compile for each. torch calls that function with "
        "arguments of its own, so close over a tensor instead (`torch.tensor(...)`), which is an input of the graph.",
        lambda case: slots_if(
            _is_closed_over(case) and _is_called_by_torch(case), which=_closed_over(case, "variable")
        ),
        trials=tried("a_closure_of_a_mask"),
    ),
    Remedy(
        "value.counted",
        "The compiled code itself counts {name} up ({place}), and its value is part of the code: one compile for each. "
        "Count outside of the compiled function, before or after the call, and pass the number in where it is needed.",
        lambda case: slots_if(
            case.counted is not None and _value(case, type_="int"),
            name=case.name,
            place=place_text(case.counted or Span(None, None)),
        ),
        trials=tried("counts_a_global"),
    ),
    Remedy(
        "value.global_integer",
        "The global {name} changed, and its value is part of the code: pass it as an argument{unless}.",
        lambda case: slots_if(
            _value(case, "global", type_="int") and case.counted is None,
            name=case.name,
            unless=", and leave your `dynamic=False` out" if case.fact.dynamic == "never" else "",
        ),
        trials=tried("a_global"),
    ),
    Remedy(
        "value.global",
        "The global {name} changed, and its value is part of the code: set it once, before the first call.",
        lambda case: slots_if(_value(case, "global", type_="other"), name=case.name),
        trials=tried("a_global_text"),
    ),
    Remedy(
        "value.static",
        "{name} changed, and with your {why} each value of a number is compiled apart, whatever else is set. "
        "Use `dynamic=True` instead{option} (with neither it becomes a symbol when it first changes), or keep the "
        "number in a tensor (`register_buffer` on a module).",
        _static_number,
        trials=tried(
            "a_static_integer",
            "a_number_without_automatic",
            "a_float_again",
            "a_static_counter",
            "a_static_counter_in_a_tensor",
        ),
    ),
    Remedy(
        "value.integer_decides",
        "The integer attribute {name} changed and decides a branch ({place}), so its value is part of the code: one "
        "compile for each. Decide outside of the compiled function and pass the answer, a bool{option}. (A tensor "
        "would break the graph at the branch.)",
        lambda case: _integer_attribute(case, "decides"),
        trials=tried("an_integer_that_decides", "an_integer_that_decides_unspecialized"),
    ),
    Remedy(
        "value.integer_sizes",
        "The integer attribute {name} changed, and its value is part of the code: one compile for each. It is a size "
        "or a bound of a slice ({place}), where a tensor breaks the graph: pass it as an argument{option}.{plain}",
        lambda case: _integer_attribute(case, "sizes"),
        trials=tried("an_integer_that_slices", "an_integer_that_slices_unspecialized"),
    ),
    Remedy(
        "value.integer_attribute",
        "The integer attribute {name} changed, and its value is part of the code: one compile for each. "
        "Keep it in a tensor{buffer} if no branch reads it (that would break the graph){argument}{option}.{plain}",
        _integer_attribute,
        trials=tried(
            "an_integer_attribute",
            "an_integer_attribute_unspecialized",
            "an_integer_of_an_object_of_a_module",
            "an_integer_of_an_object_of_a_module_unspecialized",
        ),
    ),
    Remedy(
        "value.of_instances",
        "Each instance has {noun} {name} of its own, which is part of the code, and all instances share the "
        "function's code and its limit. Compile what calls the instances, one after the other, so that they are parts "
        "of its graph{option}.",
        _of_instances,
        trials=tried("layers_with_an_index", "modules_with_a_number", "layers_with_a_name"),
    ),
    Remedy(
        "value.attribute",
        "{what} changed, and the value is part of the code: set it once, before the first call. To switch between a "
        "few values call each once to warm up; what is new in each call (an id, a name) stays out of the compiled "
        "function.",
        lambda case: slots_if(
            _value(case, *ATTRIBUTES, type_="other") and _of_instances(case) is None, what=_nouns(case, "attribute")
        ),
        trials=tried("an_attribute"),
    ),
    Remedy(
        "value.integer_again",
        "{what:is} part of the code and changed, each value compiled apart: {why} (an index, a branch, an option of an "
        "operator). Take that code out of the function, or pass a tensor where it is only computed with.",
        lambda case: _integer_of_caller(case, constant=True),
        trials=tried("a_length_of_a_list"),
    ),
    Remedy(
        "value.integer",
        "{what} changed. From now on torch makes such an integer a symbol{unless}; `torch.compile(..., dynamic=True)` "
        "does so from the first call on. (Where Python code needs to know it, each value is compiled apart.)",
        lambda case: _integer_of_caller(case, constant=False),
        trials=tried("an_integer", "an_integer_of_an_object"),
    ),
    Remedy(
        "value.constant",
        "{name} is a constant of the code: each value of it is compiled apart. With few values call each once "
        "to warm up; with many, take the choice out of the compiled function.",
        lambda case: slots_if(_value(case, "argument", type_="other") or _value(case, "default"), name=case.name),
        trials=tried("a_text", "another_member"),
    ),
    Remedy(
        "value.placements",
        "`{name}` is a DTensor that came with other placements, and code is made for each: bring it to one before the "
        "call (`redistribute`), or expect one compile for each.",
        lambda case: slots_if(case.fact.now_type == "DTensorSpec", name=source_text(holder_of(case.fact.subject))),
        trials=tried("other_placements"),
    ),
    Remedy(
        "value.of_torch",
        "{name} is an attribute of torch's own module, whose code needs the number: each value is compiled apart, and "
        "a tensor there breaks the graph. With few values call each once to warm up; with many, write the module "
        "yourself, with the value in a buffer (`register_buffer`).",
        lambda case: slots_if(_value(case, type_="float") and case.of_torch, name=case.name),
        trials=tried("drops_more"),
    ),
    Remedy(
        "value.float_again",
        "{what:is} part of the code and changed, each value compiled apart: {why} (a branch, `int(...)`). "
        f"{ARITHMETIC} Or {TENSOR_INSTEAD}.",
        _float(constant=True),
        trials=tried("a_float_as_alpha", "a_float_for_clamp"),
    ),
    Remedy(
        "value.float",
        "{what} changed. From now on torch makes such a number an input of the graph{unless}; "
        "`torch.compile(..., dynamic=True)`, or {tensor}, does so from the first call on. (Where an operator needs the "
        "number itself, each value is compiled apart.)",
        _float(constant=False),
        trials=tried("a_float", "a_float_in_a_tensor"),
    ),
)
