"""The HTML page of recordings: one file that works offline, asks for nothing, and shows foreign text as text."""

from __future__ import annotations

from dynadiag.render.page.page import summary_html, write_page
from dynadiag.render.page.stages import KernelStages, Redaction

__all__ = ["KernelStages", "Redaction", "summary_html", "write_page"]
