"""A model as it is and in four variants, each recorded forward and backward in one process."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

from dynadiag.kernels.generated_module import KernelCall
from dynadiag.kernels.read_modules import kernel_calls
from dynadiag.recording.opening import open_recording
from tests.interpreters import warm
from tests.kernels.programs import HEAD
from tests.kernels.recorded import environment
from tests.shared import shared_folder

__all__ = ["path", "variant"]

_MODEL = """
def {name}(x, w, scale):
    h = x.sin() * scale
    h = h + x.cos()
{added}    h = F.layer_norm(h, (64,))
    h = {activation}(h @ w)
{between}    y = h.exp() - h * 0.5
    y = y.softmax(-1)
    return y.tanh() + x
"""
_RUN = """
import dynadiag
from torch._inductor import config


def run(name, function, **options):
    torch._dynamo.reset()
    torch.manual_seed(0)
    given = [torch.randn(64, 64, requires_grad=True) for _ in range(2)] + [torch.randn(64, requires_grad=True)]
    with dynadiag.record(name + ".dynadiag"), config.patch(**options):
        torch.compile(function)(*given).sum().backward()


run("plain", plain)
run("less_fused", plain, max_fusion_size=2)
run("broken", broken)
run("changed", changed)
run("added", added)
"""


def _program(language: str) -> str:
    parts = {"activation": "torch.relu", "added": "", "between": ""}
    models = [
        _MODEL.format(**{**parts, "name": "plain"}),
        _MODEL.format(**{**parts, "name": "broken", "between": "    torch._dynamo.graph_break()\n"}),
        _MODEL.format(**{**parts, "name": "changed", "activation": "torch.sigmoid"}),
        _MODEL.format(**{**parts, "name": "added", "added": "    h = h.abs()\n"}),
    ]
    return HEAD[language] + "".join(models) + _RUN


def path(language: str, name: str) -> Path:
    """The recording of a variant."""
    with shared_folder(f"variants-{language}") as folder:
        if not (folder / "made").exists():
            _record(language, folder)
            (folder / "made").touch()
        return folder / f"{name}.dynadiag"


def _record(language: str, folder: Path) -> None:
    (folder / "model.py").write_text(_program(language))
    off = environment(TORCHINDUCTOR_FORCE_DISABLE_CACHES="1")
    command = [sys.executable, "model.py"]
    with warm():
        done = subprocess.run(command, cwd=folder, env=off, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]


@functools.cache
def variant(language: str, name: str) -> tuple[KernelCall, ...]:
    """The kernels of a variant."""
    with open_recording(path(language, name)) as recording:
        return kernel_calls(recording)
