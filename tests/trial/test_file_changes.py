"""Files that a program writes into its folder are detected; those of the compiler and ours are not the program's."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynadiag.bisection.bisector import HOOKS
from dynadiag.trial.program import Program
from dynadiag.trial.runner import Runner
from dynadiag.trial.sandbox import changed_files, snapshot

pytestmark = pytest.mark.usefixtures("forked_interpreters")

PROGRAM = """
import torch
from pathlib import Path
{writes}
torch.compile(lambda x: x.sin())(torch.ones(3))
"""


@pytest.mark.parametrize(
    ("writes", "found"),
    [("", []), ("torch.save(torch.ones(1), 'model.pt')", ["model.pt"]), ("Path('old').unlink()", ["old"])],
)
def test_a_fresh_run_reports_the_files_that_the_program_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: str, found: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    Path("old").touch()
    Path("program.py").write_text(PROGRAM.format(writes=writes))
    with Runner(Program("program.py"), HOOKS) as runner:
        outcome = runner.run_fresh()
    assert outcome.passed
    assert (tmp_path / "cache").is_dir()
    assert [Path(file).name for file in outcome.facts.writes] == found


def test_changed_new_and_gone_files_of_folders_below_are_seen(tmp_path: Path) -> None:
    (deep := tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("same", "grows", "goes"):
        (deep / name).touch()
    before = snapshot(tmp_path)
    (deep / "grows").write_text("x")
    (deep / "goes").unlink()
    (deep / "comes").touch()
    assert [Path(path).name for path in changed_files(before, snapshot(tmp_path))] == ["comes", "goes", "grows"]
    assert not snapshot(tmp_path, [tmp_path / "a"])


def test_a_folder_that_is_not_there_has_nothing(tmp_path: Path) -> None:
    assert snapshot(tmp_path / "gone") == {}
