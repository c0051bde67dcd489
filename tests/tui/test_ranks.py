"""The recordings of a folder: one view over the ranks, where they differ, going from one to the other."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from dynadiag.recording.opening import COMPARISON_NAME
from dynadiag.recording.packing import write_packed
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import UNCOMPILED_NOTE
from tests.tui import build
from tests.tui.conftest import press, screen, settle
from tests.tui.test_terminal import terminal
from tui.app import Browser
from tui.ranks import differences, exit_status, read_rank
from tui.session import open_recordings
from tui.widgets.styled_lines import StyledLines
from tui.widgets.table import Table


def _rank(
    folder: Path,
    rank: int,
    *,
    again: bool = False,
    seconds: float = 1.0,
    code: int = 0,
    ends: build.Events | None = None,
) -> Path:
    events = build.run_events("train.py")
    events[0][0]["dynadiag_run"]["rank"] = rank
    events += [*build.source_events(), *build.break_events("0/0"), *build.compile_events("0/0", seconds=seconds)]
    if again:
        events += [*build.recompile_events("0/1", "4", "5"), *build.compile_events("0/1", seconds=seconds)]
    end = build.end_events(code) if ends is None else ends
    return build.recording(folder, [*events, *end], f"train-rank{rank}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four ranks, of which the third compiles again and takes longer, and the last fails."""
    for rank in range(4):
        _rank(tmp_path, rank, again=rank == 2, seconds=9.0 if rank == 2 else 1.0, code=int(rank == 3))
    return tmp_path


@asynccontextmanager
async def _browsing(folder: Path) -> AsyncIterator[Pilot[int]]:
    opened = open_recordings([folder])
    with opened.session as session:
        app = Browser(session, opened.paths, opened.rank)
        async with app.run_test(size=(120, 40)) as pilot:
            await settle(pilot)
            yield pilot


def _texts(folder: Path) -> list[str]:
    ranks = [read_rank(index, path) for index, path in enumerate(sorted(folder.glob("*.dynadiag")))]
    return [line.text for line in differences(ranks)]


def test_where_they_differ_is_said_by_rank(folder: Path) -> None:
    text = "\n".join(_texts(folder))
    assert "exit code 1  rank 3" in text
    assert "exit code 0  ranks 0-2" in text
    assert "rank 2  18.0 s" in text
    assert "x.size()[0]: 4 → 5  prog.py:5  1 time on rank 2, not on ranks 0-1, 3" in text
    assert "Breaks that differ" not in text
    assert "f ok  prog.py:5  1 time on rank 2, not on ranks 0-1, 3" in text


def test_ranks_that_do_the_same_are_said_to(tmp_path: Path) -> None:
    _rank(tmp_path, 0)
    _rank(tmp_path, 1)
    assert _texts(tmp_path) == [
        "The same compiles, breaks and recompiles in every recording, and none compiled much longer than the others."
    ]


def test_the_uncompiled_variant_of_a_comparison_is_not_said_to_compile_the_same(tmp_path: Path) -> None:
    for rank in range(3):
        _rank(tmp_path, rank)
    read = [read_rank(index, path) for index, path in enumerate(sorted(tmp_path.glob("*.dynadiag")))]
    run = read[0].run
    assert run is not None
    read[0] = replace(read[0], run=replace(run, notes=(UNCOMPILED_NOTE,)))
    assert "recompiles in every compiled recording, and" in differences(read)[0].text


def test_a_rank_that_was_cut_short_is_told_from_those_whose_exit_code_nobody_saw(tmp_path: Path) -> None:
    """Under `torchrun` each process records itself."""
    for rank in range(3):
        ended = build.end_events()[:1] if rank < 2 else []
        _rank(tmp_path, rank, ends=ended)
    assert _texts(tmp_path)[:3] == ["They ended differently", "  ended  ranks 0-1", "  cut short  rank 2"]


async def test_enter_goes_to_a_rank_and_back_returns(folder: Path) -> None:
    async with _browsing(folder) as pilot:
        app = pilot.app
        assert isinstance(app, Browser)
        assert "rank 3" in screen(pilot)
        await press(pilot, "j", "j", "enter")
        assert app.session.run.rank == 2
        assert app.current.NAME == "overview"
        assert "was 4, now 5" in screen(pilot)
        await press(pilot, "backspace")
        assert app.current.NAME == "ranks"
        assert app.session.run.rank == 0


