"""Each pass that rewrites a construct leaves a program that prints the same."""

from __future__ import annotations

import ast
import contextlib
import io

import pytest

from minifier.source import Observed
from minifier.source.assertions import (
    asserting_programs,
    handing_over_program,
    output_asserting_program,
    printing_assertions,
    with_plain_values,
)
from minifier.source.passes import definitions, expressions, inlining, objects, statements, unrolling
from minifier.source.reduction import Proposals
from minifier.source.trees import apply_edit, render

GENERATOR = """
import contextlib
found = []

@contextlib.contextmanager
def noted(name):
    found.append(name)
    try:
        yield name.upper()
    finally:
        found.append("end")
"""
REWRITES: dict[str, tuple[Proposals, str, str]] = {
    "a with of a generator": (
        unrolling.unroll_generators,
        GENERATOR + "name = 'x'\nwith noted('a') as upper:\n    found.append(upper + name)\nprint(found)\n",
        "with ",
    ),
    "a loop over a generator": (
        unrolling.unroll_generators,
        "def g(n):\n    for i in range(n):\n        yield i * n\nn = 5\nfor j in g(3):\n    print(j, n)\n",
        "def ",
    ),
    "a compiled method": (
        objects.methods_to_functions,
        "class A:\n    n = 2\n    def go(self, x):\n        return self.n * x\n"
        "def compiled(function):\n    return function\na = A()\nprint(compiled(a.go)(3))\n",
        "a.go",
    ),
    "a parameter of which one attribute is read": (
        definitions.parameters_to_attributes,
        "import types\ndef f(a, b):\n    a.n.append(b)\n    return len(a.n)\n"
        "a = types.SimpleNamespace(n=[])\nprint(f(a, b=1), f(a, 2), a.n)\n",
        "f(a, 2)",
    ),
    "a loop with its numbers": (
        statements.loop_over_less,
        "for i, x in enumerate('ab'):\n    print(x)\n",
        "enumerate",
    ),
    "a loop over two lists": (
        statements.loop_over_less,
        "for x, y in zip('ab', 'cd'):\n    print(x)\n",
        "zip",
    ),
    "a loop over items": (
        statements.loop_over_less,
        "for x, y in {'a': 1}.items():\n    print(x)\n",
        "items",
    ),
    "a column that nothing reads": (
        unrolling.drop_columns,
        "for a, b in ((1, 2), [3, 4]):\n    print(b)\n",
        "a, b",
    ),
    "a column of rows that are unpacked elsewhere": (
        unrolling.drop_columns,
        "def f():\n    [a, b] = v\n    print(b)\nfor v in ((1, 2), [3, 4]):\n    f()\n",
        "[a, b]",
    ),
    "a table of one column": (
        unrolling.drop_columns,
        "for v in ((1,), [3]):\n    a, = v\n    print(a)\n",
        "[3]",
    ),
    "an object with one attribute": (
        objects.objects_to_values,
        "class A:\n    def __init__(self, n):\n        self.n = n + 1\na = A(3)\nprint(a.n, A(4).n)\n",
        "class",
    ),
    "a dataclass with one field": (
        objects.objects_to_values,
        "import dataclasses\n@dataclasses.dataclass\nclass A:\n    n: int = 4\nprint(A(3).n, A(n=2).n, A().n)\n",
        "class A",
    ),
    "an object of which two attributes are read": (
        objects.objects_to_arguments,
        "import dataclasses\n@dataclasses.dataclass\nclass A:\n    n: int\n    m: int = 4\n"
        "def f(x, a):\n    return x * a.n - a.m\nprint(f(2, A(3)), f(5, A(6, m=7)))\n",
        "A(3)",
    ),
    "an object whose attributes are its arguments": (
        objects.objects_to_arguments,
        "class A:\n    def __init__(self, n):\n        self.n, self.k = n, 5\n"
        "class B:\n    def __init__(self, n):\n        self.n = [n]\n"
        "def f(b):\n    b.n.append(1)\n    return b.n\nprint(f(B(3)), f(B(4)), A(1).k)\n",
        "B(3)",
    ),
    "a field that nothing reads": (
        objects.drop_fields,
        "import dataclasses\n@dataclasses.dataclass\nclass A:\n    n: int\n    m: int\n    k: int = 0\n"
        "print(A(3, 1).n, A(n=3, m=4).n, A(5, m=6, k=7).k)\n",
        "m=",
    ),
    "a loop whose values do not matter": (
        statements.loop_over_numbers,
        "import itertools\nseen = set()\nfor a, b in itertools.product(range(4), range(5)):\n"
        "    seen.add(5 * a + b)\nprint(len(seen))\n",
        "product(",
    ),
    "a parameter that is assigned later": (
        inlining.inline_variables,
        "def f(x):\n    y = [x]\n    x = y * 2\n    return x\nprint(f(3))\n",
        "x = ",
    ),
    "a generator that only yields": (
        inlining.inline_calls,
        "def g(n):\n    yield n\n    yield from (n, 2)\nprint({str(x) for x in g(2)})\n",
        "def ",
    ),
    "a comprehension of two elements": (
        unrolling.unroll_comprehensions,
        "x = 3\nprint([x * y for x in (1, 2) for y in (4, 5)], [x * 2 for x in (4, x)], {-x for x in [7]}, x)\n",
        "in (4, x)",
    ),
    "a loop of three rounds": (
        statements.unroll_loops,
        "x = 1\nfor i in (4, 5, 6):\n    x = x * i\n    print(x)\n",
        "for ",
    ),
    "a loop that is left at once": (
        statements.unwrap_compounds,
        "def g():\n    yield 5\nfor i in g():\n    print(i)\n    break\n",
        "break",
    ),
    "calls that differ in one expression": (
        statements.roll_calls,
        "x = 4\nprint(x, [1, None])\nprint(x, [1, 2])\nprint(x, [1, x + 3])\nprint()\n",
        "print(x, [1, 2])",
    ),
    "an object of one attribute": (
        objects.objects_to_values,
        "class Holder:\n\n    def __init__(self, n, f):\n        self.f = f\nprint(Holder(1, len).f('ab'))\n",
        "class ",
    ),
    "a class that only inherits": (
        objects.collapse_classes,
        "class A:\n\n    def f(self):\n        return 3\n\nclass B(A):\n    pass\nprint(B().f(), isinstance(B(), B))\n",
        "class B",
    ),
    "a base of one class": (
        objects.collapse_classes,
        "class A(list):\n\n    def f(self):\n        return 3\n\n    def g(self):\n        return 4\n\n"
        "class B(A):\n\n    def g(self):\n        return self.f()\nprint(B([1]).g(), len(B([1])))\n",
        "class A",
    ),
    "an object that is called": (
        objects.callables_to_functions,
        "import functools\n\nclass Adder:\n\n    def __init__(self, n):\n        self.n = n\n\n"
        "    def __call__(self, x):\n        return x - self.n\n"
        "f = functools.partial(Adder(3))\nprint(f(5), functools.partial(f)(1), len('ab'))\n",
        "class ",
    ),
    "an object that iterates": (
        objects.callables_to_functions,
        "class Evens:\n\n    def __init__(self, n):\n        self.n = n\n\n"
        "    def __iter__(self):\n        yield from range(0, self.n, 2)\nfor x in Evens(5):\n    print(x)\n",
        "class ",
    ),
    "a list of one item": (
        unrolling.unwrap_single_items,
        "y = [3]\nfor x in y:\n    print(x, y[0], sum(x * 2 for x in y))\n",
        "[3]",
    ),
    "a dict of one item": (
        unrolling.unwrap_single_items,
        "y = {'a': 3}\n\ndef f():\n    return y['a']\nprint(f())\n",
        "'a'",
    ),
    "a loop over what was collected": (
        statements.use_at_once,
        "found = []\nfor n in range(3):\n    found.append((n, n * n))\nfor a, b in found:\n    print(a, b)\n",
        "found.append",
    ),
    "a dataclass whose attributes a function sets": (
        objects.objects_to_variables,
        "from dataclasses import dataclass, field\n@dataclass\n"
        "class A:\n    m: int\n    n: list = field(default_factory=list)\n"
        "    k: int = 5\ndef f():\n    a = A(3)\n    a.k += a.m\n    a.n.append(a.k)\n    return a.n\nprint(f())\n",
        "a.k",
    ),
    "a partial function that is called": (
        unrolling.unroll_function_tools,
        "import functools\nprint(functools.partial(max, 3, key=abs)(-4))\n",
        "partial",
    ),
    "a map over what is written": (
        unrolling.unroll_function_tools,
        "print(list(map(str, (3, 4))))\n",
        "map",
    ),
    "a reduction of what is written": (
        unrolling.unroll_function_tools,
        "from functools import reduce\nprint(reduce(pow, [2, 3], 4), reduce(divmod, [7]))\n",
        "[2, 3]",
    ),
    "a list that is filled": (
        statements.fill_literals,
        "x = [1]\nx.append(2)\nprint(x)\n",
        "append",
    ),
    "a dict that is filled": (
        statements.fill_literals,
        "x = {}\nx['a'] = 2\nprint(x)\n",
        "{}",
    ),
    "a condition that sets a value": (
        statements.unwrap_compounds,
        "n = 3\nx = False\nif n > 2:\n    x = True\nprint(x)\n",
        "if ",
    ),
    "a text of a value": (
        expressions.values_of_text,
        "print(f'{3 + 4}')\n",
        "f'",
    ),
    "an exec of a text": (
        inlining.inline_exec,
        "space = {'n': 3}\ncode = 'def f(x):\\n    return x * 2\\n'\nexec(code, space)\nprint(space['f'](4))\n",
        "exec(",
    ),
    "a call of one of two lambdas": (
        inlining.inline_calls,
        "c = 3\nprint(((lambda x: x * 2) if c else lambda x: x + 1)(c))\n",
        "lambda",
    ),
    "an attribute that two classes set": (
        objects.attributes_to_variables,
        "shared = [3]\nclass A:\n    def __init__(self):\n        self.kept = shared\n"
        "class B:\n    def __init__(self, kept):\n        self.kept = kept\nprint(A().kept, B(2) is None)\n",
        "A().kept",
    ),
    "an object whose attributes a function sets": (
        objects.objects_to_variables,
        "class A:\n    def __init__(self):\n        self.n = 1\na = A()\n"
        "def f():\n    a.n += 2\n    return a.n\nprint(f(), a.n)\n",
        "a.n",
    ),
    "an argument of an inherited constructor": (
        definitions.drop_parameters,
        "class A:\n    def __init__(self, name):\n        self.n = 1\n"
        "class B(A):\n    pass\nprint(B('a').n, A('b').n)\n",
        "'a'",
    ),
    "an argument that a constructor passes on": (
        definitions.drop_parameters,
        "class A:\n    def __init__(self, name):\n        self.n = 1\n"
        "class B(A):\n    def __init__(self):\n        super().__init__('a')\nprint(B().n)\n",
        "'a'",
    ),
    "coroutines": (
        definitions.drop_async,
        "import asyncio\nasync def g(n):\n    await asyncio.sleep(0)\n    return n\nasync def numbers():\n    yield 1\n"
        "async def main():\n    async for n in numbers():\n        print(n, await asyncio.gather(g(2), g(3)))\n"
        "    return [n async for n in numbers()]\nprint(asyncio.run(main()))\n",
        "await",
    ),
    "a lambda that only calls": (
        inlining.call_directly,
        "import functools\n\ndef f(x, y):\n    return x - y\nprint(functools.partial(lambda y: f(3, y))(5))\n",
        "lambda",
    ),
}


