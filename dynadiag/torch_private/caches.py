"""The lookups in torch's caches of compiled code that the trace does not report.

Each name was read in torch 2.13.0. If a release lacks one, the function returns nothing, or its caller records that
the probe failed.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from dynadiag.torch_private.capture import emitter_locals

_AOT_LOOKUP = ("try_load", "aot_config")  # AOTAutogradCache, autograd_cache.py: artifacts aotautograd_cache_*
_FUNCTORCH = "/torch/_functorch/"

_OPTION = re.compile(r"(torch\._(?:inductor|dynamo|functorch)\.config)\.(\w+)")
CppLibrary = tuple[str, str, Path]  # the kernel's name in its module, the cache key, the file


def set_options(options: Mapping[str, Any]) -> None:
    """Set options of torch by their whole names. A value that is a dict is added to what the option has.

    Raises `ValueError` or `AttributeError` for what is no option of this torch.
    """
    for name, value in options.items():
        found = _OPTION.fullmatch(name)
        if found is None:
            raise ValueError(f"{name} is no option of torch")
        config = importlib.import_module(found[1])
        before = getattr(config, found[2])
        setattr(config, found[2], {**before, **value} if isinstance(value, dict) else value)


def aot_autograd_key(start: FrameType | None) -> list[str] | None:
    """Return the components of the key that AOTAutograd's cache was asked for, as ``[hash] name: value``.

    None if the event has them already (2.11) or the lookup is not in this stack. The result has only the components
    that the keys of the graphs below lack. Those have the rest, such as Inductor's configuration, so no ``uuid()`` of
    the user's is called.
    """
    found = emitter_locals(*_AOT_LOOKUP, start, package=_FUNCTORCH)
    if found is None or found.get("debug_lines") or found.get("cache_key") is None:
        return None
    from torch._functorch._aot_autograd import autograd_cache

    graph_module = getattr(found["mod"], "gm", found["mod"])
    with autograd_cache.sanitize_gm_for_cache(graph_module):  # as torch does around its own key
        details = object.__new__(autograd_cache.AOTAutogradCacheDetails)
        details.aot_config = found["aot_config"]
        details._record_runtime_state(graph_module)
        details.sac_context_fn_hashes = autograd_cache._collect_context_fn_hashes(graph_module)
        details.gm = graph_module
        details.example_inputs = [_hashable(value) for value in found["args"]]
        excluded = getattr(autograd_cache.FxGraphHashDetails, "EXCLUDED_KWARGS", ())
        options = autograd_cache.create_fx_config(found.get("compiler_config_extra"))
        details.fx_kwargs = {name: value for name, value in sorted(options.items()) if name not in excluded}
        lines: list[str] = autograd_cache.AOTAutogradCachePickler(graph_module).debug_lines(details)
        return lines


def _hashable(value: Any) -> Any:
    """An input as it is, or the name of its type: torch would log a warning for one that cannot be hashed."""
    import torch

    kinds = (torch.Tensor, torch.SymInt, torch.SymBool, bool, int, float, str, type(None))
    return value if isinstance(value, kinds) else type(value).__qualname__


def cpp_libraries(module: str) -> Iterator[CppLibrary]:
    """Yield the C++ kernels of a generated module, named by its file, that this process has loaded."""
    codecache = sys.modules.get("torch._inductor.codecache")
    for loaded in () if codecache is None else codecache.PyCodeCache.modules:
        if getattr(loaded, "__file__", None) == module:
            for name, value in list(vars(loaded).items()):
                owner = getattr(value, "__self__", None)  # a kernel is a builtin function of its library
                key, dot, _ = str(getattr(owner, "__name__", "")).partition(".")
                if dot and isinstance(file := getattr(owner, "__file__", None), str):
                    yield name, key, Path(file)
            return


def pgo_lookup() -> tuple[str, str | None] | None:
    """Return the answer to Dynamo's lookup of a profile of sizes (PGO), and the key. None if there was no lookup."""
    pgo = sys.modules.get("torch._dynamo.pgo")
    if pgo is None or pgo._CODE_STATE is None:
        return None
    import torch

    if torch.compiler.config.force_disable_caches or torch.compiler.config.job_id is None:
        return "disabled", None  # before torch's own function, which would warn
    return "miss" if pgo._INIT_CODE_STATE is None else "hit", pgo.get_cache_key()
