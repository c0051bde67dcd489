"""torch's private names that trials of fixes use. Read in torch 2.11.0, 2.13.0 and 2.15.0."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
import torch._dynamo

__all__ = ["recompile_limit"]


@contextlib.contextmanager
def recompile_limit(count: int) -> Iterator[None]:
    """Let Dynamo compile a function up to ``count`` times before it leaves it to Python."""
    with torch._dynamo.config.patch(recompile_limit=count, accumulated_recompile_limit=10 * count):
        yield
