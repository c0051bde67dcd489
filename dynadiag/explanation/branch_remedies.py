"""The remedies for a branch on values of a tensor of which one side only raises, shows, keeps or writes, and for an
assertion on such values.
"""

from __future__ import annotations

from dynadiag.explanation.branches import required_at
from dynadiag.explanation.break_case import theirs, when
from dynadiag.explanation.remedy import Remedy, Trial

BRANCHES = (
    Remedy(
        "assert.shapes",
        "Drop the assertion, or make it on shapes or Python values.",
        when(theirs, lambda case: case.is_assertion and not case.fails_always),
        trials=(Trial("asserts_values", case="GB0170"),),
    ),
    Remedy(
        "assert.async",
        "To keep it, use `torch._assert_async(condition, message)`, which stays in the graph.",
        when(theirs, lambda case: case.is_assertion and not case.fails_always),
        trials=(Trial("asserts_in_the_graph", case="GB0170"),),
    ),
    Remedy(
        "branch.raise",
        "One side only raises: return the condition, and raise after the compiled call.",
        when(theirs, lambda case: case.only_raises and not case.is_exported),
        trials=(Trial("raises_on_values", case="GB0170"),),
    ),
    Remedy(
        "branch.returns",
        "One side returns no tensor, so nothing can choose between the two: return the condition, "
        "`{condition}`, and decide after the compiled call. What follows can be a compiled function of its own.",
        when(
            theirs,
            lambda case: case.returns_no_tensor and not case.is_exported,
            condition=lambda case: case.tensor_condition,
        ),
        trials=(Trial("leaves_early", case="GB0170"),),
    ),
    Remedy(
        "branch.does_more",
        "A side does more than compute values, so neither `torch.where` nor `torch.cond` can stand for it: return the "
        "condition, `{condition}`, and take the side after the compiled call. What follows can be a compiled function "
        "of its own.",
        when(
            theirs,
            lambda case: (
                case.does_more
                and not (case.is_exported or case.is_loop_condition or case.returns_no_tensor or case.only_raises)
            ),
            condition=lambda case: case.tensor_condition,
        ),
        trials=(Trial("keeps_and_scales", case="GB0170"),),
    ),
    Remedy(
        "branch.filter",
        "The values of a tensor decide which items the comprehension keeps: return what it reads, and go through the "
        "items after the compiled call.",
        when(theirs, lambda case: case.is_filter and not case.is_exported),
        trials=(Trial("keeps_some_items", case="GB0170"),),
    ),
    Remedy(
        "branch.caught",
        "One side only raises, and the function itself catches it: return the condition, and do what stands under "
        "`except` after the compiled call.",
        when(theirs, lambda case: case.raises_into_except and not case.is_exported),
        trials=(Trial("catches_at_its_end", case="GB0170"),),
    ),
    Remedy(
        "branch.afterwards",
        "Return the condition, `{condition}`, and do what stands under it after the compiled call: it only shows or "
        "keeps something.",
        when(
            theirs,
            lambda case: case.only_shows and not case.is_exported,
            condition=lambda case: case.tensor_condition,
        ),
        trials=(Trial("warns_of_values", case="GB0170"),),
    ),
    Remedy(
        "branch.assert",
        "Check it in the graph: `torch._assert_async({required}, message)`, which raises a RuntimeError where that "
        "does not hold.",
        when(
            theirs,
            lambda case: case.only_raises and case.block is None,
            required=lambda case: required_at(case.source, case.item.span) or "what_must_hold",
        ),
        trials=(Trial("raises_on_values_in_the_graph", case="GB0170"),),
    ),
    Remedy(
        "branch.masked",
        "Write without the branch: where no element of a boolean mask is True, `{write}` writes nothing, and it stays "
        "in the graph.",
        when(
            theirs, lambda case: case.masked_write is not None, write=lambda case: case.masked_write or "the assignment"
        ),
        trials=(Trial("writes_if_any", case="GB0170"),),
    ),
    Remedy(
        "branch.in_place",
        "Write without the branch, with a value that changes nothing where the condition does not hold: in `{call}` "
        "`torch.where({condition}, {value}, {neutral})` in the place of `{value}`. (`torch.cond` takes no side that "
        "writes to a tensor.)",
        when(
            theirs,
            lambda case: case.neutral_write is not None,
            condition=lambda case: case.tensor_condition,
            call=lambda case: (case.neutral_write or ("", "", ""))[0],
            value=lambda case: (case.neutral_write or ("", "", ""))[1],
            neutral=lambda case: (case.neutral_write or ("", "", ""))[2],
        ),
        trials=(Trial("clips_in_place", case="GB0170"), Trial("keeps_the_largest", case="GB0170")),
    ),
)
