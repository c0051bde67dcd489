"""What is new, what is known, what is over budget and what is gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dynadiag.check.baseline import Baseline, updated_baseline
from dynadiag.check.configuration import Budgets, parse_budgets
from dynadiag.check.measurement import Measurement
from dynadiag.check.result import CheckResult, check
from tests.check.build import PROGRAM, a_measurement
from tests.explanation.build import FILE

ROOT = Path(FILE).parent


def held(*runs: Measurement, baseline: Baseline | None = None, **budgets: object) -> CheckResult:
    given = parse_budgets({name.replace("_", "-"): value for name, value in budgets.items()}, "test")
    return check(runs, baseline, lambda _: given, ROOT)


def known(*runs: Measurement, before: Baseline | None = None) -> Baseline:
    return updated_baseline(before or Baseline(), runs, ROOT)


def rules(result: CheckResult) -> list[tuple[str, int | None]]:
    return [(item.rule, item.line) for item in result.problems]


def test_without_a_baseline_all_is_new() -> None:
    result = held(a_measurement((3, 5), recompiled="n"))
    assert rules(result) == [("new-break", 3), ("new-break", 5), ("new-recompile", 1)]
    assert not result.ok


def test_a_budget_stands_for_a_baseline_that_is_not_there() -> None:
    run = a_measurement((3, 5), recompiled="n")
    assert rules(held(run, max_breaks=2)) == [("new-recompile", 1)]
    assert rules(held(run, max_breaks=1, max_recompiles=1)) == [("max-breaks", 3)]
    assert held(run, max_breaks=2, max_recompiles=1).ok


def test_what_the_baseline_has_is_known_and_the_rest_is_new() -> None:
    result = held(a_measurement((3, 5)), baseline=known(a_measurement((3,))))
    assert rules(result) == [("new-break", 5)]
    assert [item.line for item in result.known] == [3]


def test_one_more_line_of_a_known_cause_is_one_problem() -> None:
    """Both lines are one problem in the report; the line that was known before is not one."""
    result = held(a_measurement((3, 4)), baseline=known(a_measurement((3,))))
    assert rules(result) == [("new-break", 4)]
    assert result.gone == ()


def test_two_of_one_identity_are_two() -> None:
    twice = PROGRAM.replace("print(x)", "print(y)")
    result = held(a_measurement((3, 4), source=twice), baseline=known(a_measurement((3,), source=twice)))
    assert rules(result) == [("new-break", 4)]
    assert held(a_measurement((3, 4), source=twice), baseline=known(a_measurement((3, 4), source=twice))).ok


@pytest.mark.parametrize("names", ["xyn", "abc"])
@pytest.mark.parametrize("above", [0, 30])
def test_moved_lines_and_renamed_variables_are_known(names: str, above: int) -> None:
    x, y, n = list(names)
    moved = "\n" * above + f"def forward({x}, {n}):\n    {y} = {x} + {n}\n    print({y})\n    print({x})\n"
    now = a_measurement((3 + above,), source=moved)
    assert held(now, baseline=known(a_measurement((3,)))).ok


def test_another_release_of_torch_changes_no_entry() -> None:
    before = known(a_measurement((3,)))
    result = held(a_measurement((3,), torch="2.13.1"), baseline=before)
    assert result.ok
    assert known(a_measurement((3,), torch="2.13.1"), before=before).to_json() == before.to_json()


def test_what_is_met_no_more_is_gone_and_dropped() -> None:
    before = known(a_measurement((3, 5)))
    result = held(a_measurement((3,)), baseline=before)
    assert result.ok
    assert [item.id for item in result.gone] == ["GB0124"]
    assert [item.id for item in known(a_measurement((3,)), before=before).known] == ["GB0059"]


def test_a_target_of_which_one_run_failed_keeps_what_is_known_of_it() -> None:
    before = known(a_measurement((3, 5)))
    runs = a_measurement((3,)), a_measurement((), exit_code=1)  # two cases of a parametrized test
    assert held(*runs, baseline=before).gone == ()
    assert [item.id for item in known(*runs, before=before).known] == ["GB0059", "GB0124"]


def test_what_another_target_has_is_neither_gone_nor_dropped() -> None:
    before = known(a_measurement((3,), target="a.py"), a_measurement((3, 5), target="b.py"))
    assert [item.targets for item in before.known] == [("a.py", "b.py"), ("b.py",)]
    now = a_measurement((3,), target="a.py")
    assert held(now, baseline=before).gone == ()
    assert known(now, before=before) == before
    assert [item.targets for item in known(a_measurement((), target="b.py"), before=before).known] == [("a.py",)]


@pytest.mark.parametrize(
    ("file", "kept"),
    [
        (str(ROOT / "layers" / "norm.py"), "layers/norm.py"),
        ("/env/lib/site-packages/lib/norm.py", "lib/norm.py"),
        ("<string>", "<string>"),
        (None, None),
    ],
)
def test_a_file_of_the_baseline_has_a_name_that_holds_on_every_machine(file: str | None, kept: str | None) -> None:
    (found,) = a_measurement().occurrences
    (entry,) = known(a_measurement(occurrences=(replace(found, file=file),))).known
    assert entry.file == kept


def test_a_finding_of_several_targets_is_one_problem() -> None:
    (problem,) = held(a_measurement((3,), target="a.py"), a_measurement((3,), target="b.py")).problems
    assert problem.targets == ("a.py", "b.py")


def test_a_program_that_fails_fails_the_check_and_drops_nothing() -> None:
    before = known(a_measurement((3, 5)))
    crashed = a_measurement((), exit_code=-11)
    result = held(crashed, baseline=before)
    assert [(item.rule, item.text) for item in result.problems] == [
        ("failed", "the program failed: signal 11 ended it")
    ]
    assert result.gone == ()
    assert known(crashed, before=before) == before


@pytest.mark.parametrize(
    ("budget", "value", "figures", "rule"),
    [
        ("max_graphs", 1, {}, "max-graphs"),
        ("max_compile_seconds", 1.5, {}, "max-compile-seconds"),
        ("max_memory", "1 kB", {"memory": 1001}, "max-memory"),
        ("max_launches", 4, {"launches": 5}, "max-launches"),
    ],
)
def test_figures_over_budget(budget: str, value: object, figures: dict[str, Any], rule: str) -> None:
    run = a_measurement((3,), **figures)
    everything = known(run)
    assert [item.rule for item in held(run, baseline=everything, **{budget: value}).problems] == [rule]
    assert held(run, baseline=everything, **{budget: 10**6}).ok


def test_a_figure_that_was_not_recorded_is_said_to_be_unknown() -> None:
    result = held(a_measurement((), memory=None), max_memory=1, max_compile_seconds="120%")
    assert result.ok
    assert [text.partition(" ")[0] for text in result.unknown] == ["max-compile-seconds", "max-memory"]


def test_seconds_are_held_to_a_share_of_the_baselines() -> None:
    slow, fast = a_measurement((3,), compile_seconds=12.0), a_measurement((3,), compile_seconds=10.04)
    before = updated_baseline(Baseline(), [fast], ROOT, ["prog.py"])
    assert before.compile_seconds == {"prog.py": 10.0}
    assert rules(held(slow, baseline=before, max_compile_seconds="110%")) == [("max-compile-seconds", None)]
    assert held(slow, baseline=before, max_compile_seconds="120%").ok


def test_a_budget_of_nothing_says_nothing() -> None:
    assert Budgets() == parse_budgets({"max-breaks": None}, "test")


@pytest.mark.parametrize(("number", "text"), [(1, "1 cache bypass, 0 allowed"), (2, "2 cache bypasses, 0 allowed")])
def test_the_bypasses_of_the_cache_have_a_budget(number: int, text: str) -> None:
    (found,) = a_measurement().occurrences
    run = a_measurement(occurrences=(replace(found, rule="cache-bypass"),) * number)
    (problem,) = held(run, baseline=known(run), cache_bypass=0).problems
    assert (problem.rule, problem.text, problem.line) == ("cache-bypass", text, 3)
