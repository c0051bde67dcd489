"""Reads the names of operators: whether torch itself defines one."""

from __future__ import annotations

import re

_OVERLOAD = re.compile(r"([a-z]\w*)\.\w+(\.\w+)?")  # a namespace with a leading underscore is torch's
_TORCH_NAMESPACES = {
    *("aten", "prims", "prim", "inductor", "inductor_prims", "higher_order", "rngprims", "sparse", "torch", "triton"),
    *("c10d", "dtensor", "fsdp", "symm_mem", "mkl", "mkldnn", "onednn", "xnnpack", "quantized", "quantized_decomposed"),
    "_c10d_functional",
}


def is_torch_namespace(name: str) -> bool:
    """Whether torch defines the operators of this namespace (``aten``)."""
    return name in _TORCH_NAMESPACES


def is_custom_operator(name: str) -> bool:
    """Whether ``name`` (`namespace.operator` or `namespace.operator.overload`) is an operator that torch does not
    define.

    >>> is_custom_operator("corpus.twice.default"), is_custom_operator("aten.relu.default")
    (True, False)
    """
    found = _OVERLOAD.fullmatch(name)
    return found is not None and found[1] not in _TORCH_NAMESPACES