@pytest.mark.parametrize("what", REWRITES)
def test_a_rewritten_program_prints_the_same(what: str) -> None:
    proposals, text, gone = REWRITES[what]
    tree = ast.parse(text)
    made = [render(apply_edit(tree, edit)) for group in proposals(tree, Observed().of(tree)) for edit in group]
    first = next(one for one in made if gone not in one)
    assert _printed(first) == _printed(text)


def _printed(text: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(text, "program.py", "exec"), {})
    return printed.getvalue()


def test_jumps_of_an_inner_loop_stay() -> None:
    tree = ast.parse(
        "while x:\n    for y in z:\n        break\n    else:\n        continue\n    if y:\n        break\n"
    )
    (group,) = [g for g in statements.unwrap_compounds(tree, Observed().of(tree)) if tree.body[0] in g[0]]
    assert render(apply_edit(tree, group[0])) == "for y in z:\n    break\nif y:\n    pass\n"


def test_a_method_is_not_passed_in_place_of_its_object() -> None:
    method = ast.parse("def f(d):\n    d.move_to_end('a')\nf(entries)\n")
    assert list(definitions.parameters_to_attributes(method, Observed().of(method))) == []
    layer = ast.parse("def f(m):\n    return m.layer(1)\nmodel.layer = abs\nf(model)\n")
    ((edit,),) = definitions.parameters_to_attributes(layer, Observed().of(layer))
    assert "f(model.layer)" in render(apply_edit(layer, edit))


