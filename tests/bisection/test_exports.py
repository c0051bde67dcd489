"""bisect of programs that export: the stage that fails first is the rung, and the culprit has the user's line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bisection.conftest import Bisected

CONSTANT = """
import torch
from torch.export import Dim, export

class Rows(torch.nn.Module):
    def forward(self, x, y):
        return x.view(4, 3), y * 2

shapes = {"x": {0: Dim("rows")}, "y": {0: Dim.DYNAMIC}}
export(Rows(), (torch.ones(4, 3), torch.ones(5)), dynamic_shapes=shapes)
"""
DECIDED = """
import torch

class Right(torch.nn.Module):
    def forward(self, x):
        return x + 1

class Branch(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return -x

torch.export.export(Right(), (torch.ones(4),)).graph_module
torch.export.export(Branch(), (torch.ones(4),), strict=STRICT)
"""
LOWERED = """
import tempfile
import torch

def custom_pass(graph):
    raise NotImplementedError("no such pass")

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)

torch._inductor.config.post_grad_custom_post_pass = custom_pass
x = torch.randn(3)
program = torch.export.export(Model(), (x,))
with tempfile.TemporaryDirectory() as folder:
    path = torch._inductor.aoti_compile_and_package(program, package_path=folder + "/model.pt2")
    torch.testing.assert_close(torch._inductor.aoti_load_package(path)(x), Model()(x))
"""


def test_a_dimension_that_the_code_makes_constant_is_named(bisected: Bisected, tmp_path: Path) -> None:
    verdict = bisected(CONSTANT)
    (culprit,) = verdict.culprits
    assert (verdict.rung, verdict.rungs["uncompiled"]) == ("eager", "pass")
    assert (culprit.group, culprit.name) == ("dimension", "rows")
    assert culprit.lines == ((str(tmp_path / "program.py"), 10),)
    assert "TORCHDYNAMO_DISABLE" not in str(verdict)  # it does nothing to an export


@pytest.mark.parametrize("strict", [False, True])
def test_the_export_that_fails_is_named_with_the_line_of_its_module(
    strict: bool, bisected: Bisected, tmp_path: Path
) -> None:
    verdict = bisected(DECIDED.replace("STRICT", str(strict)))
    (culprit,) = verdict.culprits
    assert (verdict.rung, culprit.group, culprit.name) == ("eager", "export", "Branch")
    assert culprit.lines == ((str(tmp_path / "program.py"), 10),)


def test_a_pass_of_aotinductor_is_named_and_each_stage_below_it_passes(bisected: Bisected) -> None:
    verdict = bisected(LOWERED)
    assert (verdict.rung, [culprit.name for culprit in verdict.culprits]) == ("inductor", ["custom_pass"])
    assert {status for rung, status in verdict.rungs.items() if rung not in ("inductor", "triton", "custom")} == {
        "pass"
    }


@pytest.mark.slow
def test_a_lowering_that_makes_a_package_wrong_is_named(bisected: Bisected, tmp_path: Path) -> None:
    wrong = LOWERED.replace("silu", "relu").replace("import torch\n", "import torch\nimport torch._inductor.lowering\n")
    start, end = wrong.index("def custom_pass"), wrong.index("class Model")
    planted = """
@torch._inductor.lowering.register_lowering(torch.ops.aten.relu.default, type_promotion_kind=None)
def lower(x):
    return torch._inductor.lowering.lowerings[torch.ops.aten.sub.Tensor](x, 0.5)

"""
    wrong = wrong[:start] + planted + wrong[end:]
    wrong = wrong.replace("torch._inductor.config.post_grad_custom_post_pass = custom_pass\n", "")
    verdict = bisected(wrong)
    (culprit,) = verdict.culprits
    assert (verdict.rung, culprit.group, culprit.name) == ("inductor", "lowering", "relu")
    assert culprit.lines == ((str(tmp_path / "program.py"), wrong[: wrong.index("functional.relu")].count("\n") + 1),)
