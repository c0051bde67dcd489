"""Times: the marks in a module, the times saved in a recording, and the share of the peak."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from dynadiag.kernels.cost import RooflineCost
from dynadiag.kernels.isolated_job import run_isolated
from dynadiag.kernels.read_modules import kernel_calls
from dynadiag.kernels.timing import CallTime, DevicePeaks, KernelTimes, TimedModule, TimingJob, saved_times
from dynadiag.recording.opening import open_recording
from dynadiag.recording.store import save_derived
from dynadiag.torch_private.triton_autotuner import pin_configurations
from dynadiag.trial.module_timing import _load_module, add_marks
from tests.interpreters import DYNADIAG
from tests.kernels.programs import program
from tests.kernels.recorded import environment, record, recorded

pytestmark = pytest.mark.usefixtures("forked_interpreters")

_PEAKS = DevicePeaks(bytes_per_second=1e12, product_flops={"bf16": 1e15}, vector_flops=1e13)


def test_a_statement_over_several_lines_is_marked_whole() -> None:
    source = "class Runner:\n    def call(self):\n        first(1,\n              2)\n        second(3); del x\n"
    assert add_marks(source, [3, 5]).splitlines() == [
        "class Runner:",
        "    def call(self):",
        "        dynadiag_begin(3)",
        "        first(1,",
        "              2)",
        "        dynadiag_end()",
        "        dynadiag_begin(5)",
        "        second(3); del x",
        "        dynadiag_end()",
    ]


def test_a_statement_of_a_cpp_wrapper_is_marked_in_its_own_block() -> None:
    source = "src = r'''\nvoid inductor_entry_impl(\n) {\n    auto a = f();\n    kernel(a);\n}\n'''\n"
    mark = 'torch::aot_inductor::RAIIAtenRecordFunctionHandle dynadiag_mark("dynadiag call 5", nullptr);'
    assert add_marks(source, [5]) == source.replace("    kernel(a);", f"{{ {mark}     kernel(a); }}")


@pytest.mark.slow
def test_every_call_of_a_cpp_wrapper_is_timed() -> None:
    """Its kernels are called in C++, which has to be compiled."""
    copy = record(_WRAPPED, "wrapped")
    assert _kernels(copy, "--measure", "--trust").returncode == 0
    rows = json.loads(_kernels(copy, "--json", "-").stdout)["kernels"]
    assert {row["graph"] for row in rows} == {"forward", "backward"}
    assert {row["name"] for row in rows} >= {"mm", "cumsum"}
    assert all(row["seconds"] > 0 and row["nodes"] for row in rows)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_kernel_is_run_in_the_configuration_that_is_asked_for(tmp_path: Path) -> None:
    with open_recording(record(_TUNED, "tuned")) as recording:
        calls = [call for call in kernel_calls(recording) if call.language == "triton"]
        module = _load_module(recording.payload(calls[0].event), tmp_path / "module.py")
    tuners = {call.name: getattr(module, call.name) for call in calls}
    for tuner in tuners.values():
        if not tuner.launchers:
            tuner.precompile()
    name, tuner = next((name, tuner) for name, tuner in tuners.items() if len(tuner.launchers) > 1)
    wanted = tuner.launchers[-1].config
    kwargs = {**wanted.kwargs, "num_warps": wanted.num_warps, "num_stages": wanted.num_stages}
    pin_configurations(module, {name: {key: str(value) for key, value in kwargs.items()}, "another": {}})
    assert [launcher.config for launcher in tuner.launchers] == [wanted]


_TUNED = """
import torch

torch._inductor.config.max_autotune_pointwise = True
torch.compile(lambda x: x.sum(0) + 1)(torch.randn(4096, 4096, device="cuda"))
"""


def test_a_share_is_of_what_bounds_the_kernel() -> None:
    pointwise = RooflineCost(bytes_read=5 * 10**11, bytes_written=5 * 10**11, flops=10**10)
    product = RooflineCost(bytes_read=10**9, bytes_written=10**9, flops=10**15, product_dtype="bf16")
    assert CallTime(2.0, ()).peak_share(pointwise, _PEAKS) == pytest.approx(0.5)
    assert CallTime(4.0, ()).peak_share(product, _PEAKS) == pytest.approx(0.25)
    assert CallTime(1.0, ()).peak_share(RooflineCost(None, None, 5), _PEAKS) is None


_WRAPPED = """
import torch

