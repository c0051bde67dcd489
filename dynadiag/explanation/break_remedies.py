"""The remedies for graph breaks, each with what must be known of a break for its text to hold.

Each program is in `tests/explanation/advice_programs.py`, and `tests/explanation/test_advice_table.py` runs it as it is
and as the remedy says. Where none fits, torch's own hints are passed on as torch's, unchecked.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from dynadiag.explanation.blocks import becomes_list, branch_on_size, call_at, defined_class, takes_packed
from dynadiag.explanation.branch_remedies import BRANCHES
from dynadiag.explanation.branches import called_name
from dynadiag.explanation.break_case import BreakCase, Needs, is_kind, theirs, when
from dynadiag.explanation.family_remedies import USUAL
from dynadiag.explanation.findings import Advice
from dynadiag.explanation.gradient_remedies import GRADIENTS
from dynadiag.explanation.number_remedies import number_advice
from dynadiag.explanation.output_remedies import OUTPUT
from dynadiag.explanation.read_remedies import READS
from dynadiag.explanation.registry import specific_hints
from dynadiag.explanation.remedy import MOST, Remedy, Slots, Trial, advise, slots_if
from dynadiag.recording.torch_text.break_types import is_general
from dynadiag.recording.torch_text.breaks import is_number_of_numpys, is_torchs_assertion, takes_no_array

# Of these the cause is known: what usually helps is not said beside them.
_KNOWN = frozenset(
    {"wrapper.ddp", "wrapper.fsdp2", "exception.check", "assert.shapes", "assert.async", "failed.no_fake"}
    | {
        "branch.while",
        "clock.around",
        "iterate.plain",
        "text.symbol",
        "sort.before",
        "generator.before",
        "branch.raise",
        "branch.afterwards",
        "branch.assert",
        "branch.masked",
        "branch.in_place",
        "chance.branch",
        "chance.bound",
        "library.known",
        "branch.inside",
        "backward.expected",
        "checkpoint.outside",
        "checkpoint.effects",
        "checkpoint.attribute",
        "warn.reorder",
        "warn.ignore",
        "hook.between",
        "item.picked",
        "class.outside",
        "shape.counts",
        "shape.list",
        "shape.loop",
        "address.outside",
        "function.pure",
        "attribute.asked",
        "random.once",
        "operator.internal",
        "numpy.number",
        "transform.whole",
        "transform.break",
        "out.new",
        "grad_mode.inside",
        "item.of_list",
    }
)
# The numbers of torch's registry.
_RNN, _DYNAMIC_SHAPE, _BUILTIN, _HOOKS = "GB0014", "GB0036", "GB0059", "GB0083"
_ITEM, _ASKED = "GB0124", "GB0025"
_COPY = "GB4198"  # a deep copy of a tensor, or of what holds one
_DISABLED, _DATA, _TEXT, _NO_PROXY, _MUTATION = ("GB0098", "GB0099"), "GB0033", "GB0021", "GB0055", "GB4413"
_OUT = "GB0242"
_CLOCK, _SORT = "GB9193", "GB0207"  # the first from 2.15 on
_CLOCKS = ("time", "perf_counter", "monotonic", "process_time", "thread_time")  # of the module `time`


def _reads_a_clock(case: BreakCase) -> bool:
    module, _, function = (case.facts.subject or "").partition(".")
    return case.item.gb_id == _CLOCK or (module == "time" and function.removesuffix("_ns") in _CLOCKS)


def _reads_an_address(case: BreakCase) -> bool:
    return (case.called or "").endswith(".data_ptr")


def _failed_inside(case: BreakCase) -> bool:
    return is_torchs_assertion(case.facts.operator_error) or is_torchs_assertion(case.facts.message)


def _takes_a_generator(case: BreakCase) -> bool:
    call = call_at(case.source, case.item.span)
    return call is not None and any(keyword.arg == "generator" for keyword in call.keywords)


def _counts(case: BreakCase) -> Slots:
    """What `bincount` counts at the break, and the least length of the counts, where both are written there."""
    call = call_at(case.source, case.item.span)
    if call is None or called_name(call) != "bincount" or len(call.args) != 1:
        return None
    lengths = [ast.unparse(each.value) for each in call.keywords if each.arg == "minlength"]
    counted = call.args[0]
    return slots_if(
        isinstance(counted, (ast.Name, ast.Attribute)) and lengths,
        counted=ast.unparse(counted),
        length="".join(lengths),
    )


def _inner_place(case: BreakCase) -> str:
    return f"`{case.facts.inside_function or case.item.function}`, {case.owner.name or 'torch'}'s own"


def _defined_class(case: BreakCase) -> str | None:
    return defined_class(case.source, case.item.span)


def _becomes_list(case: BreakCase) -> bool:
    return becomes_list(case.source, case.item.span)


def _branch_on_size(case: BreakCase) -> str:
    line = branch_on_size(case.source, case.item.span)
    if line is None:
        return ""
    return f" The branch on that size at line {line} breaks the graph next. One that only skips what is empty can go."


def _meets_rnn(case: BreakCase) -> bool:
    return case.item.gb_id == _RNN or case.facts.option == "allow_rnn"


def _is_all_theirs(case: BreakCase) -> bool:
    """Whether all on the way to the break that was compiled is a library's, which calls something beside it."""
    return not case.owner.is_user and case.entry is None and bool(case.parts)


