"""What `--no-source` leaves out: texts of the program, wherever torch quotes them."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
import torch

import dynadiag
from dynadiag.capture.redact import Redactor
from dynadiag.render.report import report

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")

# A recording also names files that torch met before in this process: no other test may have the word in its name.
PROGRAM = '''
import torch

class Config:
    token = "confidential: one"

config, table, run = Config(), {"confidential_two": 2.0}, "_".join(["confidential", "at", "run", "time"])

@torch.library.custom_op("dynadiag_redact::op", mutates_args=())
def op(x: torch.Tensor, name: str) -> torch.Tensor:
    return x.clone()

@op.register_fake
def _(x, name):
    return torch.empty_like(x)

def raises(x):
    raise ValueError(f"confidential three {len(x)}")

def step(x, mode, run):
    """A confidential docstring."""
    if mode == "confidential_four" or config.token == "confidential: one":
        x = torch.relu(x) * table["confidential_two"]
    if run == "confidential_at_run_time":
        x = op(x, "confidential five")
    torch._dynamo.graph_break("confidential six")
    try:
        raises(x)
    except ValueError:
        return x

compiled = torch.compile(step, backend="aot_eager")
compiled(torch.ones(3), "confidential_four", run)
compiled(torch.ones(3), "confidential seven", run)
compiled(torch.ones(3), "confidential_four", run + "x")
'''


def test_no_text_of_the_program_is_in_a_recording(tmp_path: Path) -> None:
    program, path = tmp_path / "program.py", tmp_path / "run.dynadiag"
    program.write_text(PROGRAM)
    torch._dynamo.reset()
    with dynadiag.record(path, source=False):
        runpy.run_path(str(program))
    with dynadiag.open(path) as recording:
        raw = b"".join(recording.raw()).decode()
        found = report(recording)
    assert [line for line in raw.splitlines() if "confidential" in line] == []
    reasons = [reason for item in found.recompiles for reason in item.reasons]
    first = next(reason for reason in reasons if reason.guard.startswith(f"L[{'mode'!r}]"))
    assert first.was != first.now  # two texts are still told apart
    assert {graph.stage for graph in found.graphs} >= {"dynamo", "inference"}
    with dynadiag.open(path) as recording:
        assert any("relu" in node.target for graph in found.graphs for node in recording.nodes(graph.index))


@pytest.mark.parametrize("text", ["relu", "placeholder", "config", "abc"])
def test_a_name_is_no_text(tmp_path: Path, text: str) -> None:
    """What is called so in the program, in torch or in a graph's own words is needed to read the rest."""
    file = tmp_path / "program.py"
    file.write_text(f"config = 1\nf('{text}', 'a_text')\n")
    event = {"dynadiag_frame": {"file": str(file)}, "names": [f"'{text}'", "'a_text'"]}
    redacted, _ = Redactor().redact(event, None, lambda _file: True)
    assert redacted["names"] == [f"'{text}'", "'<text 1>'"]


def test_a_lookup_keeps_its_key_without_source() -> None:
    components = [
        "[a] gm: def forward(self):\n    return 1",
        "[b] triton_source[0]: @triton.jit\ndef k(): ...",
    ]
    payload = json.dumps({"key": "k1", "components": components, "cache_bypass_traceback": ["secret"]})
    event = {"artifact": {"name": "fx_graph_cache_miss", "encoding": "json"}}
    _, text = Redactor().redact(event, payload, lambda _: True)
    source = "[b] triton_source[0]: <source left out>"
    assert json.loads(text or "") == {"key": "k1", "components": [components[0], source]}
    assert "characters left out" in (Redactor().redact(event, "no JSON", lambda _: True)[1] or "")
