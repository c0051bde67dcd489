"""Logs that torch 2.11, 2.13 and 2.15 wrote of one program (`logs/program.py`): the same bytes back, the same facts."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from dynadiag.explanation.explanation import Explanation, explain
from dynadiag.recording.import_export import export_log, import_log
from dynadiag.recording.reader import Recording
from dynadiag.recording.torch_text.sources import source_text
from tests.recording.read_all import read_all

LOGS = sorted((Path(__file__).parent / "logs").glob("*.log.zst"))
PROGRAM = (Path(__file__).parent / "logs" / "program.py").read_text().splitlines()
FILE = "/home/user/program.py"


def line_of(text: str, after: str = "") -> int:
    """The line (from 1) of the program that holds a text, the first after another one."""
    start = next(number for number, line in enumerate(PROGRAM) if after in line)
    return next(number for number, line in enumerate(PROGRAM, 1) if text in line and number > start)


def unpacked(log: Path, folder: Path) -> Path:
    made = folder / log.name.removesuffix(".zst")
    made.write_bytes(zstandard.ZstdDecompressor().decompress(log.read_bytes()))
    return made


@pytest.fixture(params=LOGS, ids=lambda log: log.name.removesuffix(".log.zst"))
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return unpacked(request.param, tmp_path)


@pytest.fixture
def explanation(log: Path, tmp_path: Path) -> Explanation:
    import_log(log, tmp_path / "run.dynadiag")
    with Recording(tmp_path / "run.dynadiag") as recording:
        return explain(recording)


def test_the_three_versions_are_here() -> None:
    assert [log.name for log in LOGS] == [f"torch-{version}.0.log.zst" for version in ("2.11", "2.13", "2.15")]


def test_a_log_goes_in_and_comes_back_byte_for_byte(log: Path, tmp_path: Path) -> None:
    import_log(log, tmp_path / "run.dynadiag")
    export_log(tmp_path / "run.dynadiag", tmp_path / "back.log")
    assert (tmp_path / "back.log").read_bytes() == log.read_bytes()
    assert read_all(tmp_path / "run.dynadiag") > 500


def test_the_version_of_torch_is_told(log: Path, explanation: Explanation) -> None:
    assert explanation.run.torch is not None
    assert explanation.run.torch.startswith(log.name.removeprefix("torch-").removesuffix(".log"))


def test_the_breaks_are_the_same(explanation: Explanation) -> None:
    found = {(item.gb_id, item.span.file, item.span.line, item.fatal) for item in explanation.roots}
    assert found == {
        ("GB0025", FILE, line_of("graph_break()", "def stop"), False),
        ("GB0170", FILE, line_of("if y.sum() > 0"), False),
        ("GB0025", FILE, line_of("graph_break()", "def whole"), True),
    }
    assert [item.cause is not None for item in explanation.breaks].count(True) == 1  # met again in `stop` itself


def test_the_recompiles_are_the_same(explanation: Explanation) -> None:
    each = [{(source_text(reason.source), reason.was) for reason in item.reasons} for item in explanation.recompiles]
    assert [item.function for item in explanation.recompiles] == ["chosen"] * 4
    assert [item.line for item in explanation.recompiles] == [line_of("backend", "y = y * scale")] * 4
    assert each[0] == {("x.size()[0]", "3")}
    assert ("mode", "'sin'") in each[1]
    assert ("bias", "None") in each[2]
    assert ("x.dtype", "Float") in each[3]
    told = [item.advice[0].text for item in explanation.findings if item.rule == "recompile"]
    assert "mark_dynamic" in told[0]
    assert "`mode` is a constant" in told[1]
    assert "None in one call" in told[2]
    assert "another dtype" in told[3]


def test_the_compiles_and_graphs_are_the_same(explanation: Explanation) -> None:
    outcomes = {(item.function, item.outcome) for item in explanation.compiles}
    assert outcomes == {
        ("forward", "ok"),
        ("split", "break"),
        ("stop", "break"),
        ("stop", "ok"),
        ("split", "ok"),
        ("chosen", "ok"),
        ("untouched", "skipped"),
        ("whole", "error"),
    }
    assert [graph.stage for graph in explanation.graphs].count("dynamo") == 10
    assert {graph.stage for graph in explanation.graphs} >= {"dynamo", "joint", "forward", "backward", "post_grad"}
    assert {kernel.language for kernel in explanation.kernels} == {"cpp", "extern"}
