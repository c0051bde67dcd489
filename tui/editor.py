"""Opens a document in the user's editor, at a line."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

from textual.app import App, SuspendNotSupported

from tui.documents import Document

# These editors take `file:line`. All others take `+line file`, as vi does.
_COLON_EDITORS = frozenset({"subl", "zed", "hx", "helix"})
_GOTO_EDITORS = frozenset({"code", "codium", "cursor"})
_MAX_NAME = 60  # characters of the name of a copy
_SUFFIXES = {"source": ".py", "graph": ".py", "kernel": ".py", "diff": ".diff"}


def editor_command(editor: str, path: Path, line: int) -> list[str]:
    """Return the command line that opens `path` at `line` (from 1)."""
    words = shlex.split(editor) or ["vi"]
    name = Path(words[0]).name
    if name in _GOTO_EDITORS:
        return [*words, "--goto", f"{path}:{line}"]
    if name in _COLON_EDITORS:
        return [*words, f"{path}:{line}"]
    return [*words, f"+{line}", str(path)]


def edit_document(app: App[int], document: Document, line: int, folder: Path) -> str | None:
    """Open a document: the user's file if it exists, otherwise a copy. Return an error message or ``None``.

    The copy stays in `folder`: an editor like ``code`` hands the file over to another process and ends before that
    reads it.
    """
    own = Path(document.ref.title)
    if document.ref.kind == "source" and own.is_file():
        return edit_path(app, own, line)
    name = re.sub(r"\W+", "-", document.ref.key)[-_MAX_NAME:]
    copy = folder / f"{name}{_SUFFIXES.get(document.ref.kind, '.txt')}"
    copy.write_text("\n".join(document.lines) + "\n", encoding="utf-8", errors="replace")
    return edit_path(app, copy, line)


def edit_path(app: App[int], path: Path, line: int) -> str | None:
    """Open a file at a line (from 1) and suspend the browser meanwhile. Return an error message or ``None``."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        command = editor_command(editor, path, line)
        with app.suspend():
            code = subprocess.run(command, check=False).returncode
    except SuspendNotSupported:
        return "this terminal cannot be given to an editor"
    except OSError as error:
        return f"{editor}: {error.strerror}; set $EDITOR"
    except ValueError as error:  # a quote in $EDITOR is not closed
        return f"{editor}: {error}; set $EDITOR"
    return None if code == 0 else f"{command[0]} exited with code {code}"
