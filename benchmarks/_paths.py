"""Imported first by each benchmark: ``bisect.py`` in this folder must not stand for the standard library's."""

import sys
from pathlib import Path

sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != Path(__file__).resolve().parent]
