from __future__ import annotations

from dataclasses import replace

import pytest

from dynadiag.minify.failure_match import (
    matches_memory_corruption,
    reproduces,
    same_failure_in_part,
    same_failure_standalone,
)
from dynadiag.trial.signature import Signature

RAISED = Signature(
    "exception", "torch._inductor.exc.InductorError", "no lowering for x", "torch/a.py:1 in f", "train.py:3", "KeyError"
)


def test_the_line_of_the_program_does_not_count() -> None:
    assert same_failure_standalone(replace(RAISED, user=None), RAISED)


def test_another_place_in_torch_with_the_same_message_is_the_same() -> None:
    assert same_failure_standalone(replace(RAISED, where="torch/b.py:1 in g"), RAISED)


@pytest.mark.parametrize(
    "other",
    [
        None,
        replace(RAISED, kind="signal", type="SIGSEGV"),
        replace(RAISED, cause="TypeError"),
        replace(RAISED, where="torch/b.py:1 in g", message="something else"),
    ],
)
def test_another_failure_is_not(other: Signature | None) -> None:
    assert not same_failure_standalone(other, RAISED)


def test_crashes_are_told_apart_by_their_signal() -> None:
    crash = Signature("signal", "SIGABRT", "killed by SIGABRT")
    assert same_failure_standalone(replace(crash), crash)
    assert not same_failure_standalone(replace(crash, type="SIGSEGV"), crash)


def test_nan_is_a_wrong_result() -> None:
    wrong = Signature("wrong_result", "wrong_result", "output 0 differs")
    assert same_failure_standalone(replace(wrong, kind="nan", type="nan"), wrong)


def test_a_wrong_result_may_move_to_another_value_but_not_to_another_trait() -> None:
    wrong = Signature("wrong_result", "wrong_result", "GraphModule: output 0 differs in 1 of 2 elements")
    assert same_failure_in_part(
        replace(wrong, message="GraphModule: input 0 afterwards differs in 2 of 4 elements"), wrong
    )
    assert not same_failure_in_part(
        replace(wrong, message="GraphModule: output 0: strides (1,) instead of (2,)"), wrong
    )
    assert not same_failure_in_part(None, wrong)


def test_what_went_wrong_counts_and_not_what_was_being_done() -> None:
    inside = replace(RAISED, where="torch/subgraph.py:1 in f", message="no such thing\nWhile executing %tanh")
    alone = replace(RAISED, where="torch/graph.py:1 in f", message="no such thing\n  target: aten.tanh.default")
    assert same_failure_standalone(alone, inside)
    assert not same_failure_standalone(replace(alone, message="another thing\n  target: aten.tanh.default"), inside)


WRONG = Signature("wrong_result", "wrong_result", "GraphModule: output 0 differs in 1 of 2 elements")
ABORTED, SEGFAULT = (Signature("signal", name, f"killed by {name}") for name in ("SIGABRT", "SIGSEGV"))


@pytest.mark.parametrize(
    ("found", "sought", "alike"),
    [
        (WRONG, ABORTED, True),
        (ABORTED, WRONG, True),
        (SEGFAULT, ABORTED, True),
        (SEGFAULT, SEGFAULT, True),
        (None, ABORTED, False),
        (RAISED, ABORTED, False),
        (RAISED, WRONG, False),
    ],
)
def test_memory_written_out_of_bounds_kills_or_falsifies(
    found: Signature | None, sought: Signature, alike: bool
) -> None:
    assert matches_memory_corruption(same_failure_in_part, found, sought) is alike


def test_an_assertion_of_the_compilers_is_no_wrong_result() -> None:
    wrong = Signature("wrong_result", "wrong_result", "output 0 differs in 1 of 2 elements")
    own = Signature("exception", "AssertionError", "Tensor-likes are not close!", cause="AssertionError")
    assert reproduces(own, wrong)
    assert reproduces(replace(own, where="torch/testing/_comparison.py:1 in assert_close"), wrong)
    assert not reproduces(
        replace(own, where="torch/_functorch/_aot_autograd/functional_utils.py:1 in gen_alias"), wrong
    )
