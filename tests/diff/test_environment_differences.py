"""Differences in what two runs were given, on recordings made by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from dynadiag.diff import environment_differences as module
from dynadiag.diff.environment_differences import are_versions, environment_differences
from dynadiag.recording.journal import Journal
from dynadiag.recording.opening import fold_in_place, open_recording
from dynadiag.recording.reader import Recording


def recorded(
    path: Path, variables: dict[str, str] | None, torch: str = "2.13.0", source: str | None = None
) -> Recording:
    run = {"target": "p.py", "argv": [], "pid": 1, "torch": torch, "cwd": "/u"}
    with_variables = {} if variables is None else {"environment": variables}
    journal = Journal.create(path)
    journal.append({"dynadiag_run": {**run, **with_variables}})
    if source is not None:
        journal.append({"dynadiag_source": {"file": "/u/p.py"}}, source)
    journal.append({"dynadiag_exit": {"code": 0, "notes": []}})
    journal.close()
    fold_in_place(path)
    return open_recording(path)


def texts(before: Recording, after: Recording) -> list[str]:
    return [found.text for found in environment_differences(before, after, ())]


def test_a_variable_that_is_set_unset_or_changed(tmp_path: Path) -> None:
    before = recorded(tmp_path / "a", {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "0", "SAME": "x"})
    after = recorded(tmp_path / "b", {"OMP_NUM_THREADS": "2", "TORCHINDUCTOR_FREEZING": "1", "SAME": "x"})
    assert texts(before, after) == [
        "the environment variable OMP_NUM_THREADS was 1 and is 2",
        "the environment variable TORCHDYNAMO_DISABLE was 0 and is not set",
        "the environment variable TORCHINDUCTOR_FREEZING was not set and is 1",
    ]


def test_folders_logs_and_a_recording_without_variables_are_no_difference(tmp_path: Path) -> None:
    before = recorded(tmp_path / "a", {"TORCHINDUCTOR_CACHE_DIR": "/a", "TORCH_LOGS": "guards"})
    assert texts(before, recorded(tmp_path / "b", {"TORCHINDUCTOR_CACHE_DIR": "/b"})) == []
    assert texts(before, recorded(tmp_path / "c", None)) == []


def test_another_torch_is_told(tmp_path: Path) -> None:
    assert texts(recorded(tmp_path / "a", {}), recorded(tmp_path / "b", {}, "2.14.0")) == [
        "torch was 2.13.0 and is 2.14.0"
    ]


@pytest.mark.parametrize(
    ("source", "other", "alike"),
    [
        ("a = 1\nb = 2\nc = 3\n", "a = 1\n\nb = 2\nc = 4\n", True),
        ("a = 1\nb = 2\n", "c = 1\nd = 2\nb = 2\ne = 5\n", False),
        (None, "a = 1\n", False),
    ],
)
def test_versions_of_one_program_share_most_lines(source: str | None, other: str, alike: bool, tmp_path: Path) -> None:
    before, after = recorded(tmp_path / "a", {}, source=source), recorded(tmp_path / "b", {}, source=other)
    assert are_versions(before, after) == alike


@pytest.mark.parametrize("both", [False, True])
def test_what_the_recording_of_values_sets_is_given_differently_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, both: bool
) -> None:
    names = ("torch._functorch.config", "enable_autograd_cache"), ("torch._inductor.config", "freezing")
    monkeypatch.setattr(module, "in_both", lambda pairs: pairs)
    monkeypatch.setattr(module, "_changed_options", lambda *_, **__: [(name, (True, False)) for name in names])
    before, after = recorded(tmp_path / "a", None), recorded(tmp_path / "b", None)
    monkeypatch.setattr(module, "_has_values", lambda side: both or side is after)
    pair = SimpleNamespace(compile_id="0/0")
    found = [each.text for each in environment_differences(before, after, [(pair, pair)])]  # type: ignore[list-item]
    own = ["torch._functorch.config.enable_autograd_cache was True and is False"] if both else []
    assert found == [*own, "torch._inductor.config.freezing was True and is False"]
