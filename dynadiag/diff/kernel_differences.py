"""Kernels that differ between two runs: split, merged, changed, new and gone."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from dynadiag.diff.difference import Difference
from dynadiag.explanation.formatting import list_lines, list_some, si_number
from dynadiag.kernels.generated_module import KernelCall
from dynadiag.kernels.graph_parser import SourceLine
from dynadiag.kernels.kernel_diff import KernelChange, change_diff, changed_kernels
from dynadiag.kernels.read_modules import kernel_calls
from dynadiag.recording.reader import Recording
from dynadiag.recording.torch_text.comparable import without_addresses

_CODE = "inductor_output_code"
_NO_COMPILE = "-"
_WORDS = {
    "split": "{old} is split into {new}",
    "merged": "{old} are merged into {new}",
    "appeared": "the kernel {new} is new",
    "went": "the kernel {old} is gone",
    "changed": "the kernel {old} became {new}",
}
_RENAMED = "the kernel {old} has other code"
# What generated code has more or less of: its name -> how it is written in C++ and in Triton.
_TRAITS = {
    "loops": re.compile(r"\bfor ?\(|^ +for r\w* in ", re.M),
    "vector operations": re.compile(r"\bat::vec::"),
    "parallel regions": re.compile(r"#pragma omp parallel"),
    "atomic additions": re.compile(r"\batomic_add"),
    "loads": re.compile(r"\btl\.load\("),
    "stores": re.compile(r"\btl\.store\("),
    "warps": re.compile(r"\bnum_warps=(?P<number>\d+)"),
}


def kernel_differences(before: Recording, after: Recording, ids: Mapping[str, str]) -> list[Difference]:
    """Return the kernels that differ. `ids` leads from the second run's compiles to the first's."""
    compiles = _changed_compiles(_code_digests(before), _code_digests(after), ids)
    calls = ((_kernel_calls(before, old), _kernel_calls(after, new)) for old, new in compiles)
    return [_difference(change) for change in changed_kernels(calls)]


def _changed_compiles(
    before: Mapping[str, Counter[bytes]], after: Mapping[str, Counter[bytes]], ids: Mapping[str, str]
) -> list[tuple[str | None, str | None]]:
    """The compiles with other generated code than their partners. One without a partner stands beside None."""
    partners = {_NO_COMPILE: _NO_COMPILE, **ids}
    paired = {new: partners.get(new) for new in after}
    alone = before.keys() - paired.values()
    changed = [(old, new) for new, old in paired.items() if before.get(old or "") != after[new]]
    return [*changed, *((old, None) for old in before if old in alone)]


def _code_digests(recording: Recording) -> dict[str, Counter[bytes]]:
    """The generated modules of each compile, as hashes: the text of all of them is most of a large recording."""
    found: dict[str, Counter[bytes]] = defaultdict(Counter)
    for event in recording.events(_CODE):
        text = without_addresses(recording.payload(event.index))
        found[event.compile_id][hashlib.sha256(text.encode("utf-8", "replace")).digest()] += 1
    return found


def _kernel_calls(recording: Recording, compile_id: str | None) -> tuple[KernelCall, ...]:
    return kernel_calls(recording, compile_id) if compile_id is not None else ()


def _difference(change: KernelChange) -> Difference:
    old, new = (list_some(list(dict.fromkeys(call.name for call in calls))) for calls in (change.before, change.after))
    words = _RENAMED if change.kind == "changed" and old == new else _WORDS[change.kind]
    place = _place(change)
    return Difference(
        "kernel",
        (_compile_id(change.before), _compile_id(change.after)),
        place.file if place else None,
        place.line if place else None,
        words.format(old=old, new=new) + _traits_text(change) + _bytes_text(change),
        graph=(change.before + change.after)[0].stage,
        details=tuple(_details(change)),
    )


def _place(change: KernelChange) -> SourceLine | None:
    """The first line of the new kernels, rather one that the old kernels do not have."""
    old, new = ([line for call in side for line in call.source_lines] for side in (change.before, change.after))
    return next((line for line in new if line not in old), next(iter(new), None))


def _traits_text(change: KernelChange) -> str:
    """What the new code has more or less of than the old; empty where code of both is not known."""
    old, new = (
        "\n".join(call.definition.source for call in calls if call.definition)
        for calls in (change.before, change.after)
    )
    counts = {name: (_count(trait, old), _count(trait, new)) for name, trait in _TRAITS.items()} if old and new else {}
    told = [f"{now} {name}, had {was}" for name, (was, now) in counts.items() if was != now]
    return f": {'; '.join(told)}" if told else ""


def _count(trait: re.Pattern[str], source: str) -> int:
    return sum(int(match.groupdict().get("number", 1)) for match in trait.finditer(source))


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