def _listed(names: Sequence[str]) -> str:
    return " and ".join(f"`{name}`" for name in names[:2])


def _some(names: Sequence[str]) -> str:
    """The first three names."""
    return ", ".join([*names[:3], *(["and others"] if len(names) > 3 else [])])


_RULES = (
    Remedy(
        "wrapper.ddp",
        "Compile the module, then wrap it: `DDP(torch.compile(module))`. Then there is no break of DDP's, and torch "
        "splits the graph at DDP's buckets as it does for `torch.compile(DDP(module))`.",
        when(lambda case: case.wrapper == "DDP"),
        trials=(Trial("wrapped_by_ddp"),),
    ),
    Remedy(
        "wrapper.fsdp2",
        "Compile the modules that `fully_shard` is called on, each by itself and before or after that call "
        "(`for block in model.blocks: block.compile(); fully_shard(block)`), and not the module that calls them: "
        "FSDP2's hooks around each of them run in Python.",
        when(lambda case: case.wrapper == "FSDP2"),
        trials=(Trial("wrapped_by_fsdp2"),),
    ),
    Remedy(
        "exception.check",
        "Check the condition before the compiled call, or mend what raises. Where Python raises nothing here, torch "
        "traces the line wrongly: move it out of the compiled function.",
        when(
            lambda case: (
                case.fails_always
                or not (case.facts.exception is None or _reads_an_address(case) or _failed_inside(case))
            )
        ),
        trials=(Trial("raises"),),
    ),
    Remedy(
        "address.outside",
        "A tensor has no address while torch traces, so nothing can be decided by `{called}()`. Ask before the "
        "compiled call, of what is passed in, and pass the answer; or let compiled code take one side always: "
        "`torch.compiler.is_compiling() or ...`.",
        when(theirs, _reads_an_address, called=lambda case: case.called or ""),
        trials=(Trial("decides_by_an_address"), Trial("decides_by_an_address_outside")),
    ),
    Remedy(
        "function.pure",
        "torch traces all methods of `{function}`, the backward too, where `{function}.apply` is called: this belongs "
        "in none of them. To keep it, call `{function}.apply` between two compiled functions.",
        when(
            theirs,
            lambda case: case.custom_function is not None and not (case.is_item or case.is_branch),
            function=lambda case: case.custom_function or "",
        ),
        trials=(Trial("prints_in_a_backward"), Trial("prints_in_a_backward_between")),
    ),
    Remedy(
        "attribute.asked",
        "torch looks `{attribute}` up where the compiled code runs and not while it traces, so the `except` is never "
        "taken, and what it would catch is raised. Ask with `hasattr`, or give `getattr` a default.",
        when(
            theirs,
            lambda case: (case.facts.subject or "").startswith("<unknown type>.") and case.tried_attribute is not None,
            attribute=lambda case: case.tried_attribute or "",
        ),
        trials=(Trial("tries_an_attribute"), Trial("tries_an_attribute_with_a_default")),
    ),
    Remedy(
        "operator.internal",
        "An assertion inside torch failed, which is a bug of torch's and no fault of this line. Leave the call that "
        "leads here out of the compiled function, and report it.",
        when(_failed_inside),  # no trial in the suite: such a failure leaves torch in a state that spoils what follows
    ),
    Remedy(
        "numpy.number",
        "In compiled code NumPy returns an array, also where it returns a number to Python, and an array lacks what is "
        "asked of it here. Compute the number with `math`, make it Python's own first (`float(...)`), or pass it in.",
        when(theirs, lambda case: is_number_of_numpys(case.facts.operator_error)),
        trials=(Trial("rounds_by_numpy"), Trial("rounds_by_numpy_as_a_float")),
    ),
    Remedy(
        "numpy.item",
        "`{array}` is an array of NumPy's, of which torch picks no item by a number that it has made a symbol. Make it "
        "a tensor (`torch.from_numpy({array})`), or pick the item before the call and pass it in.",
        when(
            theirs,
            lambda case: takes_no_array(case.item.explanation) and case.container is not None,
            array=lambda case: case.container or "",
        ),
        trials=(Trial("picks_of_an_array", case="GB0112"),),
    ),
    Remedy(
        "random.once",
        "The state of the random numbers is no part of a graph. To have the same numbers twice draw them once, and "
        "use them twice (a mask for a dropout).",
        when(theirs, lambda case: (case.facts.subject or "").endswith(("get_rng_state", "set_rng_state"))),
        trials=(Trial("drops_the_same_twice"),),
    ),
    *BRANCHES,
    Remedy(
        "failed.no_fake",
        "Tell torch the shape and dtype of what `{name}` returns: `torch.library.register_fake`.",
        when(lambda case: case.facts.lacks_fake, name=lambda case: case.facts.operator or "the operator"),
        trials=(Trial("operator_without_a_fake"),),
    ),
    Remedy(
        "branch.while",
        "The values of a tensor decide how often this loop does its work. Compile what it does once, and loop outside "
        "of it; or let the graph loop, where shapes stay: `torch.while_loop(condition_fn, body_fn, operands)`.",
        when(theirs, lambda case: case.is_branch and case.is_loop_condition and case.decision is None),
        trials=(
            Trial("loops_on_values", case="GB0170"),
            Trial("loops_on_values_in_the_graph", case="GB0170"),
            Trial("breaks_out_of_a_loop", case="GB0170"),
            Trial("skips_a_pass_of_a_loop", case="GB0170"),
        ),
    ),
    Remedy(
        "clock.around",
        "Take the time around the compiled call, before it and after it.",
        when(theirs, _reads_a_clock),
        trials=(Trial("takes_the_time"),),
    ),
    Remedy(
        "iterate.plain",
        "Loop over a plain `range`, list or tuple in the compiled function, and over `{name}` outside of it, with a "
        "compiled call in each step.",
        when(
            theirs,
            lambda case: case.is_iterated and case.is_skip and not case.is_torchs_own,
            name=lambda case: case.looped or case.called or case.facts.subject or "it",
        ),
        trials=(Trial("loops_over_a_bar"), Trial("numbers_batches")),
    ),
    Remedy(
        "text.symbol",
        "A number that torch has made a symbol cannot be part of a text. Make the text, or pick what it names, before "
        "the call and pass it in; or compile with `dynamic=False`, once for each number.",
        when(theirs, is_kind(_TEXT)),
        trials=(  # from 2.14 on torch compiles each number apart
            Trial("names_a_layer", ("2.11", "2.13")),
            Trial("names_a_layer_of_each_number", ("2.11", "2.13")),
        ),
    ),
    Remedy(
        "sort.before",
        "It sorts by what is not known while torch traces: a size or number that torch has made a symbol, or a tensor. "
        "Sort before the compiled call, and pass the sorted list in.",
        when(theirs, is_kind(_SORT)),
        trials=(Trial("sorts_by_a_size"), Trial("sorts_by_a_value")),
    ),
    Remedy(
        "generator.before",
        "Draw before the compiled call and pass the result in: torch traces no `torch.Generator`.",
        when(theirs, is_kind(_NO_PROXY), _takes_a_generator),
        trials=(Trial("draws_with_a_generator"),),
    ),
    Remedy(
        "chance.branch",
        "What is drawn decides which code runs, and passed in it would make each way a compile of its own. Compile "
        "what the branch calls, and leave the branch in Python; or draw a tensor and choose between tensors: "
        "`torch.where(torch.rand(()) < p, a, b)`.",
        when(theirs, lambda case: case.is_chance and case.is_condition),
        trials=(Trial("drops_a_layer", ("2.13", "2.15")), Trial("drops_a_layer_by_a_name", ("2.13", "2.15"))),
    ),
    Remedy(
        "chance.number",
        "Draw before the compiled call and pass the number in, as an argument. torch makes a tensor of what NumPy "
        "draws, so that the line breaks with `capture_scalar_outputs`, too.",
        when(theirs, lambda case: case.is_item and case.is_drawn_by_numpy and not case.is_condition),
        trials=(Trial("draws_with_numpy"),),
    ),
    Remedy(
        "chance.bound",
        "Draw `{name}` before the compiled call and pass it in, as an argument: what it picks or sizes is then "
        "compiled for each of its values.",
        when(theirs, lambda case: case.drawn is not None, name=lambda case: (case.drawn or ("", 0))[0]),
        trials=(Trial("goes_so_deep"),),
    ),
    Remedy(
        "copy.clone",
        "Where `{copied}` is a tensor, write `{copied}.detach().clone()`. (Such a copy takes no gradient.)",
        when(
            is_kind(_COPY),
            lambda case: case.owner.is_user and case.copied is not None,
            copied=lambda case: case.copied or "",
        ),
        trials=(Trial("copies_a_tensor", ("2.13", "2.14", "2.15"), _COPY),),
    ),
    Remedy(
        "library.known",
        "A change of `{function}` ends this break, proved on {package} {version} ({classes}): `dynadiag fix --overlay "
        "overlay.py PROGRAM` tries it on your program and writes it. The installation stays as it is.",
        when(
            lambda case: case.known is not None,
            function=lambda case: case.known.function if case.known else "",
            package=lambda case: case.known.package if case.known else "",
            version=lambda case: case.known.version if case.known else "",
            classes=lambda case: _some(case.known.classes if case.known else ()),
        ),
    ),
    Remedy(
        "branch.inside",
        "The branch is in {place}: give arguments with which it is not reached, or make the call before or after the "
        "compiled function.",
        when(
            lambda case: case.is_branch and not case.is_theirs and not _is_all_theirs(case),
            place=_inner_place,
        ),
        trials=(Trial("clips_and_checks"),),
    ),
    Remedy(
        "library.around",
        "What breaks is `{function}`, {owner}'s own: make that call before or after the compiled function{parts}.",
        when(
            lambda case: not (case.owner.is_user or case.is_branch) and case.entry is not None,
            function=lambda case: case.item.function,
            owner=lambda case: case.owner.name,
            parts=lambda case: f", or compile only {_listed(case.parts)}" if case.parts else "",
        ),
        trials=(Trial("renders_a_text"), Trial("renders_beside_a_layer")),
    ),
    Remedy(
        "library.parts",
        "What breaks is `{function}`, {owner}'s own, and so is the function that was compiled: compile only what it "
        "calls beside that, {parts}.",
        when(
            _is_all_theirs,
            function=lambda case: case.item.function,
            owner=lambda case: case.owner.name,
            parts=lambda case: _listed(case.parts),
        ),
    ),
    Remedy(
        "checkpoint.outside",
        "Do it outside of what `checkpoint` calls: return the value, and use it after the compiled call. (A `print` "
        "that torch moves behind the graph is lost here.)",
        when(theirs, lambda case: case.within_checkpoint and case.item.gb_id == _BUILTIN),
        trials=(Trial("prints_in_a_checkpoint"),),
    ),
    Remedy(
        "checkpoint.effects",
        "Do it outside of what `checkpoint` calls: return the tensor, and keep its value after the compiled call. What "
        "`checkpoint` is given runs again in the backward, so it must not change what lives outside of it.",
        when(
            theirs,
            lambda case: case.within_checkpoint and (case.is_item or case.item.gb_id == "GB0067"),
            lambda case: "arithmetic" not in case.uses,
        ),
        trials=(Trial("keeps_a_value_in_a_checkpoint"),),
    ),
    Remedy(
        "checkpoint.attribute",
        "Change the attribute outside of what `checkpoint` calls, such as after the compiled call. What `checkpoint` "
        "is given runs again in the backward, so it must not change what lives outside of it.",
        when(theirs, lambda case: case.within_checkpoint and case.item.gb_id == _MUTATION),
        trials=(Trial("counts_in_a_checkpoint", ("2.13", "2.14", "2.15")),),  # 2.11 reports it as another break
    ),
    *OUTPUT,
    Remedy(
        "disabled.outside",
        "The function is under `torch.compiler.disable`, so the graph ends at its call: call it before or after the "
        "compiled function, or take that off where torch can trace it.",
        when(theirs, is_kind(*_DISABLED)),
        trials=(Trial("calls_a_disabled_function"),),
    ),
    Remedy(
        "hook.forward_alone",
        "Register the hook on the module that is compiled, or compile the hooked module's forward alone "
        "(`module.forward = torch.compile(module.forward)`): its hooks then run around the compiled code. (With "
        "`torch._dynamo.config.compiled_autograd = True`, which torch advises, a `backward()` outside the compiled "
        "function raises `BackwardState requires CompiledAutograd`.)",
        when(is_kind(_HOOKS)),
        trials=(Trial("hooked_module"),),
    ),
    *GRADIENTS,
    *READS,
    Remedy(
        "out.new",
        "Leave `out=` out, and take the result that the call returns: in a graph the compiler decides what memory is "
        "used again. (An operator there writes to no `out=` that is not contiguous.)",
        when(theirs, is_kind(_OUT)),
        trials=(Trial("writes_to_a_transposed", case=_OUT),),
    ),
    Remedy(
        "asked.remove",
        "Remove the call that asks for it.",
        when(theirs, is_kind(_ASKED)),
        trials=(Trial("asks_for_a_break", case=_ASKED),),
    ),
    Remedy(
        "rnn.allow",
        "Set `torch._dynamo.config.allow_rnn = True`: the module then stays in the graph. (With gradients an `nn.LSTM` "
        "on the CPU fails to compile so, in `mkldnn_rnn_layer`; without gradients, and as `nn.GRU` or `nn.RNN`, it "
        "compiles.)",
        when(_meets_rnn, lambda case: not takes_packed(case.source, case.item.span)),
        trials=(Trial("has_an_rnn", ("2.13", "2.14")), Trial("trains_a_gru", ("2.13", "2.14"))),
    ),
    Remedy(
        "rnn.padded",
        "torch traces no packed sequence, with `torch._dynamo.config.allow_rnn = True` neither. With that option pass "
        "the padded batch, and take of each sequence its last step, `out[torch.arange(len(lengths)), lengths - 1]`; a "
        "bidirectional module would read the padding. (With gradients an `nn.LSTM` on the CPU fails to compile so.)",
        when(_meets_rnn, lambda case: takes_packed(case.source, case.item.span)),
        trials=(Trial("has_a_packed_rnn", ("2.13", "2.14")),),
    ),
    Remedy(
        "shape.counts",
        "Where no value is as large as `{length}`, count into a tensor whose length torch knows: "
        "`{counted}.new_zeros({length}).scatter_add(0, {counted}, torch.ones_like({counted}))`. That takes int64.",
        lambda case: (
            _counts(case) if theirs(case) and is_kind(_DYNAMIC_SHAPE)(case) and not _becomes_list(case) else None
        ),
        trials=(Trial("counts_values", case=_DYNAMIC_SHAPE),),
    ),
    Remedy(
        "shape.capture",
        "Set `torch._dynamo.config.capture_dynamic_output_shape_ops = True`: the size becomes a symbol of the graph."
        "{branch}",
        when(
            is_kind(_DYNAMIC_SHAPE),
            lambda case: not (case.looped or _becomes_list(case)),
            branch=_branch_on_size,
        ),
        trials=(Trial("finds", case=_DYNAMIC_SHAPE), Trial("skips_what_is_empty", case=_DYNAMIC_SHAPE)),
    ),
    Remedy(
        "class.outside",
        "Define the class `{name}` outside of the compiled function. It is another class in each call, so that what "
        "follows the break is compiled again each time.",
        when(theirs, lambda case: _defined_class(case) is not None, name=lambda case: _defined_class(case) or ""),
        trials=(Trial("defines_a_class"),),
    ),
    Remedy(
        "shape.list",
        "A list needs a length that tracing knows: `capture_dynamic_output_shape_ops` makes the compile fail at "
        "`.tolist()`. Make the list outside of the compiled function, and pass it in.",
        when(theirs, is_kind(_DYNAMIC_SHAPE), _becomes_list),
        trials=(Trial("lists_the_counts", case=_DYNAMIC_SHAPE),),
    ),
    Remedy(
        "rest.unseen",
        "Dynamo goes on after a break only where the function has a tensor or a module in a variable (or a list, tuple "
        "or dict), or names `torch`. It does not look into objects (a dataclass, a model's output): move what follows "
        "into a function that takes their tensors.",
        when(lambda case: case.rest_is_unseen and case.owner.is_user),
        ends=False,
        trials=(Trial("hides_tensors_in_an_object", ("2.13", "2.14", "2.15")),),
    ),
)


