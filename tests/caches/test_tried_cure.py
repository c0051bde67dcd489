"""`caches TARGET` tries a cure that is an option of torch: two more starts, of which the second one is measured."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch._inductor.config

from dynadiag.__main__ import main
from dynadiag.caches.cache_report import TriedCure
from dynadiag.capture.launch import ProcessEnd
from dynadiag.commands import caches
from dynadiag.commands.target_options import RecordOptions
from dynadiag.render.cache_report import headline, tried_text
from dynadiag.torch_private.caches import set_options
from dynadiag.trial.program import Program
from tests.caches.test_cache_report import Start, report

OPTION = "torch._inductor.config.unsafe_marked_cacheable_functions"
REASON = (
    "Unsupported call_function target <function soft at 0x7f0000000000>. \n"
    " Function module: __main__, \nFunction name: soft"
)
SOURCE = "import torch\n\n\ndef soft(x):\n    return x\n\n\ntorch._dynamo.allow_in_graph(soft)\n"


class Ran:
    """A run whose recording is complete already."""

    ended = ProcessEnd(0, 20.0, False)

    def __init__(self, recording: Path) -> None:
        self.keep = lambda: (recording,)


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Any]]:
    """The options of each start. A start without options bypasses the cache, a second one with them hits."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "p.py").write_text(SOURCE)
    seen: list[Mapping[str, Any]] = []

    def run(_program: Program, recording: Path, _how: RecordOptions, *, options: Mapping[str, Any], **_: object) -> Ran:
        seen.append(options)
        start = Start(tmp_path, len(seen), SOURCE)
        if options:
            start.compile("miss" if len(seen) == 3 else "hit", seconds=8.0 if len(seen) == 3 else 0.5)
        else:
            start.compile("bypass", cache_bypass_reason=REASON)
        start.ended(20.0).rename(recording)
        return Ran(recording)

    monkeypatch.setattr(caches, "run_recorded", run)
    return seen


def test_the_cure_is_tried_and_told_with_both_times(
    started: list[Mapping[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["caches", "--json", str(tmp_path / "o.json"), str(tmp_path / "p.py")]) == 0
    cure = {OPTION: {"__main__.soft": "tried by dynadiag"}}
    assert started == [{}, {}, cure, cure]
    text = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "help (tried): Make soft a custom operator" in text
    assert "then compiles 0 graphs instead of 1, in 1.5 s instead of 9.0 s (each measured once)" in text
    entries = json.loads((tmp_path / "o.json").read_text())["entries"]
    advice = [each for entry in entries if entry["run"] == 1 for each in entry["advice"]]
    assert {each["checked"] for each in advice} == {"tried"}


@pytest.mark.parametrize(
    ("left", "told"),
    [
        (0, "the second start then traces 0 graphs instead of 1, in"),
        (1, "the second start traces 1 graph all the same"),
    ],
)
def test_graphs_whose_code_was_cached_are_not_said_to_be_compiled(left: int, told: str, tmp_path: Path) -> None:
    paths = list[Path]()
    for number, outcome in enumerate(("miss", "hit")):
        start = Start(tmp_path, number, SOURCE)
        start.compile(outcome, aot="bypass", cache_bypass_reason=REASON)
        paths.append(start.ended(20.0))
    found = report(*paths)
    assert headline(found).startswith("The second start still traced 1 of 1 graph in AOTAutograd")
    (cause,) = {cause for entry in found.last for cause in entry.causes if cause.options}
    tried = tried_text(cause, replace(found, tried=TriedCure(found.options, 1.5, left)))
    assert tried is not None
    assert told in tried


def test_a_cure_in_vain_is_told_as_such(
    started: list[Mapping[str, Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TriedCure, "helps", lambda self, before: False)
    assert main(["caches", "--json", str(tmp_path / "o.json"), str(tmp_path / "p.py")]) == 0
    text = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "help (tried, in vain): Make soft a custom operator" in text
    assert "the option does not help by itself" in text
    entries = json.loads((tmp_path / "o.json").read_text())["entries"]
    assert {each["checked"] for entry in entries if entry["run"] == 1 for each in entry["advice"]} == {"unchecked"}
    assert len(started) == 4


def test_a_cure_helps_where_caches_answer_for_more_graphs() -> None:
    assert TriedCure({}, 1.0, compiled=0).helps(1)
    assert not TriedCure({}, 1.0, compiled=1).helps(1)


def test_the_cure_is_not_tried_on_request(
    started: list[Mapping[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["caches", "--no-try", str(tmp_path / "p.py")]) == 0
    assert started == [{}, {}]
    assert "help (not tried): Make soft" in capsys.readouterr().out


def test_options_are_set_by_their_whole_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._inductor.config, "unsafe_marked_cacheable_functions", {"a.b": "1"})
    set_options({OPTION: {"__main__.soft": "2"}})
    assert torch._inductor.config.unsafe_marked_cacheable_functions == {"a.b": "1", "__main__.soft": "2"}
    for name in ("os.environ", "torch._inductor.config.x.y", "torch._inductor.config"):
        with pytest.raises(ValueError, match="no option"):
            set_options({name: 1})
