"""Two recordings side by side: their figures, and the stage that explains a difference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import dynadiag
from dynadiag.__main__ import main
from dynadiag.compare.recorded import (
    MEASURED,
    Figure,
    RecordedComparison,
    compare_recorded,
    recorded_document,
    recorded_text,
)
from dynadiag.explanation.runtime_cost import WARM, WarmCalls
from dynadiag.recording.fold import fold
from dynadiag.recording.import_export import export_log
from dynadiag.recording.journal import Journal
from dynadiag.recording.opening import open_recording
from dynadiag.render.json_document import encode
from dynadiag.render.printer import Printer


def plain(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() + 1).relu()


def broken(x: torch.Tensor) -> torch.Tensor:
    y = x.sin() + 1
    torch._dynamo.graph_break()
    return y.relu()


def recorded(file: Path, function: Any, measured: dict[str, Any] | None) -> Path:
    """A recording of a call, with what `compare` adds to it."""
    torch._dynamo.reset()
    with dynadiag.record(file):
        torch.compile(function, backend="eager")(torch.ones(3))
    if measured is None:
        return file
    log, made = file.with_suffix(".log"), file.with_stem(f"{file.stem}-measured")
    export_log(file, log)
    journal = Journal.reopen(log)
    journal.append({MEASURED: {}}, json.dumps(measured))
    journal.close()
    fold(log, made)
    return made


def compared(a: Path, b: Path) -> RecordedComparison:
    with open_recording(a) as first, open_recording(b) as second:
        return compare_recorded(first, second)


def test_a_figure_differs_beyond_both_intervals() -> None:
    near = Figure("step_time", 1.0, 1.1, (0.9, 1.05), (1.0, 1.2))
    far = Figure("step_time", 1.0, 2.0, (0.9, 1.1), (1.9, 2.1))
    assert (near.differs, far.differs, far.ratio) == (False, True, 2.0)
    assert Figure("peak_memory", 100.0, 101.0).differs is False
    assert Figure("launches", 2.0, 3.0).differs is True
    assert Figure("launches", 0.0, 3.0).ratio is None
    assert Figure("launches", None, 3.0).differs is None


def test_what_the_machine_explains_is_no_difference() -> None:
    """The same work took 2.5 to 3.2 times as long beside B."""
    slower = (2.5, 3.2)
    assert Figure("step_time", 1.0, 3.0, (0.9, 1.1), (2.9, 3.1), slower).differs is False
    assert Figure("step_time", 1.0, 5.0, (0.9, 1.1), (4.8, 5.2), slower).differs is True
    assert Figure("step_time", 1.0, 0.5, (0.9, 1.1), (0.4, 0.6), slower).differs is True


def test_a_break_explains_the_slower_step(tmp_path: Path) -> None:
    fast = {"seconds": 1e-5, "interval": [0.9e-5, 1.1e-5], "peak": 1000, "launches": 1}
    slow = {"seconds": 3e-5, "interval": [2.8e-5, 3.1e-5], "peak": 1000, "launches": 2}
    paths = (recorded(tmp_path / "a.dynadiag", plain, fast), recorded(tmp_path / "b.dynadiag", broken, slow))
    found = compared(*paths)
    assert [(each.name, each.differs) for each in found.figures] == [
        ("step_time", True),
        ("peak_memory", False),
        ("launches", True),
    ]
    assert found.explained_by[0].stage == "break"
    text = recorded_text(found, ("a", "b"), None, Printer())
    assert text.startswith(
        "B against A: step time 3.00 times, launches 2.00 times; the first stage that differs: break."
    )
    assert "10.0 µs (9.00 µs to 11.0 µs)" in text
    document = json.loads(encode(recorded_document(found, ("a", "b"), "2.13.0")))
    assert document["figures"][0]["ratio"] == 3.0
    assert document["explained_by"][0]["stage"] == "break"


@pytest.mark.parametrize("measured", [None, {"seconds": 1.0, "interval": [0.9, 1.1], "peak": 3000}])
def test_two_runs_of_one_program_do_not_differ(tmp_path: Path, measured: dict[str, Any] | None) -> None:
    again = measured and {"seconds": 9.0, "interval": [8.9, 9.1], "peak": 1000}
    found = compared(
        recorded(tmp_path / "a.dynadiag", plain, measured), recorded(tmp_path / "b.dynadiag", plain, again)
    )
    assert [each.differs for each in found.figures[:2]] == [None if measured is None else False] * 2
    assert recorded_text(found, ("a", "b"), None, Printer()).startswith("No difference beyond noise.")


def test_two_programs_are_told_as_two(tmp_path: Path) -> None:
    def other(y: torch.Tensor) -> torch.Tensor:
        return y.cos().sum()

    paths = recorded(tmp_path / "a.dynadiag", plain, None), recorded(tmp_path / "b.dynadiag", other, None)
    text = recorded_text(compared(*paths), ("a", "b"), None, Printer())
    assert text.startswith("note: these are two different programs")


def profiled(file: Path, log: Path, seconds: float) -> Path:
    """A recording with a profile of five warm calls, all of it in graphs."""
    export_log(file, log)
    journal = Journal.reopen(log)
    journal.append({WARM: {}}, encode(WarmCalls(5, seconds, 0.0, 0.0, ())).decode())
    journal.close()
    fold(log, log.with_suffix(".dynadiag"))
    return log.with_suffix(".dynadiag")


@pytest.mark.parametrize(("shown", "is_known"), [(2.0, True), (0.01, False)])
def test_a_stage_explains_only_what_a_profile_shows_too(tmp_path: Path, shown: float, is_known: bool) -> None:
    """On a busy machine a break was blamed for 130 ms, of which a profile of the same calls showed nothing."""
    plainly = recorded(tmp_path / "a.dynadiag", plain, {"seconds": 1.0, "interval": [0.9, 1.1]})
    with_break = recorded(tmp_path / "b.dynadiag", broken, {"seconds": 3.0, "interval": [2.9, 3.1]})
    found = compared(
        profiled(plainly, tmp_path / "pa.log", 0.5), profiled(with_break, tmp_path / "pb.log", 0.5 + shown)
    )
    text = recorded_text(found, ("a", "b"), None, Printer())
    assert found.explained_by[0].stage == "break"
    assert ("why is unknown" in text, "2.00 s longer" in text) == (not is_known, not is_known)


@pytest.mark.usefixtures("forked_interpreters")
def test_what_the_runs_were_given_comes_first(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, torch\ntorch.manual_seed(len(sys.argv))\n"
        "torch.compile(lambda x: x.sin() + 1, backend='aot_eager')(torch.ones(3))\n"
    )
    files = [tmp_path / name for name in ("a.dynadiag", "b.dynadiag")]
    for file, options, argument in zip(files, ((), ("--no-codegen",)), ((), ("word",)), strict=True):
        assert main(["explain", *options, "-o", str(file), str(program), *argument]) == 0
    text = " ".join(recorded_text(compared(*files), ("a", "b"), None, Printer()).split())
    assert text.startswith(
        "Not run alike: code generation was on and is off (--no-codegen), the seed of torch's random numbers was 1 "
        "and is 2."
    )


def test_options_on_what_is_measured_are_refused_for_recordings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(recorded(tmp_path / "a.dynadiag", plain, None))
    assert main(["compare", "--modes", "default", "--train", path, path]) == 2
    assert "--modes, --train, --inference: two recordings are only read" in capsys.readouterr().err


def test_what_was_compiled_is_told_where_no_figure_is_known_to_differ(tmp_path: Path) -> None:
    found = compared(recorded(tmp_path / "a.dynadiag", plain, None), recorded(tmp_path / "b.dynadiag", broken, None))
    assert [(each.name, each.differs) for each in found.figures if each.name != "peak_memory"] == [
        ("step_time", None),
        ("launches", None),
    ]
    text = " ".join(recorded_text(found, ("a", "b"), None, Printer()).split())
    assert text.startswith("No figure can be compared. The first stage that differs: break.")
    assert all(figure.a and figure.b for figure in found.figures if figure.name == "peak_memory")  # known, and shown
    assert "torch._dynamo.graph_break" in text


def test_a_damaged_measurement_is_not_known(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a.dynadiag", plain, {"seconds": "soon"})
    assert compared(path, path).figures[0].differs is None
