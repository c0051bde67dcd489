"""What stands on the overview."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dynadiag.explain.timing import PARTS, PhaseShare
from dynadiag.render import summary
from tests.tui import build
from tests.tui.conftest import browsing, press, screen
from tui import overview
from tui.session import Session


def test_every_part_of_the_compiler_has_a_word_and_a_colour() -> None:
    """A compile whose code came from the cache ended the browser: its part had neither."""
    assert set(overview._PARTS) == set(summary._PARTS) == set(PARTS)
    shares = tuple(PhaseShare(part, 1.0) for part in PARTS)
    drawn = overview._bar(shares, float(len(PARTS)), 12, pad=False)
    assert [style for _, style in drawn] == [overview._PARTS[part][1] for part in PARTS]


def test_recompiles_of_one_function_are_one_line_and_what_torch_gave_up_on_comes_first(tmp_path: Path) -> None:
    events = [*build.run_events(), *build.source_events(), *build.compile_events("0/0")]
    for id_ in ("0/1", "0/2", "0/3", "1/1"):
        events += [*build.recompile_events(id_, "4", "5"), *build.compile_events(id_)]
    with Session.open(build.recording(tmp_path, [*events, *build.end_events()])) as session:
        explanation = session.explanation()
    *others, last = explanation.recompiles
    given_up = replace(last, function="g", line=9, limit_reached=True)
    texts = [
        item.text
        for item in overview.overview_lines(replace(explanation, recompiles=(*others, given_up)), 0, 0, live=False)
    ]
    (first,) = (number for number, text in enumerate(texts) if "torch gave up on it" in text)
    assert texts[first].startswith("1/1    g  ")
    assert texts[first + 1].lstrip().startswith("help: ")
    assert texts[first + 2].startswith("0/1    f  ")
    assert texts[first + 2].endswith("4 → 5  compiled again 3 times")
    assert not any(text.startswith(("0/2", "0/3")) and "→" in text for text in texts)


def test_a_failed_compile_is_said_once(program: Path) -> None:
    with Session.open(program) as session:
        explanation = session.explanation()
    failed = tuple(replace(item, outcome="error", error="InductorError") for item in explanation.compiles)
    verdict = replace(explanation.verdict, kind="failed", sentence="2 compiles failed: InductorError: boom.", why=())
    lines = overview.overview_lines(replace(explanation, compiles=failed, verdict=verdict), 0, 0, live=False)
    assert [item.text for item in lines if "compiles failed" in item.text] == [verdict.sentence]


async def test_a_failure_says_what_to_do_next(tmp_path: Path) -> None:
    async with browsing(build.recording(tmp_path, [*build.run_events(), *build.end_events(1)])) as pilot:
        assert "To find the part of the compiler at fault: B on the Trials screen" in screen(pilot)
        await press(pilot, "enter")
        assert "this recording has no search" in screen(pilot)
