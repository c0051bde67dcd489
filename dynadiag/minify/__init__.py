"""From a failing program to a small one: the failing graph with its inputs, reduced by trials, written, proved."""

from __future__ import annotations

__all__: list[str] = []
