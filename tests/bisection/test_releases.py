"""`bisect --torch`: which releases are tried, what the trials say, and what is installed. No release is installed."""

from __future__ import annotations

import io
import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from dynadiag.__main__ import main
from dynadiag.bisection.document import BisectDocument
from dynadiag.bisection.releases import environments, package_index
from dynadiag.bisection.releases.environments import EnvironmentStore
from dynadiag.bisection.releases.release_report import ReleaseReport
from dynadiag.bisection.releases.release_search import boundaries, most_trials, next_release
from dynadiag.bisection.releases.release_trials import ReleaseTrial, _without_missing_package
from dynadiag.bisection.releases.requirements import program_packages
from dynadiag.bisection.releases.searcher import ReleaseResult, ReleaseSearcher, TorchRelease
from dynadiag.bisection.releases.version_range import parse_range, public
from dynadiag.commands import bisect_releases
from dynadiag.errors import DynadiagError
from dynadiag.explanation.registry import installed_torch
from dynadiag.render.printer import Printer
from dynadiag.trial.interpreter import Interpreter, link_dynadiag, probe
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.program import Program
from dynadiag.trial.signature import Signature

RELEASES = ("2.11.0", "2.12.0", "2.12.1", "2.13.0", "2.14.0", "2.14.1", "2.15.0")
OWN = RELEASES.index("2.13.0")
FAILURE = Signature("exception", "torch._dynamo.exc.Unsupported", "call 3 of f failed")
OTHER = Signature("exception", "ValueError", "something else")


class FakeTrials:
    """Ends with what `outcomes` says of a release; a sequence is one run after another."""

    def __init__(self, outcomes: dict[str, Any]) -> None:
        self.outcomes = {
            key: itertools.cycle(ends if isinstance(ends, list) else [ends]) for key, ends in outcomes.items()
        }
        self.reference: Signature | None = None
        self.runs: list[str] = []

    def run(self, interpreter: Interpreter) -> ReleaseTrial:
        self.runs.append(interpreter.torch)
        signature = next(self.outcomes.get(interpreter.torch, iter([None])), None)
        outcome = Outcome(signature, 1.0)
        if self.reference is None:
            self.reference = signature
        return ReleaseTrial(outcome, outcome.status_across_releases(self.reference))


def search(
    failing: Sequence[str] = (), broken: Sequence[str] = (), repeat: int = 1, ends: Mapping[str, Any] | None = None
) -> tuple[ReleaseResult, FakeTrials]:
    """A search over `RELEASES` in which `failing` fail, `broken` do not install, and `ends` says how others end."""
    trials = FakeTrials({**dict.fromkeys(failing, FAILURE), **(ends or {})})

    def install(requirement: str) -> Interpreter:
        if requirement in broken:
            raise DynadiagError("no matching distribution")
        return Interpreter(Path("python"), requirement)

    own = TorchRelease(Version(RELEASES[OWN]), interpreter=Interpreter(Path("python"), RELEASES[OWN]))
    candidates = [own if index == OWN else TorchRelease(Version(name), name) for index, name in enumerate(RELEASES)]
    return ReleaseSearcher(candidates, OWN, trials, install, 6, repeat).search(), trials


def document(result: ReleaseResult) -> BisectDocument:
    return ReleaseReport("t.py", "2.13.0", result, FAILURE).document()


INTERVALS = [(a, b) for a in range(len(RELEASES)) for b in range(a, len(RELEASES))]


@pytest.mark.parametrize(("first", "last"), INTERVALS)
def test_each_interval_is_found_to_the_patch_release(first: int, last: int) -> None:
    result, _ = search(RELEASES[first : last + 1])
    wanted = (
        RELEASES[first - 1] if first else None,
        RELEASES[first] if first else None,
        RELEASES[last] if last < len(RELEASES) - 1 else None,
        RELEASES[last + 1] if last < len(RELEASES) - 1 else None,
    )
    found = document(result)
    if not first <= OWN <= last and first > 0 and last < len(RELEASES) - 1:
        return  # between two releases that pass: whether it is seen at all is a matter of what is explored
    if (first, last) == (0, len(RELEASES) - 1):
        assert (found.verdict, result.installs) == ("fails_in_all", 2)
        return
    assert found.verdict == "found"
    assert result.installs <= (6 if first and last < len(RELEASES) - 1 else 4)
    sides = (found.last_good, found.first_bad, found.last_bad, found.first_good)
    if first <= OWN <= last:
        assert sides == wanted
    else:  # seen at one end: the other end of the failure lies beyond the range
        assert set(filter(None, sides)) == set(filter(None, wanted))


def test_none_fails() -> None:
    result, _ = search()
    assert (result.verdict, result.installs) == ("passes", 4)
    assert document(result).failure is not None


