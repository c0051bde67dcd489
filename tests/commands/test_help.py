"""`dynadiag COMMAND --help` of every command."""

from __future__ import annotations

import pytest

from dynadiag.__main__ import COMMANDS, main


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """argparse of Python 3.11 cannot print the help of a positional with two metavars."""
    try:
        code = main([name, "--help"])
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert code == 0
    assert capsys.readouterr().out.startswith(f"usage: dynadiag {name}")
