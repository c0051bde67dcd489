"""Where breaks are left, the parts of the model that are whole are found, proved, and written into the program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dynadiag.__main__ import main
from dynadiag.fixes import proof
from dynadiag.fixes.candidate import Sources
from dynadiag.fixes.edits import apply_edits
from dynadiag.fixes.project import Project
from dynadiag.fixes.smaller_region import expressions, place_of_compile
from dynadiag.trial.program import Program
from tests.fixes.library import install_package

PROGRAM = """import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Digest(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        return self.norm(x) + x.detach().numpy().tobytes()[0] % 7


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.digest = Digest()

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.digest(x)


torch.manual_seed(0)
model = Net()
compiled = torch.compile(model, backend="eager")
for _ in range(2):
    print(f"{compiled(torch.randn(3, 8)).sum().item():.4f}")
"""
LAYERS = ["layers", "layers.0", "layers.0.mlp", "layers.1", "layers.1.mlp", "head", "stages.0.blocks.0.mlp"]


@pytest.mark.parametrize(
    ("whole", "modules", "found"),
    [
        (("layers.0", "layers.1", "head"), LAYERS, ["*m.layers", "m.head"]),
        (("layers.1",), LAYERS, ["m.layers[1]"]),
        (("layers.0.mlp", "layers.1.mlp"), LAYERS, ["*(each.mlp for each in m.layers)"]),
        (("a.0.b.0.c", "a.1.b.0.c"), ["a.0.b.0.c", "a.1.b.0.c"], ["*(each2.c for each1 in m.a for each2 in each1.b)"]),
        (("experts.left-hand",), ["experts.left-hand"], ["m.experts['left-hand']"]),
    ],
)
def test_modules_are_named_as_the_program_reaches_them(
    whole: tuple[str, ...], modules: list[str], found: list[str]
) -> None:
    assert list(expressions("m", whole, modules)) == found


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("run = torch.compile(model, dynamic=True)", "model.a.compile(dynamic=True)\nrun = model"),
        ("run = torch.compile(self.net)", "self.net.a.compile()\nrun = self.net"),
        ("run = torch.compile(Net().cuda())", "model = Net().cuda()\nmodel.a.compile()\nrun = model"),
        ("net.compile(mode='default')", "net.a.compile(mode='default')"),
        (
            "run = torch.compile(model, options={'x': 1}); y = 2",
            "model.a.compile(options={'x': 1})\nrun = model; y = 2",
        ),
        ("re.compile('a')\nre.compile('b')", None),
        ("a = torch.compile(f)\nb = torch.compile(g)", None),
        ("@torch.compile(dynamic=True)\ndef f(x):\n    return x", None),
        ("if torch.compile(f):\n    pass", None),
    ],
)
def test_the_statement_that_compiles_the_model_is_changed(line: str, changed: str | None, tmp_path: Path) -> None:
    text = f"import torch\n{line}\n"
    (tmp_path / "f.py").write_text(text)
    program = Program(str(tmp_path / "f.py"))
    place = place_of_compile(Sources(Project(program, tmp_path, tmp_path)))
    assert (place is None) == (changed is None)
    if place is not None:
        edits = list(place.edits((f"{place.model}.a",)))
        assert apply_edits({"f.py": text}, edits)["f.py"] == f"import torch\n{changed}\n"


@pytest.mark.usefixtures("forked_interpreters")
def test_the_whole_parts_of_a_broken_model_are_proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "_NOISE", 1.0)  # the parts are tiny: their guards may take longer than their operators
    (tmp_path / "program.py").write_text(PROGRAM)
    names = ["--json", str(tmp_path / "found.json"), "--recording", str(tmp_path / "r.dynadiag")]
    assert main(["fix", *names, "-o", str(tmp_path / "fix.patch"), str(tmp_path / "program.py")]) == 1
    region = json.loads((tmp_path / "found.json").read_text())["region"]
    assert region["verdict"] == "proved"
    assert region["parts"] == ["*model.blocks"]
    assert region["evidence"]["breaks"] == [1, 0]
    assert region["evidence"]["results"] == "same"
    before, after = region["operators"]
    assert 0 < after < before
    assert '+for part in model.blocks:\n+    part.compile(backend="eager")\n+compiled = model\n' in region["diff"]
    assert not (tmp_path / "fix.patch").exists()


@pytest.mark.usefixtures("forked_interpreters")
def test_the_parts_of_a_library_s_model_are_compared_with_the_globals_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program's own file changes, so it runs in a fresh interpreter; the record is one of forks."""
    monkeypatch.setattr(proof, "_NOISE", 1.0)
    classes, _, program = PROGRAM.partition("torch.manual_seed(0)\n")
    kept = "from torch import nn\n\nLIMITS = {'step': [7, 0.5]}\n"
    library = classes.replace("from torch import nn\n", kept).replace("% 7", "% int(x.sum() * 0 + 7)")
    place = install_package(tmp_path / "lib", {"__init__.py": library})
    monkeypatch.syspath_prepend(place)
    monkeypatch.setenv("PYTHONPATH", str(place))
    (tmp_path / "own").mkdir()
    text = (
        f"import torch\nfrom fakelib import Net\n\ntorch.manual_seed(0)\ninputs = {{'x': torch.randn(3, 8)}}\n{program}"
    )
    (tmp_path / "own" / "program.py").write_text(text.replace("compiled(torch.randn(3, 8))", "compiled(**inputs)"))
    names = ["--json", str(tmp_path / "found.json"), "--recording", str(tmp_path / "r.dynadiag")]
    assert main(["fix", *names, str(tmp_path / "own" / "program.py")]) == 1
    region = json.loads((tmp_path / "found.json").read_text())["region"]
    assert (region["verdict"], region["parts"]) == ("proved", ["*model.blocks"]), region
