"""Runs in the process that imports, compiles and calls the function of FILE.py:NAME."""

from __future__ import annotations

import sys
from pathlib import Path

from dynadiag.trial.program import Program, TargetError, run_program
from dynadiag.trial.typed_json import load


def main(request: str, refusal: str) -> int:
    """Run the program in ``request`` (JSON). If it cannot be imported, write the reason to the file ``refusal``."""
    try:
        run_program(load(request, Program))
    except TargetError as error:
        sys.stdout.flush()
        Path(refusal).write_text(str(error), errors="backslashreplace")
        return 2
    return 0
