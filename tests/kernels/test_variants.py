"""Real recordings compared: the effect of a configuration, a graph break or another operator on the kernels."""

from __future__ import annotations

import re
import subprocess

import pytest

from dynadiag.kernels.generated_module import KernelCall
from dynadiag.kernels.kernel_diff import KernelChange, change_diff, compare_kernels
from tests.interpreters import DYNADIAG
from tests.kernels.recorded import environment
from tests.kernels.variants import path, variant

pytestmark = pytest.mark.usefixtures("forked_interpreters")

_LANGUAGES = ("cpp", "triton")


def _changes(language: str, before: str, after: str) -> list[KernelChange]:
    found = compare_kernels(variant(language, before), variant(language, after))
    return [change for change in found if change.kind != "same"]


def _operators(calls: tuple[KernelCall, ...]) -> set[tuple[str, str]]:
    return {part for call in calls for part in call.operator_lines}


def test_less_fusion_splits_kernels_and_more_merges_them() -> None:
    changes = _changes("triton", "plain", "less_fused")
    assert {change.kind for change in changes} == {"split"}
    for change in changes:
        assert _operators(change.after) >= _operators(change.before)
    back = _changes("triton", "less_fused", "plain")
    assert {change.kind for change in back} == {"merged"}
    whole = [[call.index for call in one.before] for one in changes]
    assert sorted([call.index for call in one.after] for one in back) == sorted(whole)


def test_what_moves_from_one_kernel_to_another_is_a_change() -> None:
    """The C++ generator puts loops side by side in a kernel: with less fusion, one of them in another kernel."""
    changes = _changes("cpp", "plain", "less_fused")
    assert {change.kind for change in changes} == {"changed"}
    assert len({len(_operators(change.before)) - len(_operators(change.after)) for change in changes}) > 1


@pytest.mark.parametrize("language", _LANGUAGES)
def test_a_graph_break_splits_the_kernels_that_it_goes_through(language: str) -> None:
    changes = _changes(language, "plain", "broken")
    split = [change for change in changes if change.kind == "split"]
    assert {change.before[0].stage for change in split} == {"forward", "backward"}
    for change in split:
        assert len({call.compile_id for call in change.after}) == 2
    assert not {"appeared", "went"}.intersection(change.kind for change in changes)


@pytest.mark.parametrize("language", _LANGUAGES)
@pytest.mark.parametrize(("after", "code"), [("changed", "torch.relu(h @ w)"), ("added", "h.abs()")])
def test_an_operator_changes_the_kernels_of_its_line(language: str, after: str, code: str) -> None:
    changes = _changes(language, "plain", after)
    assert {change.kind for change in changes} == {"changed"}
    assert {call.stage for change in changes for call in change.after} == {"forward", "backward"}
    for change in changes:
        differ = _operators(change.before) ^ _operators(change.after)
        assert differ or change.before[0].stage == "backward"
        assert all(call.definition for call in change.after), "products are the same, whatever their buffers are called"
    forward = next(change for change in changes if change.after[0].stage == "forward")
    assert any(code in text for _, text in _operators(forward.before) | _operators(forward.after))


@pytest.mark.parametrize(("language", "new"), [("cpp", "auto tmp"), ("triton", "tl.sigmoid(tmp0)")])
def test_the_difference_of_a_source_is_the_operator(language: str, new: str) -> None:
    """A statement in the middle renumbers all that follow, which is not a difference."""
    (change,) = [one for one in _changes(language, "plain", "changed") if one.after[0].stage == "forward"]
    lines = [line for line in change_diff(change).splitlines()[2:] if line[0] in "+-"]
    assert any(line.startswith("+") and new in line for line in lines)
    values = [line for line in lines if re.search(r"\btmp\d+ = ", line)]
    assert len(values) <= 12, lines
    assert not [line for line in values if "tanh" in line or "amax" in line]


def test_what_a_person_reads() -> None:
    recordings = str(path("triton", "plain")), str(path("triton", "less_fused"))
    command = [str(DYNADIAG), "diff", "--stage", "kernel", *recordings]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stderr
    told = " ".join(done.stdout.split())
    assert re.search(r"- kernel, \S*model\.py:\d+: triton_\w+ is split into triton_", told)
    assert re.search(r"; moves [\d.]+kB, then [\d.]+kB", told)
    assert re.search(r" - triton_\w+ [^+]* at model\.py:[^+]*; moves [\d.]+kB \+ triton_", told)
    assert "- dynamo" not in told, "other stages are left out"
    assert "\x1b" not in done.stdout