def test_a_field_stays_until_its_arguments_go() -> None:
    tree = ast.parse("@dataclass\nclass A:\n    n: int\n    m: int = 1\nk: int = 3\nA(2)\n")
    (group,) = statements.drop_unused(tree, Observed().of(tree))
    assert [ast.unparse(node) for edit in group for node in edit] == ["k: int = 3"]


def test_what_is_collected_is_printed_where_it_is_collected() -> None:
    tree = ast.parse("found = []\nfor i in range(3):\n    found.append(i)\nprint('found', found)\n")
    ((edit,),) = statements.use_at_once(tree, Observed().of(tree))
    assert render(apply_edit(tree, edit)) == "found = []\nfor i in range(3):\n    print(i)\n"


def test_what_one_assertion_compares_is_printed_and_nothing_else() -> None:
    text = "print(a)\nassert f(x) == 3\nassert x == y, 'no'\ntorch.testing.assert_close(x, 1, atol=1)\nassert ok(x)\n"
    found = list(printing_assertions(ast.parse(text)))
    assert found == [
        "a\nprint(f(x))\nx\ny\nx\n1\nok(x)\n",
        "a\nassert f(x) == 3\nprint(x, y)\nx\n1\nok(x)\n",
        "a\nassert f(x) == 3\nassert x == y, 'no'\nprint(x, 1)\nok(x)\n",
        "a\nassert f(x) == 3\nassert x == y, 'no'\ntorch.testing.assert_close(x, 1, atol=1)\nprint(ok(x))\n",
    ]


