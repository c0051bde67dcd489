from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.trial.signature import Signature, normalise, signature_of, user_lines
from dynadiag.trial.typed_json import dump, load


@torch.library.custom_op("dynadiag_signature::without_fake", mutates_args=())
def without_fake(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def _signature(message: str, **changes: object) -> Signature:
    fields = {"kind": "exception", "type": "RuntimeError", "message": message, "where": "torch/a.py:1 in f"}
    return Signature(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("bad pointer 0x7f3a2b at op 3", "bad pointer 0x11 at op 14"),
        ("cannot open /tmp/tmpab12cd34/x.py", "cannot open /tmp/tmpzz98yy76/x.py"),
        ("Mismatched elements: 3 / 64 (4.7%)", "Mismatched elements: 12 / 64 (18.8%)"),
        ("buf12 is not a buffer", "buf7 is not a buffer"),
        ("size mismatch [2, 3, 4]", "size mismatch [8, 16]"),
        ("no sizes [s52, s27, 37]", "no sizes [4, s3]"),
        ("returned tensor([-1.9172,  0.1927])", "returned tensor([ 0.8798, -0.3397])"),
        ("returned tensor([[1, -2],", "returned tensor([[ 3,  2],"),
        ("returned tensor([ inf, nan])", "returned tensor([-inf, 1.])"),
        ("backend='inductor' raised:\nValueError: no", "backend='aot_eager' raised:\nValueError: no"),
    ],
)
def test_two_runs_of_one_bug_have_one_signature(one: str, two: str) -> None:
    assert normalise(one) == normalise(two)
    assert _signature(one).same_as(_signature(two))


def test_which_part_of_the_compiler_wraps_an_exception_is_no_part_of_its_identity() -> None:
    wrapped = [
        _signature("KeyError: 'x'", type=name, cause="KeyError") for name in ("BackendCompilerFailed", "InductorError")
    ]
    assert wrapped[0].same_as(wrapped[1])


def test_two_bugs_have_two_signatures() -> None:
    one = _signature("LoweringException: no\n  target: aten.exp.default")
    assert not one.same_as(_signature("LoweringException: no\n  target: aten.log.default"))
    assert not one.same_as(_signature(one.message, where="torch/b.py:2 in g"))
    assert not one.same_as(_signature(one.message, type="ValueError"))
    assert not one.same_as(_signature("something else"))


def test_another_backend_may_wrap_the_same_failure() -> None:
    lower = _signature("wrapped", type="BackendCompilerFailed", user="a.py:3", where="torch/x.py:9 in g")
    assert lower.same_across_rungs(_signature("raw", user="a.py:3"))
    assert not lower.same_across_rungs(_signature("raw", user="a.py:4", cause="KeyError"))
    assert not lower.same_across_rungs(_signature("raw", kind="signal", user="a.py:3"))


@given(st.text(max_size=300))
def test_normalising_twice_changes_nothing_for_numbers(text: str) -> None:
    once = normalise(text)
    assert not any(digit in once for digit in "0123456789")
    assert len(once) <= 400


def test_what_a_long_first_line_dumps_is_no_part_of_the_identity() -> None:
    one, two = (f"bad arguments: {'x ' * 200} {dump}" for dump in ("a tensor", "a list"))
    assert normalise(one) == normalise(two)
    assert _signature(one).same_as(_signature(two))


@given(st.text(max_size=80), st.text(max_size=80))
def test_a_signature_survives_json(kind: str, message: str) -> None:
    signature = _signature(message, kind=kind, user="a.py:1", rung="eager")
    assert load(dump(signature), Signature) == signature


def test_an_error_of_a_device_is_one_failure_wherever_it_was_noticed() -> None:
    text = "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported"
    noticed = [
        Signature("exception", "torch.AcceleratorError", text, where, user)
        for where, user in (
            ("torch/cuda/__init__.py:1162 in synchronize", "a.py:3"),
            ("torch/_tensor.py:568 in f", None),
        )
    ]
    noticed += [
        Signature("exception", "RuntimeError", "Triton Error [CUDA]: device-side assert triggered"),
        Signature("signal", "SIGABRT", "killed by SIGABRT: CUDA error: device-side assert triggered"),
    ]
    for one in noticed[1:]:
        assert noticed[0].same_as(one)
        assert noticed[0].same_across_rungs(one)
    other = Signature("exception", "torch.AcceleratorError", "CUDA error: an illegal memory access was encountered")
    assert not noticed[0].same_as(other)
    assert noticed[0].same_across_rungs(other), "eager checks an index where a kernel does not"


def test_an_exception_during_tracing_equals_the_uncompiled_one() -> None:
    def mismatched(x: torch.Tensor) -> torch.Tensor:
        return x @ torch.ones(3)

    found = []
    for function in (mismatched, torch.compile(mismatched, backend="eager")):
        with pytest.raises(RuntimeError) as raised:
            function(torch.zeros(2, 2))
        found.append(signature_of(raised.value, None))
    assert found[0].type != found[1].type
    assert {one.cause for one in found} == {"RuntimeError"}
    assert found[0].same_across_rungs(found[1])