def test_installs_that_are_told_are_those_of_the_worst_answer() -> None:
    assert most_trials(len(RELEASES), OWN) == (4, 6)
    assert most_trials(len(RELEASES), OWN, lambda index: index == 6) == (3, 5)
    assert most_trials(2, 0) == (1, 1)


@pytest.mark.parametrize("broken", RELEASES[:OWN] + RELEASES[OWN + 1 :])
def test_a_release_that_does_not_install_is_left_out(broken: str) -> None:
    result, _ = search(["2.12.0", "2.12.1", "2.13.0", "2.14.0"], [broken])
    found = document(result)
    assert found.verdict == "found"
    assert found.versions is not None
    assert found.versions.get(broken, "invalid") == "invalid"
    for good, bad in ((found.last_good, found.first_bad), (found.first_good, found.last_bad)):
        if good is not None and bad is not None:
            assert (found.versions[good], found.versions[bad]) == ("pass", "same")
    if broken in found.versions:
        assert "no matching distribution" in ReleaseReport("t.py", "2.13.0", result, FAILURE).text(Printer())


def test_another_failure_is_neither_good_nor_bad() -> None:
    result, _ = search(["2.13.0"], ends={"2.14.0": OTHER})
    found = document(result)
    assert found.versions is not None
    assert found.versions["2.14.0"] == "different"
    assert (found.last_bad, found.first_good) == ("2.13.0", "2.14.1")
    assert any("2.14.0 fails in another way" in note for note in found.notes)
    text = ReleaseReport("t.py", "2.13.0", result, FAILURE).text(Printer())
    assert "2.14.0  fails in another way: ValueError: something else" in text
    result, _ = search(["2.13.0"], ends={"2.14.0": Signature("hang", "hang", "")})
    assert "stopped after 1 s; --timeout S" in ReleaseReport("t.py", "2.13.0", result, FAILURE).text(Printer())


def test_a_failure_that_comes_and_goes() -> None:
    result, _ = search(ends={"2.13.0": [FAILURE, None]})
    assert (result.verdict, ReleaseReport("", "", result, FAILURE).exit_code) == ("flaky", 5)
    assert "--repeat" in (result.contradiction or "")
    result, trials = search(repeat=3, ends={"2.13.0": [None, None, FAILURE]})
    assert result.verdict == "found"
    assert trials.runs.count("2.13.0") == 3


def test_the_same_failure_in_another_release() -> None:
    moved = Signature("exception", "torch.other.Unsupported", "call 17 of f failed", where="torch/x.py:9 in g")
    assert Outcome(moved).status_across_releases(FAILURE) == "same"
    assert Outcome(OTHER).status_across_releases(FAILURE) == "different"
    assert Outcome(invalid="x").status_across_releases(FAILURE) == "invalid"
    lacks = Outcome(Signature("exception", "ModuleNotFoundError", "No module named 'einops'"))
    assert "--with einops" in (_without_missing_package(lacks).invalid or "")


def test_a_search_that_would_install_more_than_was_said_ends() -> None:
    candidates = [TorchRelease(Version(name), name) for name in RELEASES]
    candidates[OWN] = TorchRelease(Version("2.13.0"), interpreter=Interpreter(Path("python"), "2.13.0"))
    trials = FakeTrials({"2.13.0": FAILURE})
    searcher = ReleaseSearcher(candidates, OWN, trials, lambda name: Interpreter(Path("python"), name), max_installs=1)
    result = searcher.search()
    assert (result.installs, result.stopped, result.verdict) == (1, True, "found")
    assert "more releases" in " ".join(document(result).notes)


def test_statuses_without_a_failure_have_no_boundary() -> None:
    assert not boundaries([None, "pass", "invalid"]).found
    assert next_release(["pass", "pass"], 0) is None


@pytest.mark.parametrize(
    ("text", "has", "has_not"),
    [
        ("2.11.0..2.15.0", ["2.11.0", "2.15.0"], ["2.10.0", "2.15.1", "2.14.0.dev20260101"]),
        ("2.11..2.15", ["2.11.0", "2.15.1"], ["2.16.0"]),
        ("2.14..", ["2.14.0", "3.0.0"], ["2.13.9"]),
        ("2.14..2.16.0.dev1", ["2.15.0", "2.16.0.dev1"], ["2.16.0"]),
    ],
)
def test_a_range(text: str, has: list[str], has_not: list[str]) -> None:
    found = parse_range(text)
    assert all(Version(name) in found for name in has)
    assert not any(Version(name) in found for name in has_not)


@pytest.mark.parametrize("text", ["", "2.13", "x..y", "2.15..2.11", "2.1...2.2", "..\x1b[31m"])
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(DynadiagError, match="--torch"):
        parse_range(text)


# What there is to try


