"""The source reduction with a predicate that runs the text here: no torch, no processes."""

from __future__ import annotations

import ast
import contextlib
import ctypes
import io
import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minifier.source import Observed, count_lines, count_tokens, observer_file, plan, reduce_source
from minifier.source.altered import names_backend, programs_without_line, with_backend
from minifier.source.observed import Seen, SeenCall
from minifier.source.passes.isolation import isolate_calls
from minifier.source.plan import PASSES
from minifier.source.trees import Edit, apply_edit, render

PROGRAM = '''
"""A program that fails in one operation."""
import math
from dataclasses import dataclass

@dataclass
class Settings:
    width: int = 8
    name: str = "run"

class Scale:
    def __init__(self, factor, log=None):
        self.factor = factor
        self.log = log or []

    def __call__(self, values):
        self.log.append(len(values))
        return [self.apply(value) for value in values]

    def apply(self, value):
        return fault(value * self.factor)

class Chain:
    def __init__(self, *stages):
        self.stages = stages

    def run(self, values):
        for stage in self.stages:
            values = stage(values)
        return values

def fault(value):
    return value

def unused(x):
    return math.sqrt(x)

def build(settings):
    return Chain(Scale(2), Scale(3))

def main():
    settings = Settings(width=4)
    chain = build(settings)
    assert settings.name == "run"
    for width in range(settings.width):
        values = [float(width)] * 3
        print(chain.run(values))

if __name__ == "__main__":
    main()
'''


def calls_fault(text: str) -> bool:
    """Whether the program runs, defines `fault` and calls it with a number."""
    called: list[object] = []
    marked = text.replace("def fault(", "def _unused_fault(")
    space = {"__name__": "__main__", "fault": lambda value: called.append(value) or value}
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(marked, "candidate", "exec"), space)
    except Exception:  # noqa: BLE001 - a candidate may raise anything
        return False
    return bool(called)


def test_reduces_a_program_to_the_call_that_matters() -> None:
    reduced = reduce_source(
        PROGRAM.replace("def fault(value):\n    return value\n", "def fault(value): return value\n"), _fails
    )
    assert reduced.minimal
    assert count_lines(reduced.text) <= 3
    assert count_tokens(reduced.text) <= 12


def test_without_a_thorough_end_fewer_candidates_are_tried_and_the_result_is_not_called_minimal() -> None:
    text = "x = [1, 2]\ny = len(x)\nz = y\n"
    tried: dict[bool, list[str]] = {True: [], False: []}
    for thorough, texts in tried.items():
        reduced = reduce_source(text, lambda t, texts=texts: texts.append(t) or "len(" in t, thorough=thorough)  # type: ignore[misc]
        assert reduced.minimal is thorough
    assert len(tried[False]) <= len(tried[True])


def test_programs_that_are_told_ahead_change_no_result() -> None:
    ahead: list[list[str]] = []
    tried: list[str] = []
    text = PROGRAM.replace("def fault(value):\n    return value\n", "def fault(value): return value\n")
    alone = reduce_source(text, _fails)
    together = reduce_source(text, lambda t: tried.append(t) or _fails(t), ahead=lambda t: ahead.append([*t]), width=3)
    assert together == alone
    told = [text for texts in ahead for text in texts]
    assert max(map(len, ahead)) == 3
    assert len(set(told) & set(tried)) > len(set(told)) / 2


def _fails(text: str) -> bool:
    tree = ast.parse(text)
    if not any(isinstance(n, ast.FunctionDef) and n.name == "fault" for n in ast.walk(tree)):
        return False
    return calls_fault(text)


def test_each_edit_of_each_pass_leaves_a_tree_that_renders_or_is_refused() -> None:
    tree = ast.parse(PROGRAM)
    before = render(tree)
    seen = Observed().of(tree)
    tried = 0
    for proposals in PASSES:
        for group in proposals(tree, seen):
            for edit in group:
                with contextlib.suppress(SyntaxError, ValueError, TypeError):
                    ast.parse(render(apply_edit(tree, edit)))
                tried += 1
    assert tried > 200
    assert render(tree) == before  # no pass changes the tree that it is given


