"""Whose code a place is in."""

from __future__ import annotations

import pytest
import torch

from dynadiag.explain.ownership import is_torchs, way_in
from dynadiag.recording.records import Frame
from tests.explain.build import FILE, a_break

OPTIMIZER = "/env/lib/python3.11/site-packages/torch/optim/optimizer.py"


def test_the_torch_that_is_installed_is_torchs() -> None:
    assert is_torchs(torch.nn.modules.linear.__file__)


@pytest.mark.parametrize(
    "file", [FILE, "/home/user/torch/x.py", "/env/site-packages/torchvision/x.py", "<string>", "", None]
)
def test_what_else_there_is_is_not(file: str | None) -> None:
    assert not is_torchs(file)


def test_the_way_in_is_the_last_line_outside_torch() -> None:
    frames = (Frame(FILE, 9, "<module>"), Frame(FILE, 4, "step"), Frame(OPTIMIZER, 79, "_use_grad"))
    assert way_in(a_break(user_stack=frames)) == frames[1]
    assert way_in(a_break(user_stack=frames[2:])) is None
