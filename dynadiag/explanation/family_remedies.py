"""The remedies that usually end breaks of a family in the user's own code, with the programs that tried them.

It counts as checked only where it was tried on a break of the same kind. Where a remedy of `break_remedies` fits, that
one stands first.
"""

from __future__ import annotations

from dynadiag.explanation.break_case import BreakCase, Condition, theirs, when
from dynadiag.explanation.remedy import Remedy, Slots, Trial, copied
from dynadiag.recording.code_origin import short_place

_MASKED = ("nonzero", "nonzero_numpy", "masked_select", "index", "argwhere", "where")
_VERSIONS = {
    "requires_gradients": ("2.11", "2.13", "2.14"),  # 2.15 reports its break otherwise
    "copies_a_module": ("2.13", "2.14", "2.15"),
    "takes_a_batch": ("2.13",),  # torch 2.14 on traces it, 2.11 reports another break
}


def _usual(key: str, says: str, *conditions: Condition, **programs: str) -> Remedy[BreakCase]:
    """A remedy that usually ends breaks of a family. ``programs`` are its trials, by the id of the break."""
    trials = tuple(Trial(program, _VERSIONS.get(program, ()), case) for case, program in programs.items())
    own: Condition = (lambda case: case.can_move_out) if key == "outside" else theirs
    needs = when(own, lambda case: key in case.family.remedies, *conditions)
    return Remedy(key, says, needs, trials=trials, usual=True)


def _on_a_mask(case: BreakCase) -> bool:
    operator = case.facts.operator or ""
    return not operator.startswith("aten.") or operator.removeprefix("aten.") in _MASKED


def _is_foreign_code(case: BreakCase) -> bool:
    """Whether it is a function of an extension in C, and none of Python's own."""
    return case.facts.is_native and case.facts.subject is not None and case.python_module is None


def _read_attribute(case: BreakCase) -> Slots:
    read = case.reads_attribute
    if read is None or not case.owner.is_user or "outside" not in case.family.remedies:
        return None
    return {"class_": read[0].rpartition(".")[2], "place": short_place(read[1].file, read[1].line)}


def _gives_the_same(case: BreakCase) -> bool:
    return case.facts.is_native and case.facts.subject is not None and not case.never_the_same


def _chooses(case: BreakCase) -> bool:
    is_known = theirs(case) and "branch.where" in case.family.remedies
    decides = case.is_assertion or case.is_loop_condition or case.is_filter
    return is_known and not (decides or case.only_shows or case.returns_no_tensor or case.does_more)


