"""The report's section on kernels."""

from __future__ import annotations

import json
from dataclasses import replace

from dynadiag.explanation.explanation import explain
from dynadiag.kernels.cost import RooflineCost
from dynadiag.kernels.generated_module import KernelCall
from dynadiag.kernels.graph_parser import SourceLine
from dynadiag.recording.records import Kernel
from dynadiag.render.json_document import explanation_json
from dynadiag.render.printer import Printer
from dynadiag.render.report import explanation_text
from dynadiag.render.wrap import width
from tests.explanation.build import FILE, FakeRecording, a_graph
from tests.render.samples import EVIL

FUSED = KernelCall(
    index=0,
    compile_id="0/0",
    stage="inference",
    event=7,
    name="cpp_fused_add_relu_sigmoid_0",
    language="cpp",
    call_number=1,
    line=84,
    text="cpp_fused_add_relu_sigmoid_0(arg0_1, buf0)",
    definition=None,
    nodes=("relu", "sigmoid", "add"),
    views=(),
    operator_lines=(),
    ops=("relu", "sigmoid", "add"),
    dynamo_nodes=("relu", "sigmoid", "add"),
    source_lines=(SourceLine(FILE, 30),),
    view_lines=(),
    evidence="scheduler",
    grid=None,
    cost=RooflineCost(16, 16, 12),
    device="cpu",
    cache=None,
    partition=None,
    fallback=None,
)
MADE = explain(
    FakeRecording(
        graph_records=(a_graph(0, ops=3), a_graph(1, stage="inference", ops=3)),
        kernel_records=(Kernel(0, "0/0", FUSED.name, "cpp", 7), Kernel(1, "1/0", FUSED.name, "cpp", 9)),
    )
)


def test_a_kernel_has_its_nodes_its_lines_and_what_it_saves() -> None:
    assert (
        "kernels: 2 kernels, 1 call: 3 operators run as 1 call (uncompiled: about a launch each)\n"
        "    0/0 inference cpp_fused_add_relu_sigmoid_0: relu, sigmoid, add\n"
        "        at prog.py:30\n"
    ) in explanation_text(MADE, Printer(100), calls=(FUSED,))


def test_calls_of_the_backward_are_not_set_against_the_programs_operators() -> None:
    backward = replace(FUSED, stage="backward", name="back")
    text = explanation_text(MADE, calls=(FUSED, backward, backward))
    assert "kernels: 2 kernels, 3 calls: 3 operators run as 1 call" in text
    assert "; 2 calls in the backward" in " ".join(text.split())


def test_the_kernels_are_those_of_the_counts_and_calls_are_told_apart() -> None:
    text = explanation_text(MADE, calls=(FUSED, replace(FUSED, call_number=2), replace(FUSED, stage="backward")))
    assert ", 2 kernels\n" in text
    assert "kernels: 2 kernels, 3 calls: 3 operators run as 2 calls (" in text


def test_of_many_places_those_are_shown_that_fit_with_their_lines() -> None:
    places = tuple(SourceLine(f"/elsewhere/a_folder/{name}_of_a_long_name.py", 1088) for name in "abcd")
    for columns in (60, 80, 200):
        text = explanation_text(MADE, Printer(columns), calls=(replace(FUSED, source_lines=places),))
        at = next(line for line in text.splitlines() if line.startswith("        at "))
        assert at.endswith(":1088 ...")
        assert at.count(".py") == at.count(".py:1088")
        assert width(at) <= columns


def test_the_largest_of_many_calls_are_shown() -> None:
    calls = tuple(replace(FUSED, name=f"k{i}", cost=RooflineCost(i, i, 1)) for i in range(9))
    text = explanation_text(MADE, calls=calls)
    assert [name for name in ("k8", "k4", "k3") if f" {name}: relu" in text] == ["k8", "k4"]
    assert "... and 4 more calls; `dynadiag kernels` lists them" in text
    assert " k0: relu" in explanation_text(MADE, Printer(all_=True), calls=calls)


def test_calls_of_one_kernel_at_the_same_lines_are_told_once() -> None:
    calls = tuple(replace(FUSED, name="addmm", nodes=(f"addmm_{i}",), call_number=i) for i in range(9))
    text = explanation_text(MADE, calls=(*calls, replace(calls[0], stage="backward")))
    assert " addmm (9 calls): addmm_0, addmm_1, " in text
    assert text.count("addmm_0") == 2
    assert "more call" not in text


def test_what_is_not_known_is_said() -> None:
    bare = replace(FUSED, stage=None, nodes=(), source_lines=(), evidence="none", cost=RooflineCost())
    text = explanation_text(MADE, calls=(bare,))
    assert "    0/0 graph unknown cpp_fused_add_relu_sigmoid_0: no mapping to nodes\n" in text
    inferred = explanation_text(MADE, calls=(replace(FUSED, evidence="dataflow"),))
    assert "at prog.py:30, inferred from the code\n" in inferred


def test_without_calls_there_is_no_section() -> None:
    assert "kernels:" not in explanation_text(MADE)


def test_hostile_names_are_harmless_and_fit() -> None:
    evil = replace(
        FUSED, compile_id=EVIL, stage=EVIL, name=EVIL, nodes=(EVIL,) * 40, source_lines=(SourceLine(EVIL, 1),) * 5
    )
    text = explanation_text(MADE, Printer(80), calls=(evil,))
    assert "\x1b" not in text
    assert max(map(width, text.split("\n"))) <= 80


def test_the_document_has_nodes_and_lines_of_the_kernels_that_were_read() -> None:
    first, second = json.loads(explanation_json(MADE, (FUSED, replace(FUSED, call_number=2))))["kernels"]
    assert (first["nodes"], first["lines"]) == (["relu", "sigmoid", "add"], [{"file": FILE, "line": 30}])
    assert (second["nodes"], second["lines"]) == ([], [])
