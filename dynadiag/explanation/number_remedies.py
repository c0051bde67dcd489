"""The remedies for a condition on a number that a tensor holds, or on a size without a value.

A break, a failed compile and a failed export may all be at such a condition. The programs of the trials are in
`tests/explanation/advice_programs.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dynadiag.explanation.findings import Advice
from dynadiag.explanation.remedy import Remedy, Trial, advise, copied
from dynadiag.explanation.unknown_values import NumberCondition

_OF_MATH = ("isfinite", "isinf", "isnan", "exp", "log", "sqrt")  # what torch has by the same name
_Needs = Callable[[NumberCondition], Mapping[str, str] | None]


def _number(holds: Callable[[NumberCondition], bool], /, **slots: Callable[[NumberCondition], str]) -> _Needs:
    def needs(found: NumberCondition) -> Mapping[str, str] | None:
        return {name: slot(found) for name, slot in slots.items()} if holds(found) else None

    return needs


def _tensors(found: NumberCondition) -> str:
    text = found.comparison.replace(".item()", "")
    for name in _OF_MATH:
        text = text.replace(f"math.{name}(", f"torch.{name}(")
    return text


def _copy(found: NumberCondition) -> str:
    return copied(found.kept)


def _option(found: NumberCondition) -> str:
    return "" if found.is_captured else "set `torch._dynamo.config.capture_scalar_outputs = True` and "


def _chooses(found: NumberCondition) -> bool:
    """Whether a branch on the number itself chooses what runs: no side only raises."""
    other = found.required or found.is_loop or found.only_shows
    return bool(found.comparison and found.origin) and found.is_direct and not other


NUMBERS = (
    Remedy(
        "number.require",
        "This only checks: {option}write `torch._check({condition})` in its place. The check is then part of the "
        "graph, and raises a RuntimeError.",
        _number(lambda found: bool(found.required), condition=lambda found: found.required, option=_option),
        trials=(Trial("raises_by_an_item"), Trial("must_raise_by_an_item"), Trial("exports_a_check_of_a_size")),
    ),
    Remedy(
        "number.skip",
        "Leave the branch out: where `{condition}`, what the pass works on has no elements.",
        _number(lambda found: found.is_skip, condition=lambda found: found.condition),
        trials=(Trial("skips_empty_parts"),),
    ),
    Remedy(
        "number.afterwards",
        "Return the tensor, without `.item()`, and do what stands under `{condition}` after the compiled call: it only "
        "shows or keeps something.",
        _number(
            lambda found: found.only_shows and found.is_direct and found.is_taken and not found.is_exported,
            condition=lambda found: found.condition,
        ),
        trials=(Trial("shows_what_it_compared"),),
    ),
    Remedy(
        "number.mark_dynamic",
        "Mark the size dynamic (`torch._dynamo.mark_dynamic`) and not unbacked: the branch is then decided while "
        "tracing, and guarded.",
        _number(lambda found: not (found.origin or found.required)),
        trials=(Trial("marks_a_size_unbacked"),),
    ),
    Remedy(
        "number.loop",
        "Keep the number a tensor, without `.item()`, and let the graph loop: "
        "`torch.while_loop(condition_fn, body_fn, operands)`.",
        _number(lambda found: found.is_loop and found.is_direct and not found.required),
        trials=(Trial("loops_by_an_item"),),
    ),
    Remedy(
        "number.outer_loop",
        "Compile what one pass computes with tensors as a function of its own, and loop outside of it: what is made of "
        "the number ends the loop.",
        _number(lambda found: found.is_loop and not (found.is_direct or found.required or found.is_exported)),
        trials=(Trial("ends_a_loop_by_a_call"),),
    ),
    Remedy(
        "number.where",
        "Keep the number a tensor, without `.item()`, and compute both sides: `torch.where({condition}, a, b)`.",
        _number(lambda found: _chooses(found) and found.is_taken and not found.is_size, condition=_tensors),
        trials=(
            Trial("branches_on_an_item"),
            Trial("branches_on_a_captured_item"),
            Trial("must_branch_on_an_item"),
            Trial("compares_what_it_kept"),
        ),
    ),
    Remedy(
        "number.where_beside",
        "The number is a size, too: {option}keep `{tensor}` beside it, compare that tensor in the place of the number, "
        "and choose between both sides, computed to one size: `torch.where`.",
        _number(
            lambda found: _chooses(found) and found.is_taken and found.is_size,
            tensor=lambda found: found.origin.replace(".item()", ""),
            option=_option,
        ),
        trials=(Trial("branches_on_a_size"), Trial("exports_a_branch_on_a_size")),
    ),
    Remedy(
        "number.cond",
        "Where only one side may run, keep it a tensor too: `torch.cond({condition}, true_fn, false_fn, operands)`."
        "{copy}",
        _number(
            lambda found: _chooses(found) and found.is_taken and not (found.is_expression or found.is_size),
            condition=_tensors,
            copy=_copy,
        ),
        trials=(Trial("takes_one_side_by_an_item"), Trial("halves_or_keeps")),
    ),
    Remedy(
        "number.cond_of_size",
        "Let the graph choose, where no gradients are taken: `torch.cond({condition}, true_fn, false_fn, "
        "operands)`.{copy}",
        _number(
            lambda found: (
                bool(found.comparison)
                and not (found.is_taken or found.required or found.is_loop or found.is_expression or found.is_exported)
            ),
            condition=_tensors,
            copy=_copy,
        ),
        trials=(Trial("branches_on_how_many"),),
    ),
    Remedy(
        "number.check",
        "Where the answer is always the same, {option}say so before this line: `torch._check({condition})` or "
        "`torch._check({opposite})`. The other side is then left out, and a run that needs it raises an exception.",
        _number(  # each `.item()` is a number of its own
            lambda found: (
                bool(found.negated)
                and found.origin_line != found.line
                and not (found.is_loop or found.required or found.is_skip or found.only_shows)
            ),
            condition=lambda found: found.comparison,
            opposite=lambda found: found.negated,
            option=_option,
        ),
        trials=(Trial("branches_as_always"), Trial("must_branch_as_always"), Trial("exports_as_always")),
    ),
    Remedy(
        "number.cond_in_export",
        "Or let the graph choose between two sides with as many dimensions: `torch.cond({condition}, true_fn, "
        "false_fn, operands)`.{copy}",
        _number(
            lambda found: (
                bool(found.comparison and found.is_exported)
                and not (found.is_taken or found.required or found.is_loop or found.is_expression)
            ),
            condition=_tensors,
            copy=_copy,
        ),
        trials=(Trial("exports_a_choice_by_how_many", ("2.13", "2.14", "2.15")),),
    ),
    Remedy(
        "number.split",
        "Or leave `fullgraph=True` out: the graph ends at this line, and Python goes on.",
        _number(lambda found: found.is_whole),
        ends=False,
    ),
)


def number_advice(found: NumberCondition, *, torch: str | None) -> tuple[Advice, ...]:
    """Return what to do about a condition on a number."""
    return advise(NUMBERS, found, torch=torch)
