"""What is said of a function whose rest runs in Python after a break."""

from __future__ import annotations

from dataclasses import replace

from dynadiag.explanation.explanation import Explanation, explain
from dynadiag.recording.records import Frame, SkippedFrame, Span
from tests.explanation.build import FILE, FakeRecording, a_break, a_compile, a_graph

SOURCE = """\
def forward(self, x):
    y = self.embed(x).relu()
    y, _ = self.gru(y)
    z = self.head(y).softmax(-1)
    return z * 2
"""
HELD = a_break(span=Span(FILE, 3, 11, 3, 22), gb_type="Attempted to wrap RNN, GRU, or LSTM")


def explained(*compiles: object, skipped: tuple[SkippedFrame, ...] = (), source: str = SOURCE) -> Explanation:
    made = (a_compile(outcome="break"), *compiles)
    graph = replace(a_graph(), ops=2)
    return explain(
        FakeRecording(
            compile_records=made,  # type: ignore[arg-type]  # of objects, to be short here
            graph_records=(graph,),
            break_records=(HELD,),
            skipped_records=skipped,
            sources={FILE: source},
        )
    )


def test_the_uncompiled_rest_is_in_the_first_line_with_its_modules() -> None:
    assert explained().headline.sentence == (
        "Not one graph: 1 graph break in the way. 2 operators of forward run compiled; from line 3 on it runs in "
        "Python (self.gru, self.head)."
    )


def test_where_torch_goes_on_nothing_is_said() -> None:
    rest = a_compile(1, "1/0", line=3)
    skipped = SkippedFrame(FILE, 3, "torch_dynamo_resume_in_forward_at_3", "no tensor operation")
    for found in (explained(rest), explained(skipped=(skipped,))):
        assert "in Python" not in found.headline.sentence


def test_of_a_rest_without_operations_torch_is_not_said_to_be_unable_to_go_on() -> None:
    rest = replace(a_compile(1, "1/0", line=3), outcome="skipped")
    for made, why in (((), "torch cannot go on there after this break"), ((rest,), "no tensor operation there")):
        (finding, *_) = explained(*made).findings
        assert [fact.text.endswith(why) for fact in finding.evidence if "runs uncompiled" in fact.text] == [True]


def test_where_nothing_follows_nothing_is_said() -> None:
    short = "def forward(self, x):\n    y = self.embed(x)\n    return self.gru(y)\n"
    assert "in Python" not in explained(source=short).headline.sentence


def test_of_a_loop_in_a_try_all_runs_in_python() -> None:
    block = (
        "def forward(self, x):\n    try:\n        for layer in self.layers:\n            x = layer(x)\n"
        "            x, _ = self.gru(x)\n    finally:\n        x = x * 2\n    return x\n"
    )
    made = (a_compile(outcome="break"),)
    inner = replace(HELD, span=Span(FILE, 5, 19, 5, 30))
    found = explain(
        FakeRecording(compile_records=made, graph_records=(a_graph(),), break_records=(inner,), sources={FILE: block})
    )
    assert "from line 4 on it runs in Python (self.gru)" in found.headline.sentence


def test_a_function_that_calls_what_breaks_is_named_by_its_own_line() -> None:
    inner = replace(HELD, span=Span(FILE, 8, 4), function="helper")
    inner = replace(inner, user_stack=(Frame(FILE, 9, "<module>"), Frame(FILE, 3, "forward"), Frame(FILE, 8, "helper")))
    found = explain(
        FakeRecording(
            compile_records=(a_compile(outcome="break"),),
            graph_records=(a_graph(),),
            break_records=(inner,),
            sources={FILE: SOURCE},
        )
    )
    assert "from line 3 on" in found.headline.sentence
