"""torch's private names that say how a call of ``torch.export`` or of AOTInductor ended.

torch calls ``log_export_usage`` (torch/_utils_internal.py), which does nothing, when an export begins and at its end;
at a failure while the exception is handled. Where a file cannot be read, it logs that while it handles the exception;
where AOTInductor fails, ``compile_fx_aot`` is timed to its end with the exception under way. The frames of the
functions below have what was exported. Read in torch 2.11 to 2.15.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from dynadiag.torch_private.exception_frames import exception_chain, traceback_frames

_HOOK = "log_export_usage"
_HOLDERS = ("torch._utils_internal", "torch.export._trace")  # the second imports the name from the first
_WRAPPER = ("wrapper", "/torch/export/_trace.py")  # of `_export` and of `_export_for_training`: one is in the other
# A function of torch's, its file, and the name that a program calls it by; the outermost is what was called.
_APIS = (
    ("export", "/torch/onnx/__init__.py", "torch.onnx.export"),
    ("draft_export", "/torch/export/__init__.py", "torch.export.draft_export"),
    ("export", "/torch/export/__init__.py", "torch.export.export"),
    ("save", "/torch/export/__init__.py", "torch.export.save"),
    ("load", "/torch/export/__init__.py", "torch.export.load"),
    ("aoti_compile_and_package", "/torch/_inductor/__init__.py", "torch._inductor.aoti_compile_and_package"),
    ("aot_compile", "/torch/_inductor/__init__.py", "torch._inductor.aot_compile"),
    ("aoti_load_package", "/torch/_inductor/__init__.py", "torch._inductor.aoti_load_package"),
)
_MODULES = ("mod", "model", "f")  # the parameter of these functions that is exported
FILES = {"torch.export.load": "f", "torch._inductor.aoti_load_package": "path"}  # the parameter that is a file
COMPILE = "compile_fx_aot"  # AOTInductor's, and the name of the event that times it
# `load` logs the exception here, and then raises one that refers to the log. The other only warns, and has C++ try.
_LOAD_LOGGER, _PACKAGE_LOGGER = "torch.export", "torch._inductor.package.package"
_OUTCOMES = {
    "export.enter": "begun",
    "export.time": "ok",
    "export.error.classified": "error",
    "export.error.unclassified": "error",
}

_SHAPES_FILE = "/torch/export/dynamic_shapes.py"  # its functions compare the inputs with ``dynamic_shapes``

OnExport = Callable[[str | Exception], None]  # "begun", "ok" or "error"


def listen_for_exports(heard: OnExport) -> None:
    """Call ``heard(outcome)`` in torch's frame as an export begins and as it ends, and where torch's reader of a file
    fails; with the exception where the outcome cannot be read. It must not raise.
    """
    original = getattr(sys.modules[_HOLDERS[0]], _HOOK, None)
    if original is None:
        return

    @functools.wraps(original)
    def told(*args: Any, **options: Any) -> Any:
        try:
            outcome: str | Exception | None = outcome_of(options.get("event"), sys._getframe(1))
        except Exception as error:  # noqa: BLE001 - the program's export goes on
            outcome = error
        if outcome is not None:
            heard(outcome)
        return original(*args, **options)

    told.__dict__["heard"] = heard
    _replace(original, told)
    _load_errors.heard = heard
    for name in (_LOAD_LOGGER, _PACKAGE_LOGGER):
        logging.getLogger(name).addHandler(_load_errors)


def stop_listening_for_exports(heard: OnExport) -> None:
    """Put torch's own function back."""
    for name in (_LOAD_LOGGER, _PACKAGE_LOGGER):
        logging.getLogger(name).removeHandler(_load_errors)
    current = getattr(sys.modules[_HOLDERS[0]], _HOOK, None)
    if current is not None and current.__dict__.get("heard") == heard:
        _replace(current, current.__wrapped__)


def _replace(old: Any, new: Any) -> None:
    for name in _HOLDERS:
        module = sys.modules.get(name)
        if module is not None and getattr(module, _HOOK, None) is old:
            setattr(module, _HOOK, new)


