"""The remedies for graph breaks at which Python reads numbers of a tensor: to index, to compare, to keep, to size."""

from __future__ import annotations

from dynadiag.explanation.break_case import Condition, is_kind, theirs, when
from dynadiag.explanation.remedy import Remedy, Trial

_DATA, _DYNAMIC_SHAPE, _ITEM = "GB0033", "GB0036", "GB0124"  # the numbers of torch's registry


def _about(*uses: str) -> Condition:
    """Whether all that the number is for is among these."""
    return lambda case: case.is_item and case.decision is None and bool(case.uses) and case.uses <= set(uses)


READS = (
    Remedy(
        "item.picked",
        "The values of a tensor pick the item of `{container}`, which tracing has to know. Loop over all items "
        "(`for index, item in enumerate({container})`), each on the rows that are its own.",
        when(
            lambda case: case.picked_from is not None and case.owner.is_user,
            container=lambda case: case.picked_from or "",
        ),
        trials=(Trial("picks_modules_by_values"),),
    ),
    Remedy(
        "item.of_list",
        "The number picks an item of a list, which tracing has to know. Where the list is of numbers, keep them in a "
        "tensor (without `.tolist()`), and index that with a tensor.",
        when(theirs, lambda case: case.is_item and "list" in case.uses),
        trials=(Trial("picks_of_a_list", case=_ITEM),),
    ),
    Remedy(
        "item.index",
        "Index with {index}: it remains a tensor{same}. An index without dimensions is read as a number, "
        "which tracing has to know.",
        when(
            theirs,
            lambda case: case.indices_as_numbers is not None,
            index=lambda case: (case.indices_as_numbers or ("", ""))[0],
            same=lambda case: (case.indices_as_numbers or ("", ""))[1],
        ),
        trials=(Trial("picks_a_row", case=_DATA),),
    ),
    Remedy(
        "shape.loop",
        "The values of a tensor decide how often the loop over `{looped}` runs, and torch unrolls loops: with the size "
        "captured the break only moves there. Loop over all that there may be; what nothing is selected for is then "
        "empty.",
        when(
            theirs, is_kind(_DYNAMIC_SHAPE), lambda case: case.looped is not None, looped=lambda case: case.looped or ""
        ),
        trials=(
            Trial("loops_over_what_was_hit", case=_DYNAMIC_SHAPE),
            Trial("lists_what_was_met", case=_DYNAMIC_SHAPE),
        ),
    ),
    Remedy(
        "item.tensor",
        "Keep the value a tensor, without `.item()`: arithmetic and comparison take a 0-dimensional one.",
        when(theirs, _about("arithmetic")),
        trials=(Trial("multiplies_by_an_item", case=_ITEM),),
    ),
    Remedy(
        "item.kept",
        "Keep the tensor itself, and convert it after the compiled call: here its value is only kept.",
        when(theirs, _about("store"), lambda case: not (case.within_checkpoint or case.custom_function)),
        trials=(Trial("keeps_an_item_in_a_hook", case=_ITEM),),
    ),
    Remedy(
        "item.afterwards",
        "Return the tensor, or keep it on an object, and convert it after the compiled call: here its value is only "
        "shown, kept or returned.",
        when(
            theirs,
            _about("log", "store", "return"),
            lambda case: not (case.within_checkpoint or case.custom_function or case.uses == {"store"}),
            lambda case: "return" not in case.uses or not case.is_inlined,
        ),
        trials=(Trial("logs_an_item", case=_ITEM), Trial("logs_a_list", case="GB0109")),
    ),
    Remedy(
        "item.decides_afterwards",
        "Return the tensor, convert it after the compiled call, and do there what is made of the number: it decides "
        "only what is shown or kept.",
        when(
            theirs,
            lambda case: case.decision is not None and case.decision.only_shows and not case.decision.is_direct,
            lambda case: bool(case.uses) and case.uses <= {"log", "store", "return", "branch"},
            lambda case: not (case.within_checkpoint or case.custom_function or case.is_inlined),
        ),
        trials=(Trial("keeps_a_mean_of_items", case=_ITEM),),
    ),
    Remedy(
        "item.key",
        "A key of a dict has to be known while tracing. Let tensors group the rows (`index_add`, `scatter_reduce`), or "
        "fill the dict outside of the compiled function.",
        when(theirs, lambda case: case.is_item and "key" in case.uses),
        trials=(Trial("groups_by_items", case=_DATA),),
    ),
    Remedy(
        "item.order",
        "Order the tensor itself (`torch.sort`, `torch.topk`, `torch.argsort`): Python compares the numbers here, and "
        "tracing has none. What needs the numbers goes after the compiled call.",
        when(theirs, lambda case: case.is_item and "order" in case.uses),
        trials=(Trial("sorts_by_items", case=_ITEM), Trial("sorts_a_list", case="GB0109")),
    ),
    Remedy(
        "item.capture",
        "Set `torch._dynamo.config.capture_scalar_outputs = True`: the number becomes a symbol of the graph.",
        when(
            is_kind(_ITEM, _DATA),
            lambda case: (
                case.is_item
                and not (
                    case.picked_from or case.indices_as_numbers or case.in_hook or case.is_drawn_by_numpy or case.drawn
                )
                and case.decision is None
                and case.facts.within is None
                and case.uses.isdisjoint({"log", "order", "key", "list"})
            ),
        ),
        trials=(
            Trial("takes_an_item", case=_ITEM),
            Trial("sizes_by_an_item", case=_ITEM),
            Trial("splits_by_a_list", case=_DATA),
        ),
    ),
    Remedy(
        "item.pass",
        "Or compute `{taken}` before the compiled call and pass it in, as an argument.",
        when(
            theirs,
            lambda case: case.is_item and case.decision is None and case.takes_from_arguments,
            lambda case: bool(case.uses) and case.uses <= {"size", "arithmetic"},
            taken=lambda case: case.taken or "the number",
        ),
        trials=(Trial("sizes_by_an_argument", case=_ITEM),),
    ),
)