def test_what_an_assertion_counts_is_printed_before_the_count() -> None:
    found = list(printing_assertions(ast.parse("assert len(set(f(x))) == 1\nassert len(set(i for i in x)) == 2\n")))
    assert found == [
        "print(f(x))\nlen(set((i for i in x)))\n",
        "print(len(set(f(x))))\nlen(set((i for i in x)))\n",
        "assert len(set(f(x))) == 1\nprint(set((i for i in x)))\n",
        "assert len(set(f(x))) == 1\nprint(len(set((i for i in x))))\n",
    ]


def test_what_a_branch_that_only_raises_asks_is_printed_as_of_an_assertion() -> None:
    text = "if f(x) != want:\n    raise ValueError(x)\nif not ok(x):\n    raise ValueError\nif x > 1:\n    y = 2\n"
    found = list(printing_assertions(ast.parse(text)))
    kept = "if x > 1:\n    y = 2\n"
    assert found == [
        f"print(f(x), want)\nok(x)\n{kept}",
        f"if f(x) != want:\n    raise ValueError(x)\nprint(ok(x))\n{kept}",
    ]


def test_elements_of_a_printed_tuple_are_values_of_their_own() -> None:
    first = next(iter(with_plain_values(ast.parse("print((f(x), log))"))))
    assert ast.unparse(first) == "print(f(x), log)"


def test_one_printed_value_is_asserted_and_then_all_of_a_statement() -> None:
    tree = ast.parse("x = 3\nprint(len('ab'), x)\nprint(x + 1)\n")
    shown = {"len('ab')": "2", "x": "3", "x + 1": "4"}
    numbers = {i: node for i, node in enumerate(ast.walk(tree)) if isinstance(node, ast.expr)}
    values: dict[int, tuple[str, ...]] = {
        i: (shown[ast.unparse(node)],) for i, node in numbers.items() if ast.unparse(node) in shown
    }
    programs = list(asserting_programs(tree, Observed(values=values).of(tree)))
    assert programs == [
        "x = 3\nlen('ab')\nx\nassert x + 1 == 4\n",
        "x = 3\nassert len('ab') == 2\nx + 1\n",
        "x = 3\nlen('ab')\nassert x == 3\nx + 1\n",
        "x = 3\nassert (len('ab'), x) == (2, 3)\nx + 1\n",
    ]


def test_the_whole_output_is_asserted() -> None:
    text = output_asserting_program(ast.parse("print('a', 1)\nfor i in (2, 3):\n    print(i)\n"), "a 1\n2\n3\n")
    exec(compile(text, "program.py", "exec"), {})
    assert "== 'a 1 2 3'" in text


def test_printed_values_that_are_unpacked_become_a_list() -> None:
    forms = [ast.unparse(form) for form in with_plain_values(ast.parse("print('a', *x)"))]
    assert "print('a', list(x))" in forms
    assert "print('a', x.tolist())" in forms


@pytest.mark.parametrize(
    ("asserted", "values"),
    [
        ("assert f(1) == [2], 'no'", "(f(1), [2])"),
        ("assert (f(1) == [2]).all()", "(f(1), [2])"),
        ("assert torch.equal(f(1), x)", "(f(1), x)"),
        ("assert f(1).equal(x)", "(f(1), x)"),
        ("torch.testing.assert_close(f(1), x, rtol=0.1)", "(f(1), x)"),
        ("for x in (1, 2):\n    assert f(x) == x\nprint(x)", "(f(x), x)"),
    ],
)
def test_the_values_of_the_last_assertion_are_handed_over_once(asserted: str, values: str) -> None:
    made = handing_over_program(f"import torch\nassert 1 == 1\n{asserted}\n", "a.b", "show")
    assert made is not None
    text, sources = made
    assert ast.literal_eval(repr(sources)) == tuple(map(ast.unparse, ast.parse(values, mode="eval").body.elts))  # type: ignore[attr-defined]
    assert f"_value_left, _value_right = {values}\n" in text
    assert "from a.b import show\n" in text
    assert text.count("f(") == asserted.count("f(")


@pytest.mark.parametrize(
    "asserted", ["assert f(1)", "assert not f(1)", "assert f(1) < 2", "assert 1 == f(1) == 1", "f(1)"]
)
def test_no_values_are_handed_over_where_no_two_are_taken_as_equal(asserted: str) -> None:
    assert handing_over_program(f"import torch\n{asserted}\n", "a.b", "show") is None
