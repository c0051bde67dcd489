"""What counts as gone, and what counts as compiled less."""

from __future__ import annotations

from dynadiag.fixes.candidate import Candidate, Refusal
from dynadiag.fixes.fix_search import refused_in
from dynadiag.fixes.problems import FixProblem, _tensor_operators
from dynadiag.recording.records import Span

GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4][1]cpu", L_self_temperature: "f64[][]cpu"):
        l_x_ = L_x_
        l_self_temperature = L_self_temperature
        item: "Sym(zf77)" = l_self_temperature.item();  l_self_temperature = None
        truediv: "f32[4][1]cpu" = l_x_ / item;  l_x_ = item = None
        softmax: "f32[4][1]cpu" = torch.softmax(truediv, dim = -1);  truediv = None
        return (softmax,)
"""


def test_operators_on_symbols_are_not_counted() -> None:
    assert _tensor_operators(GRAPH) == 2


def test_a_number_stays_one_in_a_function_that_still_breaks() -> None:
    problem = FixProblem("recompile", "r", "f.py", Span("f.py", 3), "Net.forward", "0/1", "")
    number, size = Candidate("n", "argument", (), "", for_whole_graphs=True), Candidate("s", "argument", (), "")
    refused = refused_in({"Net.forward"}, problem, number)
    assert isinstance(refused, Refusal)
    assert "a graph break of Net.forward is left" in refused.why
    assert refused_in({"Net.forward"}, problem, size) is size
    assert refused_in({"Other.forward"}, problem, number) is number
