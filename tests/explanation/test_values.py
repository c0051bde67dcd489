"""What the values of nodes tell: the first wrong one, the first that is not finite, the first of low precision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dynadiag.explanation.explanation import explain
from dynadiag.explanation.values import (
    ValueTable,
    element_count,
    operator_name,
    range_text,
    read_values,
    value_findings,
)
from dynadiag.recording.records import NodeFacts, NodeValue, Span, StoredNodeValue, ValuesCall, ValueSummary
from tests.explanation.build import FILE, FakeRecording

SOURCE = "def forward(x):\n    y = x / 2\n    z = y.log()\n    return z.sum()\n"


def a_call(index: int = 0, **changes: Any) -> ValuesCall:
    return replace(ValuesCall(index, "0/0", "forward", index, "s", 0.1, ()), **changes)


def a_summary(**changes: Any) -> ValueSummary:
    made = ValueSummary(("4",), "float32", ("1",), -1.0, 2.0, 0.5, 3.0, 0, 0, 0, "h", ("1.0", "2.0"))
    return replace(made, **changes)


def a_node(index: int, node: str, *inputs: str, line: int = 2, **changes: Any) -> NodeValue:
    own = {name: changes.pop(name) for name in ("op", "off_float64", "cause") if name in changes}
    made = NodeValue(index, 0, node, node, inputs, Span(FILE, line), a_summary(**changes), 1e-7, None)
    return replace(made, **own)


def table(*nodes: NodeValue, stored: tuple[StoredNodeValue, ...] = ()) -> ValueTable:
    return ValueTable((a_call(),), nodes, {each.index: each for each in stored})


def test_a_recording_without_values_has_no_table() -> None:
    assert read_values(FakeRecording()) is None
    assert explain(FakeRecording()).values is None


def test_a_nan_in_a_shape_that_no_tensor_has_is_told() -> None:
    (found,) = value_findings(table(a_node(0, "y", nan=3, shape=("9" * 19,) * 300)), {FILE: SOURCE})
    assert "3 NaN of 0 in" in found.title


def test_the_first_nan_is_told_with_its_cause_and_what_it_reads() -> None:
    nodes = a_node(0, "y"), a_node(1, "z", "y", line=3, nan=3, cause="log of -0.5 at [0]"), a_node(2, "s", "z", nan=1)
    (found,) = value_findings(table(*nodes), {FILE: SOURCE})
    assert (found.rule, found.severity, found.span.line, found.function) == ("not-finite", "warning", 3, "forward")
    assert found.title == "z (z) has 3 NaN of 4 in the forward graph"
    assert found.cause == "log of -0.5 at [0]"
    assert [fact.text for fact in found.evidence] == ["y: float32 (4,), -1 .. 2"]


def test_what_made_the_infinity_that_a_nan_is_computed_of_is_a_fact() -> None:
    division = a_node(0, "d", line=3, inf=1, cause="div of 1 and 0 at [0]")
    nan = a_node(2, "m", "v", nan=1, cause="mul of inf and 0 at [0]")
    (found,) = value_findings(table(division, a_node(1, "v", "d", inf=1), nan), {})
    (fact,) = [fact for fact in found.evidence if fact.label == "first infinity"]
    assert fact.text == "d: float32 (4,), -1 .. 2, 1 infinite; div of 1 and 0 at [0]"
    assert fact.span is not None
    assert fact.span.line == 3


def test_another_graph_that_makes_an_overflow_of_finite_values_has_a_finding_too() -> None:
    calls = a_call(), a_call(1, compile_id="1/0"), a_call(2, compile_id="2/0"), a_call(3, compile_id="3/0")
    first = a_node(0, "z", nan=1, cause="log of -1 at [0]")
    own = replace(a_node(1, "m", line=3, inf=1, cause="mul overflows float16"), values_call=1)
    given = replace(a_node(2, "x", line=4, op="placeholder", nan=1), values_call=2)
    follows = replace(a_node(3, "w", "x", line=4, nan=1, cause="log of -1 at [0]"), values_call=2)
    same_line = replace(own, index=4, values_call=3)
    found = value_findings(ValueTable(calls, (first, own, given, follows, same_line), {}), {})
    assert [(each.compile_ids, each.span.line) for each in found] == [(("0/0",), 2), (("1/0",), 3)]


def test_an_input_with_nan_comes_from_outside() -> None:
    (found,) = value_findings(table(a_node(0, "x", op="placeholder", nan=1)), {})
    assert found.cause == "it comes in from outside of this graph"


def lost(*indices: int) -> dict[int, NodeFacts]:
    """The facts of nodes whose NaN come to nothing."""
    return {index: NodeFacts(index, False, None, None, None, None, (), ()) for index in indices}


def test_a_nan_that_is_not_returned_leads_nowhere_and_one_that_is_leads() -> None:
    masked = a_node(0, "m", nan=1, cause="log of -1 at [0]")
    over = a_node(2, "o", inf=1, cause="exp overflows float32: it is 1e+50 in float64")
    assert value_findings(replace(table(masked, a_node(1, "w", "m"), over), facts=lost(0, 2)), {}) == ()
    real = a_node(3, "r", "w", line=3, nan=1, cause="div of 0 and 0 at [0]")
    made = replace(table(masked, a_node(1, "w", "m"), over, real), facts=lost(0, 2))
    (found,) = value_findings(made, {})
    assert (found.span.line, found.cause) == (3, "div of 0 and 0 at [0]")
    assert made.first_nan is real


def test_what_the_graph_makes_leads_before_what_comes_in() -> None:
    given, made = a_node(0, "x", op="placeholder", nan=1), a_node(1, "z", nan=1, cause="log of -1 at [0]")
    assert table(given, made).first_nan is made


def test_a_nan_that_the_forward_saves_for_its_backward_is_told_there() -> None:
    """The forward takes it out; its backward multiplies a zero with it."""
    calls = a_call(graph="forward"), a_call(1, graph="backward", call=0)
    forward = a_node(0, "sqrt_of_x", nan=2, cause="sqrt of -1 at [0]", hash="kept")
    saved = replace(a_node(1, "sqrt", op="placeholder", nan=2, hash="kept"), values_call=1)
    gradient = replace(a_node(2, "div", "sqrt", nan=2), values_call=1)
    made = ValueTable(calls, (forward, saved, gradient), {}, lost(0))
    (found,) = value_findings(made, {})
    assert found.title.startswith("sqrt_of_x (sqrt_of_x) has 2 NaN")
    tangent = replace(saved, node="tangents_1")
    assert ValueTable(calls, (forward, tangent), {}, lost(0)).first_nan is tangent


def test_an_input_with_nan_in_a_later_call_says_which_calls_to_record() -> None:
    nan = a_node(0, "x", op="placeholder", nan=1)
    (found,) = value_findings(ValueTable((a_call(call=7),), (nan,), {}), {})
    assert found.cause == "it comes in from outside of this graph; --calls 0..6 shows the calls before"
    later = replace(nan, values_call=1)
    (found,) = value_findings(ValueTable((a_call(call=6), a_call(1, call=7)), (later,), {}), {})
    assert found.cause == "it comes in from outside of this graph"


def test_a_node_of_several_layers_has_its_call_and_the_weights_before_it() -> None:
    weight = "l_self_modules_2_parameters_weight_"
    nodes = a_node(0, weight, op="placeholder"), a_node(1, "linear_2", weight), a_node(2, "mul_2", "linear_2", nan=1)
    (found,) = value_findings(ValueTable((a_call(call=7),), nodes, {}), {})
    assert found.title == "mul_2 (mul_2) has 1 NaN of 4 in the forward graph, call 7"
    assert [(each.label, each.text) for each in found.evidence][1:] == [
        ("last weights", "2.weight, which linear_2 reads")
    ]


def test_an_overflow_that_becomes_nan_leads() -> None:
    """Softmax of two infinities is NaN: the product before it is the cause. An overflow elsewhere is not."""
    overflow: dict[str, Any] = {"inf": 2, "cause": "matmul overflows float16: it is 1e+06 in float64"}
    nodes = a_node(0, "other", **overflow), a_node(1, "scores", line=3, **overflow), a_node(2, "s", "scores", nan=4)
    (found,) = value_findings(table(*nodes), {FILE: SOURCE})
    assert found.title.startswith("scores (scores) has 2 infinite of 4")
    assert ["float16 ends at 65,504" in each.text for each in found.advice] == [True]
    assert [(fact.label, fact.text) for fact in found.evidence] == [("becomes", "s: float32 (4,), -1 .. 2, 4 NaN")]


def test_infinities_of_a_mask_are_not_told_but_an_overflow_is() -> None:
    assert value_findings(table(a_node(0, "masked_fill", inf=2, cause="masked_fill of -inf")), {}) == ()
    for dtype, advised in (("float16", True), ("float32", False)):
        cause = f"half overflows {dtype}: it is 1e+06 in float64"
        (found,) = value_findings(table(a_node(0, "half", inf=2, cause=cause)), {})
        assert found.title.startswith("half (half) has 2 infinite of 4")
        assert bool(found.advice) is advised


def test_the_first_wrong_value_leads() -> None:
    wrong = StoredNodeValue(1, "cpp_fused_relu_0", 0.5, True, a_summary(samples=("1.0", "9.0")))
    nodes = a_node(0, "x", op="placeholder"), a_node(1, "relu", "x"), a_node(2, "log", "relu", nan=1)
    explanation = explain(FakeRecording(value_records=(a_call(), *nodes, wrong), sources={FILE: SOURCE}))
    found, first = explanation.findings, explanation.headline
    assert first.sentence.startswith("A wrong value: kernel cpp_fused_relu_0 gives a wrong relu (relu) in the forward")
    assert first.severity == "error"
    assert [each.rule for each in found] == ["wrong-value", "not-finite"]
    assert found[0].severity == "error"
    assert found[0].title == "kernel cpp_fused_relu_0 gives a wrong relu (relu) in the forward graph"
    assert [(fact.label, fact.text) for fact in found[0].evidence[:2]] == [("uncompiled", "2.0"), ("compiled", "9.0")]


def test_an_operator_that_writes_to_what_it_does_not_declare_leads() -> None:
    known = NodeFacts(1, None, None, "l_x_", None, None, (), ())
    (found,) = value_findings(replace(table(a_node(0, "l_x_"), a_node(1, "bump", "l_x_")), facts={1: known}), {})
    assert found.title == "bump (bump) writes to x in the forward graph, and does not declare that"


def test_a_wrong_backward_graph_is_not_the_fault_of_its_kernel() -> None:
    stored = StoredNodeValue(0, "cpp_fused_mul_0", None, True, a_summary())
    weight = "l_self_modules_lin_parameters_weight_"
    known = NodeFacts(0, None, None, None, weight, 0.25, ("1.0",), ("0.5",))
    made = ValueTable((a_call(graph="backward"),), (a_node(0, "mul_6"),), {0: stored}, {0: known})
    (found,) = value_findings(made, {})
    assert found.title == "AOTAutograd's backward graph is wrong at mul_6 (mul_6)"
    assert "the gradient of lin.weight that it returns is off by 0.25 of its largest element" in (found.cause or "")
    assert [(each.label, each.text) for each in found.evidence] == [("autograd", "1.0"), ("compiled", "0.5")]


def test_a_node_that_loses_more_than_its_neighbours_is_told() -> None:
    usual = [a_node(index, f"n{index}", off_float64=1e-7) for index in range(6)]
    far = a_node(6, "sum_1", "n0", off_float64=1e-3)
    (found,) = value_findings(table(*usual, far), {})
    assert (found.rule, found.title) == (
        "low-precision",
        "sum_1 (sum_1) loses precision in float32, in the forward graph",
    )


@pytest.mark.parametrize(("dtype", "off", "usual"), [("bfloat16", 0.14, 4e-3), ("float16", 0.02, 5e-4)])
def test_a_narrow_type_loses_precision_long_before_half_of_its_value(dtype: str, off: float, usual: float) -> None:
    """A sum of 512 elements in bfloat16 is off by 0.14; an operator that rounds once is off by half a unit."""
    nodes = (
        *(a_node(index, f"n{index}", dtype=dtype, off_float64=usual) for index in range(6)),
        a_node(6, "sum_1", "n0", dtype=dtype, off_float64=off),
    )
    (found,) = value_findings(table(*nodes), {})
    assert found.title.startswith("sum_1 (sum_1) loses precision")
    steps = NodeFacts(6, None, off, None, None, None, (), ())  # it moves as far with the last place of its inputs
    assert value_findings(replace(table(*nodes), facts={6: steps}), {}) == ()


def test_a_sum_that_cancels_is_not_told() -> None:
    usual = [a_node(index, f"n{index}", off_float64=1e-7) for index in range(6)]
    far = a_node(6, "sum_1", "n0", off_float64=0.5, min=-1e-8, max=1e-8)
    assert value_findings(table(*usual, far), {}) == ()


def test_errors_alike_are_not_told() -> None:
    assert value_findings(table(*[a_node(index, f"n{index}", off_float64=1e-3) for index in range(6)]), {}) == ()


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("torch.ops.aten.sum.dim_IntList", "sum"),
        ("torch.nn.functional.gelu", "gelu"),
        ("torch.ops.higher_order.cond", "cond"),
        ("relu", "relu"),
    ],
)
def test_operators_have_short_names(op: str, name: str) -> None:
    assert operator_name(op) == name


def test_a_value_in_short() -> None:
    assert range_text(a_node(0, "x", shape=(), min=2.0, max=2.0, nan=0)) == "float32 (), 2"
    assert range_text(a_node(0, "x", dtype="int64", min=9e5, max=900015.0)) == "int64 (4,), 900000 .. 900015"
    assert range_text(a_node(0, "x", min=None, max=None, nan=4, inf=1)) == "float32 (4,), 4 NaN, 1 infinite"


@pytest.mark.parametrize("shape", [("9" * 19,) * 300, ("-1", "3"), ("9" * 19, "9" * 19)])
def test_a_shape_that_no_tensor_has_counts_nothing(shape: tuple[str, ...]) -> None:
    assert element_count(shape) == 0
    (found,) = value_findings(table(a_node(0, "z", shape=shape, nan=1, cause="log of -1")), {})
    assert found.title.startswith("z (z) has 1 NaN of 0")
