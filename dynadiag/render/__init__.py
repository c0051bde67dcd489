"""Views of an explanation: text, JSON, DOT. Each is a function of the same data.

The names below load on first use: the browser needs a part of this before its first screen.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynadiag.render.json_document import document, encode, explanation_json
    from dynadiag.render.style import Style
    from dynadiag.render.text import explanation_text

__all__ = ["Style", "document", "encode", "explanation_json", "explanation_text"]

_WHERE = {
    "Style": "dynadiag.render.style",
    "document": "dynadiag.render.json_document",
    "encode": "dynadiag.render.json_document",
    "explanation_json": "dynadiag.render.json_document",
    "explanation_text": "dynadiag.render.text",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'dynadiag.render' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
