"""What counts as gone, and what counts as compiled less."""

from __future__ import annotations

from dataclasses import replace

from dynadiag.fix.candidate import Candidate
from dynadiag.fix.fix_search import Fix, _gone_with
from dynadiag.fix.problems import _tensor_operators
from tests.fix.build import HEAD, problem_at

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


def test_a_cause_that_only_all_fixes_together_remove_is_proved() -> None:
    text = f"{HEAD}def f(x):\n    return x.item()\n"
    problem = problem_at(text, "x.item()")
    other = replace(problem, identity="other")
    whole = Fix(problem, Candidate("2 fixes together", "source", (), ""), None, (), frozenset({"left"}))
    gone = _gone_with(other, [whole])
    assert gone is not None
    assert (gone.problem, gone.candidate) == (other, whole.candidate)
    assert _gone_with(replace(problem, identity="left"), [whole]) is None
