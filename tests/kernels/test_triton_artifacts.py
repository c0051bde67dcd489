"""The kernels that the recorded run built: written by the recorder from Triton's own files, read back as stages.

The kernel is really compiled by Triton, for a GPU that need not be here; only that Inductor launched it is made up.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from dynadiag.capture import generated_code as capture
from dynadiag.kernels.read_modules import kernel_calls
from dynadiag.kernels.stages import make_stages
from dynadiag.recording.journal import Journal
from dynadiag.recording.opening import fold_in_place, open_recording
from dynadiag.recording.store import save_derived
from dynadiag.torch_private import triton_autotuner as torch_private

_NAME = "triton_poi_fused_scale_0"
_KERNEL = f"""import triton
import triton.language as tl

@triton.jit
def {_NAME}(in_ptr0, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    place = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    tmp0 = tl.load(in_ptr0 + place, place < xnumel)
    tl.store(out_ptr0 + place, tmp0 * 2.0, place < xnumel)
"""
_COMPILE = f"""
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
import triton, kernel
signature = {{"in_ptr0": "*fp32", "out_ptr0": "*fp32", "xnumel": "i32", "XBLOCK": "constexpr"}}
triton.compile(ASTSource(kernel.{_NAME}, signature, {{(3,): 256}}), target=GPUTarget("cuda", 90, 32))
"""
_MODULE = f"""# AOT ID: ['0_inference']
from torch._inductor.async_compile import AsyncCompile

{_NAME} = async_compile.triton('{_NAME}', '''
{_KERNEL}''', device_str='cuda')

def call(args):
    arg0_1, = args
    buf0 = empty_strided_cuda((64, ), (1, ), torch.float32)
    {_NAME}.run(arg0_1, buf0, 64, stream=stream0)
    return (buf0, )
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that Triton keeps the kernel's stages in."""
    folder = tmp_path_factory.mktemp("triton")
    (folder / "kernel.py").write_text(_KERNEL)
    environment = {"PATH": "/usr/bin:/bin", "TRITON_CACHE_DIR": str(folder / "cache"), "HOME": str(folder)}
    subprocess.run([sys.executable, "-c", _COMPILE], cwd=folder, env=environment, check=True, timeout=120)
    return next((folder / "cache").rglob("*.ptx")).parent


@pytest.fixture
def recording(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recording with the module and what `capture.built` tells of its kernel."""
    made = torch_private.TritonBinary(_NAME, "/x/kernel.py", cache, 12, 0, 0, {"XBLOCK": "256", "num_warps": "4"})
    monkeypatch.setattr(torch_private, "built_kernels", lambda _module: [made])
    path = tmp_path / "built.dynadiag"
    journal = Journal.create(path)
    journal.append({"dynadiag_run": {"torch": "2.11.0", "device": "NVIDIA H200"}})
    where = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    journal.append({"inductor_output_code": {"file_path": "/x/module.py"}, **where}, _MODULE)
    for data, stages in capture.describe_kernels("/x/module.py"):
        journal.append({"dynadiag_triton": data, **where}, stages)
    journal.close()
    fold_in_place(path)
    return path


def test_registers_and_the_rest_stand_with_the_kernel(recording: Path) -> None:
    with open_recording(recording) as opened:
        (call,) = kernel_calls(opened)
    assert call.artifact is not None
    assert (call.artifact.target, call.artifact.registers, call.artifact.spills, call.artifact.shared) == (
        "sm_90",
        12,
        0,
        0,
    )
    assert (call.artifact.warps, call.artifact.occupancy) == (4, 1.0)
    assert call.artifact.configuration == {"XBLOCK": "256", "num_warps": "4"}


def test_the_stages_of_the_run_are_read_and_nothing_is_compiled(recording: Path) -> None:
    with open_recording(recording) as opened:
        (call,) = kernel_calls(opened)
        stages = make_stages(opened, call, trusted=False)
    assert stages.target == "sm_90"
    assert list(stages.stages) == ["ttir", "ttgir", "llir", "ptx"]
    load = _KERNEL.splitlines().index("    tmp0 = tl.load(in_ptr0 + place, place < xnumel)") + 1
    for stage in stages.stages.values():
        assert load in {source for _, source in stage.lines}
    assert any("--trust" in note for note in stages.notes)


def test_machine_code_is_taken_apart_with_trust_and_kept(recording: Path) -> None:
    with open_recording(recording) as opened:
        (call,) = kernel_calls(opened)
        sass = make_stages(opened, call, trusted=True).stages["sass"]
        kept = make_stages(opened, call, trusted=False).stages["sass"]
    assert kept == sass
    assert any("LDG" in sass.text.splitlines()[line - 1] for line, _ in sass.lines)


@pytest.mark.parametrize(
    "kept",
    [
        {"target": "k.py", "stages": {"sass": 7}},
        {"target": "k.py", "stages": {"sass": {"name": "sass", "text": 7, "lines": []}}},
        {"target": "k.py", "stages": {"sass": {"name": "sass", "text": "", "lines": [[1]]}}},
        {"target": "k.py", "stages": {"sass": {"name": "sass", "text": "", "lines": []}}, "notes": 7},
    ],
)
def test_what_a_stranger_keeps_as_stages_is_not_believed(kept: object, recording: Path) -> None:
    with open_recording(recording) as opened:
        (call,) = kernel_calls(opened)
        make_stages(opened, call, trusted=True)
    with contextlib.closing(sqlite3.connect(recording)) as database:
        keys = [key for (key,) in database.execute("SELECT key FROM made")]
    for key in keys:
        assert save_derived(recording, key, kept)
    with open_recording(recording) as opened:
        assert "sass" not in make_stages(opened, call, trusted=False).stages


def test_damage_is_left_out(recording: Path, tmp_path: Path) -> None:
    path = tmp_path / "damaged.dynadiag"
    journal = Journal.create(path)
    journal.append({"dynadiag_run": {"torch": "2.11.0"}})
    journal.append({"inductor_output_code": {"file_path": "/x/module.py"}}, _MODULE)
    odd = {"module": "/x/module.py", "name": _NAME, "source": "k.py", "configuration": {}, "registers": "many"}
    journal.append({"dynadiag_triton": odd}, json.dumps({"ptx": 7, "ttir": "module {}", "cubin": "no base 64"}))
    journal.append({"dynadiag_triton": {"module": 3}}, "no JSON")
    journal.close()
    fold_in_place(path)
    with open_recording(path) as opened:
        (call,) = kernel_calls(opened)
        assert call.artifact is not None
        assert call.artifact.registers is None
        stages = make_stages(opened, call, trusted=True)
    assert list(stages.stages) == ["ttir"]
    assert any(note.startswith("no SASS") for note in stages.notes)
