"""Graphs that bypass a cache: one finding for each reason, with the line that it is about."""

from __future__ import annotations

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
