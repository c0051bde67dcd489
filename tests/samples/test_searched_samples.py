"""The samples for `bisect`: their fault is found and named."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import dynadiag
from tests.interpreters import DYNADIAG
from tests.samples.running import SAMPLES, TORCH, explained, line_of

pytestmark = pytest.mark.usefixtures("forked_interpreters")


def bisected(arguments: list[str], folder: Path) -> tuple[int, dict[str, Any]]:
    """The exit code and the document of a bisection."""
    document = folder / "verdict.json"
    command = [str(DYNADIAG), "bisect", "--json", str(document), *arguments]
    environment = {**os.environ, "XDG_STATE_HOME": str(folder)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=590)
    assert document.exists(), ended.stderr
    return ended.returncode, json.loads(document.read_text())


@pytest.mark.slow  # Inductor, in many trials
def test_the_wrong_constant_fold_pass_is_the_culprit(tmp_path: Path) -> None:
    code, verdict = bisected([str(SAMPLES / "constant_fold_pass.py"), "wrong"], tmp_path)
    assert (code, verdict["verdict"], verdict["rung"]) == (0, "found", "custom")
    (culprit,) = verdict["culprits"]
    assert culprit["class"] == "pass"
    assert culprit["name"].endswith("fold_scalings_wrongly")


@pytest.mark.slow
def test_the_right_constant_fold_pass_shows_its_graph_before_and_after() -> None:
    ran = explained(SAMPLES / "constant_fold_pass.py")
    assert ran.ended.code == 0, ran.ended.stderr
    printed = [line.split("|") for line in ran.ended.stdout.splitlines() if "|" in line]
    before, after = (sum("mul " in pair[side] for pair in printed) for side in (0, 1))
    assert (before, after) == (2, 1)
    assert [graph["ops"] for graph in ran.document["graphs"] if graph["stage"] == "dynamo"] == [before + 2]


def test_the_collective_is_in_the_graph() -> None:
    ran = explained(SAMPLES / "distributed_allreduce.py")
    assert ran.ended.code == 0, ran.ended.stderr
    assert (ran.document["graph_count"], ran.document["break_count"]) == (1, 0)
    with dynadiag.open(ran.recording) as recording:
        (graph,) = [item for item in recording.graphs() if item.stage == "dynamo"]
        nodes = recording.nodes(graph.index)
    (collective,) = [node for node in nodes if "all_reduce" in node.target]
    assert collective.span.line == line_of(ran.path, "dist.all_reduce(total)")


@pytest.mark.slow
@pytest.mark.skipif(TORCH != "2.13", reason="whether the choices are wrong is a fact of one torch")
def test_the_two_passes_that_make_wrong_choices_together_are_named(tmp_path: Path) -> None:
    code, verdict = bisected(["--accuracy", str(SAMPLES / "argmin_numerics.py")], tmp_path)
    assert (code, verdict["verdict"], verdict["rung"]) == (0, "found", "inductor")
    assert verdict["failure"]["kind"] == "wrong_result"
    names = {culprit["name"] for culprit in verdict["culprits"] if culprit["class"] == "pass"}
    assert names == {"remove_noop_ops", "reinplace_inplaceable_ops"}  # each alone does no harm
