"""The recorded values of nodes: at their lines, below the panes, from node to node, and side by side."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import fx

from dynadiag.node_values.node_run import NodeRun
from tests.tui import build
from tests.tui.conftest import browsing, press, screen
from tui.node_values import NodeValues, value_lines
from tui.session import Session


@pytest.fixture(scope="module")
def valued(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build.recording(tmp_path_factory.mktemp("values"), build.program_with_values())


async def test_a_node_shows_its_value_and_how_it_changes_over_the_calls(valued: Path) -> None:
    async with browsing(valued, (150, 40)) as pilot:
        await press(pilot, "3", "n", "N", "N")
        assert "y = x.sin()" in screen(pilot)
        assert "0.25..0.75" in screen(pilot)
        assert "value  0.25 .. 0.75, mean 0.5, norm 1, off 1e-08 from float64  inference 0/0, call 0" in screen(pilot)
        assert "calls  ▁█  largest of each call, 0 to 1" in screen(pilot)
        assert "node 1 of 4, call 0" in screen(pilot)
        await press(pilot, "right_parenthesis")
        assert "node 3 of 4, call 1" in screen(pilot)
        assert "0.5..3" in screen(pilot)


async def test_n_goes_to_the_node_that_runs_next_and_into_the_next_call(valued: Path) -> None:
    async with browsing(valued, (150, 40)) as pilot:
        await press(pilot, "3", "tab", "g", "n")
        seen = []
        for _ in range(3):
            seen.append(next(part for part in screen(pilot).split(" · ") if part.startswith("node ")).strip())
            await press(pilot, "n")
        assert seen == ["node 1 of 4, call 0", "node 2 of 4, call 0", "node 3 of 4, call 1"]
        assert "stored rounding explains the difference" not in screen(pilot)
        assert "1 NaN" in screen(pilot)
        await press(pilot, "n")
        assert "this is the last recorded node" in screen(pilot)


async def test_what_a_kernel_gets_wrong_stands_below_it_and_leads_to_its_node(valued: Path) -> None:
    async with browsing(valued, (150, 40)) as pilot:
        await press(pilot, "7", "f", *"relu", "enter", "enter")
        assert "stores z  WRONG: rounding does not explain it, off 0.25 from float64" in screen(pilot)


async def test_the_three_values_side_by_side(valued: Path) -> None:
    async with browsing(valued, (120, 40)) as pilot:
        await press(pilot, "3", "n", "N", "N", "V")
        for text in ("eager", "float64", "compiled", "spread of 2 elements", "no kernel stores it"):
            assert text in screen(pilot)
        await press(pilot, "n")
        assert "─ z · inference 0/0, call 0 · node 2 of 4 ─" in screen(pilot)
        assert "WRONG" in screen(pilot)
        await press(pilot, "right_parenthesis")
        assert "call 1 · node 4 of 4" in screen(pilot)
        assert "only how far it is off" not in screen(pilot)
        await press(pilot, "escape")
        assert "node 4 of 4, call 1" in screen(pilot)


async def test_a_finding_on_a_value_leads_to_its_node(valued: Path) -> None:
    async with browsing(valued, (120, 40)) as pilot:
        await press(pilot, "enter")
        assert "node 2 of 4, call 0" in screen(pilot)


async def test_the_picture_has_the_values_and_walks_in_the_order_of_execution(valued: Path) -> None:
    async with browsing(valued, (120, 40)) as pilot:
        await press(pilot, "3", "n", "N", "N", "v", "n")
        assert "f32[4] WRONG 0.25..0.5" in screen(pilot)
        await press(pilot, "V")
        assert "─ z · inference 0/0, call 0 · node 2 of 4 ─" in screen(pilot)


async def test_without_values_the_keys_say_how_to_record_them(program: Path) -> None:
    for key in ("n", "V"):
        async with browsing(program, (120, 40)) as pilot:
            await press(pilot, "3", key)
            said = [note.message for note in pilot.app._notifications]
            assert said == ["no values were recorded: `dynadiag record --values prog.py` records them"]


def test_every_step_forward_has_its_step_back(valued: Path) -> None:
    with Session.open(valued) as session:
        values = session.node_values()
    assert isinstance(values, NodeValues)
    for node in values.steps[:-1]:
        after = values.step(node, 1)
        assert after is not None
        assert values.step(after, -1) == node


def _mask(x: torch.Tensor) -> torch.Tensor:
    return x.masked_fill(x > 0, -math.inf)


@pytest.mark.parametrize(("function", "is_wrong"), [(_mask, False), (lambda x: x.exp(), True)])
def test_an_infinity_that_the_program_puts_there_is_not_red(
    function: Callable[[torch.Tensor], torch.Tensor], is_wrong: bool, tmp_path: Path
) -> None:
    made = NodeRun(fx.symbolic_trace(function), named=lambda _: True, wanted=frozenset(), whole=lambda *_: None)
    made.run(torch.tensor([-1.0, 20.0], dtype=torch.float16))
    data = {"graph": "inference", "call": 0, "seconds": 0.1, "seed": "0"}
    payload = json.dumps({"nodes": [{"dtype": "", **node} for node in made.nodes], "stacks": [], "notes": []})
    values = [({"dynadiag_values": data, **build.at("0/0")}, payload)]
    events = [*build.run_events(), *build.source_events(), *build.compile_events("0/0"), *values, *build.end_events()]
    with Session.open(build.recording(tmp_path, events)) as session:
        shown = session.node_values()
        assert shown is not None
        node = shown.table.nodes[-1]
        assert node.summary.inf == 1
        roles = {role for line in value_lines(shown, node) for _, role in line.fragments}
        assert (shown.margin(node, "").role == "error", "error" in roles) == (is_wrong, is_wrong)
        assert (shown.table.first_overflow is node) == is_wrong
