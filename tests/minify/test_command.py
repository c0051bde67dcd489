from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dynadiag.recording.reader import Recording

pytestmark = pytest.mark.usefixtures("forked_interpreters")

DYNADIAG = [sys.executable, "-m", "dynadiag", "minify"]
NO_LOWERING = """
import torch
import torch._inductor.lowering as lowering

def refuse(*args, **kwargs):
    raise NotImplementedError(f"no lowering of mine of {args[0].get_size()}")

lowering.lowerings[torch.ops.aten.tanh.default] = refuse
torch._inductor.config.epilogue_fusion = False

@torch.compile
def model(x, w):
    for _ in range(3):
        x = torch.sin(x @ w) + x
    return torch.tanh(x).sum(-1) * 2

model(torch.randn(8, 8), torch.randn(8, 8))
"""


def minify(folder: Path, program: str, *options: str) -> tuple[int, Path, dict[str, Any], str]:
    target, repro, document = folder / "train.py", folder / "repro.py", folder / "out.json"
    target.write_text(program)
    words = ["-o", str(repro), "--recording", str(folder / "m.dynadiag"), "--json", str(document), *options]
    done = subprocess.run([*DYNADIAG, *words, str(target)], cwd=folder, capture_output=True, text=True, timeout=500)
    data = json.loads(document.read_text()) if document.exists() else {}
    return done.returncode, repro, data, done.stderr


def test_a_lowering_that_raises_becomes_a_few_lines_that_fail_the_same_way(tmp_path: Path) -> None:
    code, repro, data, told = minify(tmp_path, NO_LOWERING)
    assert code == 0, told
    assert (data["rung"], data["proved"], data["minimal"]) == ("inductor", True, True)
    assert (data["nodes_after"], data["elements_after"]) == (1, 1)
    text = repro.read_text()
    assert "torch.tanh(" in text
    assert "no lowering of mine of [" in text
    assert "[8, 8]" not in text  # the message in the header is what the repro raises
    assert "epilogue_fusion" not in text  # the failure does not need it
    assert str(tmp_path) not in text
    assert "# bisected: lowering tanh\n" in text
    assert data["bisected"] == [{"class": "lowering", "name": "tanh", "graph": "inference"}]
    with Recording(tmp_path / "m.dynadiag") as search:
        assert len(search.trials()) == data["trials"]
    assert len(re.findall("the repro: (?:at )?aot_eager: ", told)) == 1  # for the proof and for the bisection
    assert "which graph" not in told  # the trial of the rung has told it


def test_a_program_that_goes_on_after_a_failed_compile_passes_and_is_told_what_counts_it(tmp_path: Path) -> None:
    program = NO_LOWERING.replace("\nmodel(", "\ntry:\n    model(") + "except Exception:\n    pass\n"
    code, repro, data, told = minify(tmp_path, program)
    assert code == 3, told
    assert not repro.exists()
    (note,) = data["notes"]
    assert "no lowering of mine" in note
    assert "--accuracy" in note


def test_an_existing_file_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "repro.py").write_text("mine")
    code, repro, _, told = minify(tmp_path, "raise SystemExit(1)")
    assert code == 2
    assert "--force" in told
    assert repro.read_text() == "mine"
    assert not (tmp_path / "m.dynadiag").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("import torch\ntorch.compile(torch.sin)(torch.ones(2))", 3),
        ("import torch\ntorch.compile(torch.sin)(torch.ones(2))\nraise ValueError('mine')", 4),
    ],
)
def test_what_cannot_be_reduced_is_said_by_the_exit_code(tmp_path: Path, program: str, code: int) -> None:
    assert minify(tmp_path, program)[0] == code
    assert not (tmp_path / "repro.py").exists()


@pytest.mark.slow
def test_a_search_is_resumed_without_repeating_a_trial(tmp_path: Path) -> None:
    code, _, first, told = minify(tmp_path, NO_LOWERING)
    assert code == 0, told
    words = ["--resume", str(tmp_path / "m.dynadiag"), "--recording", str(tmp_path / "again.dynadiag"), "--force"]
    code, _, again, told = minify(tmp_path, NO_LOWERING, *words)
    assert code == 0, told
    assert (again["nodes_after"], again["proved"]) == (first["nodes_after"], True)
    assert "trial " not in told.replace(str(tmp_path), "")
    assert again["trials"] == first["trials"]
    assert again["cached"] >= first["trials"]
