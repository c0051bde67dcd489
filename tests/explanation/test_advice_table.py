"""Every piece of advice is a remedy of the catalogue, and each trial that a remedy names is made here."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import dynadiag
from dynadiag.explanation.advice_on_recompiles import REMEDIES as RECOMPILES
from dynadiag.explanation.break_remedies import REMEDIES
from dynadiag.explanation.cache_bypass import CACHES
from dynadiag.explanation.cuda_graphs import CUDA_GRAPHS, OVERWRITTEN
from dynadiag.explanation.explanation import Explanation, explain
from dynadiag.explanation.export_remedies import EXPORTS
from dynadiag.explanation.failure_remedies import FAILURES
from dynadiag.explanation.number_remedies import NUMBERS
from dynadiag.explanation.program_end import DOUBLE_BACKWARD
from dynadiag.explanation.remedy import Remedy, Trial
from dynadiag.explanation.skipped import SKIPPED
from dynadiag.explanation.values import OVERFLOW
from dynadiag.job.divergence_text import RANKS
from tests.explanation.advice_programs import PROGRAMS as COMPILED
from tests.explanation.advice_programs import RESTORE, Program, config, plain, switched, with_state
from tests.explanation.export_programs import PROGRAMS as EXPORTED

PACKAGE = Path(dynadiag.__file__).parent
RELEASE = ".".join(torch.__version__.split(".")[:2])
OPTIONS = dict.fromkeys(
    (
        "capture_scalar_outputs",
        "capture_dynamic_output_shape_ops",
        "allow_unspec_int_on_nn_module",
        "trace_autograd_ops",
        "allow_rnn",
    ),
    False,
)
PROGRAMS = {**COMPILED, **EXPORTED}
# AOTAutograd does a part of what the advice on these is about. What follows the advice has to hold with it anyway.
BY_AUTOGRAD = (
    "a_float_as_negative_alpha",
    "is_given_to_a_transform",
    "breaks_in_a_transform",
    "a_float_as_alpha",
    "a_float_for_clamp",
)
SHAPES = {"force_parameter_static_shapes": True, "force_nn_module_property_static_shapes": True}
CATALOGUE: tuple[Remedy[Any], ...] = (
    *REMEDIES.values(),
    *NUMBERS,
    *RECOMPILES,
    *FAILURES,
    *EXPORTS,
    *CACHES,
    *CUDA_GRAPHS,
    OVERWRITTEN,
    DOUBLE_BACKWARD,
    OVERFLOW,
    *RANKS.values(),
    *SKIPPED,
)
TEXTS = {remedy.key: remedy.says for remedy in CATALOGUE}
TRIALS = [(remedy.key, trial) for remedy in CATALOGUE for trial in remedy.trials]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    with config.patch({**OPTIONS, **SHAPES}), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    while RESTORE:
        RESTORE.pop()()
    config.reorderable_logging_functions.clear()
    config.ignore_logging_functions.clear()
    torch._dynamo.reset()


def recorded(file: Path, program: Program, backend: str = "eager") -> tuple[Explanation, Any]:
    torch._dynamo.reset()
    with dynadiag.record(file):
        results = program(partial(torch.compile, backend=backend))
    while RESTORE:
        RESTORE.pop()()
    with dynadiag.open(file) as recording:
        return explain(recording), results


def pattern(says: str) -> str:
    """What the advice looks like with its slots filled."""
    text = re.escape(says.replace("{{", "\0").replace("}}", "\1"))
    return re.sub(r"\\\{\w+(:\w+)?\\\}", ".*", text).replace("\0", r"\{").replace("\1", r"\}")


@pytest.mark.parametrize(("key", "trial"), TRIALS, ids=[f"{key}-{trial.program}" for key, trial in TRIALS])
def test_what_the_advice_is_about_is_gone_when_it_is_followed(tmp_path: Path, key: str, trial: Trial) -> None:
    if trial.by:
        pytest.skip(f"it needs a GPU: {trial.by}")
    if trial.torch and RELEASE not in trial.torch:
        pytest.skip(f"the trial is for torch {', '.join(trial.torch)}")
    if trial.program == "a_coroutine" and sys.version_info >= (3, 13):
        pytest.skip("there the await is a break, GET_AWAITABLE, and the compile does not fail")
    program, followed = PROGRAMS[trial.program]
    backend = "aot_eager" if trial.program in BY_AUTOGRAD else "eager"
    before, results = recorded(tmp_path / "before.dynadiag", program, backend)
    given = {each for item in before.findings for each in item.advice if re.search(pattern(TEXTS[key]), each.text)}
    assert {each.checked for each in given} == {"tried"}
    assert trial.case is None or trial.case in {item.id for item in before.findings}
    after, results_after = recorded(tmp_path / "after.dynadiag", followed, "aot_eager")
    assert [item.title for item in after.findings if item.severity != "note"] == []
    torch.testing.assert_close(results_after, results, check_dtype=False, equal_nan=True)


SWITCHES = {
    "grad_mode": (plain, torch.no_grad),
    "inference_mode": (plain, torch.inference_mode),
    "torch_function_off": (plain, torch._C.DisableTorchFunction),
}


@pytest.mark.parametrize(
    "program",
    [*(pytest.param(with_state(*pair * 3), id=name) for name, pair in SWITCHES.items()), switched((True, False) * 3)],
)
def test_a_later_switch_compiles_none(tmp_path: Path, program: Program) -> None:
    explained, _ = recorded(tmp_path / "run.dynadiag", program)
    assert len(explained.compiles) == 2
    (item,) = (each for each in explained.findings if each.severity != "note")
    assert any("a later switch compiles none" in each.text for each in item.advice)


def test_sizes_behind_a_break_follow_from_those_before_it(tmp_path: Path) -> None:
    found, _ = recorded(tmp_path / "run.dynadiag", PROGRAMS["a_size_after_a_break"][0])
    _, before, after = found.findings
    assert "v.size()[0]" in before.title
    assert "short.size()[0]" in after.title
    assert (before.caused_by, after.caused_by, after.severity) == (None, 1, "note")


def test_a_value_behind_a_break_follows_from_the_break(tmp_path: Path) -> None:
    found, _ = recorded(tmp_path / "run.dynadiag", PROGRAMS["a_value_from_a_break"][0])
    position = next(i for i, item in enumerate(found.findings) if item.rule == "break")
    last = next(item for item in found.findings if item.rule == "recompile" and item.severity == "note")
    assert last.caused_by == position


def test_each_program_is_in_the_table() -> None:
    assert {trial.program for _, trial in TRIALS if not trial.by} == set(PROGRAMS)
    from benchmarks.cuda_graphs import CASES

    assert {(key, trial.program) for key, trial in TRIALS if trial.by} == {
        (each.key, name) for name, each in CASES.items()
    }


def test_advice_is_made_by_remedies_only() -> None:
    """`caches` alone makes its own: its second run tries what it advises."""
    found = {
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        if "Advice(" in (text := file.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "Advice"
    }
    made = {"explanation/remedy.py", "render/cache_report.py"}
    assert found == made | {"explanation/break_remedies.py"}  # of torch's hints


def test_each_remedy_for_ranks_is_chosen_by_a_divergence() -> None:
    text = (PACKAGE / "job/divergence_text.py").read_text()
    assert [key for key in RANKS if f'"{key}"' not in text] == []
