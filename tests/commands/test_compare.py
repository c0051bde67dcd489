"""The lists of names that `compare` takes."""

from __future__ import annotations

import argparse

import pytest

from dynadiag.commands import compare


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    compare.prepare_parser(parser)
    return parser


def test_lists_have_each_name_once(parser: argparse.ArgumentParser) -> None:
    args = parser.parse_args(["--amp", "bf16, none,bf16", "--also", " g ,h,", "net.py:f"])
    assert (args.amp, args.also) == (("bf16", "none"), ("g", "h"))


@pytest.mark.parametrize(
    ("words", "message"), [(["--amp", "int3"], "no such dtype: int3. There are none"), (["--also", ","], "give names")]
)
def test_other_names_are_refused(
    words: list[str], message: str, parser: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser.parse_args([*words, "net.py:f"])
    assert message in capsys.readouterr().err
