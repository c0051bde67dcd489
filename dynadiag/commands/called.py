"""The other end of FILE.py:NAME: the process that imports the function, compiles it and calls it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dynadiag.trial.program import Program, TargetError, run


def main(request: str, refusal: str) -> int:
    """Run the program that ``request`` names (JSON). Where it cannot be imported, write why into ``refusal``."""
    try:
        run(Program.from_json(json.loads(request)))
    except TargetError as error:
        sys.stdout.flush()
        Path(refusal).write_text(str(error), errors="backslashreplace")
        return 2
    return 0
