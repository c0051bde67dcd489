"""Read the job, compile, write the result."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from dynadiag.errors import DynadiagError


def main(job: Path, result: Path) -> None:
    """Compile the kernel of a job, and write its stages or the error."""
    job = job.absolute()
    wanted = json.loads(job.read_text())
    try:
        made = _compile(wanted, job.parent)
    except DynadiagError as error:
        made = {"error": str(error)}
    except subprocess.CalledProcessError as error:
        made = {"error": f"{Path(error.cmd[0]).name} failed: {(error.stderr or '').strip()[-2000:]}"}
    except Exception as error:  # noqa: BLE001 - the source is arbitrary Python, so it may raise anything
        made = {"error": f"{type(error).__name__}: {error}"[:2000]}
    result.write_text(json.dumps(made))


def _compile(wanted: dict[str, Any], folder: Path) -> dict[str, Any]:
    if wanted["language"] == "cubin":
        from dynadiag.trial.stages import gpu

        return gpu.disassemble(wanted["source"], wanted["target"], folder)
    if wanted["language"] == "triton":
        from dynadiag.trial.stages import gpu

        return gpu.compile_kernel(wanted["name"], wanted["source"], wanted["target"], folder)
    from dynadiag.trial.stages import cpu

    return cpu.compile_kernel(wanted["source"], folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
