"""Collectives that a program issues from Python, and torch's Flight Recorder.

The functions of ``torch.distributed`` look up a method of their ``ProcessGroup`` and call it. While there is a
listener, a descriptor takes the place of the method: it reports the look-up and returns torch's own method. So no frame
of ours is in a traceback, and arguments and results are not touched. Dynamo replaces these functions before they reach
the method. Read in torch 2.13.0. Methods that a version does not have are left out.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

CREATED = "_set_group_desc"  # `_new_process_group_helper` calls it last, with the whole group in its locals
ENDED = "shutdown"  # `destroy_process_group` calls it, of each group
_POINT_TO_POINT = ("send", "recv", "recv_anysource")
_METHODS = (
    CREATED,
    ENDED,
    "_allgather_base",
    "_reduce_scatter_base",
    "all_gather_single",
    "all_to_all_single",
    "allgather",
    "allgather_coalesced",
    "allgather_into_tensor_coalesced",
    "allreduce",
    "allreduce_coalesced",
    "alltoall",
    "alltoall_base",
    "barrier",
    "broadcast",
    "gather",
    "monitored_barrier",
    "recv",
    "recv_anysource",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced",
    "scatter",
    "send",
)
_CALLERS = "/torch/distributed/"

Heard = Callable[[str, Any, FrameType], None]  # the method, the group, the frame that looked it up


class _Observed:
    """A descriptor for a method of ``ProcessGroup`` that reports each look-up on a group."""

    def __init__(self, name: str, method: Any, heard: Heard) -> None:
        self.name, self.method, self.heard = name, method, heard

    def __get__(self, group: Any, owner: type | None = None) -> Any:
        if group is not None:
            with contextlib.suppress(ValueError):  # C++ looks it up on a thread without a Python frame
                self.heard(self.name, group, sys._getframe(1))
        return self.method.__get__(group, owner)


def observe(heard: Heard) -> None:
    """Call ``heard`` just before each collective. It must not raise. Without ``torch.distributed`` nothing is done."""
    group = _process_group()
    for name in () if group is None else _METHODS:
        method = vars(group).get(name)
        if method is not None and not isinstance(method, _Observed):
            setattr(group, name, _Observed(name, method, heard))


def stop_observing(heard: Heard) -> None:
    """Give the class its own methods back."""
    group = _process_group()
    for name in () if group is None else _METHODS:
        method = vars(group).get(name)
        if isinstance(method, _Observed) and method.heard == heard:
            setattr(group, name, method.method)


def _process_group() -> Any:
    module = sys.modules.get("torch._C._distributed_c10d")
    return getattr(module, "ProcessGroup", None)


def caller_locals(frame: FrameType) -> dict[str, Any]:
    """Return the locals of the function of torch's that looked a method up. The user's are never read."""
    return dict(frame.f_locals) if _CALLERS in frame.f_code.co_filename else {}


def issued() -> dict[str, int]:
    """How many collectives each group has begun, by its name: also those of compiled code and of C++."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    groups = dict(getattr(getattr(module, "_world", None), "pg_names", ()))
    numbers = {str(name): _sequence_number(group) for group, name in groups.items()}
    return {name: number for name, number in numbers.items() if number is not None}


def issued_after(method: str, group: Any) -> tuple[int, int] | None:
    """How many collectives a group has begun before this one and with it. None if its backend does not count them.

    gloo counts a send and a receive as one. NCCL counts them apart.
    """
    number = _sequence_number(group)
    if number is None:
        return None
    is_counted = method not in (CREATED, ENDED) and (method not in _POINT_TO_POINT or group.name() == "gloo")
    return number, number + is_counted


def _sequence_number(group: Any) -> int | None:
    with contextlib.suppress(RuntimeError, AttributeError):  # a backend without sequence numbers
        return int(group._get_sequence_number_for_group())
    return None


def stance() -> str | None:
    """Return the stance that ``torch.compiler.set_stance`` set ("force_eager"), or None if it is the default."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    name = getattr(getattr(frames, "_stance", None), "stance", None)
    return name if isinstance(name, str) and name != "default" else None


def flight_recorder() -> str | None:
    """Return the collectives that the Flight Recorder has, as its JSON; None if it has none or is not there.

    It has those of compiled graphs and of C++ (DDP's gradients) too. 2.13 keeps the last 2,000 by itself.
    """
    module = sys.modules.get("torch._C._distributed_c10d")
    dump = getattr(module, "_dump_fr_trace_json", None)
    text = None if dump is None else dump(True, False)
    text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return text if text and '"entries":[{' in text.replace(" ", "") else None
