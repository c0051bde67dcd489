"""Device functions in NumPy, compared with torch's on the CPU, and complete for what Inductor generates."""

from __future__ import annotations

import inspect
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from triton.language.extra.cuda import libdevice as cuda_libdevice

from dynadiag.trial import libdevice

special = torch.special
NAN, INF = math.nan, math.inf
EDGES = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, INF, -INF, NAN)
TINY, HUGE = (1e-30, -1e-30, 1.2e-38, 1e-40), (80.0, -80.0, 1e30, -1e30, 3e38)
GRID = (*EDGES, *TINY, *HUGE, *np.linspace(-12, 12, 241))
UNIT = (*EDGES, *TINY, *np.linspace(-1, 1, 201), 1 - 1e-7, -1 + 1e-7)
SMALL = (*EDGES, *np.linspace(-25, 25, 201))
MODEST = (0.0, -0.0, 1.0, -1.0, NAN, *np.linspace(-25, 25, 201))

# The function, torch's counterpart, and where it is tried.
UNARY: dict[str, tuple[Any, tuple[float, ...]]] = {
    "abs": (torch.abs, GRID),
    "acos": (torch.acos, UNIT),
    "acosh": (torch.acosh, GRID),
    "asin": (torch.asin, UNIT),
    "asinh": (torch.asinh, GRID),
    "atan": (torch.atan, GRID),
    "atanh": (torch.atanh, UNIT),
    "ceil": (torch.ceil, GRID),
    "cos": (torch.cos, SMALL),
    "cosh": (torch.cosh, SMALL),
    "cyl_bessel_i0": (special.i0, MODEST),
    "cyl_bessel_i1": (special.i1, MODEST),
    "erf": (torch.erf, GRID),
    "erfc": (torch.erfc, GRID),
    "erfcx": (special.erfcx, GRID),
    "erfinv": (torch.erfinv, UNIT),
    "exp": (torch.exp, GRID),
    "exp2": (torch.exp2, GRID),
    "expm1": (torch.expm1, GRID),
    "floor": (torch.floor, GRID),
    "isinf": (torch.isinf, GRID),
    "isnan": (torch.isnan, GRID),
    "j0": (special.bessel_j0, MODEST),
    "j1": (special.bessel_j1, MODEST),
    "lgamma": (torch.lgamma, GRID),
    "log": (torch.log, GRID),
    "log10": (torch.log10, GRID),
    "log1p": (torch.log1p, GRID),
    "log2": (torch.log2, GRID),
    "nearbyint": (torch.round, GRID),
    "rsqrt": (torch.rsqrt, GRID),
    "signbit": (torch.signbit, GRID),
    "sin": (torch.sin, SMALL),
    "sinh": (torch.sinh, SMALL),
    "sqrt": (torch.sqrt, GRID),
    "tan": (torch.tan, SMALL),
    "tanh": (torch.tanh, GRID),
    "trunc": (torch.trunc, GRID),
    "y0": (special.bessel_y0, MODEST),
    "y1": (special.bessel_y1, MODEST),
}
BINARY: dict[str, tuple[Any, tuple[float, ...]]] = {
    "atan2": (torch.atan2, GRID),
    "copysign": (torch.copysign, GRID),
    "fmod": (torch.fmod, MODEST),
    "hypot": (torch.hypot, GRID),
    "mul_rn": (torch.mul, GRID),
    "nextafter": (torch.nextafter, GRID),
    "pow": (torch.pow, SMALL),
}
# Compared with something else below.
APART = {"fma", "ilogb", "ldexp", "llrint", "powi"}
# Where torch's own functions are approximations: the relative and absolute errors that were measured. MODEST leaves out
# where torch returns NaN: Bessel functions of infinity, and fmod with a quotient above 2^24.
LOOSE = {"erfcx": (1e-5, 0.0), "cyl_bessel_i1": (2e-6, 0.0), **dict.fromkeys(("j0", "j1", "y0", "y1"), (0.0, 2e-6))}
DTYPES: dict[type[np.floating[Any]], tuple[float, float]] = {np.float32: (2e-6, 1e-7), np.float64: (1e-13, 1e-15)}


def close(name: str, actual: np.ndarray[Any, Any], expected: torch.Tensor, dtype: type[np.floating[Any]]) -> None:
    rtol, atol = (max(pair) for pair in zip(DTYPES[dtype], LOOSE.get(name, (0.0, 0.0)), strict=True))
    torch.testing.assert_close(torch.from_numpy(actual), expected, rtol=rtol, atol=atol, equal_nan=True)


