"""The samples for `compare`: all variants compute the same, and differ where they should."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.interpreters import DYNADIAG
from tests.samples.running import SAMPLES, bare, explained

pytestmark = pytest.mark.usefixtures("forked_interpreters")


def test_vit_amp_trains_the_same_uncompiled_and_compiled() -> None:
    ended = bare(SAMPLES / "vit_amp.py")
    assert ended.code == 0, ended.stderr
    assert [line.split(":")[0].strip() for line in ended.stdout.splitlines()[:2]] == ["float32", "bfloat16"]


def test_distillation_is_one_graph_only_where_model_and_loss_are_one_module() -> None:
    document = explained(SAMPLES / "distillation_loss.py").document
    assert document["exit_code"] == 0
    model, loss, both = (graph["ops"] for graph in document["graphs"] if graph["stage"] == "dynamo")
    assert both == model + loss > loss > model > 1  # the model's code of the first way serves the second too
    assert document["breaks"] == document["recompiles"] == []


@pytest.mark.slow  # twelve processes compile for the C++ compiler
@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("vit_amp.py:inference", ("--inference", "--amp", "none,bf16", "--modes", "default,reduce-overhead")),
        ("vit_amp.py:training", ("--train", "--modes", "default")),
        ("distillation_loss.py:loss_eager", ("--train", "--modes", "as-written", "--also", "loss_apart,one_module")),
    ],
)
def test_the_table_of_modes(target: str, options: tuple[str, ...], tmp_path: Path) -> None:
    rows = _compared(target, options, tmp_path)
    assert all(row["failure"] is None for row in rows)
    for row in rows:
        assert (row["graphs"] > 0) == (row["variant"].split(",")[0] != "eager")
        on_gpu = torch.cuda.is_available()  # where the profiler sees the kernels of eager too
        assert (row["kernels"] is not None) == (on_gpu or row["graphs"] > 0)
    by_name = {row["name"]: row["graphs"] for row in rows if row["graphs"]}
    if "loss_apart" in by_name:
        assert by_name == {"loss_eager": 1, "loss_apart": 2, "one_module": 1}


def _compared(target: str, options: tuple[str, ...], folder: Path) -> list[dict[str, Any]]:
    document = folder / "out.json"
    command = [str(DYNADIAG), "compare", *options, "--repeat", "1", "--json", str(document), f"{SAMPLES}/{target}"]
    environment = {**os.environ, "XDG_STATE_HOME": str(folder)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=590)
    assert ended.returncode == 0, ended.stderr
    return list(json.loads(document.read_text())["rows"])
