"""Kernels that differ between two runs: split, merged, changed, new and gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dynadiag.diff.canonical_graph import without_addresses
from dynadiag.diff.difference import Difference
from dynadiag.explanation.formatting import list_lines, list_some, si_number
from dynadiag.kernels.generated_module import KernelCall
from dynadiag.kernels.kernel_diff import KernelChange, change_diff, compare_kernels
from dynadiag.kernels.read_modules import kernel_calls
from dynadiag.recording.reader import Recording

__all__ = ["kernel_differences"]

_CODE = "inductor_output_code"
_WORDS = {
    "split": "{old} is split into {new}",
    "merged": "{old} are merged into {new}",
    "appeared": "the kernel {new} is new",
    "went": "the kernel {old} is gone",
    "changed": "the kernel {old} became {new}",
}
_RENAMED = "the kernel {old} has other code"


def kernel_differences(before: Recording, after: Recording, ids: Mapping[str, str]) -> list[Difference]:
    """Return the kernels that differ. `ids` leads from the second run's compiles to the first's."""
    if _modules(before, {old: old for old in ids.values()}) == _modules(after, ids):
        return []
    changes = compare_kernels(kernel_calls(before), kernel_calls(after))
    return [_difference(change) for change in changes if change.kind != "same"]


def _modules(recording: Recording, ids: Mapping[str, str]) -> list[tuple[str, str]]:
    """The generated code of each compile, by the first run's compile ids."""
    found = [(event.compile_id, event.index) for event in recording.events(_CODE)]
    return sorted((ids.get(id_, f"only {id_}"), without_addresses(recording.payload(index))) for id_, index in found)


def _difference(change: KernelChange) -> Difference:
    old, new = (list_some(list(dict.fromkeys(call.name for call in calls))) for calls in (change.before, change.after))
    words = _RENAMED if change.kind == "changed" and old == new else _WORDS[change.kind]
    place = next((line for call in change.after for line in call.source_lines), None)
    return Difference(
        "kernel",
        (_compile_id(change.before), _compile_id(change.after)),
        place.file if place else None,
        place.line if place else None,
        words.format(old=old, new=new) + _bytes_text(change),
        graph=(change.before + change.after)[0].stage,
        details=tuple(_details(change)),
    )


def _bytes_text(change: KernelChange) -> str:
    old, new = _bytes_moved(change.before), _bytes_moved(change.after)
    return "" if None in (old, new) or old == new else f"; moves {si_number(old)}B, then {si_number(new)}B"


def _bytes_moved(calls: Sequence[KernelCall]) -> int | None:
    """The bytes that kernels move together; None where that is not known of all, or there are none."""
    known = [call.cost.bytes_moved for call in calls if call.cost.bytes_moved is not None]
    return sum(known) if known and len(known) == len(calls) else None


def _details(change: KernelChange) -> Iterator[str]:
    """What each kernel computes, and the difference of the sources where one kernel became one."""
    is_pair = len(change.before) == len(change.after) == 1
    for sign, calls, others in (("-", change.before, change.after), ("+", change.after, change.before)):
        for call in calls:
            yield f"{sign} {call.name}"
            yield f"    {list_some(call.ops) or 'no mapping'}"
            yield f"    {_place_text(call)}"
            if is_pair and (own := _own_operators(call, others[0])):
                yield f"    only here: {list_some(own)}"
    if is_pair:
        yield from change_diff(change).splitlines()[2:]  # the names stand above


def _place_text(call: KernelCall) -> str:
    """The lines of a kernel and the bytes that it moves."""
    lines = list_lines((place.file, place.line) for place in call.source_lines or call.view_lines)
    return f"{f'at {lines}; ' if lines else ''}moves {si_number(call.cost.bytes_moved)}B"


def _own_operators(call: KernelCall, other: KernelCall) -> list[str]:
    known = set(other.operator_lines)
    return list(dict.fromkeys(operator for operator, code in call.operator_lines if (operator, code) not in known))


def _compile_id(calls: Sequence[KernelCall]) -> str | None:
    return calls[0].compile_id if calls else None
