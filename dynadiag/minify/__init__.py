"""Minifies a failing program: finds the failing graph, reduces it by trials, writes a repro and proves it."""

from __future__ import annotations

__all__: list[str] = []
