"""Private names of torch and Triton for running Inductor's Triton kernels in Triton's interpreter, without a GPU.

Read in torch 2.11.0 with Triton 3.6.0, and in 2.13.0 and 2.15.0 with Triton 3.9.0. All of this runs in a trial's
process, whose environment had ``TRITON_INTERPRET=1`` before Triton was imported.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import triton
import triton.language as tl
from torch._inductor import config
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
from triton.language.extra import libdevice as stubs
from triton.language.extra.cuda import libdevice as cuda_libdevice
from triton.runtime import interpreter

from dynadiag.torch_private.gpu_specs import GPU_SPECS
from dynadiag.torch_private.gpu_target import CodegenOnlyDriver


def generate_triton_for_cpu() -> None:
    """Make Inductor's Triton code generator serve tensors on the CPU."""
    from torch._inductor.runtime import triton_helpers

    triton.runtime.driver.set_active(CodegenOnlyDriver(GPU_SPECS["h200"], tensor_device="cpu"))
    config.cpu_backend = "triton"
    triton_helpers.set_driver_to_cpu = lambda: None  # generated modules call it; it warns without a CPU driver


def watch_launches(on_launch: Callable[[str], None]) -> None:
    """Call ``launched(kernel name)`` after each launch in the interpreter."""
    run = CachingAutotuner.run

    @functools.wraps(run)
    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        with np.errstate(all="ignore"):  # a GPU does not warn when it divides by zero
            result = run(self, *args, **kwargs)
        on_launch(self.fn.__name__)
        return result

    CachingAutotuner.run = watched


def patch_language_once_per_launch() -> None:
    """Make the interpreter patch Triton's language once per launch, not for each call of a device function.

    Patching takes most of the interpreter's time: it takes milliseconds, and Inductor's kernels call a helper for each
    operation.
    """
    patch, call = interpreter._patch_lang, interpreter.GridExecutor.__call__
    patched: set[int] = set()

    def patch_lang(fn: Any) -> Any:
        if id(fn.__globals__) in patched:
            return interpreter._LangPatchScope()
        patched.add(id(fn.__globals__))
        return patch(fn)

    @functools.wraps(call)
    def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        patched.clear()
        try:
            return call(self, *args, **kwargs)
        finally:
            patched.clear()

    interpreter._patch_lang = patch_lang
    interpreter.GridExecutor.__call__ = launch


def route_libdevice(implementation_of: Callable[[str], Callable[..., np.ndarray[Any, Any]]]) -> None:
    """Compute device functions with ``function(symbol)``, after Triton's own checks of their arguments."""

    def create_extern_elementwise(
        _self: Any, _name: str, _path: str, symbol: str, arguments: list[Any], result: Any, _pure: bool
    ) -> Any:
        values = np.broadcast_arrays(*(one.data for one in arguments))
        computed = implementation_of(symbol)(*values)
        return interpreter.TensorHandle(computed.astype(interpreter._get_np_dtype(result)), result.scalar)

    interpreter.InterpreterBuilder.create_extern_elementwise = create_extern_elementwise
    for name, member in inspect.getmembers(cuda_libdevice, tl.core.is_builtin):
        setattr(stubs, name, functools.partial(member, _semantic=interpreter.interpreter_semantic))