def outcome_of(event: object, caller: FrameType) -> str | None:
    """Return what an event of torch's means, None where another one tells of the same export.

    An export succeeds when the outermost wrapper ends, and fails in the innermost one.
    """
    outcome, error = _OUTCOMES.get(str(event)), sys.exc_info()[1]
    if outcome == "ok":
        wrappers = [frame for frame in _outwards(caller) if _is_wrapper(frame)]
    elif outcome == "error" and error is not None:
        wrappers = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if _is_wrapper(frame)]
    else:
        return outcome
    return outcome if len({id(frame) for frame in wrappers}) == 1 else None


def was_told(failure: BaseException | None) -> bool:
    """Whether an exception, or one that it was raised from, has passed the end of an export, which was told then."""
    return any(_is_wrapper(frame) for frame in traceback_frames(failure))


def is_failing_compile(start: FrameType) -> bool:
    """Whether AOTInductor's compile that ends in ``start`` does so by an exception, and a program called it."""
    error, outwards = sys.exc_info()[1], list(_outwards(start))
    if error is None or called_api(outwards[::-1]) is None:
        return False
    passed = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(frame.f_code.co_name == COMPILE and frame in passed for frame in outwards)


def called_api(frames: list[FrameType]) -> tuple[int, str, Any, bool | None] | None:
    """Return the outermost function of these that exports: its place, its name, what is exported, and ``strict``.

    ``frames`` are outermost first. None where there is none.
    """
    for place, frame in enumerate(frames):
        code = frame.f_code
        for function, file, name in _APIS:
            if code.co_name == function and code.co_filename.endswith(file):
                values = frame.f_locals
                module = next((values[each] for each in _MODULES if values.get(each) is not None), None)
                strict = values.get("strict")
                return place, name, module, strict if isinstance(strict, bool) else None
    return None


def is_second_attempt(frames: list[FrameType]) -> bool:
    """Whether ``draft_export`` begins an export again while it handles the exception of its first attempt."""
    called, error = called_api(frames), sys.exc_info()[1]
    if called is None or error is None:
        return False
    within = {id(frame) for frame in frames[called[0] :]}
    return any(id(frame) in within for frame, _ in traceback.walk_tb(error.__traceback__))


def original_failure(failure: BaseException) -> BaseException:
    """Return the exception that says why: torch raises a `UserError` where it handles a violated constraint."""
    chain = list(exception_chain(failure))
    return next((each for each in chain if type(each).__name__ == "ConstraintViolationError"), failure)


def logged_failure(failure: BaseException) -> str | None:
    """Return the text of the exception that ``torch.export.load`` logged before it raised this one."""
    *_, (frame, _) = traceback.walk_tb(failure.__traceback__)
    return _load_errors.last if called_api([frame]) is not None else None


def loaded_file(frames: list[FrameType]) -> str | None:
    """Return the path that the outermost of these frames that loads a file was given."""
    called = called_api(frames)
    path = frames[called[0]].f_locals.get(FILES.get(called[1], "")) if called is not None else None
    return os.fspath(path) if isinstance(path, (str, os.PathLike)) else None


class _LoadErrors(logging.Handler):
    """Remembers the text of the last exception that torch logged while it loaded an exported program."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last: str | None = None
        self.heard: OnExport | None = None

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        with contextlib.suppress(Exception):  # the text of an exception may be made by the program's code
            self.last = None if error is None else str(error)
        if self.heard is not None and (error is not None or record.name == _PACKAGE_LOGGER):
            self.heard("error")


_load_errors = _LoadErrors()


def undecided_condition(failure: BaseException) -> tuple[str, list[str]] | None:
    """Return the expression that tracing could not decide, and the numbers without a value in it.

    They are ``cond`` of a ``GuardOnDataDependentSymNode`` (symbolic_shapes.py). None where it is no such failure.
    """
    for each in exception_chain(failure):
        if type(each).__name__ == "GuardOnDataDependentSymNode" and (cond := getattr(each, "cond", None)) is not None:
            return str(cond), sorted(str(symbol) for symbol in cond.free_symbols)
    return None


_depth: list[bool] = []  # not empty while an export runs


@contextmanager
def exporting() -> Iterator[None]:
    """Run an export: what it compiles is its own affair."""
    _depth.append(True)
    try:
        yield
    finally:
        _depth.pop()


def is_exporting() -> bool:
    """Whether an export runs that `exporting` surrounds."""
    return bool(_depth)


Wrapped = Callable[..., Any]  # (inner, *arguments) -> result


def wrap_exports(export: Wrapped, package: Wrapped, load: Wrapped) -> None:
    """Call these, with torch's own function first, where a program exports a module, and makes or loads a package."""
    import torch._inductor
    import torch.export

    for holder, name, wrapped in (
        (torch.export, "export", export),
        (torch.export, "draft_export", export),
        (torch._inductor, "aoti_compile_and_package", package),
        (torch._inductor, "aoti_load_package", load),
    ):
        inner = getattr(holder, name)
        setattr(holder, name, functools.wraps(inner)(functools.partial(wrapped, inner)))


