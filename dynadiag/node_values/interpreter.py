"""Runs a graph as compiled code may, where an uncompiled operator is stricter."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Interpreter


class LayoutInterpreter(Interpreter):
    """An interpreter in which ``aten.view`` takes a tensor of any stride, as Inductor's does.

    AOTAutograd traces a backward with the strides of eager. Inductor may choose others, such as channels last, for what
    the forward saves; the gradient of a convolution has them then, and the view of it that was traced is impossible.
    """

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target is torch.ops.aten.view.default:
            target = torch.ops.aten.reshape.default
        return super().call_function(target, args, kwargs)
