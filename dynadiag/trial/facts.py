"""The facts that the process of a trial reports at its end."""

from __future__ import annotations

import importlib
import sys

from dynadiag.capture.run_metadata import uses_gpu
from dynadiag.trial.events import RunFacts

__all__ = ["run_facts"]


def run_facts() -> RunFacts:
    """The facts of this process."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_num_threads"):
        return RunFacts()
    private = importlib.import_module("dynadiag.torch_private.trial")
    compiles = "torch._dynamo.eval_frame" in sys.modules
    return RunFacts(
        torch=str(torch.__version__),
        threads=torch.get_num_threads(),
        backends=tuple(private.backends_used()) if compiles else (),
        failed_compiles=tuple(private.failed_compiles()) if compiles else (),
        cuda=uses_gpu(),
        disabled=private.is_disabled(),
    )