@pytest.fixture
def observed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Observed:
    """What the observer sees of the program."""
    return observed_run(PROGRAM, tmp_path, monkeypatch)[0]


def observed_run(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Observed, str]:
    """What the observer sees of a program, and what that prints."""
    program, output = tmp_path / "program.py", tmp_path / "observed.json"
    program.write_text(render(ast.parse(text)))
    monkeypatch.setattr(sys, "argv", ["observer.py", str(program), str(output)])
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(observer_file()), run_name="__main__")
    return Observed.from_json(json.loads(output.read_text())), printed.getvalue()


def test_what_must_stand_as_it_is_runs_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patterns, annotations, the form of a number, global names."""
    text = """
from __future__ import annotations
COUNT: int = 2
def shown(value: Missing, width=6) -> Missing:
    global COUNT
    match value:
        case float(real=number):
            COUNT += 1
            return f"{number:>{width}.1f}"
print(shown(2.0), COUNT)
"""
    assert observed_run(text, tmp_path, monkeypatch)[1] == "   2.0 3\n"


def test_the_observer_notes_what_ran_and_which_values_there_were(observed: Observed) -> None:
    tree = ast.parse(render(ast.parse(PROGRAM)))
    seen = observed.of(tree)
    named = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert not seen.ran(named["unused"].body[0])
    assert seen.ran(named["build"].body[0])
    factor = next(n for n in ast.walk(named["apply"]) if isinstance(n, ast.Attribute) and n.attr == "factor")
    assert seen.values(factor) == ("2", "3")


def test_a_function_is_called_directly_with_the_arguments_that_it_had(observed: Observed) -> None:
    tree = ast.parse(render(ast.parse(PROGRAM)))
    texts = [render(apply_edit(tree, edit)) for (edit,) in isolate_calls(tree, observed.of(tree))]
    assert texts == sorted(texts, key=len)
    (fault,) = [text for text in texts if "print(fault(" in text]
    assert fault.startswith("def fault(value):\n    return value\nprint(fault(0.0))\nprint(fault(2.0))\n")
    assert any("Scale(2, None).apply" in text and "class Chain" not in text for text in texts)
    assert any("compiled = Chain(Scale(2, None), Scale(3, None)).run\nprint(compiled([0.0" in text for text in texts)


ISOLATED = """
import json
import torch
json.encoder.FLOAT_REPR = repr
torch.manual_seed(0)
table = {}
unused = {}

class Holder:
    def __init__(self, size):
        self.size = size

    def step(self, x, *, scale=1):
        return table.get(x, x * scale)

@torch.compile(backend="eager")
def decorated(x):
    return x

step = torch.compile(Holder(3).step, backend="eager", dynamic=True)
"""


def test_what_compiles_and_what_sets_up_the_program_is_kept() -> None:
    tree = ast.parse(ISOLATED)
    numbers = {getattr(node, "name", ""): number for number, node in enumerate(ast.walk(tree))}
    calls = {
        numbers["step"]: (SeenCall("Holder(3)", "(1, scale=2)", grad=False), SeenCall("Holder(3)", "(2)", grad=False)),
        numbers["decorated"]: (SeenCall("", "(4)", grad=True),),
    }
    texts = [render(apply_edit(tree, e)) for (e,) in isolate_calls(tree, Observed(calls=calls).of(tree))]
    settings = "json.encoder.FLOAT_REPR = repr\ntorch.manual_seed(0)\n"
    assert all(settings in text and "unused" not in text for text in texts)
    assert "decorated(4)\n" in texts[0]
    (dynamic,) = [text for text in texts if "dynamic=True)" in text]
    assert dynamic.endswith(
        "with torch.no_grad():\n    compiled = torch.compile(Holder(3).step, backend='eager', dynamic=True)\n"
        "    compiled(1, scale=2)\n    compiled(2)\n"
    )
    assert "table = {}" in dynamic


def test_isolated_calls_compile_with_options_that_were_variables(tmp_path: Path) -> None:
    text = """
class torch:
    def compile(function, **options):
        return function