async def test_a_difference_leads_to_the_thing_in_its_rank(folder: Path) -> None:
    async with _browsing(folder) as pilot:
        app = pilot.app
        assert isinstance(app, Browser)
        details = app.current.details  # type: ignore[attr-defined]
        details.focus()
        lines = enumerate(details.lines)
        details.move_to(next(i for i, one in lines if one.target and one.target.view == "recompiles"))
        await press(pilot, "enter")
        assert app.session.run.rank == 2
        assert app.current.NAME == "recompiles"
        assert "0/1" in screen(pilot)


async def test_the_next_rank_is_shown_on_the_same_screen(folder: Path) -> None:
    async with _browsing(folder) as pilot:
        app = pilot.app
        assert isinstance(app, Browser)
        for key in "123456790":
            await press(pilot, key, "escape", "greater_than_sign")
        assert app.session.run.rank == 1
        await press(pilot, "5", "greater_than_sign")
        assert app.session.run.rank == 2
        assert "was 4, now 5" in screen(pilot)
        await press(pilot, "less_than_sign")
        assert app.session.run.rank == 1
        assert "nothing was compiled again" in screen(pilot)


async def test_a_rank_that_cannot_be_read_is_a_row_with_the_reason(folder: Path) -> None:
    broken = sorted(folder.glob("*.dynadiag"))[0]
    broken.write_bytes(broken.read_bytes()[:5000])
    async with _browsing(folder) as pilot:
        assert isinstance(pilot.app, Browser)
        assert pilot.app.rank == 1
        assert "damaged" in screen(pilot)
        await press(pilot, "g", "enter")
        assert pilot.app.current.NAME == "ranks"


async def test_one_recording_has_no_ranks(program: Path) -> None:
    opened = open_recordings([program.parent])
    with opened.session:
        assert not opened.paths


def test_a_folder_in_a_real_terminal(folder: Path) -> None:
    with terminal(str(folder)) as shown:
        shown.read_until("where they differ")
        shown.read_until("ranks 0-1, 3")
        shown.type("q")
        assert shown.ended() == 0


async def test_hostile_names_are_shown_as_text(tmp_path: Path) -> None:
    for rank in range(2):
        events = build.program()
        events[0][0]["dynadiag_run"].update(rank=rank)
        for data, _ in events:
            if "dynadiag_recompile" in data:
                data["dynadiag_recompile"]["failures"][0]["now"] = f"[red]\x1b[31m\u202e{rank}"
        build.recording(tmp_path, events, f"r{rank}")
    async with _browsing(tmp_path) as pilot:
        text = screen(pilot)
        assert "[red]" in text
        assert not {"\x1b", "\u202e"} & set(text)


def test_a_rank_that_still_runs_is_not_cut_short(tmp_path: Path) -> None:
    ranks = []
    for rank in range(2):
        events = [*build.run_events("train.py"), *build.source_events(), *build.compile_events("0/0")]
        events[0][0]["dynadiag_run"] |= {"rank": rank, "host": socket.gethostname(), "pid": os.getpid()}
        ranks.append(read_rank(rank, build.journal(tmp_path / f"rank{rank}.log", events)))
    assert [exit_status(rank.run, live=rank.live)[0] for rank in ranks if rank.run] == ["running"] * 2
    (said,) = differences(ranks)
    assert said.text.startswith("So far: the same compiles")


async def test_a_packed_job_is_browsed_as_its_folder_is(folder: Path) -> None:
    packed = folder.with_suffix(".packed")
    contents = []
    for path in sorted(folder.glob("*.dynadiag")):
        with Recording(path) as recording:
            contents.append(recording.packed_content())
    write_packed(contents, packed)
    async with _browsing(packed) as pilot:
        assert "rank 3" in screen(pilot)
        await press(pilot, "greater_than_sign", "1")
        assert "train.py" in screen(pilot)


def _compared(folder: Path, rows: object) -> None:
    """The folder of a comparison: an uncompiled and a compiled variant, and the document beside them."""
    bare = [*build.run_events("train.py"), *build.end_events()]
    bare[-1][0]["dynadiag_exit"]["notes"] = [UNCOMPILED_NOTE]
    build.recording(folder, bare, "00-f-eager")
    events = [*build.run_events("train.py"), *build.break_events("0/0"), *build.compile_events("0/0")]
    build.recording(folder, [*events, *build.end_events()], "01-f-default")
    (folder / COMPARISON_NAME).write_text(json.dumps({"rows": rows}))


def _row(file: str, variant: str, seconds: float, speed: object = None) -> dict[str, object]:
    call = {"first_call": 2.0, "warm_call": {"median": seconds}, "against_eager": speed}
    return {"recording": f"/elsewhere/{file}", "variant": variant, "name": "f", **call}


