"""Read the job, measure, write the result."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from dynadiag.trial.measure import modules, peaks


def main(job: Path, result: Path) -> None:
    """Measure the modules of a job. What fails is written to ``errors``, module by module."""
    wanted = json.loads(job.read_text())
    times: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for module in wanted["modules"]:
        try:
            times[str(module["event"])] = modules.measure(
                module["source"],
                module["lines"],
                module["configurations"],
                wanted["seconds"],
                result.parent / f"module_{module['event']}.py",
            )
        except Exception as error:  # noqa: BLE001 - the module is arbitrary Python, so it may raise anything
            errors[str(module["event"])] = f"{type(error).__name__}: {error}"[:500]
    on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
    made = {
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "torch": str(torch.__version__),
        "peaks": peaks.measure("cuda" if on_gpu else "cpu") if times else None,
        "times": times,
        "errors": errors,
    }
    result.write_text(json.dumps(made))


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), Path(sys.argv[2]).absolute())
