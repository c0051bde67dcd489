"""Runs in the process that imports, compiles and calls the function of FILE.py:NAME."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dynadiag.trial.program import Program, TargetError, run_program


def main(request: str, refusal: str) -> int:
    """Run the program in ``request`` (JSON). If it cannot be imported, write the reason to the file ``refusal``."""
    try:
        run_program(Program.from_json(json.loads(request)))
    except TargetError as error:
        sys.stdout.flush()
        Path(refusal).write_text(str(error), errors="backslashreplace")
        return 2
    return 0
