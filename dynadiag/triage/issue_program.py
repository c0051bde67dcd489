"""The program in the text of an issue: the code block that compiles something, or all of them as one file."""

from __future__ import annotations

import ast
import re
import textwrap

# A fenced block: three or more backticks or tildes, closed by as many. The language may be followed by more words.
_BLOCK = re.compile(
    r"^[ \t]*(?P<fence>`{3,}|~{3,})[ \t]*(?P<language>[\w+.-]*)[^\n]*\n(?P<code>.*?)^[ \t]*(?P=fence)", re.M | re.S
)
_LANGUAGES = ("", "python", "py", "python3", "pycon", "ipython")
_PROMPT = re.compile(r"^(>>>|\.\.\.) ?")
_COMPILES = re.compile(r"torch\.(compile|_dynamo|_inductor|export|compiler)\b")


def program_of_issue(text: str) -> str | None:
    """The program of an issue, as a file; ``None`` if it holds none.

    The first block that imports torch and compiles is the program. Where none does both, all blocks of Python are one.
    """
    found = _BLOCK.finditer(text.replace("\r\n", "\n"))
    blocks = [code for block in found if block["language"].lower() in _LANGUAGES and (code := _python(block["code"]))]
    programs = [*blocks, "\n".join(blocks)]
    return next((code for code in programs if _imports_torch(code) and _COMPILES.search(code)), None)


def _python(block: str) -> str | None:
    """A block as Python without its prompts; ``None`` if it is something else, such as a traceback."""
    lines = textwrap.dedent(block).splitlines()
    if any(line.startswith(">>>") for line in lines):
        lines = [_PROMPT.sub("", line) for line in lines if _PROMPT.match(line)]
    code = "\n".join(lines) + "\n"
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return code


def _imports_torch(code: str) -> bool:
    return re.search(r"^\s*(import|from) torch\b", code, re.M) is not None
