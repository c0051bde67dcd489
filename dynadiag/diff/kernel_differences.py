"""Kernels that differ between two runs: split, merged, changed, new and gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dynadiag.diff.canonical_graph import without_addresses
from dynadiag.diff.difference import Difference
from dynadiag.explanation.formatting import list_some
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
        words.format(old=old, new=new),
        details=tuple(change_diff(change).splitlines()) if change.before and change.after else (),
    )


def _compile_id(calls: Sequence[KernelCall]) -> str | None:
    return calls[0].compile_id if calls else None
