"""A graph and its inputs as a program that a person could have written."""

from __future__ import annotations

from minifier.emit.errors import EmitError
from minifier.emit.program import CALL, program

__all__ = ["CALL", "EmitError", "program"]
