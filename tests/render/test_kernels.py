"""The listing of kernels: its columns, and which of them are left out."""

from __future__ import annotations

from dataclasses import replace

from dynadiag.kernels.timing import CallTime, DevicePeaks, KernelTimes, Roofline
from dynadiag.kernels.triton_artifacts import TritonArtifact
from dynadiag.render.kernels import kernel_text, listing_text
from tests.render.test_launches import FUSED

BUILT = TritonArtifact(7, "sm_90", 24, 0, None, 4, 0.5, {"XBLOCK": "64"}, "k.py")
TIMES = KernelTimes("a device", "2.13.0", DevicePeaks(1e9, {}, 1e9), {7: {84: CallTime(32e-9, ())}})


def heads(text: str) -> list[str]:
    return text.splitlines()[0].split()


def test_the_columns_of_a_run_without_times_and_artifacts() -> None:
    text = listing_text([FUSED], Roofline())
    assert heads(text) == ["compile", "graph", "language", "kernel", "computes", "lines", "bytes", "flops", "bound"]
    assert text.splitlines()[1].split() == [
        "0/0", "inference", "cpp", FUSED.name, "relu,", "sigmoid,", "add", "prog.py:30", "32", "12", "memory",
    ]  # fmt: skip


def test_without_kernels_it_does_not_say_that_inductor_compiled_nothing() -> None:
    """It may have written a package, which leaves no code in a recording."""
    assert "or a package" in listing_text([], Roofline())


def test_what_was_measured_comes_first_and_what_was_built_last() -> None:
    first, second = replace(FUSED, artifact=BUILT), replace(FUSED, line=90, call_number=2, evidence="dataflow")
    lines = listing_text([first, second], Roofline(times=TIMES)).splitlines()
    assert lines[0].split()[:3] == ["time", "of", "peak"]
    assert lines[0].split()[-4:] == ["regs", "spills", "shared", "occupancy"]
    assert lines[1].split()[:3] == ["0.032", "µs", "100%"]
    assert lines[1].split()[-4:] == ["24", "0", "?", "50%"]
    assert lines[2].split()[:2] == ["?", "?"]
    assert lines[2].split()[-1] == "memory"
    assert f"{FUSED.name} #2" in lines[2]
    assert "prog.py:30?" in lines[2]


def test_one_kernel_says_what_the_run_built_of_it() -> None:
    text = kernel_text([replace(FUSED, artifact=BUILT)], Roofline())
    assert "// built for sm_90 with XBLOCK=64\n" in text
    assert "// 24 registers a thread, 0 spilled, ? bytes of shared memory; occupancy 50%\n" in text


def test_remarks_are_wrapped_below_a_blank_line() -> None:
    fallback = replace(FUSED, fallback="Inductor has no kernel for complex numbers, so ATen runs the operator")
    text = listing_text([fallback], Roofline(), 60)
    table, _, remarks = text.partition("\n\n")
    fusion, remark, *rest = remarks.splitlines()
    assert fusion == "compile 0/0, inference: 3 operators run as 1 call"
    assert remark.startswith(f"{FUSED.name} is a fallback: ")
    assert rest
    assert max(map(len, (remark, *rest))) <= 60
    assert heads(table)[0] == "compile"
