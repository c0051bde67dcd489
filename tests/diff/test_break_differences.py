"""Breaks that came, went, moved, or end the compile in one of two runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynadiag.diff.comparison import compare_recordings
from dynadiag.diff.difference import Difference
from dynadiag.recording.opening import open_recording
from tests.diff.programs import recorded

PROGRAM = """
import torch


def f(x):
    a = x * 2
    print("step")
    b = a.relu()
    return b + 1


compiled = torch.compile(f, backend="aot_eager")
for size in (3,):
    try:
        compiled(torch.ones(size))
    except Exception:
        pass
"""
BREAK = '    print("step")\n'
RELU = "    b = a.relu()\n"


def differences(folder: Path, before: str, after: str) -> list[Difference]:
    paths = [recorded(folder, name, program) for name, program in (("a", before), ("b", after))]
    with open_recording(paths[0]) as first, open_recording(paths[1]) as second:
        found = compare_recordings(first, second)
    assert found.first is not None
    return [found.differences[found.first], *found.differences]


@pytest.mark.parametrize(
    ("of", "before", "after", "line", "told"),
    [
        (
            BREAK + RELU,
            BREAK + RELU,
            RELU + BREAK,
            8,
            "the graph break GB0059 in f moved: it is after a.relu(), was before it",
        ),
        (
            BREAK + RELU,
            RELU + BREAK,
            BREAK + RELU,
            7,
            "the graph break GB0059 in f moved: it is before a.relu(), was after it",
        ),
        (BREAK, BREAK, "", None, 'line 7 of the first run, `print("step")`, no longer breaks the graph of f: GB0059'),
        (
            BREAK,
            BREAK,
            "    a = a + 1\n",
            7,
            'line 7 of the first run, `print("step")`, no longer breaks the graph of f',
        ),
        (BREAK, "", BREAK, 7, "a new graph break GB0059 in f"),
        ('"aot_eager"', '"aot_eager"', '"aot_eager", fullgraph=True', 7, "f fails to compile here: GB0059"),
        (
            "a.relu()",
            "a.relu()",
            "a.view(2)",
            8,
            "f fails to compile here: RuntimeError: shape '[2]' is invalid for input of size 3",
        ),
    ],
)
def test_a_break_of_one_run_leads(
    tmp_path: Path, of: str, before: str, after: str, line: int | None, told: str
) -> None:
    programs = PROGRAM.replace(of, before), PROGRAM.replace(of, after)
    lead = differences(tmp_path, *programs)[0]
    assert (lead.stage, lead.line) == ("break", line)
    assert lead.text.startswith(told)


def test_a_compile_that_fails_has_no_guards_to_compare(tmp_path: Path) -> None:
    found = differences(tmp_path, PROGRAM, PROGRAM.replace('"aot_eager"', '"aot_eager", fullgraph=True'))
    assert not [item for item in found if item.stage == "guard"]


def test_a_function_that_is_compiled_again_is_told_so(tmp_path: Path) -> None:
    found = differences(tmp_path, PROGRAM, PROGRAM.replace("(3,)", "(3, 4)"))
    assert {item.text for item in found if item.stage == "dynamo"} == {
        "f is compiled once more in the second run",
        "the rest of f after a break is compiled once more in the second run",
    }


def test_an_operator_that_is_gone_is_at_the_line_in_its_place(tmp_path: Path) -> None:
    lead = differences(tmp_path, PROGRAM.replace(BREAK, ""), PROGRAM.replace(BREAK, "").replace("b + 1", "b"))[0]
    assert (lead.stage, lead.line, lead.text) == ("dynamo", 8, "in Dynamo's graph b + 1 is gone")


def test_a_recompile_at_the_limit_leads(tmp_path: Path) -> None:
    program = PROGRAM.replace(BREAK, "").replace("import torch\n", "import torch\ntorch._dynamo.reset()\n")
    limited = program.replace('"aot_eager"', '"aot_eager", dynamic=False').replace("(3,)", "range(3, 14)")
    lead = differences(tmp_path, program, limited)[0]
    assert lead.stage == "recompile"
    assert lead.text.endswith("and the recompile limit is reached")