USUAL: tuple[Remedy[BreakCase], ...] = (
    _usual(
        "outside",
        "Move this out of the compiled function, before or after its call, and pass the result in.",
        lambda case: not (case.is_plain_print or case.warns or case.takes or case.reads_attribute),
        GB0007="sleeps",
        GB0059="opens_a_file",
        GB4198="copies_a_module",
        GB0156="draws_from_a_generator",
        GB0208="asks_for_the_threads",
        GB4347="takes_a_batch",
        GB0294="takes_a_median_outside",
    ),
    Remedy(
        "outside.attribute",
        "Python calls `{class_}.__getattr__` for each attribute that is read of such an object (`{place}`). Read it "
        "before the compiled call and pass it in, or keep the values as plain attributes (a dataclass).",
        _read_attribute,
        trials=(Trial("reads_a_computed_attribute", ("2.11", "2.13"), "GB0156"),),  # torch 2.15 traces it
        usual=True,
    ),
    Remedy(
        "outside.between",
        "This takes {takes}, which the function makes. Compile what stands before it and what follows as two "
        "functions, and make this call between them.",
        when(
            lambda case: case.can_move_out and "outside" in case.family.remedies and bool(case.takes),
            takes=lambda case: case.takes,
        ),
        trials=(Trial("asks_for_the_size_of_what_is_made", case="GB0007"),),
        usual=True,
    ),
    _usual(
        "disable",
        "Code that need not be compiled can stand in a function under `@torch.compiler.disable`: "
        "the break stays, but at a place of your choice.",
    ),
    _usual("error", "The uncompiled program may fail here too: run it with TORCH_COMPILE_DISABLE=1 and compare."),
    Remedy(
        "branch.where",
        "Where both sides are cheap and free of side effects, compute both and choose: "
        "`torch.where({condition}, a, b)`.",
        when(
            _chooses,
            lambda case: not (case.may_resize or case.written_in_place),
            condition=lambda case: case.tensor_condition,
        ),
        trials=(
            Trial("branches_on_values", case="GB0170"),
            Trial("branches_on_two_values", case="GB0170"),
            Trial("catches_what_it_raises", case="GB0170"),
        ),
        usual=True,
    ),
    Remedy(
        "branch.cond",
        "Where only one side may run: `torch.cond({condition}, true_fn, false_fn, operands)`.{copy}",
        when(
            _chooses,
            lambda case: not (case.within_checkpoint or case.written_in_place),
            condition=lambda case: case.tensor_condition,
            copy=lambda case: copied(case.kept),
        ),
        trials=(Trial("branches_to_one_side", case="GB0170"), Trial("branches_or_keeps", case="GB0170")),
        usual=True,
    ),
    _usual(
        "shape.fixed",
        "Keep the shape fixed: multiply by the mask, or choose with `torch.where`.",
        _on_a_mask,
        GB0036="selects_by_a_mask",
    ),
    _usual(
        "limit.raise",
        "End first what is compiled again and again. If all variants are wanted, raise "
        "`torch._dynamo.config.recompile_limit`.",
    ),
    _usual("log.afterwards", "Log after the compiled call, from values that it returns."),
    _usual(
        "skipped.custom_op",
        "A C, C++ or CUDA function on tensors can be made an operator with `torch.library.custom_op` "
        "(and `register_fake`): it then stays in the graph.",
        _is_foreign_code,
        GB0007="calls_a_c_function",
    ),
    _usual(
        "skipped.constant",
        "A function with the same result whenever it is called can be marked with "
        "`torch.compiler.assume_constant_result`.",
        _gives_the_same,
        GB0007="calls_a_constant_function",
    ),
    _usual(
        "context.outside",
        "Enter the context outside the compiled function, around its call.",
        GB0142="enters_a_lock",
    ),
    _usual(
        "context.inside",
        "Or compile the function that is called inside the `with` block, not the one that holds it.",
        GB0142="works_under_a_lock",
    ),
    _usual(
        "nested.jagged",
        "Use the jagged layout: `torch.nested.nested_tensor(..., layout=torch.jagged)`.",
        GB0016="a_nested_tensor",
    ),
    _usual(
        "sparse.outside",
        "Make and convert sparse tensors outside the compiled function; work on dense ones inside.",
        GB0015="takes_a_sparse_tensor",
    ),
    _usual(
        "random.draw",
        "Draw with `torch.rand` and its like, without a generator; or draw outside and pass the result in.",
    ),
    _usual("iterate.list", "Build a list in a plain loop instead."),
    _usual("iterate.item", "Or compile the function that is called for each item, not the one that holds the loop."),
    _usual(
        "autograd.outside",
        "Do the autograd bookkeeping outside the compiled function.",
        GB0206="requires_gradients",
        GB0108="retains_a_gradient",
    ),
    _usual(
        "autograd.function",
        "For a backward of your own, write a `torch.autograd.Function` with static methods, "
        "or `torch.library.custom_op` with `register_autograd`.",
    ),
    _usual("memory.allocate", "Allocate a new tensor instead of resizing in place.", GB0126="resizes"),
    Remedy(
        "numpy.torch",
        "Use the torch function of the same meaning.",
        when(theirs, lambda case: "numpy.torch" in case.family.remedies or case.is_numpy),
        trials=(
            Trial("makes_an_array", case="GB0087"),
            Trial("takes_a_median", ("2.13", "2.14", "2.15"), case="GB0294"),
        ),
    ),
    _usual("triton.wrap", "Wrap the launch with `torch.library.triton_op` and `wrap_triton`."),
    _usual(
        "operator.pure",
        "Make that function pure: tensors in, tensors out, no mutation of what surrounds it, "
        "and no graph break inside.",
        lambda case: not case.within_checkpoint,
        GB0067="appends_in_a_branch",
    ),
    _usual(
        "fake.register",
        "For an operator of your own, give it `torch.library.register_fake` with the right shape and dtype.",
        lambda case: not case.is_numpy,
    ),
    _usual("exception.before", "Check the condition before the compiled call."),
    _usual(
        "object.plain",
        "Use plain attributes and methods of plain objects or modules: no computed names, no custom attribute hooks.",
    ),
)
