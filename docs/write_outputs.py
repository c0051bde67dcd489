"""Writes the table of `outputs.md` from the parsers of all commands: run by `make docs`, checked by the tests."""

from __future__ import annotations

from pathlib import Path

from dynadiag.__main__ import COMMANDS, command_parser
from dynadiag.commands.outputs import OutputOption

PAGE = Path(__file__).with_name("outputs.md")
_MARK = "<!-- written by `make docs` -->\n"


def markdown() -> str:
    """The page, with the table made anew."""
    return PAGE.read_text().partition(_MARK)[0] + _MARK + "\n" + _table()


def _table() -> str:
    rows = ["| command | option | replaces an existing file that is |", "|---|---|---|"]
    for command in COMMANDS:
        parser = command_parser(command)
        forcible = any("--force" in action.option_strings for action in parser._actions)
        for action in parser._actions:
            if isinstance(action, OutputOption):
                names = ", ".join(f"`{name}`" for name in action.option_strings)
                rows.append(f"| {command} | {names} | {_replaces(action, forcible)} |")
    return "\n".join(rows) + "\n"


def _replaces(action: OutputOption, forcible: bool) -> str:
    if action.folder:
        return "of an earlier run, in its folder, with `--force`"
    if action.kind is None:
        return "any plain file, with `--force`" if forcible else "none"
    if not action.kind.forcible or not forcible:
        return action.kind.name
    return f"{action.kind.name}; any plain file, with `--force`"


if __name__ == "__main__":
    PAGE.write_text(markdown())
