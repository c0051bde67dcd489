"""`dynadiag COMMAND --help` of every command."""

from __future__ import annotations

from collections import Counter

import pytest

from dynadiag.__main__ import COMMANDS, command_parser, main


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """argparse of Python 3.11 cannot print the help of a positional with two metavars."""
    try:
        code = main([name, "--help"])
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert code == 0
    assert capsys.readouterr().out.startswith(f"usage: dynadiag {name}")


@pytest.mark.parametrize("command", COMMANDS)
def test_no_two_arguments_of_a_command_are_kept_in_one_place(command: str) -> None:
    """`diff A B` once kept B where the recorder looks for the calls of a warm-up."""
    actions = command_parser(command)._actions
    places = Counter(action.dest for action in actions)
    shared = {place for place, number in places.items() if number > 1}
    assert shared <= {"words", "step"}  # the target, with or without -m; --train and --inference
