"""CUDA's device functions in NumPy, for kernels that Triton's interpreter runs.

Triton calls them by the symbol that a GPU would link (``__nv_expm1f``, ``__nv_expm1``), and the interpreter does not
implement them. This module has those that Inductor's Triton code generator uses (`torch/_inductor/codegen/triton.py`,
``common.py`` and ``runtime/triton_helpers.py`` of torch 2.11 to 2.15). Arguments are arrays of one shape, float32 or
float64. A float32 result is the float64 result rounded once. A GPU may differ from it by the few units in the last
place that CUDA documents for libdevice.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Function = Callable[..., Array]

_ERFCX_SERIES_FROM = 25.0  # from here on the series in 1/x^2 is used: its seventh term is below 1e-16 of the sum
_ERFCX_TERMS = 7
_BESSEL_NODES = 256  # of the trapezoid rule: its relative error is I_256(x), below 1e-40 up to x = 710
_ERFINV_STEPS = 4  # of Halley's method: three reduce the initial error of 2e-3 to the last place


class UnknownSymbolError(NotImplementedError):
    """A device function that is not implemented here."""


def find_function(symbol: str) -> Function:
    """The NumPy implementation of a libdevice symbol. Raises `UnknownSymbolError`."""
    name = symbol.removeprefix("__nv_")
    for candidate in (name, name.removesuffix("f"), name.removesuffix("d"), _ALIASES.get(name, "")):
        if candidate in FUNCTIONS:
            return FUNCTIONS[candidate]
    raise UnknownSymbolError(f"{symbol}: this device function cannot be run without a GPU")


def _in_float64(compute: Function) -> Function:
    """Compute in float64 and round once to the dtype of the first argument."""

    @functools.wraps(compute)
    def rounded(*arguments: Array) -> Array:
        return compute(*(one.astype(np.float64) for one in arguments)).astype(arguments[0].dtype)

    return rounded


def _from_libc(name: str) -> Function:
    """A function of the C library, applied to each element in float64."""
    symbol = getattr(ctypes.CDLL(None), name)
    symbol.restype, symbol.argtypes = ctypes.c_double, [ctypes.c_double]
    return _in_float64(np.vectorize(symbol, otypes=[np.float64]))


_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _erfcx(x: Array) -> Array:
    """exp(x^2) erfc(x). If the product would overflow: its asymptotic series (Abramowitz and Stegun 7.1.23)."""
    near = np.exp(np.square(x)) * _erfc(x)
    term = series = np.ones_like(x)
    for order in range(1, _ERFCX_TERMS):
        term = term * -(2 * order - 1) / (2 * np.square(x))
        series = series + term
    return np.where(x < _ERFCX_SERIES_FROM, near, series / (x * math.sqrt(math.pi)))


def _erfinv(x: Array) -> Array:
    """Halley's method on erf, or on erfc where erf is nearly 1. It starts from S. Winitzki's approximation (2008)."""
    size = np.abs(x)
    inside = np.where(size < 1, size, 0.0)
    logarithm = np.log1p(-np.square(inside))
    first = 2 / (math.pi * 0.147) + logarithm / 2
    y = np.sqrt(np.sqrt(np.square(first) - logarithm / 0.147) - first)
    for _ in range(_ERFINV_STEPS):
        excess = np.where(inside < 0.5, _erf(y) - inside, (1 - inside) - _erfc(y))
        step = excess * math.sqrt(math.pi) / 2 * np.exp(np.square(y))
        y = y - step / (1 + y * step)
    edge = np.where(size == 1, np.inf, np.nan)
    return np.copysign(np.where(size < 1, y, edge), x)


def _bessel_i(order: int, x: Array) -> Array:
    """I0 or I1: the mean of cosh(x cos t) or of sinh(x cos t) cos t over a period. Neither has cancellation."""
    cosines = np.cos(np.arange(_BESSEL_NODES) * (2 * math.pi / _BESSEL_NODES))
    argument = x[..., None] * cosines
    integrand = np.cosh(argument) if order == 0 else np.sinh(argument) * cosines
    return np.mean(integrand, axis=-1)


def _ilogb(x: Array) -> Array:
    """The binary exponent of each element. Zeros, infinities and NaN give what CUDA gives."""
    exponent = np.frexp(x)[1].astype(np.int64) - 1
    exponent = np.where(np.isinf(x), np.iinfo(np.int32).max, exponent)
    return np.where((x == 0) | np.isnan(x), np.iinfo(np.int32).min, exponent)


def _fma(x: Array, y: Array, z: Array) -> Array:
    """x * y + z, rounded once, by the C library's function for the dtype."""
    name, kind = ("fmaf", ctypes.c_float) if x.dtype == np.float32 else ("fma", ctypes.c_double)
    symbol = getattr(ctypes.CDLL(None), name)
    symbol.restype, symbol.argtypes = kind, [kind] * 3
    return np.vectorize(symbol, otypes=[x.dtype])(x, y, z)


_ALIASES = {"fmul_rn": "mul_rn", "dmul_rn": "mul_rn", "fabsf": "abs", "fabs": "abs", "llabs": "abs", "powif": "powi"}

FUNCTIONS: dict[str, Function] = {
    "abs": np.abs,
    "acos": _in_float64(np.arccos),
    "acosh": _in_float64(np.arccosh),
    "asin": _in_float64(np.arcsin),
    "asinh": _in_float64(np.arcsinh),
    "atan": _in_float64(np.arctan),
    "atan2": _in_float64(np.arctan2),
    "atanh": _in_float64(np.arctanh),
    "ceil": np.ceil,
    "copysign": np.copysign,
    "cos": _in_float64(np.cos),
    "cosh": _in_float64(np.cosh),
    "cyl_bessel_i0": _in_float64(functools.partial(_bessel_i, 0)),
    "cyl_bessel_i1": _in_float64(functools.partial(_bessel_i, 1)),
    "erf": _in_float64(_erf),
    "erfc": _in_float64(_erfc),
    "erfcx": _in_float64(_erfcx),
    "erfinv": _in_float64(_erfinv),
    "exp": _in_float64(np.exp),
    "exp2": _in_float64(np.exp2),
    "expm1": _in_float64(np.expm1),
    "floor": np.floor,
    "fma": _fma,
    "fmod": np.fmod,
    "hypot": _in_float64(np.hypot),
    "ilogb": _ilogb,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "j0": _from_libc("j0"),
    "j1": _from_libc("j1"),
    "ldexp": np.ldexp,
    "lgamma": _from_libc("lgamma"),
    "llrint": np.rint,
    "log": _in_float64(np.log),
    "log10": _in_float64(np.log10),
    "log1p": _in_float64(np.log1p),
    "log2": _in_float64(np.log2),
    "mul_rn": np.multiply,
    "nearbyint": np.rint,
    "nextafter": np.nextafter,
    "pow": _in_float64(np.power),
    "powi": _in_float64(np.power),
    "rsqrt": _in_float64(lambda x: 1 / np.sqrt(x)),
    "signbit": np.signbit,
    "sin": _in_float64(np.sin),
    "sinh": _in_float64(np.sinh),
    "sqrt": np.sqrt,
    "tan": _in_float64(np.tan),
    "tanh": _in_float64(np.tanh),
    "trunc": np.trunc,
    "y0": _from_libc("y0"),
    "y1": _from_libc("y1"),
}
