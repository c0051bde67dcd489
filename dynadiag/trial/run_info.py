"""What is known at the end of a run: torch's version, thread count, and which backends compiled something."""

from __future__ import annotations

import importlib
import sys
from typing import Any

__all__ = ["run_info"]


def run_info() -> dict[str, Any]:
    """The facts of this process. Where torch was never imported its version is ``None`` and there are no backends."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_num_threads"):
        return {"torch": None, "backends": []}
    private = importlib.import_module("dynadiag.torch_private.trial")
    compiles = "torch._dynamo.eval_frame" in sys.modules
    return {
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "backends": private.backends_used() if compiles else [],
        "failed_compiles": private.failed_compiles() if compiles else [],
        "cuda": torch.cuda.is_initialized(),
        "disabled": private.is_disabled(),
    }
