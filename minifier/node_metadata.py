"""Updates the metadata of FX nodes after shapes or dtypes have changed."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from minifier.graph_problem import Case, copy_case
from minifier.tensors import leaves, map_leaves
from minifier.torch_private import restore_torch_state
from minifier.triton_launches import launched_kernel

__all__ = ["is_symbolic", "refresh_metadata"]

# The keys of a node's fake value: "val" of AOTAutograd and Inductor, "example_value" of Dynamo.
_KEYS = ("val", "example_value")


def refresh_metadata(case: Case) -> Case:
    """The case with metadata that fit its inputs. Symbolic metadata stay: they hold for other sizes too."""
    described = [(node, key) for node in case.module.graph.nodes for key in _KEYS if key in node.meta]
    if not described or any(is_symbolic(node.meta[key]) for node, key in described):
        return case
    copied = copy_case(case)
    values = _FakeInterpreter(copied.module).values(copied.inputs)
    for node in copied.module.graph.nodes:
        node.meta.pop("tensor_meta", None)
        for key in _KEYS:
            if key in node.meta and node in values:
                node.meta[key] = values[node]
    return Case(copied.module, case.inputs)


def is_symbolic(value: Any) -> bool:
    """Whether a value has a symbolic size."""
    return any(
        isinstance(leaf, torch.SymInt)
        or (isinstance(leaf, torch.Tensor) and any(isinstance(size, torch.SymInt) for size in leaf.shape))
        for leaf in leaves(value)
    )


class _FakeInterpreter(fx.Interpreter):
    def values(self, inputs: tuple[Any, ...]) -> dict[fx.Node, Any]:
        self._seen: dict[fx.Node, Any] = {}
        mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())  # a while_loop makes new symbols
        fakes = map_leaves(
            lambda v: mode.from_tensor(v, static_shapes=True) if isinstance(v, torch.Tensor) else v, list(inputs)
        )
        with restore_torch_state(), mode:
            self.run(*fakes, enable_io_processing=False)
        return self._seen

    def run_node(self, n: fx.Node) -> Any:
        if launched_kernel(n) is not None:
            return None  # a launch on fake tensors would have no memory
        self._seen[n] = value = super().run_node(n)
        return value
