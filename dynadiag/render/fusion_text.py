"""How far operators were fused, and why two kernels were not one.

torch's words stand in `torch/_inductor/scheduler.py`, `choices.py` and `codegen/simd.py`, read in 2.13.0. A reason that
is not here is shown in torch's words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dynadiag.explanation.formatting import count, list_some
from dynadiag.kernels.call_nodes import NO_SHARED_DATA, NODES_BETWEEN
from dynadiag.kernels.generated_module import KernelCall, RefusedFusion

_LISTED = 6  # refused fusions of a call
_NAMED = 1  # kernels between two that are named
_LIBRARY = "a call of a library: Inductor fuses only loops that it generates itself"

# By the beginning of torch's words. "it" is the other kernel.
_MEANINGS = (
    ("no shared data due to indexing mismatch", "both use the same data, but index it differently"),
    ("no shared data", "they share no data"),
    ("memory deps did not match", "it reads what this one writes in another order or size, such as transposed"),
    (NODES_BETWEEN, "another kernel has to run between them"),
    ("will create cycle", "each would have to wait for the other"),
    ("numel/rnumel mismatch", "their loops have other sizes"),
    ("nodes numel", "their loops have other sizes"),
    ("tiling mismatch", "their loops are tiled differently"),
    ("invalid tiling for reduction", "their loops are tiled differently"),
    ("node1 and node2 uses different buf layouts", "their buffers have other layouts"),
    ("device mismatch", "they run on different devices"),
    ("exceeds max fusion", "the kernel would be larger than `max_fusion_size`"),
    ("Fusion will increase peak memory", "the peak of memory would rise"),
    ("fusion_prevent_too_many_reads_and_writes", "the kernel would read and write too many buffers"),
    ("score_fusion_memory_threshold", "too little memory traffic would be saved"),
    ("node1 is extern", "one of them is a library call"),
    ("node2 is extern or nop", "one of them is a library call"),
)


def plain_reason(reason: str) -> str:
    """Return a reason in plain words, with torch's own where those have figures; or torch's words.

    >>> plain_reason("memory deps did not match")
    'it reads what this one writes in another order or size, such as transposed'
    >>> plain_reason("register spilling of the fused kernel")
    'torch says: register spilling of the fused kernel'
    """
    for words, meaning in _MEANINGS:
        if reason.startswith(words):
            _, bracket, figures = reason.partition("(")
            return f"{meaning} ({figures}" if bracket and "%" not in figures else meaning
    return f"torch says: {reason}"


def refusal_text(refused: RefusedFusion, line: int | None = None) -> str:
    """Return one refused fusion: the other call, by its line of the generated code if that is given, and why."""
    number = f" #{refused.call_number}" if refused.call_number > 1 else ""
    why = plain_reason(refused.reason)
    if refused.between:
        has = "has" if len(refused.between) == 1 else "have"
        why = f"{list_some(refused.between, _NAMED)} {has} to run between them"
    name = f"{refused.name}{number}, which comes {refused.comes}" if line is None else f"line {line}"
    return f"not fused with {name}: {why}"


def ranked_refusals(call: KernelCall) -> list[RefusedFusion]:
    """Return the fusions of a call that the scheduler refused, those that share data first."""
    return sorted(call.refused, key=lambda refused: refused.reason == NO_SHARED_DATA)


def refusal_texts(call: KernelCall) -> Iterator[str]:
    """Yield why a call is not fused: it is a library's, or what the scheduler refused, those that share data first."""
    if call.definition is None:
        yield _LIBRARY
    ranked = ranked_refusals(call)
    yield from map(refusal_text, ranked[:_LISTED])
    if len(ranked) > _LISTED:
        yield f"not fused with {len(ranked) - _LISTED} more"


def operators_of(calls: Iterable[KernelCall]) -> int:
    """Return how many operators of the graph calls compute: each node that makes a value, once."""
    return len({(call.event, name) for call in calls for name in call.nodes})


def share_text(calls: Sequence[KernelCall]) -> str:
    """Return how far the operators of a module were fused: ``51 operators run as 21 calls``.

    Empty where it is not known what one of the calls computes.
    """
    if not all(call.nodes for call in calls):
        return ""
    return f"{count(operators_of(calls), 'operator')} run as {count(len(calls), 'call')}"
