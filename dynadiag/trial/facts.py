"""What is known of a run at its end, whatever was watched: was anything compiled, with which backends."""

from __future__ import annotations

import importlib
import sys
from typing import Any

__all__ = ["facts"]


def facts() -> dict[str, Any]:
    """Of this process. A program that never imported torch has neither version nor backends."""
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
