"""The table and the document of a comparison built by hand."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.compare.call_kernels import CallKernels
from dynadiag.compare.comparison import VariantComparison
from dynadiag.compare.comparison_report import compare_document, comparison_text
from dynadiag.compare.variant import Variant
from dynadiag.compare.variant_result import CompileSummary, Gpu, Peak, VariantResult
from dynadiag.explanation.formatting import short_duration
from dynadiag.explanation.runtime_cost import CacheEntryRun, CallCost, WarmCalls
from dynadiag.render.json_document import encode
from dynadiag.render.printer import Printer
from dynadiag.trial.signature import Signature
from tests.explanation.build import a_break, a_compile

COMPILED = CompileSummary(
    seconds=4.0,
    parts=(("dynamo", 1.0), ("inductor", 3.0)),
    graphs=2,
    breaks=1,
    recompiles=0,
    kernels=CallKernels(3.0, 2.0, 0.0),
    cached=False,
    no_graphs=None,
    no_cudagraphs=(),
    notes=(),
)


def measured(
    mode: str, first: float, warm: float, compiled: CompileSummary | None = None, gpu: Gpu | None = None
) -> VariantResult:
    return VariantResult(
        Variant("make", mode),
        first=(first, warm, warm),
        rounds=((warm, warm * 1.01, warm * 1.02),),
        first_peak=Peak(3 << 20, 5 << 30 if gpu else None),
        compiled=compiled,
        torch="2.13.0",
        threads=2,
        device="cpu",
        gpu=gpu,
    )


EAGER = measured("eager", 0.02, 0.01)


def text(*rows: VariantResult, interrupted: bool = False, style: Printer | None = None) -> str:
    return comparison_text(VariantComparison((EAGER, *rows), interrupted), "t.py:make", style or Printer())


def test_the_table_says_how_each_stands_against_eager() -> None:
    shown = text(measured("default", 5.0, 0.005, COMPILED), measured("max-autotune", 9.0, 0.02, COMPILED))
    assert shown.startswith("default is 2.00x faster than eager, and pays after 988 calls.\ndynadiag ")
    default = next(line for line in shown.splitlines() if line.startswith("default  "))
    assert re.findall(r"\S+", default)[:3] == ["default", "5.00", "s"]
    assert "2.00x faster" in default
    assert re.search(r"2.00x slower +never", shown)
    assert re.search(r"^default +3 MB +- +5 +2 +1 +0$", shown, re.M)


def test_what_is_within_the_noise_is_said_to_be() -> None:
    shown = text(measured("default", 5.0, 0.01, COMPILED))
    assert shown.startswith("No variant is faster or slower than eager by more than the noise.\n")
    assert "within the noise" in shown
    assert "--repeat" in shown
    document = json.loads(
        encode(compare_document(VariantComparison((EAGER, measured("default", 5.0, 0.01)), False), "t.py:make"))
    )
    assert document["rows"][1]["against_eager"] == {"ratio": 1.0, "noise": True, "pays_after": None}


@pytest.mark.parametrize(("rounds", "words"), [(1, "the interquartile ranges"), (5, "the confidence intervals")])
def test_the_noise_is_what_the_rounds_can_tell(rounds: int, words: str) -> None:
    eager, compiled = (replace(row, rounds=row.rounds * rounds) for row in (EAGER, measured("default", 0.5, 0.01)))
    shown = comparison_text(VariantComparison((eager, compiled), False), "t.py:make", Printer())
    assert f"note: within the noise: {words}" in shown


def test_times_that_overlap_and_are_far_apart_are_not_called_noise() -> None:
    eager, slow = (replace(row, rounds=((1e-5, 1e-5, 2e-4),)) for row in (EAGER, measured("default", 0.5, 0.01)))
    slow = replace(slow, rounds=((8e-5, 8e-5, 9e-5),))
    shown = comparison_text(VariantComparison((eager, slow), False), "t.py:make", Printer())
    assert "maybe 8.00x slower" in shown
    assert "note: maybe: the interquartile ranges overlap" in shown


def test_a_failure_is_told_in_its_first_line_and_whole_in_the_document() -> None:
    failure = Signature("exception", "SomeError", "first line\x1b[31m\nsecond line", "torch/x.py:1 in f")
    row = VariantResult(Variant("make", "default"), failure)
    shown = text(row)
    assert "default: SomeError: first line\\x1b[31m" in shown
    assert "second line" not in shown
    document = json.loads(encode(compare_document(VariantComparison((EAGER, row), False), "t.py:make")))
    assert document["rows"][1]["failure"]["message"].endswith("second line")
    assert (document["schema"], document["torch"]) == (1, "2.13.0")


def test_what_is_slower_does_not_pay() -> None:
    slower, same = measured("max-autotune", 9.0, 0.02, COMPILED), measured("default", 5.0, 0.01)
    told = "Compiling does not pay here: max-autotune is 2.00x slower than eager"
    assert text(slower).startswith(f"{told}.\n")
    assert " ".join(text(slower, same).split()).startswith(f"{told}, and no variant is faster. dynadiag ")
    assert text(VariantResult(Variant("make", "default"), None)).startswith("dynadiag ")


def test_a_gpu_has_its_own_columns() -> None:
    shown = text(measured("default", 5.0, 0.005, COMPILED, Gpu(7, 3, 0.25, 0.5, 0.002)))
    assert re.search(r"^default +5 GB +- +3 +25% +50% +2.00 ms +7 +2 +1 +0$", shown, re.M)
    assert "launches" in shown


def test_compiled_code_that_only_calls_libraries_is_said_to_have_little_to_fuse() -> None:
    def note(kernels: CallKernels, gpu: Gpu | None = None, warm: float = 0.01) -> str:
        shown = text(measured("default", 5.0, warm, replace(COMPILED, kernels=kernels), gpu))
        found = re.search(
            r"note: default: (.*?)(, which an uncompiled call runs too)?: (there|comp)", " ".join(shown.split())
        )
        return found[1] if found else ""

    one = CallKernels(0.0, 1.0, 0.0, ("mm",))
    assert note(one) == "all that a call runs is 1 call of libraries"
    assert note(replace(one, extern=3.0, names=("own.twice.default",))) == (
        "all that a call runs is 3 calls of `own.twice.default`"
    )
    assert note(CallKernels(0.0, 0.0, 0.0)) == note(replace(one, uncompiled=3.0)) == ""
    part = replace(one, generated=1.0)
    assert note(part) == "an uncompiled call runs 1 of the 2 kernels of a call too (from libraries)"
    assert note(part, warm=0.005) == ""
    assert note(one, Gpu(7, 3, 0.02, 0.5, 0.002)) == "98% of the kernels' time is in kernels of libraries"
    assert note(one, Gpu(7, 3, 0.05, 0.5, 0.002)) == note(one, Gpu(7, 3, None, None, 0.002)) == ""


def test_remarks_name_the_variants_that_they_are_about() -> None:
    skipped = replace(COMPILED, no_cudagraphs=("cpu device",), cached=True)
    shown = text(measured("reduce-overhead", 5.0, 0.005, skipped), measured("max-autotune", 5.0, 0.005, skipped))
    assert "reduce-overhead, max-autotune: no CUDA graphs: cpu device" in shown
    assert "reduce-overhead, max-autotune: compiled code came from torch's cache" in shown


def test_on_a_cpu_reduce_overhead_is_said_to_be_the_default_mode() -> None:
    assert "reduce-overhead: this mode adds CUDA graphs to the default mode" in text(
        measured("reduce-overhead", 5.0, 0.005)
    )
    assert "CUDA graphs" not in text(measured("default", 5.0, 0.005))


def test_times_that_spread_wider_than_they_are_long_are_remarked_on() -> None:
    busy = VariantResult(Variant("make", "default"), first=(1.0,), rounds=((0.001, 0.001, 0.1, 0.1),))
    assert "OMP_NUM_THREADS=1" in text(busy)
    assert "OMP_NUM_THREADS=1" not in text()


def test_an_interrupted_comparison_says_so() -> None:
    assert "interrupted after 1 round;" in text(interrupted=True)


def test_several_functions_are_told_apart() -> None:
    other = VariantResult(Variant("other", "default"), first=(1.0,), rounds=((1.0,),))
    assert re.search(r"^other: default ", text(other), re.M)


@given(st.floats(0, 1e5))
def test_a_time_has_its_value_in_three_digits(seconds: float) -> None:
    value, unit = short_duration(seconds).split()
    scale = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}[unit]
    assert float(value) * scale == pytest.approx(seconds, rel=6e-3, abs=1e-8)


def test_variants_that_run_the_same_compiled_code_share_a_table_of_it() -> None:
    entries = tuple(CacheEntryRun(a_compile(at, f"0/{at}"), 2.0 + at, 1e-6, True) for at in range(2))
    profiled = replace(COMPILED, warm=WarmCalls(10, 1000.0, 7.0, 0.0, ()), entries=entries)
    shown = text(*(measured(mode, 5.0, 0.005, profiled) for mode in ("default", "max-autotune")))
    assert re.findall(r"compiled code in a warm call: (.+)", shown) == ["default"]
    one = replace(profiled, entries=entries[:1])
    assert "compiled code in a warm call" not in text(measured("default", 5.0, 0.005, one))


@pytest.mark.parametrize(("seconds", "is_lost"), [(0.00001, True), (0.002, False)])
def test_a_break_that_costs_less_than_calls_differ_by_is_said_to_be_lost(seconds: float, is_lost: bool) -> None:
    entries = tuple(CacheEntryRun(a_compile(at, f"0/{at}"), 1.0, 1e-6, True) for at in range(2))
    cost = CallCost(seconds, guard=0.0, entries=1.0, graphs=1.0, operators=0.0, launches=0.0)
    warm = WarmCalls(10, 0.005, 7.0, 0.0, ())
    profiled = replace(COMPILED, warm=warm, entries=entries, prices=((a_break(), cost),))
    shown = " ".join(text(measured("default", 5.0, 0.005, profiled)).split())
    assert ("what this break costs is lost in that" in shown) == is_lost
    assert "what the breaks cost in a warm call: default" in shown
