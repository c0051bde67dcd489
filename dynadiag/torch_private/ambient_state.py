"""The state of a process that compiled code is guarded on: modes, settings, defaults. Read in torch 2.11, 2.13, 2.15.

The guards are the ``init_ambient_guards`` of output_graph.py. Each is at the root of a cache entry's guards and has no
source. The guarded value is in its text or in the closure of its check; the present value has to be read from torch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

LEFT_INFERENCE_MODE = "left inference mode"

_TRANSFORMED = "FuncTorch"  # in the names of the dispatch keys that a transform adds
_MODE_STACK = "___check_torch_function_mode_stack"
_GUARD = re.compile(
    r"(?P<device>utils_device\.CURRENT_DEVICE) == (?P<was_device>.*)"
    r"|torch\._functorch\.aot_autograd\.utils\.(?P<hooks>top_saved_tensors_hooks) ids == (?P<was_hooks>.*)"
    r"|torch\.autograd\.forward_ad\.(?P<dual>_current_level) == (?P<was_dual>.*)"
    r"|torch\._functorch\.pyfunctorch\.(?P<functorch>compare_functorch_state)\((?P<was_functorch>.*)\)"
)
# Dtypes by their number in c10::ScalarType, which the global state has: those that can be the default, or autocast's.
_DTYPES = {5: "torch.float16", 6: "torch.float32", 7: "torch.float64", 15: "torch.bfloat16"}
_AUTOCAST = re.compile(r"autocast\((?P<device>\w+)\)_(?P<what>enabled|dtype)")


def ambient_change(code: str, closure_vars: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the facts of a guard on a mode or a default. None if it is another guard.

    Its ``index`` is one of "torch function modes", "default device", "saved tensor hooks", "forward AD level" and
    "torch.func transforms".
    """
    if code.startswith(_MODE_STACK):
        kinds = _cell(closure_vars.get(_MODE_STACK), "types") or []
        stack = torch.overrides._get_current_function_mode_stack()
        return _change("torch function modes", _listed([kind.__name__ for kind in kinds]), _modes(stack))
    match = _GUARD.match(code)
    if match is None:
        return None
    if match["device"]:
        return _change("default device", match["was_device"], str(torch.utils._device.CURRENT_DEVICE))
    if match["dual"]:
        return _change("forward AD level", match["was_dual"], str(torch.autograd.forward_ad._current_level))
    if match["hooks"]:
        hooks = torch._C._autograd._top_saved_tensors_default_hooks(False)
        return _change("saved tensor hooks", _presence(match["was_hooks"] == "None"), _presence(hooks is None))
    was = re.findall(r"\((?:<?TransformType\.|')(\w+)", match["was_functorch"])
    return _change("torch.func transforms", _listed(was), _transforms())


def entered_transform(keys: str, was: str) -> dict[str, Any] | None:
    """Return the change that a tensor's dispatch keys show which was compiled outside of any `torch.func` transform.

    Code that was compiled inside of one has a guard on that.
    """
    if _TRANSFORMED not in keys or _TRANSFORMED in was:
        return None
    return {**_change("torch.func transforms", _listed([]), _transforms()), "guard": "no torch.func transform"}


def _transforms() -> str:
    """The `torch.func` transforms that are on, the outermost first."""
    from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters

    return _listed([interpreter.key().name for interpreter in retrieve_all_functorch_interpreters()])


