"""Code generated for an absent GPU is what the GPU would get, while the program's results are the CPU's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import dynadiag
from dynadiag.kernels.generated_module import GeneratedModule
from dynadiag.kernels.read_modules import generated_modules
from dynadiag.torch_private.gpu_specs import GPU_SPECS
from dynadiag.trial.compile_stages import _target
from tests.interpreters import warm
from tests.shared import shared_folder

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
DYNADIAG = (sys.executable, "-P", "-m", "dynadiag")
PROGRAM = """
import torch
from torch.nn import functional as F


def reduced(x):
    return (x * x).sum()


def normed(x, w):
    return F.layer_norm(x, (64,), w)


def spread(x):
    return F.softmax(x.float(), -1)


def linear(x, w, b):
    return F.gelu(F.linear(x, w, b)) + torch.arange(16, device=x.device)


def noted(x):
    y = x + 1
    print("between")
    return y * 2


@torch.library.custom_op("shop::price", mutates_args=(), tags=[torch.Tag.cudagraph_unsafe])
def price(x: torch.Tensor) -> torch.Tensor:
    return x * 3


@price.register_fake
def _(x):
    return torch.empty_like(x)


def priced(x):
    y = x.relu() + 1
    y = price(y)
    return y.sin() * 2


def check(function, *inputs, mode=None):
    actual = torch.compile(function, mode=mode)(*inputs)
    torch.testing.assert_close(actual, function(*inputs), rtol=0.02, atol=0.02)
    if actual.requires_grad:
        compiled = torch.autograd.grad(actual.float().sum(), inputs[0])
        expected = torch.autograd.grad(function(*inputs).float().sum(), inputs[0])
        torch.testing.assert_close(compiled, expected, rtol=0.02, atol=0.02)


torch.manual_seed(0)
half = {"dtype": torch.bfloat16, "requires_grad": True}
check(reduced, torch.randn(1 << 20))
check(normed, torch.randn(8, 64, **half), torch.randn(64, **half))
check(spread, torch.randn(8, 4096))
check(linear, torch.randn(8, 32, requires_grad=True), torch.randn(16, 32), torch.randn(16))
check(noted, torch.randn(8))
check(priced, torch.randn(8, 8), mode="reduce-overhead")
assert not torch.cuda.is_available()
"""


@pytest.fixture(scope="module")
def generated() -> list[GeneratedModule]:
    """The modules of the program, which asserts by itself that its results are eager's."""
    with shared_folder("gpu-target") as folder:
        if not (folder / "generated.dynadiag").exists():
            _generate(folder)
        with dynadiag.open(folder / "generated.dynadiag") as recording:
            return list(generated_modules(recording))


def _generate(folder: Path) -> None:
    (folder / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    command = [*DYNADIAG, "explain", "--force", "--target", "h200", "-o", "made.dynadiag", "program.py"]
    with warm():
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())
    assert "generated for a GPU that is not here, NVIDIA H200" in told
    assert "priced is split around `shop.price`, which runs in no CUDA graph" in told
    assert "y = price(y)" in told
    (folder / "made.dynadiag").rename(folder / "generated.dynadiag")


def _sources(generated: list[GeneratedModule], function: str, stage: str) -> list[str]:
    """The kernels of the graphs whose operators stand in that function."""
    head = PROGRAM.splitlines().index(
        next(line for line in PROGRAM.splitlines() if line.startswith(f"def {function}("))
    )
    found = []
    for unit in generated:
        lines = {place.line for call in unit.calls for place in call.source_lines}
        if unit.parsed.stage == stage and lines and all(head < line <= head + 4 for line in lines):
            found += [one.source for one in unit.parsed.definitions.values()]
    return found


def test_kernels_are_for_the_device(generated: list[GeneratedModule]) -> None:
    definitions = [one for unit in generated for one in unit.parsed.definitions.values()]
    assert definitions
    for one in definitions:
        assert one.language == "triton"
        assert "type='cuda', index=0, multi_processor_count=132, cc=90" in one.source


def test_a_reduction_is_split_for_its_processors(generated: list[GeneratedModule]) -> None:
    assert len(_sources(generated, "reduced", "inference")) == 2


def test_a_decomposition_that_asks_the_device_is_told(generated: list[GeneratedModule]) -> None:
    """On a CPU the statistics of a layer norm are rounded to the input's dtype."""
    (source,) = _sources(generated, "normed", "forward")
    assert source.count("'*fp32'") == 2


def test_softmax_is_online(generated: list[GeneratedModule]) -> None:
    assert any("online" in source for source in _sources(generated, "spread", "inference"))


def test_a_bias_stays_in_its_product(generated: list[GeneratedModule]) -> None:
    calls = [call.name for unit in generated for call in unit.calls if call.language == "extern"]
    assert "addmm" in " ".join(calls)


def test_another_device_is_refused() -> None:
    command = [*DYNADIAG, "explain", "--target", "abacus", "program.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no GPU 'abacus' is known: choose from a100, " in done.stderr


def test_what_a_gpu_would_get_has_no_bound_of_this_machine(generated: list[GeneratedModule]) -> None:
    assert {call.device for unit in generated for call in unit.calls} == {None}


@pytest.mark.parametrize(("target", "architecture"), [("h100", 90), ("a100", 80), ("sm_90", 90), ("sm_100", 100)])
def test_a_gpu_is_another_spelling_of_its_architecture(target: str, architecture: int) -> None:
    backend, found, warp, spec = _target(target)
    assert (backend, found, warp) == ("cuda", architecture, 32)
    assert spec.architecture == ("sm_90" if target == "sm_100" else f"sm_{architecture}")  # the heuristics take an H200


@pytest.mark.slow
@pytest.mark.parametrize("gpu", GPU_SPECS)
def test_each_known_gpu_is_generated_for(tmp_path: Path, gpu: str) -> None:
    program = "import torch\ntorch.compile(lambda x: (x * x).sum())(torch.randn(1 << 20))\n"
    (tmp_path / "program.py").write_text(program)
    command = [*DYNADIAG, "explain", "--target", gpu, "-o", "run.dynadiag", "program.py"]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        sources = [one.source for unit in generated_modules(recording) for one in unit.parsed.definitions.values()]
    spec = GPU_SPECS[gpu]
    expected = f"multi_processor_count={spec.multi_processor_count}, cc={spec.major}{spec.minor}"
    assert sources
    assert all(expected in source for source in sources)
