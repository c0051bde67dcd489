"""Import and export: the same bytes, one recording a log, nothing half-written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynadiag.errors import DynadiagError, UnreadableInput
from dynadiag.recording.import_export import export_log, import_log
from dynadiag.recording.reader import Recording
from tests.recording.read_all import read_all

GOOD = b'V1120 06:38:46.123456 77 a.py:1] {"artifact": {"name": "n", "encoding": "json"}, "frame_id": 0}\n\tpayload\n'


def scratch(examples: int) -> settings:
    """Each example overwrites the files of the last: the folder may be shared."""
    shared = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=examples, suppress_health_check=shared, deadline=None)


def round_trip(data: bytes, folder: Path) -> int:
    """Import and export `data`; the number of events. Everything in the recording is read on the way."""
    log, recording, back = folder / "a.log", folder / "a.dynadiag", folder / "back.log"
    log.write_bytes(data)
    import_log(log, recording, force=True)
    export_log(recording, back, force=True)
    assert back.read_bytes() == data
    return read_all(recording)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KINDS = [
    "artifact", "dynamo_start", "dynamo_output_graph", "dynamo_cpp_guards_str",
    "compilation_metrics", "bwd_compilation_metrics", "create_symbol", "guard_added_fast",
    "chromium_event", "str", "inductor_output_code", "symbolic_shape_specialization",
    "dynadiag_run", "dynadiag_end", "dynadiag_break", "dynadiag_graph", "dynadiag_source",
    "dynadiag_frame", "dynadiag_guards", "dynadiag_recompiled", "dynadiag_skipped",
    "dynadiag_trial", "dynadiag_missed", "dynadiag_raised", "dynadiag_refused", "new_in_torch_9"
]  # fmt: skip
NAMES = [
    "dynamo_graph_break_reason", "recompile_reasons", "dynamo_error", "before_pre_grad_graph",
    "torch_version", "fx_graph_cache_hit", "PASS_post_grad"
]  # fmt: skip
FIELDS = [
    "name", "file", "filename", "line", "stack", "reason", "reasons", "guard", "frames",
    "user_stack", "user_code", "compile_id", "exit_code", "argv", "start", "rank", "nodes",
    "stacks", "span", "hints", "gb_type", "code", "source", "expr", "value", "seconds", "co_name",
    "fail_type"
]  # fmt: skip
bodies = st.dictionaries(st.sampled_from(FIELDS), values, max_size=6) | values


@st.composite
def events(draw: st.DrawFn) -> bytes:
    """An event whose header has the names that a reader looks for, and anything for their values."""
    kind = draw(st.sampled_from(KINDS))
    body = draw(bodies)
    if kind == "artifact" and isinstance(body, dict):
        body["name"] = draw(st.sampled_from(NAMES))
    context = draw(
        st.dictionaries(
            st.sampled_from(["frame_id", "frame_compile_id", "attempt", "compiled_autograd_id", "rank", "stack"]),
            st.integers(0, 3) | values,
        )
    )
    header = b"V1120 06:38:46.123456 77 a.py:1] " + json.dumps({kind: body, **context}).encode() + b"\n"
    payload = draw(st.none() | st.text(max_size=30) | bodies.map(json.dumps))
    return header if payload is None else header + b"\t" + payload.replace("\n", "\n\t").encode() + b"\n"


@scratch(100)
@given(st.lists(events() | st.binary(max_size=30), max_size=12))
def test_any_events_and_noise_come_back(tmp_path: Path, parts: Iterable[bytes]) -> None:
    round_trip(GOOD + b"".join(parts), tmp_path)


def test_a_log_that_torch_wrote(torch_log: Path, tmp_path: Path) -> None:
    assert round_trip(torch_log.read_bytes(), tmp_path) > 100
    with Recording(tmp_path / "a.dynadiag") as recording:
        assert recording.unparsed_lines == 0
        assert recording.counts() == {
            kind: len(list(recording.events(kind))) for kind in {event.kind for event in recording.events()}
        }
        import torch

        told = [
            json.loads(recording.payload(each.index)) for each in recording.events("artifact", name="torch_version")
        ]
        known = [] if torch.__version__ < "2.13" else [torch.__version__]  # 2.11 tells it with the metrics only
        assert [each["pytorch_version"] for each in told] == known
        assert recording.run.torch == torch.__version__


@scratch(60)
@given(data=st.data())
def test_damaged_logs_that_torch_wrote(torch_log: Path, tmp_path: Path, data: st.DataObject) -> None:
    """Logs that are cut, with flipped bits and repeated pieces: read as far as possible, and exported byte for byte."""
    whole = torch_log.read_bytes()
    start = data.draw(st.integers(0, len(whole) - 20_000))
    piece = bytearray(GOOD + whole[start : start + data.draw(st.integers(0, 60_000))])
    for place in (
        data.draw(st.lists(st.integers(len(GOOD), len(piece) - 1), max_size=20)) if len(piece) > len(GOOD) else ()
    ):
        piece[place] ^= 1 << data.draw(st.integers(0, 7))
    round_trip(bytes(piece), tmp_path)


def test_a_folder_of_ranks(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    for rank in (0, 1, 10):
        (folder / f"dedicated_log_torch_trace_rank_{rank}_abc.log").write_bytes(GOOD * (rank + 1))
    (folder / "train.log").write_text("step 1\n")
    (folder / "notes.txt").write_text("mine")
    made = import_log(folder, tmp_path / "run.dynadiag")
    assert sorted(path.name for path in made.recordings) == [f"run-rank{rank}.dynadiag" for rank in (0, 1, 10)]
    assert [path.name for path in made.skipped] == ["train.log"]
    for rank in (0, 1, 10):
        assert read_all(tmp_path / f"run-rank{rank}.dynadiag") == rank + 1


def test_a_folder_of_one_log_makes_the_output_itself(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a.log").write_bytes(GOOD)
    assert import_log(folder, tmp_path / "run.dynadiag").recordings == (tmp_path / "run.dynadiag",)


def test_nothing_is_left_where_one_log_of_a_folder_fails(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.log").write_bytes(GOOD)
    (tmp_path / "run-1.dynadiag").write_text("mine")
    with pytest.raises(DynadiagError, match=r"run-1\.dynadiag already exists"):
        import_log(folder, tmp_path / "run.dynadiag")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs", "run-1.dynadiag"]


@pytest.mark.parametrize("data", [b"", b"\n", b"step 1\nstep 2\n", b"\xff" * 1000, b"\tpayload\n", GOOD[:30]])
def test_what_is_no_log_is_refused(tmp_path: Path, data: bytes) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(data)
    with pytest.raises(UnreadableInput, match="not a TORCH_TRACE log"):
        import_log(log, tmp_path / "a.dynadiag")
    assert list(tmp_path.iterdir()) == [log]


def test_places_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(GOOD)
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for wrong in ("none.log", "pipe", "empty"):
        with pytest.raises(UnreadableInput, match=wrong):
            import_log(tmp_path / wrong, tmp_path / "a.dynadiag")
    with pytest.raises(DynadiagError, match="no folder"):
        import_log(tmp_path / "a.log", tmp_path / "none" / "a.dynadiag")
    with pytest.raises(UnreadableInput, match="not a recording"):
        export_log(tmp_path / "a.log", tmp_path / "b.log")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.log", "empty", "pipe"]


def test_existing_output_is_kept_without_force(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(GOOD)
    output = tmp_path / "a.dynadiag"
    output.write_text("mine")
    with pytest.raises(DynadiagError, match="already exists"):
        import_log(tmp_path / "a.log", output)
    assert output.read_text() == "mine"
    import_log(tmp_path / "a.log", output, force=True)
    with pytest.raises(DynadiagError, match="already exists"):
        export_log(output, tmp_path / "a.log")
    assert (tmp_path / "a.log").read_bytes() == GOOD
