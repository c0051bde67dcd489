"""A program that fails because of its own Triton kernel: the repro has the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.minify.test_command import minify

PROGRAM = """
import torch
import triton
import triton.language as tl
from torch._inductor.codegen import wrapper


@triton.jit
def scale_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * factor, mask=mask)


def scaled(x, factor):
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), factor, BLOCK=128)
    return out


def refuse(self, *args, **kwargs):
    raise RuntimeError("planted")


wrapper.PythonWrapperCodegen.define_user_defined_triton_kernel = refuse
x, w = torch.randn(64, 32, device="cuda"), torch.randn(32, 32, device="cuda")
torch.compile(lambda x, w: torch.softmax(scaled(torch.sin(x @ w), 2.0), -1).cumsum(0) + 1)(x, w)
"""


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: Dynamo records Triton's kernels for one only")
def test_the_kernel_is_launched_in_the_repro(tmp_path: Path) -> None:
    code, repro, data, told = minify(tmp_path, PROGRAM)
    assert code == 0, told
    assert (data["nodes_after"], data["proved"], data["minimal"]) == (1, True, True)
    assert "@triton.jit\ndef scale_kernel(" in repro.read_text()
    assert "scale_kernel[(16, 1, 1)](" in repro.read_text()
