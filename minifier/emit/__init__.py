"""Writes a graph and its inputs as a readable program."""

from __future__ import annotations

from minifier.emit.program import DEFAULT_CALL, write_program
from minifier.errors import EmitError

__all__ = ["DEFAULT_CALL", "EmitError", "write_program"]
