from __future__ import annotations

from dynadiag.minify.write_repro import _imports_first

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