def test_releases_are_those_that_pip_names(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "torch (2.15.0)\nAvailable versions: 2.15.0, 2.13.0+cpu, 2.13.0, what, 2.12.1.post1\n"
    answer = subprocess.CompletedProcess([], 0, said, "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer)
    told: list[str] = []

    def listed() -> tuple[Version, ...]:
        return package_index.list_releases((), prereleases=False, say=told.append)

    found = package_index.newest_builds(listed(), "2.14.0+cpu")
    assert {str(key): build for key, build in found.items()} == {
        "2.15.0": "2.15.0",
        "2.13.0": "2.13.0+cpu",
        "2.12.1.post1": "2.12.1.post1",
    }
    assert not told
    answer.stderr = "WARNING: Retrying after NewConnectionError('refused')\n"
    assert Version("2.15.0") in listed()
    assert told == ["one of the package indexes could not be reached; the search goes on with what the others have"]
    answer.stdout, answer.stderr = "", "ERROR: No matching distribution found for torch\n"
    with pytest.raises(DynadiagError, match=r"No matching distribution.*--python"):
        listed()
    answer.stderr = f"WARNING: Retrying after NewConnectionError('refused')\n{answer.stderr}"
    with pytest.raises(DynadiagError, match=r"the package index could not be reached; .*--python"):
        listed()


def test_a_program_needs_what_it_imports_directly_or_not(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("import torch, os, helper\n")
    (tmp_path / "helper.py").write_text("def f():\n    from msgspec import json\n")
    assert program_packages(Program(str(tmp_path / "t.py"))) == ("msgspec", "numpy")


def store(folder: Path) -> EnvironmentStore:
    return EnvironmentStore(folder / "torch", ("numpy==2.4.6",))


@pytest.fixture(autouse=True)
def _room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is installed for real, so that this machine's disk may be full."""
    monkeypatch.setattr(EnvironmentStore, "free_bytes", lambda _: 100_000_000_000)


def fake_install(monkeypatch: pytest.MonkeyPatch, code: int = 0) -> list[list[str]]:
    """Environments are made by commands that only leave an interpreter."""
    commands: list[list[str]] = []

    def execute(command: list[str], log: Path, temporary: Path, on_wait: Callable[[], None]) -> int:
        commands.append(command)
        if "venv" in command:
            python = Path(command[-1], "bin", "python")
            python.parent.mkdir(parents=True)
            python.symlink_to(sys.executable)
            return 0
        Path(temporary, "torch.whl").write_bytes(b"x" * 50_000)
        on_wait()
        log.write_text("collecting\nERROR: No matching distribution found for torch==9\nhint\n")
        return code

    monkeypatch.setattr(environments, "_execute", execute)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    return commands


def test_an_environment_is_kept_and_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = fake_install(monkeypatch)
    progress: list[int] = []
    made = store(tmp_path).install("torch==2.14.1", lambda size, _: progress.append(size))
    assert progress > [50_000]
    assert made.bytes < 50_000  # what was downloaded is gone
    assert commands[1][-2:] == ["torch==2.14.1", "numpy==2.4.6"]
    assert store(tmp_path).find("torch==2.14.1") == made
    assert store(tmp_path).install("torch==2.14.1") == made  # another search was quicker
    assert len(commands) == 2
    assert store(tmp_path).find("torch==2.14.0") is None
    assert EnvironmentStore(tmp_path / "torch", ("einops",)).find("torch==2.14.1") is None
    assert store(tmp_path).prune()[0] == 1
    assert not (tmp_path / "torch").exists()


def test_half_a_removed_environment_is_not_taken_for_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_install(monkeypatch)
    store(tmp_path).install("torch==2.14.1")
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        store(tmp_path).prune()
    assert (tmp_path / "torch" / f"torch-2.14.1-{sys.implementation.cache_tag}").exists()
    assert store(tmp_path).find("torch==2.14.1") is None


def test_a_failed_install_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_install(monkeypatch, 1)
    with pytest.raises(DynadiagError, match="No matching distribution found for torch==9"):
        store(tmp_path).install("torch==9")
    assert not [path for path in (tmp_path / "torch").iterdir() if path.suffix != ".lock"]


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (
            "ERROR: Cannot install torch==2.14.1 because of conflicts\nERROR: ResolutionImpossible: for help visit x\n",
            "ERROR: Cannot install torch==2.14.1 because of conflicts",
        ),
        (
            "WARNING: Retrying after connection broken by 'NewConnectionError(refused)'\nERROR: No matching "
            "distribution found for torch==2.14.1\n",
            "the package index could not be reached: ERROR: No matching distribution found for torch==2.14.1",
        ),
        ("", "the installer ended with 7"),
    ],
)
def test_why_an_install_failed(log: str, reason: str) -> None:
    assert environments._reason(log, 7) == reason


def test_no_answer_names_the_one_release_that_was_tried() -> None:
    result, _ = search(["2.13.0"], [name for name in RELEASES if name != "2.13.0"])
    text = ReleaseReport("t.py", "2.13.0", result, FAILURE).text(Printer())
    assert text.startswith("no answer: it fails with torch 2.13.0, and no other release could be tried\n")


def test_an_installer_is_watched_and_its_downloads_go_where_they_are_told(tmp_path: Path) -> None:
    code = "import tempfile, sys; print(tempfile.gettempdir()); sys.exit(7)"
    assert environments._execute([sys.executable, "-c", code], tmp_path / "log", tmp_path, lambda: None) == 7
    assert (tmp_path / "log").read_text().strip() == str(tmp_path)


def test_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = fake_install(monkeypatch)
    monkeypatch.setattr(EnvironmentStore, "free_bytes", lambda _: 1)
    with pytest.raises(DynadiagError, match=r"no room .* 8.5 GB while it is installed, 0.0 GB are free"):
        store(tmp_path).install("torch==2.14.1")
    assert not commands


def test_a_full_disk_is_told_before_anything_runs(
    program: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bisect_releases, "list_releases", lambda *_, **__: (Version("2.11.0"), Version("2.12.0")))
    monkeypatch.setattr(EnvironmentStore, "free_bytes", lambda _: 1_000_000_000)
    assert main(["bisect", "--torch", "2.11..2.12", "--yes", str(program)]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "no room in" in said
    assert "1.0 GB are free" in said


def test_what_is_no_interpreter_with_torch(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none", "not a Python"), (Path("/bin/true"), "not a Python")):
        with pytest.raises(DynadiagError, match=reason):
            probe(path, tmp_path)
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(DynadiagError, match="no torch"):
        probe(bare, tmp_path)


def test_another_interpreter_finds_our_package(tmp_path: Path) -> None:
    path = link_dynadiag(tmp_path, with_msgspec=True)
    code = "import dynadiag, msgspec, importlib.metadata as m\n"
    code += "print([e.value for e in m.entry_points(group='torch.backends')])"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(path)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['dynadiag.autoload:start']"


# The command


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "program.py"
    path.write_text("import sys\nsys.exit(3)\n")
    return path


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--torch", "2.13"], "2.13: not a range"),
        (["--python", "/none"], "/none: not a Python"),
        (["--yes"], "--yes belongs to"),
        (["--metric", "breaks", "--python", "/none"], "--most N"),
        (["--torch", "2.11..2.12", "--budget", "3"], "--budget"),
        (["--torch", "2.11..2.12"], "--yes"),
        (["--torch", "9.0..9.1"], "9.0..9.1: the package index has no release in the range"),
    ],
)
def test_what_the_command_refuses(
    options: list[str], reason: str, program: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bisect_releases, "list_releases", lambda *_, **__: (Version("2.11.0"), Version("2.12.0")))
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))  # no terminal: nobody was asked
    assert main(["bisect", *options, str(program)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert reason in said[-1]
    assert said[-1].startswith("dynadiag: ")


def test_two_interpreters(
    program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program fails in ours and passes in the other, which claims to have another release."""
    program.write_text(
        "import sys\nsys.exit(3 if len(sys.argv[0]) and 'OTHER' not in __import__('os').environ else 0)\n"
    )
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nOTHER=1 exec {sys.executable} "$@"\n')
    other.chmod(0o755)
    link = link_dynadiag(tmp_path, with_msgspec=True)
    monkeypatch.setattr(bisect_releases, "probe", lambda python, folder: Interpreter(python, "2.99.0", link))
    assert main(["bisect", "--json", str(tmp_path / "o.json"), "--python", str(other), str(program)]) == 0
    found = json.loads((tmp_path / "o.json").read_text())
    own = str(public(str(installed_torch())))
    assert found["versions"] == {own: "same", "2.99.0": "pass"}
    assert (found["last_bad"], found["first_good"], found["installs"]) == (own, "2.99.0", 0)
    assert found["failure"]["kind"] == "exit"
    assert f"compare/v{own}...v2.99.0" in capsys.readouterr().out


def test_prune_alone(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bisect", "--prune"]) == 0
    assert "removed 0 environments" in capsys.readouterr().out
    assert main(["bisect", "--prune", str(program)]) == 2


def test_the_document_is_text_too() -> None:
    result, _ = search(["2.12.0", "2.12.1", "2.13.0"], ["2.14.0"])
    text = ReleaseReport("t.py", "2.13.0", result, FAILURE).text(Printer())
    assert "it came between torch 2.11.0 and 2.12.0, and it was mended between torch 2.13.0 and 2.14.1" in text
    assert "no matching distribution" in text
