"""The rungs of a program that exports, in a trial's process.

- `uncompiled`: the module is called instead of exported, and a package of it is the module.
- `eager`: it is exported (traced). A package is the exported program, called as it is.
- `aot_eager`: a package is the exported program, decomposed into functional operators of ATen.
- `aot_eager_decomp_partition`: the same, with Inductor's decompositions.
- `inductor`: AOTInductor lowers it, and makes and loads the package.

A search may also switch off single exports, and single dimensions that are marked dynamic: these become constant.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dynadiag.capture.code_locations import user_callers
from dynadiag.torch_private import exports as torch_private
from dynadiag.trial.context import TRIAL
from dynadiag.trial.events import BackendUsed
from dynadiag.trial.plan import RUNGS

_packages: dict[str, Callable[..., Any]] = {}  # what a package is called as, by its path, below AOTInductor


def install() -> None:
    """Install the hooks in torch, once per process. They follow the plan that is current when they are called."""
    torch_private.wrap_exports(_export, _package, _load)


class _Uncompiled:
    """What an export returns that was not made.

    A program that asks for more than the module gets it of the export that ``make`` makes after all. If that fails, or
    at rung `uncompiled`, the program ends as passed.
    """

    def __init__(self, module: Callable[..., Any], make: Callable[[], Any] | None) -> None:
        self._module, self._make = module, make

    def module(self, *_: Any, **__: Any) -> Callable[..., Any]:
        return self._module

    def run_decompositions(self, *_: Any, **__: Any) -> _Uncompiled:
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python and libraries ask of any object
            raise AttributeError(name)
        if self._make is None:
            raise SystemExit(0)
        try:
            made = self._make()
        except Exception:  # noqa: BLE001 - whatever an export raises
            raise SystemExit(0) from None
        return getattr(made, name)


def _export(inner: Callable[..., Any], mod: Any, args: tuple[Any, ...], *more: Any, **options: Any) -> Any:
    """An export: ``more`` begins with the keyword arguments of the module."""
    TRIAL.before_compiled_call()
    name = type(mod).__qualname__
    key = f"{name}/{TRIAL.occurrence('export', name)}"
    lines = [(frame["file"], frame["line"]) for frame in user_callers(sys._getframe())[-1:]]
    at_rung = TRIAL.plan.rung != "uncompiled"
    if not at_rung or not TRIAL.is_on("export", key, lambda: {"name": name, "lines": lines}):
        named = more[0] if more else options.get("kwargs")
        mod(*args, **(named or {}))
        return _Uncompiled(mod, functools.partial(inner, mod, args, *more, **options) if at_rung else None)
    TRIAL.send(BackendUsed("eager"))
    if TRIAL.observes("dimension") and (shapes := options.get("dynamic_shapes")) is not None:
        options = {**options, "dynamic_shapes": _without_dimensions(shapes, key, lines)}
    with torch_private.exporting():
        return inner(mod, args, *more, **options)


def _without_dimensions(shapes: Any, place: str, lines: list[tuple[str, int]]) -> Any:
    """A specification of dynamic dimensions without those that the plan switches off.

    All that share a name are one decision; others are named by their input and number: ``x.0``.
    """
    if isinstance(shapes, Mapping):
        return {key: _without_dimensions(value, f"{place}.{key}", lines) for key, value in shapes.items()}
    if isinstance(shapes, (list, tuple)):
        return type(shapes)(_without_dimensions(v, f"{place}.{n}", lines) for n, v in enumerate(shapes))
    if (name := torch_private.dimension_name(shapes)) is None:
        return shapes
    export, _, path = place.partition(".")
    name = name or path
    return shapes if TRIAL.is_on("dimension", f"{export} {name}", lambda: {"name": name, "lines": lines}) else None


def _package(inner: Callable[..., Any], program: Any, *args: Any, **options: Any) -> Any:
    """A package of an exported program."""
    TRIAL.send(BackendUsed("inductor"))
    rung = TRIAL.plan.rung
    if isinstance(program, _Uncompiled):
        rung = "uncompiled"
    if rung is None or RUNGS.index(rung) >= RUNGS.index("inductor"):
        with torch_private.exporting():
            return inner(program, *args, **options)
    path = options.get("package_path") or Path(tempfile.mkdtemp(), "model.pt2")
    if isinstance(path, (str, Path)):
        Path(path).touch()
    if rung.startswith("aot_eager"):
        program = program.run_decompositions(torch_private.decompositions(of_inductor=rung != "aot_eager"))
    _packages[_name(path)] = program.module()
    return path


def _load(inner: Callable[..., Any], path: Any, *args: Any, **options: Any) -> Any:
    return _packages[_name(path)] if _name(path) in _packages else inner(path, *args, **options)


def _name(path: Any) -> str:
    return str(Path(path).absolute()) if isinstance(path, (str, Path)) else f"buffer {id(path)}"
