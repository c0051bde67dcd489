"""Two runs with values: the first node whose inputs agree and whose value does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dynadiag.diff.compile_matching import CompilePair
from dynadiag.diff.value_differences import value_differences, value_notes
from dynadiag.recording.records import NodeValue, StoredNodeValue
from tests.explanation.build import FakeRecording, a_compile
from tests.explanation.test_values import a_call, a_node, a_summary


def recording(*nodes: NodeValue, seed: str = "s", **call: Any) -> Any:
    return FakeRecording(value_records=(a_call(seed=seed, **call), *nodes))


def differences(before: Any, after: Any) -> list[Any]:
    return list(value_differences(before, after, [CompilePair(a_compile(), a_compile())]))


def chain(**changes: dict[str, Any]) -> list[NodeValue]:
    """x -> y -> z, with some of the values changed."""
    given = {"x": ("placeholder", ()), "y": ("mul", ("x",)), "z": ("exp", ("y",))}
    return [
        a_node(index, name, *inputs, line=index + 1, **({"hash": name, "op": op} | changes.get(name, {})))
        for index, (name, (op, inputs)) in enumerate(given.items())
    ]


def test_the_same_run_has_no_difference() -> None:
    assert differences(recording(*chain()), recording(*chain(), seed="other")) == []


def test_the_first_node_beyond_rounding_is_told() -> None:
    after = chain(y={"hash": "o", "samples": ("1.5", "2.0")}, z={"hash": "p", "samples": ("1.0", "7.0")})
    (found,) = differences(recording(*chain()), recording(*after))
    assert (found.stage, found.line, found.graph, found.compile_ids) == ("values", 2, "dynamo", ("0/0", "0/0"))
    assert found.text.startswith("y (mul) differs, and what it reads does not: float32 (4,)")
    assert "(2 nodes of 3 differ)" in found.text
    assert [node.after.split(" ")[0] for node in found.nodes] == ["y", "z"]


def test_rounding_does_not_lead_where_something_is_beyond_it() -> None:
    after = chain(y={"hash": "o", "samples": ("1.0000001", "2.0")}, z={"hash": "p", "samples": ("1.0", "2.5")})
    (found,) = differences(recording(*chain()), recording(*after))
    assert found.text.startswith("z (exp) differs")


def test_other_bits_within_rounding_are_told_as_such() -> None:
    after = chain(y={"hash": "o", "samples": ("1.0000001", "2.0")}, z={"hash": "p"})
    (found,) = differences(recording(*chain()), recording(*after))
    assert found.text.startswith("y (mul) differs, and what it reads does not, within rounding")


@pytest.mark.parametrize("op", ["__rtruediv__", "unheard_of"])
def test_a_node_that_is_named_otherwise_hands_on_how_far_its_inputs_are_apart(op: str) -> None:
    near = {"hash": "o", "samples": ("1.000001", "2.0")}
    before = recording(*chain(y={"op": "_operator.truediv"}))
    after = recording(*chain(x=near, y={**near, "op": op}, z={"hash": "p", "samples": ("1.000005", "2.0")}))
    (found,) = differences(before, after)
    assert found.text.startswith("x (placeholder) comes in different, within rounding")


@pytest.mark.parametrize(("sample", "is_rounding"), [("1.000001", True), ("1.5", False)])
def test_a_backward_graph_begins_with_the_rounding_of_its_forward_graph(sample: str, is_rounding: bool) -> None:
    def run(hash_: str, forward: str, backward: str) -> Any:
        near = {"hash": hash_, "samples": (forward, "2.0")}
        late = {"hash": hash_, "samples": (backward, "2.0")}
        forward_nodes = chain(x=near, y=near, z=near)
        backward_nodes = [replace(each, values_call=1) for each in chain(x=late, y=late, z=late)]
        calls = a_call(), a_call(1, graph="backward", call=0)
        return FakeRecording(value_records=(*calls, *forward_nodes, *backward_nodes))

    forward, backward = differences(run("a", "1.0", "1.0"), run("b", sample, "1.000004" if is_rounding else "1.6"))
    assert [("within rounding" in each.text) for each in (forward, backward)] == [is_rounding, is_rounding]
    assert "in backward, call" in backward.text


def test_python_s_operator_is_the_method_of_a_tensor() -> None:
    after = chain(y={"op": "div", "hash": "o", "samples": ("1.5", "2.0")}, z={"hash": "p"})
    (found,) = differences(recording(*chain(y={"op": "_operator.truediv"})), recording(*after))
    assert found.text.startswith("y (div) differs")


@pytest.mark.parametrize(("sample", "is_told"), [("2.5", True), ("2.0000005", False)])
def test_what_compiled_code_stores_is_compared_where_the_values_agree(sample: str, is_told: bool) -> None:
    def run(hash_: str, *samples: str) -> Any:
        stored = StoredNodeValue(1, "cpp_fused_mul_0", None, False, a_summary(hash=hash_, samples=samples))
        return FakeRecording(value_records=(a_call(), *chain(), stored))

    found = differences(run("a", "1.0", "2.0"), run("b", "1.0", sample))
    told = "y (mul) comes out different as compiled by kernel cpp_fused_mul_0: float32 (4,)"
    assert [one.text.startswith(told) for one in found] == ([True] if is_told else [])


def test_what_amplifies_its_input_is_not_told_as_the_first() -> None:
    after = chain(
        x={"hash": "o", "samples": ("1.0", "2.4")},
        y={"hash": "p", "samples": ("1.0", "2.9")},
        z={"hash": "q", "samples": ("1.0", "5.0")},
    )
    (found,) = differences(recording(*chain()), recording(*after))
    assert found.text.startswith("x (placeholder) comes in different")


def test_other_seeds_are_told_first() -> None:
    after = chain(y={"hash": "o", "samples": ("0.0", "0.0")})
    first, second = differences(recording(*chain()), recording(*after, seed="t"))
    assert "the random numbers of forward start from other states" in first.text
    assert second.text.startswith("y (mul)")


def test_nan_in_one_run_is_a_difference() -> None:
    after = chain(z={"hash": "o", "nan": 1})
    (found,) = differences(recording(*chain()), recording(*after))
    assert found.text.startswith("z (exp) differs")


def test_nodes_are_matched_by_what_they_compute() -> None:
    renamed = [a_node(0, "a", op="placeholder", hash="x"), a_node(1, "b", "a", op="mul", hash="o", samples=("9.0",))]
    before = [a_node(0, "x", op="placeholder", hash="x"), a_node(1, "y", "x", op="mul", hash="y")]
    extra = [a_node(2, "n", "b", op="neg", hash="n")]
    (found,) = differences(recording(*before), recording(*renamed, *extra))
    assert found.text.startswith("b (mul) differs")


def test_calls_of_other_graphs_or_numbers_are_not_compared() -> None:
    after = chain(y={"hash": "o", "samples": ("0.0", "0.0")})
    assert differences(recording(*chain()), recording(*after, graph="backward")) == []
    assert differences(recording(*chain()), recording(*after, call=1)) == []
    assert differences(recording(*chain(), graph="inference"), recording(*after)) != []


def test_values_of_one_run_alone_are_a_note() -> None:
    empty: Any = FakeRecording()
    assert list(value_notes(empty, recording(*chain()))) == [
        "the first run was recorded without --values: values are not compared"
    ]
    assert list(value_notes(empty, empty)) == []


def test_inputs_have_the_names_of_the_program() -> None:
    def run(sample: str) -> Any:
        name = "l_self_modules_up_parameters_weight_"
        return recording(a_node(0, name, op="placeholder", line=1, hash=sample, samples=(sample, "2.0")))

    (found,) = differences(run("1.0"), run("1.5"))
    assert found.text.startswith("up.weight (placeholder) comes in different")


@pytest.mark.parametrize("shape", [("9" * 19,) * 20, ("9" * 19,) * 300, ("-3",)])
def test_a_shape_that_no_tensor_has_is_compared_all_the_same(shape: tuple[str, ...]) -> None:
    before = [a_node(0, "x", op="placeholder", hash="a", shape=shape, norm=2.0)]
    after = [a_node(0, "x", op="placeholder", hash="b", shape=shape, norm=3.0, max=5.0)]
    (found,) = differences(recording(*before), recording(*after))
    assert found.text.startswith("x (placeholder) comes in different")


def test_an_input_of_another_size_is_a_difference() -> None:
    """One dynamic graph takes both."""
    sized = {name: {"hash": "o", "shape": ("12",)} for name in ("x", "y", "z")}
    (found,) = differences(recording(*chain()), recording(*chain(**sized)))
    assert found.text.startswith("x (placeholder) comes in different: float32 (12,)")


def test_an_input_of_another_size_is_matched_where_the_graphs_differ_later() -> None:
    sized = {name: {"hash": "o", "shape": ("12",)} for name in ("x", "y")}
    after = [*chain(**sized)[:2], a_node(2, "n", "y", op="neg", hash="n")]
    (found,) = differences(recording(*chain()), recording(*after))
    assert found.text.startswith("x (placeholder) comes in different: float32 (12,)")


def test_what_was_not_compared_is_not_said_to_agree() -> None:
    after = chain(y={"op": "unheard_of", "hash": "o"}, z={"hash": "p", "samples": ("7.0", "2.0")})
    (found,) = differences(recording(*chain()), recording(*after))
    assert found.text.startswith("z (exp) differs, and y, which it reads, was not compared: float32")
