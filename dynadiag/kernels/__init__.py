"""From a recording to its kernels."""

from __future__ import annotations

from dynadiag.kernels.source import kernel_source

__all__ = ["kernel_source"]
