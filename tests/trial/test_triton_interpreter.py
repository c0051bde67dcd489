"""Functions compiled to Triton kernels and run by Triton's interpreter, in a process of its own, compared with
eager.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

PROGRAM = """
import json, sys, torch
import numpy as np
from dynadiag.torch_private import interpreter_patches
from dynadiag.trial import triton_interpreter
from dynadiag.trial.context import TRIAL

triton_interpreter.install()
events = []
TRIAL.send = lambda event: events.append(event.name)
torch._inductor.config.fx_graph_cache = False
torch.manual_seed(0)
x = torch.randn(16, 40)
holes = x.clone()
holes[1, 2], holes[3, 4], holes[5, 6] = torch.nan, torch.inf, -torch.inf
index = torch.randint(0, 16, (8,))
whole, bytes_ = torch.randint(-50, 50, (16, 40)), torch.randint(-128, 128, (16, 40), dtype=torch.int8)
divisor = torch.where(whole.flip(0) == 0, 3, whole.flip(0))
functional, special = torch.nn.functional, torch.special
OLD = torch.__version__ < (2, 12)  # whose frexp gives infinities an exponent, and which never rounds in casts

CASES = {
    "pointwise": (lambda a: functional.gelu(a).sigmoid() * a.expm1(), (x,)),
    "softmax": (lambda a: a.softmax(-1), (x,)),
    "extremes with their places": (lambda a: (a.max(1), a.argmin(0), a.amax()), (holes,)),
    "welford": (lambda a: torch.var_mean(a, 1), (x,)),
    "products and truths": (lambda a: (a.prod(1), (a > 0).any(1), (a > -9).all(0)), (x,)),
    "scans": (lambda a: (a.cumsum(1), a.cumprod(1), a.cummax(1), a.logcumsumexp(0)), (x,)),
    "sort": (lambda a: torch.sort(a, dim=1, stable=True), (holes,)),
    "gather and scatter": (lambda a, i: a.index_add(0, i, a[:8]) + a[i].sum(0), (x, index)),
    "special functions": (lambda a: (special.i1e(a), torch.lgamma(a), special.bessel_j0(a)), (x,)),
    "mantissas": (lambda a: torch.frexp(a), (x if OLD else holes,)),
    "whole numbers": (lambda a: ((a * 9).int() // 4, (a * 9).int() % 4, (a * 9).round().long() >> 1), (x,)),
    "half": (lambda a: (a.bfloat16() * 1.007, (a.half() + 1).exp(), a.bfloat16().sum(1)), (holes,)),
    "casts": (
        lambda a: (a.double().exp(), a.bool(), *(() if OLD else (a.half().float(), a.bfloat16().float()))),
        (holes,),
    ),
    "division": (lambda a, b: (a // b, a % b, a.fmod(b), a.div(b, rounding_mode="trunc")), (whole, divisor)),
    "overflow": (lambda a: (a + a, a * a, a >> 1, a << 1, ~a, a.abs(), a.view(torch.uint8) >> 1, a.sum(1)), (bytes_,)),
    "comparisons": (
        lambda a: (a > 0, a.isnan(), a.isinf(), a.maximum(a.flip(0)), a.fmax(a.flip(0)), a.nan_to_num(), a.clamp(-1, 1),
                   a.sign(), a.relu(), torch.where(a > 0, a, -a), a.round(), a.trunc(), a.floor()),
        (holes,),
    ),
    "rows of several blocks": (lambda a: (a.sum(1), a.softmax(1), a.argmax(1), a.var(1)), (torch.randn(2, 3000),)),
    "searches": (lambda a, b: (torch.bucketize(a, b), torch.searchsorted(b, a)), (x, torch.arange(-2.0, 3))),
    "more special functions": (
        lambda a, b: (special.i0(a), special.erfinv(a.tanh()), special.erfcx(a), a.atan2(b), a.hypot(b), a.nextafter(b),
                      a.fmod(0.3), a.copysign(b), special.ndtri(a.sigmoid()), special.bessel_y0(a.abs())),
        (x, x.flip(0)),
    ),
}
ROUNDED = {"half", "casts"}  # Inductor leaves out the rounding between two of its operations unless it is told not to
leaves = torch.utils._pytree.tree_leaves


found = {}
for name, (function, arguments) in CASES.items():
    torch._dynamo.reset()
    events.clear()
    expected = leaves(function(*arguments))
    actual = leaves(torch.compile(function, options={"emulate_precision_casts": name in ROUNDED})(*arguments))
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True, msg=lambda text: f"{name}: {text}")
    found[name] = list(events)
print(json.dumps(found))

edges = torch.tensor([0.0, -0.0, 1e-40, 3.4e38, torch.inf, -torch.inf])
values = torch.cat([torch.randn(4096) * 2.0 ** torch.randint(-130, 120, (4096,)), edges])
bits = interpreter_patches._to_bfloat16(values.numpy())
odd = np.array([0x7F800001, 0xFFFFFFFF], dtype=np.uint32).view(np.float32)  # NaNs whose upper half says infinity
print(torch.equal(torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16), values.bfloat16()))
print(np.isnan(interpreter_patches._from_bfloat16(interpreter_patches._to_bfloat16(odd))).all())

torch._dynamo.reset()
torch.compile(lambda a, i: a[i] + 1)(torch.ones(4), torch.tensor([1, 9]))
"""


def test_kernels_compute_what_eager_does_and_each_is_reported() -> None:
    """Rounding to bfloat16 is torch's, and the program ends at an index out of bounds: an assertion of the kernel."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout, done.stderr[-4000:]
    cases, *rounding = done.stdout.splitlines()
    reported: dict[str, list[str]] = json.loads(cases)
    for name, kernels in reported.items():
        assert kernels, name
        assert all(kernel.startswith("triton_") for kernel in kernels), name
        assert len(kernels) == len(set(kernels)), f"{name}: each kernel once a trial"
    assert rounding == ["True", "True"], done.stderr[-4000:]
    assert done.returncode == 1
    assert "index out of bounds" in done.stderr
