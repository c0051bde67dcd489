"""The remedies for recompiles because of torch's global state: modes, settings, backends and threads."""

from __future__ import annotations

from dynadiag.explanation.process_state import backend_change
from dynadiag.explanation.recompile_case import RecompileCase, of_sort
from dynadiag.explanation.remedy import Remedy, Slots, slots_if, tried

_SWITCHED = "that is different code, and one compile for each is expected. Warm up both: a later switch compiles none."


def _state(name: str, says: str, *programs: str, also: str | None = None) -> Remedy[RecompileCase]:
    """A remedy where a global state changed whose name begins with ``name``, or with ``also``."""
    names = (name,) if also is None else (name, also)

    def needs(case: RecompileCase) -> Slots:
        return slots_if(case.sort == "state" and (case.fact.index or "").startswith(names))

    return Remedy(f"state.{name}", says, needs, trials=tried(*programs))


STATES: tuple[Remedy[RecompileCase], ...] = (
    _state("inference_mode", f"Called inside and outside `torch.inference_mode`: {_SWITCHED}", "inference_mode"),
    _state(
        "grad_mode",
        f"Called with gradients on and off (`torch.no_grad`, `torch.set_grad_enabled`): {_SWITCHED}",
        "grad_mode",
    ),
    _state(
        "autocast_state",
        "Called inside and outside autocast, or under another one: enter `torch.autocast` around every call, or none.",
        "autocast",
        also="autocast_enabled",
    ),
    _state(
        "autocast_dtype",
        "Called under autocast with different dtypes: that is different code. Use one dtype for every call.",
        "autocast_dtypes",
    ),
    _state(
        "num_threads",
        "The number of threads changed between the calls: call `torch.set_num_threads` at the start, with the same "
        "number in every thread that calls the function.",
        "threads",
    ),
    _state("default_dtype", "The default dtype changed after the first compile: set it at the start.", "default_dtype"),
    _state(
        "deterministic_algorithms",
        "`torch.use_deterministic_algorithms` changed after the first compile: set it at the start.",
        "deterministic",
    ),
    _state(
        "allow_",
        "The precision of matrix products changed after the first compile (`torch.set_float32_matmul_precision`, "
        "`torch.backends.cuda.matmul`): set it at the start.",
        "matmul_precision",
        also="cuda_matmul_precision",
    ),
    _state(
        "torch function modes",
        "A torch function mode (a `TorchFunctionMode`, or `with torch.device(...)`) was entered "
        "around one call and not around the other: enter it around every call, or around none.",
        "function_mode",
    ),
    _state(
        "default device",
        "The default device changed (`torch.set_default_device`, `with torch.device(...)`): set it once, "
        "before the first call.",
        "default_device",
    ),
    _state(
        "saved tensor hooks",
        "Hooks on saved tensors that are graph modules (`torch.autograd.graph.saved_tensors_hooks`) "
        "were active in one call and not in the other: enter them around every call, or around none.",
        "saved_tensor_hooks",
    ),
    _state(
        "torch.func transforms",
        "Called inside a transform of `torch.func` (`vmap`, `grad`), where Python runs it uncompiled (with the backend "
        '"eager": by code of its own). Compile what calls the transform, `torch.compile(torch.vmap(fn))`.',
        "a_transform",
    ),
    _state(
        "forward AD level",
        "It uses forward-mode AD (as `torch.func.jvp` does), and was called inside "
        "`torch.autograd.forward_ad.dual_level`. torch nests no forward-mode AD, uncompiled neither: call it outside.",
        "dual_level",
    ),
    _state("torch_function", f"Called with `__torch_function__` on and off: {_SWITCHED}", "torch_function_off"),
    Remedy(
        "state.race",
        "Where threads call a function together, one compiles what another is about to compile, and each such compile "
        "is wasted. Call the function once in each shape before the threads start.",
        of_sort("race"),
    ),
    Remedy(
        "backend",
        "Another `torch.compile` of the same function ({change}): torch keeps the code of each, and both count towards "
        "the recompile limit. Call `torch.compile` once and keep its result; to compare backends, call "
        "`torch.compiler.reset()` between them.",
        lambda case: slots_if(case.sort == "backend", change=backend_change(case.fact)),
        trials=tried("two_backends"),
    ),
)
