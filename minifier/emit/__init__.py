"""Writes a graph and its inputs as a readable program."""

from __future__ import annotations

from minifier.emit.errors import EmitError
from minifier.emit.program import DEFAULT_CALL, write_program

__all__ = ["DEFAULT_CALL", "EmitError", "write_program"]
