"""Which parts of torch a program replaces, by its text."""

from __future__ import annotations

import pytest

from dynadiag.triage.changes_of_torch import changes_of_torch


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("torch._functorch.partitioners.fx_graph_cse = mine", "torch._functorch.partitioners.fx_graph_cse"),
        ("from torch._inductor import lowering\nlowering.lowerings[key] = mine", "torch._inductor.lowering.lowerings"),
        (
            "from torch._inductor.lowering import lowerings as low\nlow[key] = mine",
            "torch._inductor.lowering.lowerings",
        ),
        ("import torch._inductor.lowering as low\nlow.relu = mine", "torch._inductor.lowering.relu"),
        ("setattr(torch.Tensor, 'sum', mine)", "torch.Tensor.sum"),
        (
            "from torch._inductor.lowering import register_lowering\n@register_lowering(aten.relu)\ndef f(): ...",
            "torch._inductor.lowering.lowerings",
        ),
        ("from unittest.mock import patch\nwith patch.object(torch, 'relu', mine): ...", "torch.relu"),
        (
            "torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = 'accuracy'",
            "torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY",
        ),
    ],
)
def test_what_is_bound_anew_is_named(line: str, name: str) -> None:
    assert changes_of_torch(f"import torch\n{line}\n{line}\n") == (name,)


@pytest.mark.parametrize(
    "line",
    [
        "torch._dynamo.config.cache_size_limit = limit",
        "torch.backends.cuda.matmul.allow_tf32 = allowed",
        "from torch import optim\noptim = optim.SGD([], lr)\noptim.param_groups[0]['lr'] = rate",
        "def f(torch):\n    torch.seen = []",
        "model.forward = torch.compile(model.forward)",
        "torch.manual_seed(0)",
        "not Python (",
    ],
)
def test_a_setting_and_what_is_the_programs_own_are_none(line: str) -> None:
    assert changes_of_torch(f"import torch\n{line}\n") == ()
