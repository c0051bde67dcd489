"""Imported first by each benchmark: ``bisect.py`` in this folder must not stand for the standard library's."""

import sys
from pathlib import Path

_HERE = str(Path(__file__).resolve().parent)
sys.path[:] = [entry for entry in sys.path if not entry or str(Path(entry).resolve()) != _HERE]
sys.path.append(_HERE)  # last: what a benchmark shares with another is found still