def _left_by_torch(*, whole: bool) -> Needs:
    """What torch leaves to Python on purpose; ``whole``: with all of the function that calls it."""
    return when(
        lambda case: case.owner.is_user and case.called is not None and bool(case.whole) == whole,
        called=lambda case: case.called or "",
    )


BY_DESIGN = Remedy(
    "skipped.by_design",
    "torch runs `{called}` in Python on purpose, and goes on after it with another graph. Only where one graph is "
    "wanted, call it before or after the compiled function.",
    _left_by_torch(whole=False),
    trials=(Trial("steps_an_optimizer"),),
)
LEFT_WHOLE = Remedy(
    "skipped.with_the_whole",
    "torch leaves `{called}` to Python on purpose, and here it cannot go on after it: call it before or after the "
    "compiled function.",
    _left_by_torch(whole=True),
    trials=(Trial("steps_an_optimizer_in_a_loop"),),
)
NESTED = Remedy(
    "nested.resume",
    "Set `torch._dynamo.config.nested_graph_breaks = True`: torch then goes on inside `{inner}`, and the break, which "
    "stays, ends no graph of `{outer}` beside that of `{inner}`.",
    when(
        lambda case: case.met_again_inside is not None,
        inner=lambda case: case.item.function,
        outer=lambda case: case.met_again_inside or "",
    ),
    ends=False,
)

