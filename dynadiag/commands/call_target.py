"""Runs a program in a process that Python alone cannot start: FILE.py:NAME, or with code generated for a GPU."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from dynadiag.errors import DynadiagError
from dynadiag.trial.program import Program, run_program
from dynadiag.trial.typed_json import load


def main(request: str, refusal: str, gpu: str = "") -> int:
    """Run the program in ``request`` (JSON). If it cannot be imported, write the reason to the file ``refusal``.

    With ``gpu`` its code is generated for that GPU, which this machine does not have.
    """
    try:
        if gpu:
            importlib.import_module("dynadiag.torch_private.gpu_target").generate_for_gpu(gpu)
        run_program(load(request, Program))
    except DynadiagError as error:
        sys.stdout.flush()
        Path(refusal).write_text(str(error), errors="backslashreplace")
        return 2
    return 0