def test_the_line_of_a_failure_is_the_programs_own_where_torch_calls_on(
    tmp_path: Path,
) -> None:
    program = tmp_path / "program.py"
    program.write_text("def calls(x, operator):\n    y = x + 1\n    return operator(y)\n")
    function = runpy.run_path(str(program))["calls"]
    with pytest.raises(torch._dynamo.exc.TorchRuntimeError) as raised:
        torch.compile(function, backend="eager", fullgraph=True)(torch.ones(2), without_fake)
    assert user_lines(raised.value) == [(str(program), 3)]


def test_a_recursion_without_end_is_the_same_failure_wherever_the_stack_is_full() -> None:
    endless: list[object] = []
    endless.append(endless)

    def deeper(depth: int) -> Signature:
        if depth:
            return deeper(depth - 1)
        with pytest.raises(RecursionError) as raised:
            torch.utils._pytree.tree_flatten(endless)
        return signature_of(raised.value, None)

    found = [deeper(depth) for depth in range(4)]
    assert all(one.same_as(found[0]) for one in found)
    assert {one.frames for one in found} == {found[0].frames}
    assert found[0].where
    assert "_pytree" in found[0].where


def test_the_errors_of_a_compiler_are_kept_behind_any_number_of_warnings() -> None:
    warnings = "a.cpp:1:2: warning: unused\n" * 1000
    long = f"C++ compile error\n\nOutput:\n{warnings}a.cpp:7:3: error: no 'x'\n    7 | code\n      | ^\n{warnings}"
    kept = signature_of(RuntimeError(long), None)
    assert len(kept.message) < len(warnings)
    assert kept.message.endswith("a.cpp:7:3: error: no 'x'\n    7 | code\n")
    assert not kept.same_as(signature_of(RuntimeError(long.replace("'x'", "'y'")), None))
    assert signature_of(RuntimeError("x" * 50_000), None).message.startswith("xxx")


def test_a_comparison_of_torch_testing_fails_in_the_program() -> None:
    with pytest.raises(AssertionError) as raised:
        torch.testing.assert_close(torch.ones(2), torch.zeros(2))
    found = signature_of(raised.value, None)
    assert found.where is None
    assert set(found.frames) == {"program"}


def test_what_generated_code_checks_is_raised_by_torch(tmp_path: Path) -> None:
    file = tmp_path / f"c{'a' * 51}.py"
    space: dict[str, Any] = {}
    exec(compile("def call():\n    assert False, 'expected size 2==3'\n", str(file), "exec"), space)
    file.write_text("def call():\n    assert False, 'expected size 2==3'\n")
    with pytest.raises(AssertionError) as raised:
        torch.utils._pytree.tree_map(lambda _: space["call"](), [1])
    found = signature_of(raised.value, None)
    assert found.frames[0] == "program"  # the lambda
    assert found.frames.count("program") == 2  # and this test


def test_an_assertion_of_the_program_is_told_as_its_source() -> None:
    values = torch.ones(2)
    with pytest.raises(AssertionError) as raised:
        assert torch.allclose(
            values,
            -values,
        ), "à part"
    assert signature_of(raised.value, None).asserted == "torch.allclose(values, -values)"
    with pytest.raises(AssertionError) as raised:
        torch.testing.assert_close(values, -values)
    assert signature_of(raised.value, None).asserted == "torch.testing.assert_close(values, -values)"
    with pytest.raises(AssertionError) as raised:
        torch._inductor.utils.ceildiv("1", 2)
    assert signature_of(raised.value, None).asserted is None


def test_an_exception_that_the_program_raises_itself_is_told_from_one_of_a_library() -> None:
    with pytest.raises(RuntimeError) as raised:
        raise RuntimeError("the log has 1 entry")
    assert signature_of(raised.value, None).asserted == 'raise RuntimeError("the log has 1 entry")'
    with pytest.raises(RuntimeError) as raised:
        torch.ones(2) @ torch.ones(3)
    assert signature_of(raised.value, None).asserted is None
    with pytest.raises(ValueError, match="invalid literal") as invalid:
        int("raise ")
    assert signature_of(invalid.value, None).asserted is None


def test_where_a_check_of_torch_fails_is_what_made_the_check() -> None:
    with pytest.raises(RuntimeError, match="only one dimension") as raised:
        torch._prims_common.infer_size((-1, -1), 4)
    assert (signature_of(raised.value, None).where or "").endswith(" in infer_size")
    with pytest.raises(RuntimeError, match="mine") as raised:
        torch._check(len("") > 0, lambda: "mine")
    assert signature_of(raised.value, None).where is None


def test_what_dynamo_does_not_support_has_no_place_where_it_is_raised_again() -> None:
    with pytest.raises(torch._dynamo.exc.Unsupported) as raised:
        torch.compile(lambda x: x + torch.compile, backend="eager", fullgraph=True)(torch.ones(2))
    assert signature_of(raised.value, None).where is None


def test_an_object_in_a_message_is_named_without_its_address() -> None:
    error = TypeError(f"no kernel for {object()}")
    assert signature_of(error, None).message == "no kernel for <object object>"
