"""Graphs that bypass a cache: one finding for each reason, with the line that it is about."""

from __future__ import annotations

import pytest

from dynadiag.explanation.cache_bypass import explain_bypass
from dynadiag.explanation.explanation import explain
from dynadiag.explanation.registry import Registry
from dynadiag.recording.records import CacheLookup
from tests.explanation.build import FakeRecording, a_compile, a_run

SOURCE = """import torch

def my_pass(graph):
    pass

torch._inductor.config.post_grad_custom_post_pass = my_pass

@torch.compile
def f(x):
    return x.sin()
"""


def _lookup(index: int, cache: str, outcome: str, reason: str | None) -> CacheLookup:
    return CacheLookup(index, "0/0", "inference", cache, outcome, None, reason, 1.5, None)


def _recording(*lookups: CacheLookup) -> FakeRecording:
    compile_ = a_compile(file="/prog.py", line=9)
    return FakeRecording(run=a_run(), compile_records=(compile_,), lookup_records=lookups, sources={"/prog.py": SOURCE})


def test_a_pass_without_uuid_is_named_at_the_line_that_sets_it() -> None:
    reason = "Unsupported post grad custom pass"
    found = explain(
        _recording(_lookup(0, "fx_graph", "bypass", reason), _lookup(1, "aot_autograd", "bypass", reason)),
        Registry({}),
    ).findings
    (finding,) = (item for item in found if item.rule == "cache-bypass")
    assert (finding.span.line, finding.compile_ids, finding.cost.graphs) == (6, ("0/0",), 1)
    assert finding.cause == "a post grad custom pass is a plain function without uuid()"
    assert "uuid()" in finding.advice[0].text


def test_a_hit_or_a_miss_is_no_finding() -> None:
    found = explain(
        _recording(_lookup(0, "fx_graph", "miss", None), _lookup(1, "aot_autograd", "hit", None)), Registry({})
    ).findings
    assert not [item for item in found if item.rule == "cache-bypass"]


def test_a_graph_whose_code_is_cached_is_not_said_to_be_compiled_again() -> None:
    reason = "Can't cache HigherOrderOperator: cond"
    found = explain(
        _recording(_lookup(0, "fx_graph", "miss", None), _lookup(1, "aot_autograd", "bypass", reason)), Registry({})
    ).findings
    (finding,) = (item for item in found if item.rule == "cache-bypass")
    assert "traced again by AOTAutograd" in finding.title
    assert finding.cost.compile_seconds is None


def test_torchs_own_call_of_an_operator_is_not_the_line() -> None:
    told = explain_bypass("Can't cache HigherOrderOperator: cond", {"/x/site-packages/torch/a.py": CALLS})
    assert told.span is None


CALLS = """import torch

class Scale(torch.autograd.Function):
    pass

@torch.compile
def f(x):
    y = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
    return Scale.apply(y)
"""
IN_GRAPH = "Unsupported call_function target {0}. \n Function module: torch.{1}, \nFunction name: {0}"


@pytest.mark.parametrize(
    ("reason", "line", "option"),
    [
        (IN_GRAPH.format("cond", "ops.higher_order"), 8, "unsafe_marked_cacheable_functions"),
        ("Can't cache HigherOrderOperator: cond", 8, "unsafe_marked_cacheable_functions"),
        (IN_GRAPH.format("autograd_function_apply", "ops.higher_order"), 9, "allow_custom_autograd_functions"),
        (IN_GRAPH.format("FunctionCtx", "autograd.function"), 9, "allow_custom_autograd_functions"),
    ],
)
def test_an_operator_of_torch_is_not_taken_for_the_users_function(reason: str, line: int, option: str) -> None:
    told = explain_bypass(reason, {"/prog.py": CALLS})
    assert "allow_in_graph" not in told.cause
    assert told.span is not None
    assert told.span.line == line
    assert [name.endswith(option) for name in told.options] == [True]


def test_autocast_within_a_graph_is_no_function_of_the_user() -> None:
    reason = (
        "Unsupported call_function target <function _enter_autocast>. \n Function module: torch.amp.autocast_mode, "
        "\nFunction name: _enter_autocast"
    )
    source = 'import torch\n\n@torch.autocast("cpu")\ndef f(x):\n    return x @ x\n'
    told = explain_bypass(reason, {"/prog.py": source})
    assert told.cause.startswith("autocast is entered within the graph")
    assert told.span is not None
    assert told.span.line == 3
    assert told.cure is not None
    assert "around the call" in told.cure.text
    other = explain_bypass(reason.replace("_enter_autocast", "stft").replace("amp.autocast_mode", "functional"), {})
    assert "torch.functional.stft, which torch does not cache" in other.cause
