"""Reads why torch kept a graph out of a cache, or left code without a CUDA graph."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dynadiag.recording.code_origin import is_torch_file
from dynadiag.recording.records import Span
from dynadiag.recording.torch_text.kinds import compiled_kinds, kind_of

CUDA_GRAPH_RECORDED = "CUDAGraphNode.record"  # torch's event of recording code as a CUDA graph

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_FRAME = re.compile(r'File "(?P<file>[^"\n]*)", line (?P<line>\d{1,9})')
_STACK = re.compile(r"\.? *(Found from *:|\n).*", re.DOTALL)
_OPENING = re.compile(r"^(?:skipping|disabling) cudagraphs? due to ", re.IGNORECASE)
# Texts of torch 2.11 to 2.15: cudagraph_utils.py, cudagraph_trees.py, compile_fx.py, lowering.py, ir.py.
_CUDA_GRAPH_KINDS = compiled_kinds(
    {
        "mutation": r"mutated inputs \((?P<value>\d+) instances\)",
        "cpu": r"cpu device \((?P<value>[^)]*)\)",
        "devices": r"multiple devices: (?P<value>.*)",
        "operator": r"(?:incompatible op|control flow operator:) (?P<value>[\w.:]+)",
        "sizes": r"CUDAGraph supports dynamic shapes by recording .*? observed (?P<value>\d+) distinct sizes",
        "limit": r"exceeding max re-recording limit \(=(?P<value>\d+)\)",
        "moved": r"(?P<value>static input) data pointer changed",
        "symbols": r"graph with symbolic shapes inputs and (?P<value>[\w.]+)=True",
    }
)
# Why Inductor leaves an operator out of the CUDA graphs of code that it splits (`Scheduler.should_partition`).
_SPLITS = compiled_kinds(
    {
        "split: chosen": r"^custom partition op",
        "split: cpu": r"^cpu ops",
        "split: copy": r"^DeviceCopy ops",
        "split: branch": r"^Conditional ops",
        "split: unbacked": r"^unbacked binding ops",
        "split: unsafe": r"^CUDAGraph-unsafe custom ops",
        "split: number": r"^uses cudagraph-unsafe unbacked symint",
        "split: sizes": r"^dynamic shape ops",
    }
)
# Texts of torch 2.11 to 2.15: codecache.py, autograd_cache.py, package.py. The first that is in the reason is its kind;
# the group is what it names.
_BYPASSES = compiled_kinds(
    {
        "operator": r"Can't cache HigherOrderOperator: (?P<name>\S+)"
        r"|call_function target .*?module: torch\.ops\.higher_order, *\s*Function name: (?P<name2>\S+)"
        r"|call_function target .*?module: torch\.autograd\.function, *\s*Function name: (?P<name3>\S+)",
        "function": r"Unsupported call_function target .*?Function module: (?P<module>.*?), *\s*"
        r"Function name: (?P<name>\S+)",
        "custom pass": r"Unsupported _?(?P<name>pre grad|post grad|joint|pre_fusion|post_fusion|fuse_ddp)",
        "freezing": r"Cannot cache a graph with freezing|frozen constants",
        "context_fn": r"SAC context_fn does not have a cache_hash",
        "budget": r"(?P<name>activation_memory_budget_\w+) is a raw callable",
        "fake first call": r"Won't cache a graph with fakify_first_call",
        "no FX cache": r"FX graph cache is not enabled",
        "constant folding": r"[Rr]untime constant folding",
        "mkldnn": r"mkldnn tensors",
        "bisector": r"bisect",
        "pickle": r"[Pp]ickle|unpicklable",
    },
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class BypassFacts:
    """Why a graph was kept out of a cache: the kind of reason, and the operator, function, pass or option it names.

    ``module`` is that of the function. ``kind`` is None where the reason is none of those that are known.
    """

    kind: str | None
    text: str
    name: str = ""
    module: str = ""

    @property
    def whole(self) -> str:
        """The name of the operator or function with its module, as torch's option for functions to vouch for has it."""
        return f"torch.ops.higher_order.{self.name}" if self.kind == "operator" else f"{self.module}.{self.name}"


def read_bypass(reason: str) -> BypassFacts:
    """Return what torch's reason for a bypass says."""
    text = " ".join(without_address(reason).split())
    kind, match = kind_of(reason, _BYPASSES)
    given = match.groupdict() if match else {}
    return BypassFacts(kind, text, **{name.rstrip("23"): value for name, value in given.items() if value is not None})


def option_that_is_off(reason: str) -> str:
    """Return the option of torch by which a cache is off: the reason is ``torch._inductor.config.NAME is False``."""
    return reason.partition(" is ")[0].rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class CudaGraphFacts:
    """What torch says against a CUDA graph: the kind of reason, None if it is another one, and what the reason names.

    ``text`` is the reason without the stack that may follow it, ``span`` the user's innermost line of that stack.
    """

    kind: str | None
    value: str
    text: str
    span: Span


def read_cudagraph_reason(reason: str) -> CudaGraphFacts:
    """Return why code was left without a CUDA graph, or was recorded for many sizes."""
    frames = [Span(match["file"], int(match["line"])) for match in _FRAME.finditer(reason)]
    frames = [frame for frame in frames if not is_torch_file(frame.file)] or frames
    text = _OPENING.sub("", _STACK.sub("", reason.strip())).strip() or reason.strip()
    kind, match = kind_of(text, _CUDA_GRAPH_KINDS)
    return CudaGraphFacts(kind, match["value"] if match else "", text, frames[-1] if frames else Span(None, None))


def read_cudagraph_split(reason: str, stack: str) -> CudaGraphFacts:
    """Return why an operator is in none of the CUDA graphs of its code, with the user's line of its stack trace."""
    return CudaGraphFacts(kind_of(reason, _SPLITS)[0], "", reason, read_cudagraph_reason(stack).span)


def overwritten_output(error: str) -> Span | None:
    """Return the line that made an output of a CUDA graph which a later call has overwritten; None for another error.

    The span is empty where torch does not know the line.
    """
    if "output of CUDAGraphs that has been overwritten" not in error:
        return None
    return read_cudagraph_reason(error).span


def is_double_backward(error: str, line: str) -> bool:
    """Whether an error that a line raised is that of differentiating the backward of compiled code.

    Where the first backward may have written over what it saved, torch says only that, also of `retain_graph`.
    """
    donated = "compiled with non-empty donated buffers" in error and "create_graph" in line
    return donated or "does not currently support double backward" in error


def without_address(text: str) -> str:
    """The text without addresses of objects, which differ from run to run.

    >>> without_address("<function f at 0x7f51bf2804a0>")
    '<function f>'
    """
    return _ADDRESS.sub("", text)
