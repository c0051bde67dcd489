"""`explain --guards` and `--graphs`: everything of one kind, under the user's own lines."""

from __future__ import annotations

import argparse
from dataclasses import replace

import pytest

from dynadiag.commands.explain import _OPTIONS_WITH_VALUE, arrange_arguments, prepare_parser
from dynadiag.explanation.explanation import Explanation, explain
from dynadiag.recording.records import Frame, Guard, Node, Span
from dynadiag.render.listings import ListingPrinter
from dynadiag.render.printer import Printer
from tests.explanation.build import FILE, FakeRecording, a_break, a_compile, a_graph

PRINTER = Printer(width=90, color=False)
SOURCE = "def f(x):\n    y = x + 1\n    print(y)\n\ndef g(x):\n    return x.sin()\n\nf(1)\ng(\x1b[31m2)\n"
TENSOR = (
    "check_tensor(L['x'], Tensor, DispatchKeySet(CPU), torch.float32, device=None, requires_grad=True, size=[3, s0], "
    "stride=[4, 1])"
)
ADD = Node(1, "add", "call_function", "_operator.add", ("l_x_",), "{}", "(3, s0)", "float32", "cpu", Span(FILE, 2))


def an_explanation() -> Explanation:
    main, inner = Frame(FILE, 8, "<module>"), Frame(FILE, 1, "f")
    guards = [Guard(0, "0/0", "GLOBAL_STATE", "", "___check_global_state()", None, None)]
    guards += [Guard(1, "0/0", "TENSOR_MATCH", "L['x']", TENSOR, FILE, 2)]
    guards += [Guard(2 + n, "0/0", "HASATTR", "G['y']", f"hasattr(G['y'], '{n}')", FILE, 3) for n in range(5)]
    compiles = (
        a_compile(function="f", outcome="break", user_stack=(main, inner)),
        a_compile(1, "1/0", function="g", line=5, user_stack=(main, Frame(FILE, 3, "f"))),
        a_compile(2, "2/0", function="g", line=5, outcome="skipped", user_stack=(Frame(FILE, 9, "<module>"),)),
    )
    return explain(
        FakeRecording(
            compile_records=compiles,
            break_records=(a_break(),),
            graph_records=(a_graph(), a_graph(1, "1/0", ops=1)),
            guard_records=tuple(guards),
            sources={FILE: SOURCE},
        )
    )


def test_guards_stand_under_the_users_lines() -> None:
    text = ListingPrinter(an_explanation(), PRINTER).guards()
    assert text.splitlines() == [
        "0/0 f (prog.py:1): 7 guards",
        "    not from a line of yours",
        "        GLOBAL_STATE: grad mode, autocast, default dtype, deterministic mode, threads are…",
        "    prog.py:2: y = x + 1",
        "        TENSOR_MATCH: x is float32 [3, s0], stride [4, 1], requires_grad",
        "    prog.py:3: print(y)",
        *(f"        HASATTR: hasattr(y, '{n}')" for n in range(3)),
        "        ... and 2 more on y; --all shows them",
    ]
    whole = ListingPrinter(an_explanation(), replace(PRINTER, all_=True)).guards()
    assert "DispatchKeySet(CPU)" in whole
    assert "hasattr(y, '4')" in whole


def test_the_options_with_a_value() -> None:
    parser = argparse.ArgumentParser()
    prepare_parser(parser)
    named = {name for action in parser._actions if action.nargs is None for name in action.option_strings}
    assert named == set(_OPTIONS_WITH_VALUE)


def test_the_tree_of_compiles() -> None:
    assert ListingPrinter(an_explanation(), PRINTER).tree().splitlines() == [
        "prog.py:8: f(1)",
        "    0/0 f (prog.py:1): a graph of 2 operators, ended by GB0170 at line 3",
        "    prog.py:3: print(y)",
        "        1/0 g (prog.py:5): a graph of 1 operator",
        "prog.py:9: g(\\x1b[31m2)",
        "    2/0 g (prog.py:5): no graph, left to Python",
    ]


def test_the_nodes_of_a_graph() -> None:
    text = ListingPrinter(an_explanation(), PRINTER).graphs("0/0", lambda index: (ADD,) if index == 0 else ())
    assert text.splitlines()[1:] == [
        "    prog.py:2: y = x + 1",
        "        add: _operator.add of l_x_ -> float32 (3, s0)",
    ]


def test_a_graph_that_dynamo_did_not_finish_is_told_as_that() -> None:
    found = an_explanation()
    graphs = tuple(replace(graph, stage="failed_trace") for graph in found.graphs)
    text = ListingPrinter(replace(found, graphs=graphs), PRINTER).graphs("0/0", lambda _: (ADD,))
    assert "2 operators until it failed" in text.splitlines()[0]
    assert "        add: _operator.add of l_x_ -> float32 (3, s0)" in text.splitlines()


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["--graphs", "train.py", "0/0"], ["--graphs=", "train.py", "0/0"]),
        (["--graphs", "0/1", "train.py"], ["--graphs=0/1", "train.py"]),
        (["--all", "--graphs"], ["--all", "--graphs="]),
        (["-o", "a", "--graphs", "train.py"], ["-o", "a", "--graphs=", "train.py"]),
        (["train.py", "--graphs", "x"], ["train.py", "--graphs", "x"]),
        (["-m", "pkg", "--graphs"], ["-m", "pkg", "--graphs"]),
    ],
)
def test_a_target_is_no_compile(given: list[str], found: list[str]) -> None:
    assert arrange_arguments(given) == found