def test_bessel_functions_of_an_infinity_are_those_of_the_c_library() -> None:
    infinities = np.array([INF, -INF])
    with np.errstate(all="ignore"):
        found = {name: list(libdevice.FUNCTIONS[name](infinities)) for name in ("cyl_bessel_i0", "cyl_bessel_i1", "j0")}
    assert found == {"cyl_bessel_i0": [INF, INF], "cyl_bessel_i1": [INF, -INF], "j0": [0.0, 0.0]}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_argument_agree_with_torch(name: str, dtype: type[np.floating[Any]]) -> None:
    reference, grid = UNARY[name]
    x: np.ndarray[Any, Any] = np.array(grid, dtype=dtype)
    with np.errstate(all="ignore"):
        actual = libdevice.FUNCTIONS[name](x)
    close(name, actual, reference(torch.from_numpy(x)), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_arguments_agree_with_torch(name: str, dtype: type[np.floating[Any]]) -> None:
    reference, grid = BINARY[name]
    x, y = (part.ravel() for part in np.meshgrid(np.array(grid[::3], dtype=dtype), np.array(grid, dtype=dtype)))
    with np.errstate(all="ignore"):
        actual = libdevice.FUNCTIONS[name](x, y)
    close(name, actual, reference(torch.from_numpy(x), torch.from_numpy(y)), dtype)


def test_every_function_is_compared_with_something() -> None:
    assert set(UNARY) | set(BINARY) | APART == set(libdevice.FUNCTIONS)


@given(st.floats(-(2.0**90), 2.0**90, width=32))
def test_exponents_and_scaling_take_a_number_apart_and_together(value: float) -> None:
    x = np.array([value], dtype=np.float32)
    exponent = libdevice.FUNCTIONS["ilogb"](x)
    if value != 0:
        assert 1 <= abs(float(libdevice.FUNCTIONS["ldexp"](x.astype(np.float64), -exponent)[0])) < 2
    assert int(libdevice.FUNCTIONS["llrint"](x)[0]) == round(float(x[0]))


def test_the_exponent_of_what_has_none() -> None:
    found = libdevice.FUNCTIONS["ilogb"](np.array([0.0, INF, -INF, NAN], dtype=np.float32))
    assert list(found) == [-(2**31), 2**31 - 1, 2**31 - 1, -(2**31)]


@given(*(st.floats(-(2.0**40), 2.0**40, width=32) for _ in range(3)))
def test_a_fused_multiplication_rounds_once(x: float, y: float, z: float) -> None:
    given_ = [np.array([v], dtype=np.float32) for v in (x, y, z)]
    fused = libdevice.FUNCTIONS["fma"](*given_)[0]
    exact = _fraction(given_[0]) * _fraction(given_[1]) + _fraction(given_[2])
    assert abs(_fraction(np.array([fused])) - exact) * 2 <= _fraction(np.spacing(np.abs(np.array([fused]))))


def _fraction(x: np.ndarray[Any, Any]) -> Fraction:
    return Fraction(float(x[0]))


def test_a_whole_power() -> None:
    x, n = np.array([2.0, -3.0, 0.5], dtype=np.float32), np.array([10, 3, -2], dtype=np.int32)
    assert list(libdevice.FUNCTIONS["powi"](x, n)) == [1024.0, -27.0, 4.0]


def test_every_symbol_that_inductor_uses_is_implemented() -> None:
    """The names in the code generator's source, and the symbols that they stand for on an NVIDIA GPU."""
    root = Path(torch.__file__).parent / "_inductor"
    files = ("codegen/triton.py", "codegen/common.py", "runtime/triton_helpers.py")
    text = "".join((root / file).read_text() for file in files)
    used = set(re.findall(r"\blibdevice\.([a-z]\w*)\(", text)) - {"fast_tanhf"}  # that one is AMD's
    assert len(used) > 30
    for name in used:
        symbols = re.findall(r'"(__nv_\w+)"', inspect.getsource(getattr(cuda_libdevice, name)))
        assert symbols, name
        for symbol in symbols:
            assert libdevice.find_function(symbol) in libdevice.FUNCTIONS.values()


def test_a_missing_function_is_named() -> None:
    with pytest.raises(libdevice.UnknownSymbolError, match="__nv_saturatef"):
        libdevice.find_function("__nv_saturatef")