def f(x):
    return x

def run(backend, **options):
    return torch.compile(f, backend=backend, **options)(3)
run("eager", fullgraph=True)
"""
    tree = ast.parse(text)
    texts = [render(apply_edit(tree, e)) for (e,) in isolate_calls(tree, _observed(text, tmp_path).of(tree))]
    assert any(text.endswith("torch.compile(f, backend='eager', fullgraph=True)(3)\n") for text in texts)


def test_a_function_that_is_given_a_compiled_one_stays_outside_of_the_compiler(tmp_path: Path) -> None:
    text = """
import types
torch = types.SimpleNamespace(compile=lambda function, **options: function)

def square(x):
    return x * x

def apply(function, x):
    return function(x)
apply(square, 3)
apply(torch.compile(square, fullgraph=True), 3)
"""
    tree = ast.parse(text)
    texts = [render(apply_edit(tree, e)) for (e,) in isolate_calls(tree, _observed(text, tmp_path).of(tree))]
    assert any(text.endswith("\napply(torch.compile(square, fullgraph=True), 3)\n") for text in texts)
    assert any(text.endswith("\ntorch.compile(square, fullgraph=True)(3)\n") for text in texts)
    assert not any("compile(apply" in text for text in texts)


def test_a_program_may_have_the_names_of_the_observer(tmp_path: Path) -> None:
    text = "import sys\ndef signal(literal):\n    return literal\ntypes = enum = json = os = Path = 3\nsignal(types)\n"
    assert len(_observed(text + "def main(): pass\nmain()\n", tmp_path).calls) == 2


def test_objects_live_no_longer_while_they_are_observed(tmp_path: Path) -> None:
    text = "n = 0\nclass Held:\n    def __init__(self, x):\n        self.x = x\n"
    text += "    def __del__(self):\n        global n\n        n += 1\n"
    text = render(ast.parse(text + "Held(2).x\nHeld(3)\nprint(n)"))
    tree = ast.parse(text)
    printed = tree.body[-1]
    assert isinstance(printed, ast.Expr)
    assert isinstance(printed.value, ast.Call)
    assert _observed(text, tmp_path).of(tree).values(printed.value.args[0]) == ("2",)


def test_the_observer_writes_what_it_has_seen_when_its_time_is_over(tmp_path: Path) -> None:
    program, output = tmp_path / "program.py", tmp_path / "observed.json"
    program.write_text("def f(x):\n    return x\nwhile True:\n    f(3)\n")
    done = subprocess.run([sys.executable, observer_file(), program, output, "0.2"], timeout=60)
    tree = ast.parse(program.read_text())
    seen = Observed.from_json(json.loads(output.read_text())).of(tree)
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    assert (done.returncode, seen.calls(function)) == (0, (SeenCall("", "(3)", grad=True),))


def _observed(text: str, folder: Path) -> Observed:
    program, output = folder / "program.py", folder / "observed.json"
    program.write_text(text)
    subprocess.run([sys.executable, observer_file(), program, output], timeout=60, check=True)
    return Observed.from_json(json.loads(output.read_text()))


def test_arguments_that_are_methods_partial_calls_and_sets_are_written_as_expressions(tmp_path: Path) -> None:
    shared = "from functools import partial\nclass A:\n    def __init__(self, n): pass\n    def go(self): pass\n"
    text = f"{shared}def f(x):\n    return x\nf(partial(A, n=A(1)))\nf({{2, 1}})\nf(set())\nf(A(2).go)\n"
    tree = ast.parse(text)
    (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    calls = _observed(text, tmp_path).of(tree).calls(function)
    assert [call.arguments for call in calls] == ["(partial(A, n=A(1)))", "({1, 2})", "(set())", "(A(2).go)"]


def test_arguments_of_the_standard_library_are_written_as_what_makes_them(tmp_path: Path) -> None:
    shared = "import collections, enum, fractions\nimport numpy as np\nclass F(enum.Flag):\n    A = 1\n    B = 2\n"
    given = [
        "collections.deque([1, 2], maxlen=3)",
        "frozenset({'a'})",
        "fractions.Fraction(1, 3)",
        "np.zeros((2,))",
        "np.zeros((2, 3), dtype='int8')",
        "np.int64(3)",
        "F.A | F.B",
        "F.B",
        "iter([])",
        "collections.defaultdict(list)",
    ]
    text = f"{shared}def f(x):\n    return x\n" + "".join(f"f({value})\n" for value in given)
    tree = ast.parse(text)
    (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    calls = [call.arguments for call in _observed(text, tmp_path).of(tree).calls(function)]
    arrays = ["(np.ones((2,)))", "(np.ones((2, 3), dtype='int8'))", "(np.int64(3))"]
    assert calls == [*(f"({value})" for value in given[:3]), *arrays, "(F(3))", "(F.B)"]


def test_a_loop_over_texts_becomes_one_over_letters() -> None:
    def fails(text: str) -> bool:
        seen: set[str] = set()
        with contextlib.suppress(Exception):
            exec(compile(text, "program.py", "exec"), {"step": seen.add})
        return len({value for value in seen if isinstance(value, str)}) > 8

    names = [f"name {number}" for number in range(12)]
    text = f"rows = {names}\nfor row, number in zip(rows, range(12)):\n    step(row)\n"
    reduced = reduce_source("step = step\n" + text, fails)
    assert count_tokens(reduced.text) <= 15


@pytest.mark.parametrize("made", ["torch.Tensor([4])", "torch.empty(4).fill_(2)", "torch.ones(4).new_empty(4)"])
def test_no_candidate_reads_memory_that_nothing_has_set(made: str) -> None:
    tried: list[str] = []

    def fails(text: str) -> bool:
        tried.append(text)
        return "torch." in text and "4" in text

    reduced = reduce_source(f"import torch\nvalues = {made}\nprint(values)\n", fails)
    assert reduced.text.count("(") <= 1
    unset = [text for text in tried if "empty" in text or "Tensor(4)" in text]
    assert unset == []


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library cannot fill memory")
def test_the_observed_run_fills_memory_that_nothing_has_set(tmp_path: Path) -> None:
    text = "import ctypes\nmalloc = ctypes.CDLL(None).malloc\nmalloc.restype = ctypes.c_void_p\n"
    text = render(ast.parse(f"{text}print(ctypes.string_at(malloc(99999), 99999)[50000])"))
    tree = ast.parse(text)
    (printed,) = (node for node in ast.walk(tree) if isinstance(node, ast.Subscript))
    assert _observed(text, tmp_path).of(tree).values(printed) == (str(0xC0 ^ 0xFF),)


def test_a_tensor_whose_memory_is_not_set_stays_where_only_that_fails() -> None:
    reduced = reduce_source("import torch\nvalues = torch.empty(4)\n", lambda text: "torch.empty(" in text)
    assert "torch.empty(" in reduced.text


def test_what_an_assignment_adds_to_is_kept_without_the_assignment() -> None:
    reduced = reduce_source("rows = [3]\nrows[0] += 1\n", lambda text: "rows[0]" in text)
    assert reduced.text == "rows = 0\nrows[0]\n"


SECOND_LINE = """
def f(x):
    y = x + 1
    if y > 3:
        y = 2 * y
    return y
