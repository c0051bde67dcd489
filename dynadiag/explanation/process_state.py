"""Guards on the state of the process: modes, settings and defaults of torch, what a tensor dispatches to, the backend.

What such a guard says, in words, and what to do. None of them is on a value that the program passes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dynadiag.explanation.advice_table import TABLE, advice
from dynadiag.explanation.findings import Advice
from dynadiag.explanation.guards import ParsedGuard

__all__ = [
    "backend",
    "backend_change",
    "dispatch_change",
    "dispatch_keys",
    "explains_dispatch",
    "global_state",
    "key_changes",
    "setting_words",
    "state_words",
    "thread_race",
]

_IN_INFERENCE_MODE = "(in inference mode)"  # what the recorder adds to dispatch keys
_INFERENCE_TENSOR = "(an inference tensor)"
_KEY = re.compile(r"\b[A-Z]\w+")
_AUTOCAST = re.compile(r"autocast\((?P<device>\w+)\)_(?P<what>enabled|dtype)")
_PRECISION = "cuda_matmul_precision"  # 2.15, `allow_tf32` before
_PRECISIONS = {"0": "the default", "1": "IEEE", "2": "TF32", "3": "bfloat16"}  # at::Float32Precision
_SWITCH = {"True": "on", "False": "off"}
_DTYPES = {"5": "torch.float16", "6": "torch.float32", "7": "torch.float64", "15": "torch.bfloat16"}  # c10::ScalarType
_VALUES = {_PRECISION: _PRECISIONS, "default_dtype": _DTYPES, "autocast_state": {**_SWITCH, **_DTYPES}}
_WORDS = {
    "inference_mode": "inference mode",
    "grad_mode": "grad mode",
    "autocast_state": "autocast",
    "num_threads": "the number of threads",
    "default_dtype": "the default dtype",
    "deterministic_algorithms": "use of deterministic algorithms",
    "deterministic_algorithms_warn_only": "warn-only use of deterministic algorithms",
    "allow_tf32": "TF32 in matrix products",
    _PRECISION: "the precision of float32 matrix products",
    "allow_fp16_reduce": "reduced precision of float16 matrix products",
    "allow_bf16_reduce": "reduced precision of bfloat16 matrix products",
    "torch_function": "`__torch_function__`",
    "torch_function_all_disabled": "disabling of all `__torch_function__`",
    "torch function modes": "the stack of torch function modes",
    "default device": "the default device",
    "saved tensor hooks": "the default hooks on saved tensors",
    "forward AD level": "the level of forward-mode AD",
    "torch.func transforms": "the `torch.func` transforms around the call",
}
# Dispatch keys of a backend alone (c10/core/DispatchKey.h).
_BACKEND_KEYS = frozenset(
    {"CPU", "CUDA", "HIP", "XLA", "MPS", "IPU", "XPU", "HPU", "VE", "Lazy", "MTIA", "MAIA", "Meta"}
)
# Dispatch keys by their beginnings -> what a tensor with such a key is. The first that changed is told.
_KINDS = (
    ("FuncTorchBatched", "batched by `torch.vmap`"),
    ("FuncTorchGradWrapper", "wrapped by `torch.func.grad` or its like"),
    ("FuncTorch", "inside a `torch.func` transform"),
    ("Autocast", "under autocast"),
    ("NestedTensor", "a nested tensor"),
    ("Sparse", "a sparse tensor"),
    ("Quantized", "a quantized tensor"),
    ("Mkldnn", "a tensor in the MKL-DNN layout"),
    ("Conjugate", "a conjugated view"),
    ("Negative", "a negated view"),
    ("ZeroTensor", "a zero tensor without memory"),
    ("Python", "a tensor subclass"),
    ("Autograd", "part of autograd"),
)
_STATE = "state."  # what the keys of the table begin with


def state_words(name: str) -> str:
    """What a setting or mode is called: ``autocast on cuda``, ``grad mode``."""
    if match := _AUTOCAST.fullmatch(name):
        return (
            f"autocast on {match['device']}" if match["what"] == "enabled" else f"autocast's dtype on {match['device']}"
        )
    return _WORDS.get(name, name)


def setting_words(name: str | None, value: str) -> str:
    """The value of a setting: ``on`` and ``off`` for what is either."""
    return _VALUES.get(name or "", _SWITCH).get(value, value)


def global_state(found: Sequence[ParsedGuard]) -> list[Advice]:
    """Advice for guards on settings and modes."""
    names = dict.fromkeys(name for item in found for name in _setting_names(item))
    return [_advice_on(name) for name in names]


def _setting_names(item: ParsedGuard) -> list[str]:
    """The settings that a guard names. torch's own sentence may have several."""
    name = item.index or item.subject or ""
    return [name] if name in _WORDS else name.split()


