"""Collectives that the program issued from Python."""

from __future__ import annotations

from typing import Any

from dynadiag.recording.digest.context import DigestContext
from dynadiag.recording.json_values import float_or_none, int_or_none, text_or_none
from dynadiag.recording.records import Collective

# The methods of ProcessGroup -> the function of torch.distributed that users call.
_FUNCTIONS = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce_coalesced",
    "allgather": "all_gather",
    "allgather_coalesced": "all_gather_coalesced",
    "_allgather_base": "all_gather_into_tensor",
    "all_gather_single": "all_gather_into_tensor",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor_coalesced",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
    "recv_anysource": "recv",
}
_MAX_SIZES = 1000  # characters


def read_collective(context: DigestContext, data: dict[str, Any], compiles: int) -> Collective:
    """Return the collective of one event, after so many compiles."""
    op = str(data.get("op", "?"))
    sizes, dtypes = data.get("sizes"), data.get("dtypes")
    return Collective(
        index=context.next_index("collective"),
        op=_FUNCTIONS.get(op, op),
        group=str(data.get("group", "?")),
        number=int_or_none(data.get("number")) or 0,
        sizes=" ".join(map(_size, sizes))[:_MAX_SIZES] if isinstance(sizes, list) else "",
        dtypes=" ".join(map(str, dtypes))[:_MAX_SIZES] if isinstance(dtypes, list) else "",
        peer=int_or_none(data.get("peer")),
        is_async=bool(data.get("async")),
        at=float_or_none(data.get("at")),
        file=text_or_none(data.get("file")),
        line=int_or_none(data.get("line")),
        function=text_or_none(data.get("function")),
        stance=text_or_none(data.get("stance")),
        compiles=compiles,
    )


def _size(size: Any) -> str:
    return f"({', '.join(map(str, size))}{',' if len(size) == 1 else ''})" if isinstance(size, list) else "?"
