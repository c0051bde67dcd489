"""The instructions of a user frame, as Dynamo's translator of the frame has them.

``InstructionTranslatorBase`` (symbolic_convert.py) has ``instructions``, ``indexof`` (the index of each) and
``current_instruction``. Read in torch 2.11.0, 2.13.0 and 2.15.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["instructions_backwards"]


def instructions_backwards(translator: Any) -> Iterator[Any]:
    """Yield the current instruction, then the instructions before it in the code, the nearest first."""
    current = translator.current_instruction
    yield current
    at = translator.indexof.get(current) if hasattr(translator, "indexof") else None
    if at is not None:
        yield from reversed(translator.instructions[:at])