print(f(3))
"""


@pytest.mark.parametrize(
    ("line", "name", "nearest"),
    [(3, "y = x + 1", "y = 4"), (5, "y = 2 * y", "y = 8"), (4, "if y > 3:", "y = x + 1\n    y = 2 * y")],
)
def test_the_statement_at_a_line_does_nothing_and_the_rest_stays(
    line: int, name: str, nearest: str, tmp_path: Path
) -> None:
    seen = _observed(SECOND_LINE, tmp_path)
    found = list(programs_without_line(SECOND_LINE, line, seen))
    assert {told for told, _ in found} == {name}
    assert nearest in found[0][1]
    assert all("return y" in text for _, text in found)
    assert list(programs_without_line(SECOND_LINE, 2, seen)) == []


_ODD_CALLS = """
class Amount(int):
    def doubled(self):
        return self * 2
    def __repr__(self):
        return 'no expression <'
def call(way, **options):
    return way
compiled = torch.compile(Amount.doubled)
print(Amount(2).doubled())
call(Amount(2).doubled, **{'a-b': 1, 'class': Amount(3)})
"""


def test_calls_with_odd_receivers_and_keywords_are_written_as_python(tmp_path: Path) -> None:
    text = f"import types\ntorch = types.SimpleNamespace(compile=lambda f: f)\n{_ODD_CALLS}"
    tree, observed = ast.parse(text), _observed(text, tmp_path)
    assert {(call.owner, call.arguments) for calls in observed.calls.values() for call in calls} == {
        ("Amount(2)", "()"),
        ("", "(Amount(2).doubled, **{'a-b': 1}, **{'class': Amount(3)})"),
    }
    texts = [render(apply_edit(tree, edit)) for (edit,) in isolate_calls(tree, observed.of(tree))]
    for written in texts:
        compile(written, "program", "exec")
    assert any("**{'class': Amount(3)}" in written for written in texts)
    assert any("torch.compile(Amount(2).doubled)()" in written for written in texts)


@pytest.mark.parametrize("owner", ["2", "-2"])
def test_a_method_of_a_number_is_called_on_it(owner: str) -> None:
    tree = ast.parse(_ODD_CALLS)
    method = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "doubled")
    number = {node: n for n, node in enumerate(ast.walk(tree))}[method]
    seen = Observed(calls={number: (SeenCall(owner, "()", grad=True),)}).of(tree)
    (text,) = [render(apply_edit(tree, edit)) for (edit,) in isolate_calls(tree, seen)]
    compile(text, "program", "exec")
    assert ast.unparse(ast.Attribute(ast.parse(owner, mode="eval").body, "doubled", ast.Load())) in text


def test_texts_that_are_no_expressions_are_left_out_of_what_was_seen() -> None:
    data = {
        "ran": [1],
        "values": {"3": ["<object>", "1"]},
        "kinds": {},
        "calls": {"4": [["2", "(3", True], ["<Amount>", "()", True], ["Amount(2)", "()", True]]},
    }
    assert Observed.from_json(data) == Observed(
        frozenset({1}), {3: ("1",)}, {}, {4: (SeenCall("Amount(2)", "()", grad=True),)}
    )


def test_a_pass_that_raises_is_left_out_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(tree: ast.Module, seen: Seen) -> Iterator[list[Edit]]:
        yield [{tree.body[0]: ()}]
        raise SyntaxError("of this pass")

    faults: list[str] = []
    monkeypatch.setattr(plan, "_ONCE", (raises, *plan._ONCE))
    reduced = reduce_source(
        "x = 1\ny = 2\nprint(y)\n",
        lambda t: "print" in t,
        on_fault=lambda name, error: faults.append(f"{name}: {error}"),
    )
    assert (reduced.text, faults) == ("print\n", ["raises: of this pass"])


def test_each_compile_that_names_no_backend_gets_one() -> None:
    text = """
@torch.compile
def f(x):
    return x
@torch.compile(fullgraph=True)
def g(x):
    return torch.compile(f, mode="max-autotune")(x)
h = torch.compile(g)
k = torch.compile(h, backend="inductor")
"""
    named = with_backend(text, "eager")
    assert named.count("backend='eager'") == 3
    assert "torch.compile(f, mode='max-autotune')" in named
    assert "torch.compile(h, backend='inductor')" in named
    assert "@torch.compile(backend='eager')\ndef f(x):" in named
    assert with_backend(text, "inductor") == text  # what it takes by itself


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("f = torch.compile(f, backend='eager')", True),
        ("f = torch.compile(f, backend='eager')\n@torch.compile\ndef g(): pass", False),
        ("f = torch.compile(f, backend='inductor')", False),
        ("f = torch.compile(f, mode='max-autotune')", False),
        ("torch.export.export(f, ())", False),
    ],
)
def test_a_program_names_a_backend_where_each_compile_does(text: str, names: bool) -> None:
    assert names_backend(text, "eager") == names