def dimension_name(spec: object) -> str | None:
    """The name of a dynamic dimension's specification, empty for one without a name, None where it is constant.

    `torch.export.Dim` is one with a name; ``Dim.AUTO`` and ``Dim.DYNAMIC`` have none.
    """
    match type(spec).__name__:
        case "_DimHint":
            return None if "STATIC" in str(getattr(spec, "type", "")) else ""
        case "Dim" | "_DerivedDim":  # `2*n` goes with ``n``
            return str(getattr(getattr(spec, "root", spec), "__name__", ""))
    return None


def dimension_text(spec: object) -> str | None:
    """How a program writes what it says of a dimension: ``n``, ``2*n``, ``Dim.AUTO``, ``8``; None for others."""
    if spec is None or type(spec) is int:
        return str(spec)
    if type(spec).__name__ == "_DimHint":
        return f"Dim.{getattr(getattr(spec, 'type', None), 'name', 'AUTO')}"
    return str(getattr(spec, "__name__", "")) if type(spec).__name__ in ("Dim", "_DerivedDim", "_StaticDim") else None


def given_shapes(frames: list[FrameType]) -> tuple[dict[str, Any], Any, bool] | None:
    """Return the inputs of a failed export by their names, its ``dynamic_shapes``, and whether torch was at them.

    ``frames`` are those of the call, and then those that the exception has passed. None where no shapes were given.
    """
    if (called := called_api(frames)) is None:
        return None
    values = frames[called[0]].f_locals
    shapes, args = values.get("dynamic_shapes"), values.get("args")
    if not isinstance(shapes, (dict, list, tuple)) or not isinstance(args, tuple):
        return None
    from torch.export.dynamic_shapes import _combine_args

    compares = any(each.f_code.co_filename.endswith(_SHAPES_FILE) for each in frames)
    try:
        return _combine_args(values["mod"], args, values.get("kwargs")), shapes, compares
    except TypeError:  # the inputs are not those of the module, which is what the export failed for
        return None


def packages_call(operator: Any) -> bool:
    """Whether AOTInductor's code can call an operator of ATen instead of a kernel of its own.

    It cannot make a view so. An operator that its C interface lacks is called by a proxy, which miscounts numbers
    (``oss_proxy_executor.cpp``: "Mismatch between ints consumed").
    """
    from torchgen.aoti.fallback_ops import inductor_fallback_ops  # type: ignore[import-untyped]  # torch has no stubs of it

    schema = getattr(operator, "_schema", None)
    if schema is None or any(value.alias_info is not None for value in schema.returns):
        return False
    return str(operator) in inductor_fallback_ops or not any("number" in str(a.type) for a in schema.arguments)


def decompositions(*, of_inductor: bool) -> dict[Any, Any]:
    """The decompositions that Inductor applies; none, with which an exported program becomes functional."""
    if not of_inductor:
        return {}
    from torch._inductor.decomposition import select_decomp_table

    return dict(select_decomp_table())


def _is_wrapper(frame: FrameType) -> bool:
    return frame.f_code.co_name == _WRAPPER[0] and frame.f_code.co_filename.endswith(_WRAPPER[1])


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
