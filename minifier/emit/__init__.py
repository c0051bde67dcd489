"""Writes a graph and its inputs as a readable program."""

from __future__ import annotations

from minifier.emit.errors import EmitError
from minifier.emit.program import CALL, program

__all__ = ["CALL", "EmitError", "program"]
