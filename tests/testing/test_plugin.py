"""The pytest plugin, on tests that pytest runs in this process."""

from __future__ import annotations

import json
import linecache
import re
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TESTS = """\
import pytest
import torch

{above}
def helper({value}):
    print("value", {value}.shape)
    {planted}
    return {value} * 2

def step({x}):
    return helper({x}).relu() + 1

def clean(x):
    return x.relu() + 1

def compiled(fn, **options):
    return torch.compile(fn, backend="eager", **options)

@pytest.mark.parametrize("size", [3, 4])
def test_break(size):
    compiled(step, dynamic=True)(torch.ones(size))

def test_clean():
    assert compiled(clean)(torch.ones(3)).sum() == 6

def test_nothing():
    pass
"""
MARKED = """
@pytest.mark.dynadiag(max_breaks=0)
def test_marked():
    compiled(step)(torch.ones(3))

@pytest.mark.dynadiag(max_breaks=1, max_recompiles=0)
def test_marked_within():
    compiled(step)(torch.ones(3))

@pytest.mark.dynadiag(max_braeks=1)
def test_marked_badly():
    compiled(clean)(torch.ones(3))

def test_fixture(dynadiag):
    assert dynadiag.explain(compiled(step), torch.ones(3)).break_count == 1
    assert dynadiag.explain(compiled(clean), torch.ones(7)).break_count == 0
    dynadiag.assert_one_graph()

def test_not_one_graph(dynadiag):
    torch.compiler.reset()
    compiled(step)(torch.ones(3))
    dynadiag.assert_one_graph()

def test_nothing_compiled(dynadiag):
    dynadiag.assert_one_graph()

def test_full_graph():
    torch.compiler.reset()
    compiled(step, fullgraph=True)(torch.ones(3))
"""
COMMON = ("-p", "no:asyncio", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:logging")


@pytest.fixture(autouse=True)
def modules_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch cannot be imported twice in a process, and pytester forgets what its runs import."""
    monkeypatch.setattr("_pytest.pytester.SysModulesSnapshot.restore", lambda self: None)


def written(*, above: str = "", planted: str = "", value: str = "value", x: str = "x") -> str:
    return TESTS.format(above=above, planted=planted, value=value, x=x)


def run(pytester: pytest.Pytester, text: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(test_it=text)
    sys.modules.pop("test_it", None)
    linecache.clearcache()
    return pytester.runpytest_inprocess(*COMMON, *options)


def section(result: pytest.RunResult) -> str:
    return re.split(r"=+ dynadiag =+\n", result.stdout.str())[-1].lstrip("\n")


def test_inert_until_used(pytester: pytest.Pytester) -> None:
    result = run(pytester, written())
    result.assert_outcomes(passed=4)
    assert "= dynadiag =" not in result.stdout.str()


def test_the_marker_and_the_fixture_work_without_any_option(pytester: pytest.Pytester) -> None:
    result = run(pytester, written() + MARKED, "--junitxml=out.xml")
    result.assert_outcomes(passed=6, failed=5)
    text = result.stdout.str()
    assert "FAILED test_it.py::test_marked - Failed: 1 graph break, 0 allowed" in text
    assert "max_braeks" in text
    assert "Not one graph: 1 graph break in the way." in text
    assert "nothing was compiled" in text
    marked = text.partition("_ test_marked _")[2].partition("_ test_marked_badly _")[0]
    assert "- dynadiag -" in marked  # pytest's own section
    assert "     |     ^^^^^" in marked
    assert "_pytest" not in marked
    assert '<property name="dynadiag.breaks" value="1"' in (pytester.path / "out.xml").read_text()


def test_the_same_outcomes_and_the_findings_of_each_test_at_the_end(pytester: pytest.Pytester) -> None:
    result = run(pytester, written(), "--dynadiag-recordings=kept")
    result.assert_outcomes(passed=4)
    assert result.ret == 0  # without a check nothing fails
    first, test, finding, *rest = section(result).splitlines()
    assert first.startswith("2 tests compiled something: 1 graph break, 0 recompiles, ")
    assert test == "test_it.py::test_break[3]: 1 graph break"
    assert finding == "    break[GB0059] test_it.py:6 in helper: Failed to trace builtin operator"
    assert "test_it.py" not in "".join(rest)
    assert len(list((pytester.path / "kept").glob("*.dynadiag"))) == 2


def test_without_a_baseline_every_finding_is_new_as_for_check(pytester: pytest.Pytester) -> None:
    result = run(pytester, written(), "--dynadiag")
    result.assert_outcomes(passed=4)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "test_it.py::test_break[3]: 1 graph break" in section(result)
    assert "failed: 1 problem" in section(result)
    assert "without a baseline every finding is new: --dynadiag-update writes one" in section(result)


def test_the_trace_is_in_no_section_of_a_failing_test(pytester: pytest.Pytester) -> None:
    text = written() + "\ndef test_fails():\n    compiled(clean)(torch.ones(5))\n    assert False\n"
    pytester.makepyfile(test_it=text)
    sys.modules.pop("test_it", None)
    options = [option for option in COMMON if option not in ("-p", "no:logging")]
    plugins = [word for option in options for word in ("-p", option)]
    result = pytester.runpytest_inprocess(*plugins, "--dynadiag", "-k", "test_fails")
    result.assert_outcomes(failed=1)
    assert "torch.__trace" not in result.stdout.str()


def test_a_baseline_holds_no_absolute_path(pytester: pytest.Pytester) -> None:
    assert run(pytester, written(), "--dynadiag-baseline=known.json", "--dynadiag-update").ret == 0
    content = (pytester.path / "known.json").read_text()
    assert '"test_it.py"' in content
    assert str(pytester.path) not in content


def test_a_break_that_is_planted_is_new_and_moved_lines_are_not(pytester: pytest.Pytester) -> None:
    assert run(pytester, written(), "--dynadiag-baseline=known.json", "--dynadiag-update").ret == 0
    known = json.loads((pytester.path / "known.json").read_text())["known"]
    assert [(item["identity"], item["targets"]) for item in known] == [
        ("break GB0059 helper: print('value', _0.shape)", ["test_it.py::test_break"])
    ]
    moved = written(above="\n" * 30, value="renamed", x="other")
    result = run(pytester, moved.replace('"renamed"', '"value"'), "--dynadiag-baseline=known.json")
    assert result.ret == 0
    assert "ok: nothing new" in section(result)
    result = run(pytester, written(planted="torch._dynamo.graph_break()"), "--dynadiag-baseline=known.json")
    result.assert_outcomes(passed=4)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "failed: 1 problem" in section(result)
    assert "test_it.py:7 in helper" in section(result)


@pytest.mark.parametrize(
    ("test", "is_gone"),
    [
        ("def test_break():\n    pass", True),
        ("@pytest.mark.skip\ndef test_break():\n    pass", False),  # it had no say
        ("@pytest.mark.parametrize('x', [1, 2])\ndef test_break(x):\n    assert x == 1", False),
    ],
)
def test_a_finding_of_a_test_that_compiles_nothing_any_more_is_gone(
    pytester: pytest.Pytester, test: str, is_gone: bool
) -> None:
    assert run(pytester, written(), "--dynadiag-baseline=known.json", "--dynadiag-update").ret == 0
    text = f"import pytest\n{test}\n"
    assert ("gone" in section(run(pytester, text, "--dynadiag-baseline=known.json"))) is is_gone
    result = run(pytester, text, "--dynadiag-baseline=known.json", "--dynadiag-update")
    assert f"{is_gone:d} dropped" in section(result)


def test_a_session_that_runs_no_test_writes_no_baseline(pytester: pytest.Pytester) -> None:
    result = run(pytester, written(), "--dynadiag-baseline=known.json", "--dynadiag-update", "--collect-only")
    assert result.ret == 0
    assert not (pytester.path / "known.json").exists()
    assert "= dynadiag =" not in result.stdout.str()


def test_budgets_of_the_configuration_hold_tests(pytester: pytest.Pytester) -> None:
    Path(pytester.path / "dynadiag.toml").write_text('[targets."test_it.py::test_break"]\nmax-breaks = 0\n')
    result = run(pytester, written(), "--dynadiag")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "max-breaks test_it.py:6 in helper: 1 graph break, 0 allowed" in section(result)


@pytest.mark.parametrize("content", [None, "{", '{"version": 99, "known": []}'])
def test_a_baseline_that_cannot_be_read_is_a_usage_error(content: str | None, pytester: pytest.Pytester) -> None:
    if content is not None:
        (pytester.path / "known.json").write_text(content)
    result = run(pytester, written(), "--dynadiag-baseline=known.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "known.json" in result.stderr.str()
    assert "--dynadiag-update" in result.stderr.str()


def test_a_baseline_that_cannot_be_written_fails_the_session(pytester: pytest.Pytester) -> None:
    result = run(pytester, written(), "--dynadiag-baseline=none/known.json", "--dynadiag-update")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.fnmatch_lines(["dynadiag: *known.json: there is no folder *none"])


@pytest.mark.slow
def test_workers_of_xdist_report_to_the_controller(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=written())
    options = [*COMMON[:4], "--dynadiag", "--dynadiag-baseline=known.json", "--dynadiag-update", "-n", "2"]
    result = pytester.runpytest_subprocess(*options)
    result.assert_outcomes(passed=4)
    # test_break[4] compiles nothing where the worker that ran test_break[3] runs it too
    assert section(result).startswith(("2 tests compiled something: 1 graph break,", "3 tests compiled something: 2 "))
    assert len(json.loads((pytester.path / "known.json").read_text())["known"]) == 1
