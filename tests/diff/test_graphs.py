"""The canonical form of graphs, and the difference of two."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.diff.canonical_graph import canonical_graph
from dynadiag.diff.graph_changes import NodeChange, first_change, graph_changes

_SOFTPLUS = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4, s77][s77, 1]cpu", s77: "Sym(s77)"):
        l_x_ = L_x_

        # File: /home/one/model.py:12 in forward, code: h = x.relu()
        h: "f32[4, s77][s77, 1]cpu" = l_x_.relu();  l_x_ = None
        # File: /home/one/model.py:13 in forward, code: return torch.exp(h) + h
        exp: "f32[4, s77][s77, 1]cpu" = torch.exp(h)
        add: "f32[4, s77][s77, 1]cpu" = exp + h;  exp = h = None
        return (add,)
"""


def _renamed(text: str) -> str:
    for old, new in (("s77", "s3"), ("l_x_", "l_y_"), ("L_x_", "L_y_"), (" h:", " k:"), ("(h)", "(k)"), ("+ h", "+ k")):
        text = text.replace(old, new)
    return text.replace("= h =", "= k =").replace("/home/one/model.py:1", "/other/m.py:4")


def test_names_symbols_and_lines_are_no_difference() -> None:
    assert _renamed(_SOFTPLUS) != _SOFTPLUS
    assert canonical_graph(_renamed(_SOFTPLUS)).digest == canonical_graph(_SOFTPLUS).digest


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.exp(h)", "torch.sin(h)"),
        ("exp + h", "h + exp"),
        ("exp + h", "exp + exp"),
        ('exp: "f32', 'exp: "f16'),
        ('exp: "f32[4, s77][s77, 1]cpu', 'exp: "f32[4, s77][1, 4]cpu'),
        ('exp: "f32[4, s77][s77, 1]cpu', 'exp: "f32[4, s77][s77, 1]cuda:0'),
        ('exp: "f32[4, s77]', 'exp: "f32[4, 8]'),
        ("return (add,)", "return (add, add)"),
    ],
)
def test_operators_arguments_types_and_users_are_a_difference(old: str, new: str) -> None:
    changed = _SOFTPLUS.replace(old, new)
    assert changed != _SOFTPLUS
    assert canonical_graph(changed).digest != canonical_graph(_SOFTPLUS).digest


def _changes(before: str, after: str) -> list[tuple[str, str | None, str | None]]:
    return [_told(change) for change in graph_changes(canonical_graph(before), canonical_graph(after))]


def _told(change: NodeChange) -> tuple[str, str | None, str | None]:
    texts = [None if node is None else node.text for node in (change.before, change.after)]
    return change.kind, texts[0], texts[1]


def test_a_replaced_operator_is_one_change_at_its_line() -> None:
    before, after = canonical_graph(_SOFTPLUS), canonical_graph(_SOFTPLUS.replace("torch.exp(h)", "h.sigmoid()"))
    change = first_change(before, after)
    assert change is not None
    assert _told(change) == ("changed", "torch.exp(h)", "h.sigmoid()")
    assert change.source_line is not None
    assert change.source_line.line == 13
    assert len(graph_changes(before, after)) == 1


def test_a_new_operator_changes_its_users_and_nothing_else() -> None:
    after = _SOFTPLUS.replace("        add:", '        neg: "f32[4, s77][s77, 1]cpu" = -exp\n        add:')
    after = after.replace("exp + h", "neg + h")
    assert _changes(_SOFTPLUS, after) == [("added", None, "-exp"), ("changed", "exp + h", "neg + h")]


def test_what_is_returned_is_told_by_name() -> None:
    before, after = (_SOFTPLUS.replace("return (add,)", f"return ({names})") for names in ("add, exp", "exp, add"))
    assert _changes(before, after) == [("changed", "return (add, exp)", "return (exp, add)")]


def test_another_order_of_the_same_operators_only_moves() -> None:
    lines = [f'        {name}: "f32[4]" = l_x_.{name}()' for name in ("sin", "cos", "tan")]
    head, tail = '    def forward(self, l_x_: "f32[4]"):', "        return (sin, cos, tan)"
    before, after = ("\n".join([head, *order, tail]) for order in (lines, [lines[2], *lines[:2]]))
    assert [change[0] for change in _changes(before, after)] == ["moved"]


def test_the_first_change_is_that_of_an_operator() -> None:
    after = _SOFTPLUS.replace('s77: "Sym(s77)"', 's77: "Sym(s77)", L_z_: "f32[4]"').replace("exp + h", "exp + L_z_")
    change = first_change(canonical_graph(_SOFTPLUS), canonical_graph(after))
    assert change is not None
    assert _told(change) == ("changed", "exp + h", "exp + L_z_")


@st.composite
def _graphs(draw: st.DrawFn) -> list[tuple[str, list[int]]]:
    count = draw(st.integers(1, 12))
    return [
        (draw(st.sampled_from(["sin", "mul", "cat"])), draw(st.lists(st.integers(0, place), min_size=1, max_size=3)))
        for place in range(count)
    ]


def _printed(nodes: list[tuple[str, list[int]]], name: str) -> str:
    lines = [f'    def forward(self, {name}0: "f32[4]"):']
    for place, (operator, inputs) in enumerate(nodes, 1):
        read = ", ".join(f"{name}{number}" for number in inputs)
        lines.append(f'        {name}{place}: "f32[4]" = torch.{operator}({read})')
    return "\n".join([*lines, f"        return ({name}{len(nodes)},)"])


@given(_graphs())
def test_a_graph_is_itself_under_other_names(nodes: list[tuple[str, list[int]]]) -> None:
    assert not _changes(_printed(nodes, "a"), _printed(nodes, "mul_"))


@given(_graphs(), st.data())
def test_every_node_is_told_at_most_once(nodes: list[tuple[str, list[int]]], data: st.DataObject) -> None:
    before, after = canonical_graph(_printed(nodes, "a")), canonical_graph(_printed(data.draw(_graphs()), "a"))
    changes = graph_changes(before, after)
    for side in ("before", "after"):
        told = [id(node) for change in changes if (node := getattr(change, side)) is not None]
        assert len(told) == len(set(told))
    kinds = [change.kind for change in changes]
    assert len(before.nodes) - kinds.count("removed") == len(after.nodes) - kinds.count("added")
    assert bool(changes) == (before.digest != after.digest)