def global_state_changes(guard: str, names: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the facts of each setting of torch's global state that changed.

    ``guard`` is the guard's text, which ends in the state as JSON; ``names`` are the settings that torch says changed.
    """
    was, now = _state(guard.partition(" against ")[2]), _state_now()
    for name in names:
        guard = f"GLOBAL_STATE changed: {name}"
        if match := _AUTOCAST.fullmatch(name):
            what, device = match["what"], match["device"]
            # The settings of autocast that changed. torch lists them by device, in a fixed order.
            states = (state.get("autocast_state", {}).get(what, []) for state in (was, now))
            before, after = next((pair for pair in zip(*states, strict=False) if pair[0] != pair[1]), (None, None))
            change = _change(name, _setting(what, before), _setting(what, after))
            yield {**change, "guard": guard, "index": f"autocast_{what}", "terms": (device,)}
        elif name == "grad_mode" and was.get(name) and torch.is_inference_mode_enabled():  # where it is always off
            yield {**_change("inference_mode", "False", "True"), "guard": guard}
        else:
            yield {**_change(name, _setting(name, was.get(name)), _setting(name, now.get(name))), "guard": guard}


def dispatch_keys(value: torch.Tensor, was: str) -> tuple[str, str | None]:
    """Return the dispatch keys that a call with this tensor has, as guards print them: of the tensor and its thread.

    The second is "in inference mode" or "an inference tensor" where it is so, and `LEFT_INFERENCE_MODE` where the call
    before, with the keys ``was``, was made in that mode: only there a parameter has no keys of autograd.
    """
    keys = torch._C._dispatch_keys(value) | torch._C._dispatch_tls_local_include_set()
    text = str(keys - torch._C._dispatch_tls_local_exclude_set()).removeprefix("DispatchKeySet(").removesuffix(")")
    if torch.is_inference_mode_enabled():
        return text, "in inference mode"
    if isinstance(value, torch.nn.Parameter) and "Autograd" in text and "Autograd" not in was:
        return text, LEFT_INFERENCE_MODE
    return text, "an inference tensor" if value.is_inference() else None


def placements(value: object) -> str | None:
    """Return where the parts of a DTensor are, by its ``_spec``; None of another value."""
    if type(value).__name__ != "DTensorSpec" or not type(value).__module__.startswith("torch.distributed."):
        return None
    placed, mesh = getattr(value, "placements", ()), getattr(value, "mesh", None)
    return f"{_listed([repr(each) for each in placed])} on mesh {tuple(getattr(mesh, 'shape', ()))}"


def with_inference_mode(failures: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the failures of an entry. One that was made in inference mode has that mode as what changed.

    torch guards on the grad mode, which is always off there, and on what tensors dispatch to.
    """
    if all(failure.get("index") != LEFT_INFERENCE_MODE for failure in failures):
        return failures
    change = {**_change("inference_mode", "True", "False"), "guard": "GLOBAL_STATE changed: grad_mode"}
    return [change, *(failure for failure in failures if failure.get("index") != "grad_mode")]


def _change(name: str, was: str | None, now: str | None) -> dict[str, Any]:
    return {"part": "state", "base": "mode", "index": name, "source": name, "was": was, "now": now}


def _cell(function: Callable[..., Any] | None, name: str) -> Any:
    """A variable that a function closes over. None if there is no such variable."""
    code = getattr(function, "__code__", None)
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True)) if code and function else {}
    return cells[name].cell_contents if name in cells else None


def _modes(stack: list[Any]) -> str:
    """The modes of a stack by their types, of ``with torch.device(...)`` the device too."""
    devices = [f"({mode.device})" if hasattr(mode, "device") else "" for mode in stack]
    return _listed([type(mode).__name__ + device for mode, device in zip(stack, devices, strict=True)])


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


def _presence(absent: bool) -> str:
    return "none" if absent else "set"


def _state(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _state_now() -> dict[str, Any]:
    guard = torch._C._dynamo.guards.GlobalStateGuard()
    return _state(guard.__getstate__()) if hasattr(guard, "__getstate__") else {}


def _setting(name: str, value: Any) -> str | None:
    if value is None:
        return None
    return _DTYPES.get(value, str(value)) if name in ("default_dtype", "dtype") else str(value)


def parameter_sizes_are_constants() -> bool:
    """Return whether torch compiles for each shape of a parameter apart, whatever ``dynamic`` is."""
    return bool(getattr(torch._dynamo.config, "force_parameter_static_shapes", True))