def match_gpu_numerics() -> None:
    """Fix the interpreter where its results differ from those of a compiled kernel.

    Assertions in kernels are checked. ``not`` applies to each element of a block. float32 is rounded to the nearest
    bfloat16 instead of truncated, and a NaN stays a NaN. Reductions and scans with a function of Inductor's combine
    halves, as on a GPU, not one element after another, which would also take seconds each.
    """
    options = interpreter.InterpreterOptions(debug=True, sanitize_overflow=False)
    interpreter.interpreter_builder.options = options
    cast = interpreter.InterpreterBuilder.cast_impl

    def cast_impl(self: Any, source: Any, kind: Any) -> Any:
        if (source.dtype.scalar, kind.scalar) == (tl.float32, tl.bfloat16):
            return interpreter.TensorHandle(_to_bfloat16(source.data), tl.bfloat16)
        if source.dtype.scalar == tl.bfloat16:
            wide = interpreter.TensorHandle(_from_bfloat16(source.data), tl.float32)
            return wide if kind.scalar == tl.float32 else cast(self, wide, kind)
        return cast(self, source, kind)

    interpreter.InterpreterBuilder.cast_impl = cast_impl
    interpreter.ASTTransformer.visit_UnaryOp = _visit_unary_op
    interpreter._elementwise_not = _elementwise_not  # rewritten functions run in the globals of this module
    interpreter.ReduceOps.generic_reduce = _reduce
    interpreter.ScanOps.generic_scan = _scan
    patch = interpreter._patch_lang_tensor

    def patch_tensor(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))  # NumPy 2.4 refuses Triton 3.6's

    interpreter._patch_lang_tensor = patch_tensor


def _visit_unary_op(self: Any, node: ast.UnaryOp) -> ast.expr:
    self.generic_visit(node)
    if not isinstance(node.op, ast.Not):
        return node
    call = ast.Call(ast.Name("_elementwise_not", ast.Load()), [node.operand], [])
    return ast.copy_location(call, node)


def _elementwise_not(value: Any) -> Any:
    return value == 0 if isinstance(value, tl.tensor) else not value


def _to_bfloat16(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bits of the nearest bfloat16, ties to even. A NaN keeps its sign and becomes quiet."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def _from_bfloat16(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _reduce(self: Any, given: Any) -> list[Any]:
    """Combine neighbours, all pairs at once, until one is left. This keeps the order of the elements.

    The size of a block is a power of 2.
    """
    values, axis = self.unravel(given, self.axis)
    arrays = [one.handle.data for one in values]
    kinds = [one.dtype for one in values]
    while arrays[0].shape[axis] > 1:
        even, odd = ([_every_second(array, axis, first) for array in arrays] for first in (0, 1))
        arrays = _combine(self, even, odd, kinds)
    return [self.to_tensor(_reduced_shape(self, array, axis), kind) for array, kind in zip(arrays, kinds, strict=True)]


def _reduced_shape(self: Any, array: np.ndarray[Any, Any], axis: int) -> Any:
    """The result of a reduction with or without the reduced axis. A scalar if all axes are reduced."""
    if self.keep_dims:
        return array
    return array.item() if self.axis is None else np.squeeze(array, axis)


def _every_second(array: np.ndarray[Any, Any], axis: int, first: int) -> np.ndarray[Any, Any]:
    return np.take(array, np.arange(first, array.shape[axis], 2), axis)


def _combine(self: Any, left: list[Any], right: list[Any], kinds: list[Any]) -> list[Any]:
    """Apply the combining function of a reduction or scan to whole arrays of left and right operands."""
    pairs = zip((*left, *right), (*kinds, *kinds), strict=True)
    operands = [self.to_tensor(array, kind) for array, kind in pairs]
    made = self.combine_fn.rewrite()(*operands)
    made = made if isinstance(made, tuple) else (made,)
    return [
        np.broadcast_to(one.handle.data, array.shape).astype(array.dtype) for one, array in zip(made, left, strict=True)
    ]


def _scan(self: Any, given: Any) -> list[Any]:
    """Combine each element with the one 1, 2, 4, ... positions before it (Hillis and Steele, 1986).

    Blocks keep their size, because Triton requires a power of 2. Elements with nothing before them keep their value.
    """
    arrays = [one.handle.data for one in given]
    kinds = [one.dtype for one in given]
    places = np.arange(arrays[0].shape[self.axis])
    distance = 1
    while distance < places.size:
        before = [np.take(array, np.maximum(places - distance, 0), self.axis) for array in arrays]
        made = _combine(self, before, arrays, kinds)
        for array, new in zip(arrays, made, strict=True):
            kept = [slice(None)] * array.ndim
            kept[self.axis] = slice(distance)
            new[tuple(kept)] = array[tuple(kept)]
        arrays = made
        distance *= 2
    return [self.to_tensor(array, kind) for array, kind in zip(arrays, kinds, strict=True)]
