"""Guards on the state of the process: modes, settings and defaults of torch, what a tensor dispatches to, the backend.

What such a guard says, in words. None of them is on a value that the program passes.
"""

from __future__ import annotations

from dynadiag.recording.records import GuardFailure

_PRECISION = "cuda_matmul_precision"  # 2.15, `allow_tf32` before
_PRECISIONS = {"0": "the default", "1": "IEEE", "2": "TF32", "3": "bfloat16"}  # at::Float32Precision
_SWITCH = {"True": "on", "False": "off"}
_DTYPES = {"5": "torch.float16", "6": "torch.float32", "7": "torch.float64", "15": "torch.bfloat16"}  # c10::ScalarType
_VALUES = {_PRECISION: _PRECISIONS, "default_dtype": _DTYPES, "autocast_dtype": _DTYPES}
_WORDS = {
    "inference_mode": "inference mode",
    "grad_mode": "grad mode",
    "autocast_enabled": "autocast",
    "autocast_dtype": "autocast's dtype",
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
    "torch.func transforms": "the `torch.func` transform around the call",
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
)


def state_words(name: str | None, device: str | None = None) -> str:
    """What a setting or mode is called: ``autocast on cpu``, ``grad mode``."""
    words = _WORDS.get(name or "", name or "a global setting")
    return f"{words} on {device}" if device else words


def setting_words(name: str | None, value: str) -> str:
    """The value of a setting: ``on`` and ``off`` for what is either."""
    return _VALUES.get(name or "", _SWITCH).get(value, value)


def key_changes(fact: GuardFailure) -> tuple[set[str], set[str]]:
    """The dispatch keys that were added and that were removed."""
    before, after = (set((text or "").partition(" (")[0].split(", ")) for text in (fact.was, fact.now))
    return after - before, before - after


def explains_dispatch(state: GuardFailure, keys: GuardFailure) -> bool:
    """Whether a change of a mode is why a tensor dispatches otherwise: inference mode, or autocast."""
    added, removed = key_changes(keys)
    modes = ("Autograd", "ADInplaceOrView", "Autocast", "BackendSelect")
    is_mode = (state.index or "").startswith(("inference_mode", "grad_mode", "autocast"))
    return is_mode and all(key.startswith(modes) for key in added | removed)


def is_other_device(fact: GuardFailure) -> bool:
    """Whether a tensor dispatches otherwise because it is on another device."""
    added, removed = key_changes(fact)
    return bool(added & _BACKEND_KEYS and removed & _BACKEND_KEYS)


def is_inference(fact: GuardFailure) -> bool:
    """Whether a tensor has gained or lost the keys of autograd alone.

    Only an inference tensor lacks them, and each tensor in inference mode: what was compiled for either is the same.
    """
    added, removed = key_changes(fact)
    changed = added | removed
    return fact.index is None and bool(changed) and all(key.startswith(("Autograd", "ADInplace")) for key in changed)


def dispatch_change(fact: GuardFailure) -> str:
    """What a tensor has become, by its dispatch keys: ``is an inference tensor now``."""
    if fact.index == "in inference mode":
        return "is passed in inference mode now"
    if fact.index == "left inference mode":
        return "was passed in inference mode before"
    if fact.index == "an inference tensor":
        return "is an inference tensor now"
    added, removed = key_changes(fact)
    if is_inference(fact):
        was = "was" if added else "is"
        return f"{was} an inference tensor or in inference mode {'before' if added else 'now'}"
    if is_other_device(fact):
        return f"is on another device now ({', '.join(sorted(added & _BACKEND_KEYS))})"
    for lead, kind in _KINDS:
        if any(key.startswith(lead) for key in added):
            return f"is {kind} now"
        if any(key.startswith(lead) for key in removed):
            return f"is not {kind} any more"
    return "dispatches to other kernels now"


def backend_change(fact: GuardFailure) -> str:
    """The backends of two calls of `torch.compile`: ``eager, now aot_eager``."""
    if fact.was is None:  # torch 2.11
        return "another one: this torch names neither"
    if fact.was != fact.now:
        return f"{fact.was}, now {fact.now}"
    return f"{fact.now} both times, {'' if fact.now == 'inductor' else 'as another object or '}with other options"
