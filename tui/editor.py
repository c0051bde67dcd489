"""Opening what is shown in the user's own editor, at the line."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from textual.app import App, SuspendNotSupported

from tui.documents import Document

__all__ = ["command_for", "edit", "edit_path"]

# Editors that take the line as `file:line`; the others take `+line file`, as vi does.
_COLON = frozenset({"subl", "zed", "hx", "helix"})
_GOTO = frozenset({"code", "codium", "cursor"})
_SUFFIXES = {"source": ".py", "graph": ".py", "kernel": ".py", "diff": ".diff"}


def command_for(editor: str, path: Path, line: int) -> list[str]:
    """The command line that opens a file at a line."""
    words = shlex.split(editor) or ["vi"]
    name = Path(words[0]).name
    if name in _GOTO:
        return [*words, "--goto", f"{path}:{line}"]
    if name in _COLON:
        return [*words, f"{path}:{line}"]
    return [*words, f"+{line}", str(path)]


def edit(app: App[int], document: Document, line: int) -> str | None:
    """Open a document; the user's own file where it is there, else a copy. What went wrong, or ``None``."""
    own = Path(document.ref.title)
    if document.ref.kind == "source" and own.is_file():
        return edit_path(app, own, line)
    with tempfile.TemporaryDirectory(prefix="dynadiag-") as folder:
        copy = Path(folder, f"shown{_SUFFIXES.get(document.ref.kind, '.txt')}")
        copy.write_text("\n".join(document.lines) + "\n", encoding="utf-8", errors="replace")
        return edit_path(app, copy, line)


def edit_path(app: App[int], path: Path, line: int) -> str | None:
    """Open a file at a line; the terminal is the editor's meanwhile."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        command = command_for(editor, path, line)
        with app.suspend():
            code = subprocess.run(command, check=False).returncode
    except SuspendNotSupported:
        return "this terminal cannot be handed to an editor"
    except OSError as error:
        return f"{editor}: {error.strerror}; set $EDITOR"
    except ValueError as error:  # a quote that is not closed
        return f"{editor}: {error}; set $EDITOR"
    return None if code == 0 else f"{command[0]} ended with {code}"
