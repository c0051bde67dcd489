"""What a page may show: everything, or nothing that the program's author wrote.

A redacted page has rules, torch's ids, line numbers, counts, times and stages. It has no source, no text of messages,
guards or values, no name in the program, no path, and no name of a host or a user. Files and functions have numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Redaction"]

_LEFT_OUT = "(left out)"


@dataclass(slots=True)
class Redaction:
    """How names and texts of a recording are shown. A file or a function has the same number everywhere on a page."""

    active: bool = False
    _files: dict[str, str] = field(default_factory=dict)
    _functions: dict[str, str] = field(default_factory=dict)

    def text(self, text: str) -> str:
        """A text that may quote the program."""
        return _LEFT_OUT if self.active and text else text

    def file(self, shown: str) -> str:
        """The name of a file."""
        return self._files.setdefault(shown, f"file-{len(self._files) + 1}.py") if self.active else shown

    def function(self, name: str) -> str:
        """The name of a function."""
        return self._functions.setdefault(name, f"function-{len(self._functions) + 1}") if self.active else name
