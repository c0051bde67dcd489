"""Overlays: modules that change functions of installed packages when these are imported (`overlay_runtime`)."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

VARIABLE = "DYNADIAG_OVERLAY"  # names overlays to load, as PATH names folders


def load_named() -> None:
    """Load the overlays that the environment names, in their order, each once.

    Raises `OSError` where a file cannot be read, and whatever an overlay raises.
    """
    for path in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        name = f"dynadiag_overlay_{Path(path).stem}"
        if name in sys.modules:
            continue
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not Path(path).is_file():
            raise OSError(f"{path} is no Python file")
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
