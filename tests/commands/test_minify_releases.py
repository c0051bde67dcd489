"""`minify --torch`: when the installs are agreed to, and what the repro, the report and the JSON say of the releases.

The reduction and the search over releases are fakes: both have tests of their own.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.version import Version

from dynadiag.__main__ import main
from dynadiag.bisection.document import BisectDocument
from dynadiag.bisection.releases.environments import EnvironmentStore
from dynadiag.bisection.verdict import Verdict
from dynadiag.commands import bisect_releases, minify
from dynadiag.commands.bisect_releases import ReleaseOptions
from dynadiag.errors import DynadiagError
from dynadiag.minify.minify_result import MinifyResult
from dynadiag.recording.reader import Recording
from dynadiag.trial.program import Program
from dynadiag.trial.signature import Signature

FAILURE = Signature("exception", "ValueError", "of ours")
REPRO = MinifyResult(
    "reduced", "inductor", FAILURE, FAILURE, "# fails\n\nimport torch\n", nodes_before=9, nodes_after=1, proved=True
)


def versions(verdict: str = "found", **fields: Any) -> BisectDocument:
    return replace(Verdict(verdict, {}, failure=FAILURE).document(), **fields)


@pytest.mark.parametrize(
    ("made", "since"),
    [
        (
            versions(
                versions={"2.11.0": "pass", "2.12.0": "same", "2.13.0": "same", "2.14.0": "pass"},
                last_good="2.11.0",
                first_bad="2.12.0",
                last_bad="2.13.0",
                first_good="2.14.0",
            ),
            "fails since torch 2.12.0 (2.11.0 passes); mended in 2.14.0 (2.13.0 fails)",
        ),
        (
            versions(versions={"2.11.0": "same", "2.15.0": "pass"}, last_bad="2.11.0", first_good="2.15.0"),
            "fails with torch 2.11.0 already; mended in 2.15.0 (2.11.0 fails)",
        ),
        (
            versions(
                versions={"2.11.0": "pass", "2.13.0": "same", "2.15.0": "same"}, last_good="2.11.0", first_bad="2.13.0"
            ),
            "fails since torch 2.13.0 (2.11.0 passes) and still with 2.15.0",
        ),
        (
            versions("fails_in_all", versions={"2.11.0": "same", "2.15.0": "same"}),
            "fails with torch 2.11.0 already and still with 2.15.0",
        ),
        (versions("flaky", versions={"2.13.0": "same"}), None),
        (versions("passes", versions={"2.13.0": "pass"}), None),
    ],
)
def test_since_when_it_fails(made: BisectDocument, since: str | None) -> None:
    assert made.since == since


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, bool]]:
    """Searches that end at once. Returns the targets of those over releases, with `--torch` and `--accuracy`."""
    searched: list[tuple[str, str, bool]] = []

    def search(program: Program, options: ReleaseOptions, output: Path, progress: object) -> Any:
        assert options.yes
        searched.append((Path(program.target).name, Path(program.target).read_text(), options.search.accuracy))
        made = versions(versions={"2.11.0": "pass", "2.13.0": "same"}, last_good="2.11.0", first_bad="2.13.0")
        return SimpleNamespace(document=lambda: replace(made, notes=("2.12.0 could not be tried",)))

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(bisect_releases, "list_releases", lambda *_, **__: (Version("2.11.0"), Version("2.12.0")))
    monkeypatch.setattr(bisect_releases, "search_releases", search)
    monkeypatch.setattr(EnvironmentStore, "free_bytes", lambda _: 100_000_000_000)
    monkeypatch.setattr(minify, "trial_search", lambda *_: nullcontext())
    monkeypatch.setattr(minify, "minify", lambda *_: REPRO)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.py").write_text("import torch\n")
    return searched


def run(*words: str) -> tuple[int, dict[str, Any]]:
    code = main(["minify", "-o", "repro.py", "--recording", "m.dynadiag", "--json", "m.json", *words, "t.py"])
    return code, json.loads(Path("m.json").read_text()) if Path("m.json").exists() else {}


def test_the_header_says_since_when_it_fails(
    fakes: list[tuple[str, str, bool]], capsys: pytest.CaptureFixture[str]
) -> None:
    code, document = run("--accuracy", "--torch", "2.11..2.13", "--yes")
    assert code == 0
    assert fakes == [("repro.py", REPRO.text, False)]
    header = "# fails\n# fails since torch 2.13.0 (2.11.0 passes)\n"
    assert Path("repro.py").read_text() == f"{header}\nimport torch\n"
    assert document["versions"]["first_bad"] == "2.13.0"
    assert "2.12.0 could not be tried" in document["notes"]
    assert "= releases: fails since torch 2.13.0 (2.11.0 passes)" in capsys.readouterr().out
    with Recording(Path("m.dynadiag")) as search:
        assert next(iter(search.sources().values())).startswith(header)


def test_nobody_who_did_not_agree_waits_for_the_reduction(
    fakes: list[tuple[str, str, bool]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(minify, "minify", lambda *_: pytest.fail("reduced before the question"))
    assert run("--torch", "2.11..2.13")[0] == 2
    assert "nothing is installed without --yes" in capsys.readouterr().err
    assert run("--yes")[0] == 2
    assert "--yes belongs to" in capsys.readouterr().err
    assert not Path("m.dynadiag").exists()


def test_a_repro_stays_proved_where_the_releases_cannot_be_searched(
    fakes: list[tuple[str, str, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise DynadiagError("no room")

    monkeypatch.setattr(bisect_releases, "search_releases", fail)
    code, document = run("--torch", "2.11..2.13", "--yes")
    assert (code, document["notes"]) == (0, ["the releases of torch were not searched: no room"])
    assert Path("repro.py").read_text() == REPRO.text


def test_after_an_interrupt_the_repro_is_there(
    fakes: list[tuple[str, str, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bisect_releases, "search_releases", interrupt)
    assert run("--torch", "2.11..2.13", "--yes")[0] == 130
    assert Path("repro.py").read_text() == REPRO.text
    assert Path("m.dynadiag").exists()


def test_what_another_program_wrote_during_the_search_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "train.py").write_text("import torch\n")
    output = tmp_path / "repro.py"

    def reduced(*_: object) -> MinifyResult:
        output.write_text("mine")
        return REPRO

    monkeypatch.setattr(minify, "trial_search", lambda *_: nullcontext())
    monkeypatch.setattr(minify, "minify", reduced)
    assert main(["minify", "-o", str(output), str(tmp_path / "train.py")]) == 0
    assert (output.read_text(), (tmp_path / "repro-2.py").read_text()) == ("mine", REPRO.text)
    assert "repro-2.py" in capsys.readouterr().out
    assert main(["minify", "--force", "-o", str(output), str(tmp_path / "train.py")]) == 0
    assert output.read_text() == REPRO.text


def test_an_issue_that_is_asked_for_and_not_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    Path("train.py").write_text("import torch\n")

    def reduced(program: Program, options: object, log: Any, *_: object, **__: object) -> MinifyResult:
        log.finish(0, force=True)
        return MinifyResult("cached", "inductor", FAILURE)

    monkeypatch.setattr(minify, "reduce_to_repro", reduced)
    assert main(["minify", "-o", "repro.py", "--issue", "issue.md", "train.py"]) == 6
    assert "issue.md is not written: there is no repro" in capsys.readouterr().err
    assert not Path("issue.md").exists()