torch._inductor.config.cpp_wrapper = True


@torch.compile
def f(x, w):
    return ((x.sin() + 1) @ w).cumsum(0).cos() * 2


f(torch.randn(32, 32, requires_grad=True), torch.randn(32, 32)).sum().backward()
"""
_BRANCHED = """
import torch


@torch.compile
def f(taken, x, w):
    y = torch.cond(taken, lambda x, w: x @ w, lambda x, w: w @ x, (x, w))
    return y.sin()


f(torch.tensor(True), torch.randn(64, 64), torch.randn(64, 64))
"""
_NO_RATE = {
    "device": "cpu",
    "torch": "2.13.0",
    "errors": {},
    "times": {"1": {"2": {"seconds": 1.0, "device_kernels": []}}},
    "peaks": {"bytes_per_second": 0, "product_flops": {}, "vector_flops": None},
}


@pytest.mark.parametrize(
    "kept", [{}, [], {"times": {"x": {}}, "peaks": None}, {"times": {"1": {"2": {}}}}, "text", _NO_RATE]
)
def test_what_a_stranger_keeps_as_times_is_not_believed(kept: object, tmp_path: Path) -> None:
    copy = tmp_path / "copy.dynadiag"
    shutil.copy(recorded("cpp"), copy)
    assert save_derived(copy, "times", kept)
    with open_recording(copy) as recording:
        assert saved_times(recording) is None


# The peak is measured with large products. They take a minute on a processor without bfloat16, so tests use small ones.
_SMALL = """
import sys

if "dynadiag.trial.module_timing" in sys.orig_argv:
    from dynadiag.trial import device_peaks

    device_peaks._MATRIX_SIZE["cpu"] = 64
    device_peaks._COPY_BYTES["cpu"] = 1 << 22
"""


@pytest.fixture
def small_products(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that measures multiplies small matrices."""
    (tmp_path / "sitecustomize.py").write_text(_SMALL)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.slow
def test_every_call_of_a_large_recording_is_timed_and_kept() -> None:
    """Each kernel is compiled for it."""
    _check_times(record(program("cpp", changed=False), "timed"))


@pytest.mark.usefixtures("small_products")
def test_every_call_of_a_recording_is_timed_and_kept() -> None:
    """One kernel is compiled for it: the others are of a library."""
    _check_times(record(_BRANCHED, "timed"))


def _check_times(copy: Path) -> None:
    name = json.loads(_kernels(copy, "--json", "-").stdout)["kernels"][0]["name"]
    assert _kernels(copy, name, "--measure", "--trust").returncode == 0  # all are timed, though one is printed
    document = json.loads(_kernels(copy, "--json", "-").stdout)
    seconds = [one["seconds"] for one in document["kernels"]]
    passed_by = [one["seconds"] is None for one in document["kernels"]]  # in a branch that random inputs do not take
    assert not any(passed and not one["around"] for passed, one in zip(passed_by, document["kernels"], strict=True))
    assert passed_by == sorted(passed_by)
    assert seconds[: passed_by.count(False)] == sorted(filter(None, seconds), reverse=True)
    assert document["measured"]["bytes_per_second"] > 0
    assert json.loads(_kernels(copy, "--json", "-").stdout) == document
    assert "of peak" in _kernels(copy).stdout.splitlines()[0]


def test_a_strangers_recording_is_not_run(tmp_path: Path) -> None:
    copy = tmp_path / "copy.dynadiag"
    shutil.copy(recorded("cpp"), copy)
    done = _kernels(copy, "--measure", TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "elsewhere"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "--trust" in done.stderr


@pytest.mark.usefixtures("small_products")
def test_a_module_that_fails_is_said_and_the_others_are_timed() -> None:
    good = "import torch\ndef get_args():\n    return [torch.ones(4)]\ndef call(args):\n    args[0].sin()\n"
    job = TimingJob([TimedModule(1, good, [5]), TimedModule(7, "raise ValueError('no')", [1])], seconds=0.01)
    made = run_isolated("dynadiag.trial.module_timing", job, KernelTimes, "measuring")
    assert list(made.times) == [1]
    assert made.times[1][5].seconds > 0
    assert made.errors == {7: "ValueError: no"}


def _kernels(recording: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [str(DYNADIAG), "kernels", str(recording), *words]
    return subprocess.run(command, env=environment(**more), capture_output=True, text=True, timeout=570)
