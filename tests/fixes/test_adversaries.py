"""Wrong changes of the catalogue are found out by the proof, and each obligation is needed for one of them."""

from __future__ import annotations

import random
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from dynadiag.fixes.call_watch import CandidateWatch, ReferenceWatch
from dynadiag.fixes.candidate import Candidate, Sources
from dynadiag.fixes.isolation import silence
from dynadiag.fixes.observation import CallDiffers, Observation, SideTaken
from dynadiag.fixes.problems import FixProblem
from dynadiag.fixes.rewrites import CATALOGUE
from dynadiag.fixes.trials import _instrumented
from dynadiag.recording.records import Frame
from dynadiag.trial.context import TRIAL
from tests.fixes.adversaries import ADVERSARIES, Adversary
from tests.fixes.build import changed, problem_at, project_of, recompile_of

_with_each = pytest.mark.parametrize("name", ADVERSARIES)
COMPARED = {"ends", "error", "results", "mutations", "gradients", "random", "printed", "sides"}


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What both processes of a proof report, here in one process."""
    found: list[Any] = []
    monkeypatch.setattr(TRIAL, "send", found.append)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    logging_functions = set(torch._dynamo.config.reorderable_logging_functions)
    ignored = set(torch._dynamo.config.ignore_logging_functions)
    with (
        warnings.catch_warnings(),
        torch._dynamo.config.patch(capture_scalar_outputs=False, allow_unspec_int_on_nn_module=False),
    ):
        warnings.resetwarnings()
        yield found
    torch._dynamo.config.reorderable_logging_functions = logging_functions
    torch._dynamo.config.ignore_logging_functions = ignored
    torch._dynamo.reset()
    sys.modules.pop("adversary", None)


def load(text: str, folder: Path) -> ModuleType:
    """The program as a module of the folder."""
    module = ModuleType("adversary")
    module.__file__ = str(folder / "f.py")
    (folder / "f.py").write_text(text)
    sys.modules["adversary"] = module
    exec(compile(text, module.__file__, "exec"), vars(module))
    torch.manual_seed(0)
    random.seed(0)
    return module


def problem_of(one: Adversary, folder: Path) -> FixProblem:
    """The break or the recompile of a program."""
    text = one.source
    if one.values is None:
        line = text[: max(text.rindex("call("), text.rfind("again("))].count("\n") + 1
        called = (Frame("f.py", line, "run"), Frame("f.py", 1, "target"))
        fields = {"hints": one.hints, "function": one.function, "gb_id": one.gb_id}
        found = problem_at(text, one.marked, **fields, stack=called, nothing_before=True)
        place = replace(found.span, file=str(folder / "f.py"))
        return replace(found, file=None, span=place) if one.in_library else found
    definition = "def forward" if "." in one.function else "def target"
    line, call_line = (text[: text.index(place)].count("\n") + 1 for place in (definition, "= call("))
    return recompile_of(text, one.function, one.marked, line, call_line, one.values, folder)


@cache
def wrong_change(name: str) -> tuple[str, Candidate]:
    """The change of the catalogue whose title is named, and the rewrite that makes it."""
    one = ADVERSARIES[name]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        problem, sources = problem_of(one, folder), Sources(project_of(one.source, folder))
        found = ((rewrite.name, each) for rewrite in CATALOGUE for each in rewrite.made(problem, sources))
        return next((by, each) for by, each in found if isinstance(each, Candidate) and one.title in each.title)


def objections(name: str, folder: Path, reported: list[Any], *, compiled_too: bool = False) -> set[str]:
    """The obligations that the wrong change fails; with ``compiled_too`` where its calls are compared with those of the
    unchanged program compiled as well.
    """
    one, (_, candidate) = ADVERSARIES[name], wrong_change(name)
    (text,) = changed(one.source, [candidate])
    edits = _instrumented(project_of(one.source, folder), candidate.conditions)
    unchanged = one.source
    for edit in sorted(edits, reverse=True):
        unchanged = unchanged[: edit.start] + edit.text + unchanged[edit.end :]
    asked = Observation(
        records=str(folder / "records"),
        root=str(folder),
        uncompiled=True,
        seconds=2.0,
        sides=tuple(condition.key for condition in candidate.conditions),
        as_tensors=candidate.as_tensors,
        inputs="finite" if candidate.finite else "all",
    )
    reference = ReferenceWatch(asked)
    module = load(unchanged, folder)
    module.run(lambda *args, **kwargs: reference(module.target, original(module), args, kwargs))
    reference.finish()
    if compiled_too:
        made = str(folder / "made")
        own, module = CandidateWatch(replace(asked, own_records=made)), load(unchanged, folder)
        whole = torch.compile(original(module), backend="eager")
        with suppress(Exception):  # torch does not take some of the programs
            module.run(lambda *args, **kwargs: own(whole, original(module), args, kwargs))
        own.finish()
        asked = replace(asked, compiled_records=made)
        reported[:] = [each for each in reported if isinstance(each, SideTaken)]
        torch._dynamo.reset()
    if one.compiled and not ends(load(text, folder)):
        return {"ends"}
    watch, other = CandidateWatch(asked), load(text, folder)
    plain = other.made() if candidate.whole_calls else original(other)
    compiled = torch.compile(other.target, backend=one.backend) if one.compiled else plain
    try:
        other.run(lambda *args, **kwargs: watch(compiled, plain, args, kwargs))
    except Exception:  # noqa: BLE001 - the changed program ends with any of them
        return {"ends"}
    watch.finish()
    found = {each.what for each in reported if isinstance(each, CallDiffers) and not each.rounding}
    sides = {(each.key, each.side) for each in reported if isinstance(each, SideTaken)}
    needed = {(condition.key, side) for condition in candidate.conditions for side in condition.sides}
    return found | ({"sides"} if needed - sides else set())


def ends(module: ModuleType) -> bool:
    """Whether the changed program ends without an exception when it is compiled."""
    try:
        module.run(torch.compile(module.target, backend="eager"))
    except Exception:  # noqa: BLE001 - any of them
        return False
    torch._dynamo.reset()
    return True


def original(module: ModuleType) -> Any:
    """What `torch.compile` compiles of the program."""
    return module.target.forward if isinstance(module.target, torch.nn.Module) else module.target


@_with_each
def test_a_wrong_change_is_found_out(
    name: str, tmp_path: Path, reported: list[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    with capfd.disabled(), silence():
        found = objections(name, tmp_path, reported)
    assert found == ADVERSARIES[name].found_by, [each for each in reported if isinstance(each, CallDiffers)]


@pytest.mark.slow
@_with_each
def test_a_wrong_change_is_found_out_where_calls_may_be_as_compiled(
    name: str, tmp_path: Path, reported: list[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    with capfd.disabled(), silence():
        found = objections(name, tmp_path, reported, compiled_too=True)
    assert found == ADVERSARIES[name].found_by


def test_each_rewrite_has_three_adversaries() -> None:
    names = [wrong_change(name)[0] for name in ADVERSARIES]
    assert {rewrite.name for rewrite in CATALOGUE if names.count(rewrite.name) < 3} == set()


def test_each_obligation_is_the_only_one_that_finds_out_some_wrong_change() -> None:
    alone = {what for one in ADVERSARIES.values() if len(one.found_by) == 1 for what in one.found_by}
    assert alone == COMPARED
