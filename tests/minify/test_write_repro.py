from __future__ import annotations

import torch
import torch.distributed._functional_collectives  # defines the operators
from torch.fx import Graph, GraphModule

from dynadiag.minify.write_repro import _changed, _imports_first, _operators

PROGRAM = """import torch
import torch._inductor.lowering
import torch._inductor.lowering as lowering
import numpy
import numpy as np
torch._inductor.lowering.lowerings.clear()

def f(x):
    return x
"""


def test_a_module_of_torch_is_imported_once() -> None:
    imports = [line for line in _imports_first(PROGRAM).splitlines() if line.startswith("import ")]
    assert imports == [
        "import numpy",
        "import numpy as np",
        "import torch",
        "import torch._inductor.lowering as lowering",
    ]


def test_an_operator_that_torch_defines_needs_no_definition() -> None:
    graph = Graph()
    found = graph.call_function(torch.ops._c10d_functional.all_reduce, (graph.placeholder("x"), "sum", "0"))
    graph.output(graph.call_function(torch.ops.aten.relu.default, (found,)))
    assert _operators(GraphModule({}, graph)) == []


def test_an_input_is_changed_by_any_other_value() -> None:
    given = torch.tensor([1.0, torch.nan])
    assert not _changed(given, given.clone())
    assert _changed(given, given + 0.5)
