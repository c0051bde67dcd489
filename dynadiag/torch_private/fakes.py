"""What torch believes that an operator returns: its fake kernel. Seen in torch 2.11.0, 2.13.0, 2.15.0."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

__all__ = ["faked"]


def faked(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The outputs of ``operator`` as tensors without data. What its fake kernel raises, it raises."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)

    def fake(leaf: Any) -> Any:
        return mode.from_tensor(leaf, static_shapes=True) if isinstance(leaf, torch.Tensor) else leaf

    args, kwargs = pytree.tree_map(fake, (args, kwargs))
    with mode:
        return operator(*args, **kwargs)