_FITTING = (*_RULES, *USUAL)  # without what is said beside any of them
BREAKS = {remedy.key: remedy for remedy in (*_RULES, BY_DESIGN, LEFT_WHOLE, NESTED)}
FAMILIES = {remedy.key: remedy for remedy in USUAL}
REMEDIES = BREAKS | FAMILIES


def break_advice(case: BreakCase) -> tuple[Advice, ...]:
    """Return what to do about a break: what fits the case, else torch's hints, else what usually helps.

    Nothing where torch breaks the graph itself.
    """
    return (*_advice(case), *advise((NESTED,), case, torch=case.run.run.torch))[:MOST]


def _advice(case: BreakCase) -> tuple[Advice, ...]:
    item, torch = case.item, case.run.run.torch
    if case.is_torchs_own:
        return advise((BY_DESIGN, LEFT_WHOLE), case, torch=torch)
    decision = case.decision
    if decision is not None and case.is_theirs:
        whole = replace(decision, is_captured=not case.is_item, is_whole=item.fatal)
        if given := number_advice(whole, torch=torch):
            return given
    given = advise(_FITTING, case, torch=torch, case=item.gb_id, most=len(_FITTING))
    ours = tuple(each for each in given if each.checked != "unchecked")
    ours = (tuple(each for each in ours if each.key in _KNOWN) or ours)[:MOST]
    if ours or not case.owner.is_user:
        return ours
    if decision is not None:
        return given[:MOST]  # torch advises to keep the number in the graph, which decides nothing
    hints = tuple(Advice(hint, "unchecked", "torch") for hint in specific_hints(item.hints) if not is_general(hint))
    return (hints or given or tuple(Advice(hint, "unchecked", "torch") for hint in item.hints))[:MOST]