def _advice_on(name: str) -> Advice:
    match = _AUTOCAST.fullmatch(name)
    key = ("autocast_dtype" if match["what"] == "dtype" else "autocast_state") if match else name
    key = "allow_tf32" if key == _PRECISION else key
    known = (each.removeprefix(_STATE) for each in TABLE if each.startswith(_STATE))
    return advice(f"{_STATE}{next((each for each in known if key.startswith(each)), 'other')}")


def key_changes(was: str | None, now: str | None) -> tuple[set[str], set[str]]:
    """The dispatch keys that were added and that were removed."""
    before, after = set(_KEY.findall(was or "")), set(_KEY.findall(now or ""))
    return after - before, before - after


def explains_dispatch(state: ParsedGuard, keys: ParsedGuard) -> bool:
    """Whether a change of a mode is why a tensor dispatches otherwise: inference mode, or autocast."""
    added, removed = key_changes(keys.was, keys.now)
    modes = ("Autograd", "ADInplaceOrView", "Autocast", "BackendSelect")
    is_mode = (state.index or state.subject or "").startswith(("inference_mode", "grad_mode", "autocast"))
    return is_mode and all(key.startswith(modes) for key in added | removed)


def dispatch_change(was: str | None, now: str | None) -> str:
    """What a tensor has become, by its dispatch keys: ``is an inference tensor now``."""
    if _IN_INFERENCE_MODE in (now or ""):
        return "is passed in inference mode now"
    if _INFERENCE_TENSOR in (now or ""):
        return "is an inference tensor now"
    added, removed = key_changes(was, now)
    if added & _BACKEND_KEYS and removed & _BACKEND_KEYS:
        return f"is on another device now ({', '.join(sorted(added & _BACKEND_KEYS))})"
    for lead, kind in _KINDS:
        if any(key.startswith(lead) for key in added):
            return f"is {kind} now"
        if any(key.startswith(lead) for key in removed):
            return f"is not {kind} any more"
    return "dispatches to other kernels now"


def dispatch_keys(found: Sequence[ParsedGuard], name: str) -> list[Advice]:
    """Advice where a tensor dispatches otherwise. ``name`` is what the program calls it."""
    changes = dict.fromkeys(dispatch_change(item.was, item.now) for item in found)
    if any(each.startswith("is on another device") for each in changes):
        return [advice("tensor.device", names=name)]
    if "is an inference tensor now" in changes:
        return [advice("tensor.inference", name=name)]
    return [advice("tensor.dispatch", name=name, change=next(iter(changes)))]


def backend(found: Sequence[ParsedGuard]) -> list[Advice]:
    """Advice where the same function was compiled by two calls of `torch.compile`."""
    return [advice("backend", change=backend_change(found[0].was, found[0].now))]


def thread_race(_found: Sequence[ParsedGuard]) -> list[Advice]:
    """Advice where a cached entry fits after all: it was made meanwhile."""
    return [advice("state.race")]


def backend_change(was: str | None, now: str | None) -> str:
    """The backends of two calls of `torch.compile`: ``eager, now aot_eager``."""
    if was is None:  # torch 2.11
        return "another one: this torch names neither"
    before, after = _backend_name(was), _backend_name(now)
    return f"{before}, now {after}" if before != after else f"{after} both times, with other options"


def _backend_name(text: str | None) -> str:
    """The name in torch's description: ``_TorchCompileWrapper(compiler='eager', dynamic=None) (id=0x7f)``."""
    if found := re.search(r"compiler='([^']*)'", text or ""):
        return found[1]
    if "InductorWrapper" in (text or ""):
        return "inductor"
    return re.sub(r"\s*\(id=.*|<function | at 0x\w+>?", "", text or "").strip() or "another backend"
