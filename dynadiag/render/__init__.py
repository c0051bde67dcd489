"""Views of an explanation: text, JSON, DOT. Each is a function of the same data."""

from __future__ import annotations

from dynadiag.render.json import document, encode, explanation_json
from dynadiag.render.report import Report, report
from dynadiag.render.style import Style
from dynadiag.render.text import explanation_text

__all__ = ["Report", "Style", "document", "encode", "explanation_json", "explanation_text", "report"]
