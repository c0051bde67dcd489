"""What an identity holds, and what it does not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from keyword import iskeyword
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.explanation.explanation import explain
from dynadiag.explanation.identity import identity, local_number, parsed, place_text
from dynadiag.recording.records import Span
from tests.explanation.build import FILE, FakeRecording, a_break, a_compile, a_failure, a_recompile

PROGRAM = """\
import torch

def outer({a}, scale=2):
    def forward({b}):
        for {c} in range(scale):
            print("step", {b}.shape, {a}, LIMIT)
        with torch.no_grad() as {d}:
            return torch.relu({b} + {c})
    return forward
"""
PRINT, WITH, FOR = 6, 7, 5
NAMES = st.lists(
    st.text("abcdefghijk_xyzé", min_size=1, max_size=5).filter(lambda name: not iskeyword(name)),
    min_size=4,
    max_size=4,
    unique=True,
)


def text_at(source: str, line: int, part: str | None = None) -> str:
    if part is None:
        return place_text(source, Span(FILE, line))
    column = source.splitlines()[line - 1].index(part)
    return place_text(source, Span(FILE, line, column, line, column + len(part)))


def program(names: list[str]) -> str:
    return PROGRAM.format(**dict(zip("abcd", names, strict=True)))


@given(NAMES, st.integers(0, 5))
def test_moved_lines_and_renamed_variables_change_no_text(names: list[str], above: int) -> None:
    plain, changed = program(list("abcd")), "# a comment\n" * above + program(names)
    for line in (PRINT, WITH, FOR, 8):
        assert text_at(changed, line + above) == text_at(plain, line)
    assert text_at(changed, PRINT + above, f"{names[1]}.shape") == text_at(plain, PRINT, "b.shape") == "_0.shape"


def test_the_text_is_the_code_with_its_local_names_made_alike() -> None:
    source = program(list("abcd"))
    assert text_at(source, PRINT) == "print('step', _0.shape, _1, LIMIT)"
    assert text_at(source, FOR) == "_0 range(_1)"  # of a loop its head, not its body
    assert text_at(source, WITH) == "torch.no_grad() as _0"


@pytest.mark.parametrize(
    ("source", "line", "text"),
    [
        (None, 1, ""),
        ("x = 1\n", None, ""),
        ("x = 1\n", 9, ""),
        ("def f(:\n    y  =  3\n", 2, "y = 3"),  # no Python that we can parse: the line as it is
    ],
)
def test_what_cannot_be_parsed_has_the_text_that_there_is(source: str | None, line: int | None, text: str) -> None:
    assert place_text(source, Span(FILE, line)) == text


def test_a_parse_that_another_thread_disturbs_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython counts the depth of all threads in one number, and raises where it does not add up."""
    attempts = [SystemError("AST constructor recursion depth mismatch"), ast.Module([], [])]
    monkeypatch.setattr(ast, "parse", Mock(side_effect=attempts))
    assert parsed("disturbed = 1") is attempts[1]


DECORATED = """\
@torch.compile
@other(1)
def step({a}, {b}=None):
    {c} = {a} + 1
    return {c} * {b}
"""


@given(NAMES)
def test_the_arguments_of_a_decorated_function_are_made_alike(names: list[str]) -> None:
    """Python numbers its first line by the decorator."""
    source = DECORATED.format(**dict(zip("abc", names, strict=False)))
    assert {text_at(source, line) for line in (1, 3)} == {"_0, _1=None"}
    for line in (1, 3, 5):
        assert [local_number(source, line, name) for name in names[:3]] == ["_0", "_1", "_2"]
    assert local_number(source, 1, "elsewhere") == "elsewhere"


def test_two_places_of_one_cause_have_an_identity_each() -> None:
    places = (Span(FILE, PRINT), Span(FILE, 8))
    breaks = tuple(a_break(index, span=place) for index, place in enumerate(places))
    recording = FakeRecording(break_records=breaks, sources={FILE: program(list("abcd"))})
    (both,) = explain(recording).findings
    assert both.places == places
    alone = [explain(FakeRecording(break_records=(one,), sources=recording.sources)).findings[0] for one in breaks]
    assert both.place_identities == tuple(item.identity for item in alone)
    assert both.identity not in both.place_identities


def test_many_lines_make_an_identity_of_bounded_length() -> None:
    source = "\n".join(f"call_{i}()" for i in range(300))
    places = [Span(FILE, i + 1) for i in range(300)]
    made = identity("break", "GB0001", "f", places, {FILE: source})
    assert made.startswith("break GB0001 f: call_0()")
    assert len(made) < 260
    assert made != identity("break", "GB0001", "f", places[1:], {FILE: source})


def test_a_file_is_walked_once_for_all_places_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "\n".join(f"def f_{i}(x):\n    return g_{i}(x)" for i in range(300))
    walk, walked = ast.walk, list[ast.AST]()

    def counted(node: ast.AST) -> Iterator[ast.AST]:
        walked.append(node)
        return walk(node)

    monkeypatch.setattr(ast, "walk", counted)
    assert [text_at(source, 2 * i + 2) for i in range(300)] == [f"return g_{i}(_0)" for i in range(300)]
    assert sum(isinstance(node, ast.Module) for node in walked) == 1


@given(NAMES, st.integers(0, 3), st.integers(0, 9))
def test_a_finding_is_the_same_in_another_run(names: list[str], above: int, frame: int) -> None:
    def identities(source: str, moved: int, compile_id: str, b: str) -> list[str]:
        failure = a_failure("n == 3", source=f"L['{b}']", was="3", now="4", file=FILE, line=PRINT + moved)
        failed = a_compile(
            compile_id=f"9{compile_id}",
            outcome="error",
            error="InductorError",
            reason=f'LoweringException: boom\nFound from : \n   File "{FILE}", line {8 + moved}, in forward',
        )
        recording = FakeRecording(
            compile_records=(failed,),
            break_records=(a_break(span=Span(FILE, PRINT + moved), compile_id=compile_id),),
            recompile_records=(a_recompile(reasons=(failure,), compile_id=compile_id, line=FOR - 1 + moved),),
            sources={FILE: source},
        )
        return [item.identity for item in explain(recording).findings]

    changed = "\n" * above + program(names)
    assert identities(changed, above, f"{frame}/1", names[1]) == identities(program(list("abcd")), 0, "0/0", "b")


def test_a_recompile_is_the_same_whatever_break_its_part_begins_at() -> None:
    """A break that is planted, or removed, moves the line that torch tells for the rest of the function."""
    source = "def forward(x, n):\n    x = x + 1\n    print(x)\n    return x * n\n"
    failure = a_failure("", source="L['n']", was="3", now="4", file=FILE, line=4)

    def made(line: int) -> str:
        again = a_recompile(reasons=(failure,), line=line)
        return explain(FakeRecording(recompile_records=(again,), sources={FILE: source})).findings[-1].identity

    assert made(1) == made(2) == made(3) == "recompile forward: _1 changed _0, _1"