async def test_a_comparison_tells_the_times_of_its_variants(tmp_path: Path) -> None:
    """They are what it was made for; that the uncompiled variant compiles nothing is no difference."""
    speed = {"ratio": 1.5, "noise": False, "pays_after": 1234}
    _compared(
        tmp_path, [_row("00-f-eager.dynadiag", "eager", 3e-4), _row("01-f-default.dynadiag", "default", 2e-4, speed)]
    )
    assert _texts(tmp_path) == ["only one of them compiles anything, so there is nothing to compare"]
    async with _browsing(tmp_path) as pilot:
        text = screen(pilot)
        assert re.search(r"eager +300 µs +2\.00 s", text)
        assert re.search(r"default +200 µs +1\.50x faster +1,234 calls +2\.00 s +1 +0 +3 +1", text)
        await pilot.resize_terminal(80, 24)
        await settle(pilot)
        assert re.search(r"default +200 µs +1\.50x faster +1,234 calls +2\.00 s", screen(pilot))


async def test_a_variant_has_its_name_where_variants_differ(tmp_path: Path) -> None:
    modes = ("eager", "default", "max-autotune")
    _compared(tmp_path, [_row(f"0{number}-f-{mode}.dynadiag", mode, 1e-4) for number, mode in enumerate(modes)])
    events = [*build.run_events("train.py"), *build.compile_events("0/0", seconds=100.0), *build.end_events()]
    build.recording(tmp_path, events, "02-f-max-autotune")
    async with _browsing(tmp_path) as pilot:
        told = screen(pilot).partition("where they differ")[2]
        assert re.search(r"Compiled longer than the others.*\n.*▸ max-autotune +1", told)
        assert "02-f" not in told


async def test_the_longest_name_of_a_compile_mode_is_whole_at_80_columns(tmp_path: Path) -> None:
    speeds = {"reduce-overhead": {"ratio": 1.0, "noise": True}, "default": {"ratio": 0.25, "noise": False}}
    names = zip(("00-f-eager", "01-f-default"), speeds.items(), strict=True)
    _compared(tmp_path, [_row(f"{file}.dynadiag", variant, 1e-4, speed) for file, (variant, speed) in names])
    async with _browsing(tmp_path) as pilot:
        await pilot.resize_terminal(80, 24)
        await settle(pilot)
        assert re.search(r"reduce-overhead +100 µs +within the noise", screen(pilot))
        assert re.search(r"first call +breaks$", screen(pilot), re.MULTILINE)
        await press(pilot, *"s" * 9)
        assert "breaks▼" in screen(pilot)


@pytest.mark.parametrize(
    "rows", ["rows", [1, {}], [{"recording": "00-f-eager.dynadiag", "warm_call": {"median": "fast"}}]]
)
async def test_a_strangers_comparison_is_none(rows: object, tmp_path: Path) -> None:
    _compared(tmp_path, rows)
    async with _browsing(tmp_path) as pilot:
        assert "failed" not in screen(pilot)
        assert pilot.app.query_one("#ranks-list", Table).count == 2


async def test_a_rank_that_ended_is_no_warning_and_the_tabs_have_their_counts(tmp_path: Path) -> None:
    """`torchrun` does not tell a rank its exit code. At 120 columns the titles are shorter, and the counts stay."""
    for rank in range(2):
        _rank(tmp_path, rank, ends=[({"dynadiag_end": {"seconds": 2.5, "notes": []}}, None)])
    async with _browsing(tmp_path) as pilot:
        await press(pilot, "1")
        text = screen(pilot)
        assert "ended; a rank does not see its own exit code" in text
        assert "4 Breaks 1  5 Recomp  6 Guards  7 Kernels 3 " in text


async def test_the_first_divergence_stands_above_what_differs_and_leads_to_its_line(folder: Path) -> None:
    """It is what the report of the folder begins with."""
    async with _browsing(folder) as pilot:
        lines = pilot.app.query_one("#ranks-detail", StyledLines)
        assert lines.text_of(0).startswith(
            "Rank 2 compiles f again (compile 0/1), ranks 0-1, 3 do not: x.size()[0] was 4"
        )
        await press(pilot, "tab", "enter")
        assert isinstance(pilot.app, Browser)
        assert (pilot.app.rank, pilot.app.location.view, pilot.app.location.compile_id) == (2, "code", "0/1")


def test_how_a_measured_variant_was_ended_is_no_difference(tmp_path: Path) -> None:
    ranks = [
        read_rank(number, build.recording(tmp_path, [*build.run_events(), *build.end_events(code)], f"v{number}"))
        for number, code in enumerate((0, -9))
    ]
    assert any("ended differently" in item.text for item in differences(ranks))
    measured = [replace(rank, is_measured=True) for rank in ranks]
    assert not any("ended differently" in item.text for item in differences(measured))
