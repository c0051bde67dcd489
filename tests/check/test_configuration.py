"""Budgets from a file: which of them holds for a target, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynadiag.check.baseline import read_baseline
from dynadiag.check.configuration import Budgets, Configuration, find_configuration
from dynadiag.errors import DynadiagError, UnreadableInput

TABLE = """
baseline = "known.json"
max-breaks = 0
max-recompiles = 4

[{section}targets."models/*.py"]
max-breaks = 2
arguments = ["--small"]

[{section}targets."models/big.py"]
max-breaks = 5
max-memory = "2 GB"
"""


@pytest.mark.parametrize("file", ["dynadiag.toml", "pyproject.toml"])
def test_the_nearest_file_counts_and_the_last_pattern_that_matches(file: str, tmp_path: Path) -> None:
    pyproject = file == "pyproject.toml"
    text = TABLE.format(section="tool.dynadiag." if pyproject else "")
    (tmp_path / file).write_text(("[tool.dynadiag]" if pyproject else "") + text)
    below = tmp_path / "models"
    below.mkdir()
    (below / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    made, root = find_configuration(below)
    assert root == tmp_path
    assert made.baseline == "known.json"
    assert made.budgets(["train.py"], Budgets()) == Budgets(max_breaks=0, max_recompiles=4)
    assert made.budgets(["models/a.py"], Budgets()) == Budgets(max_breaks=2, max_recompiles=4)
    big = made.budgets(["models/big.py"], Budgets(max_recompiles=9))
    assert big == Budgets(max_breaks=5, max_recompiles=9, max_memory="2 GB")
    assert made.arguments("models/a.py") == ("--small",)
    assert made.arguments("train.py") == ()


def test_no_file_is_an_empty_configuration(tmp_path: Path) -> None:
    assert find_configuration(tmp_path) == (Configuration(), tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max-breaks = ", "TOML"),
        ("max-braeks = 1", "max-braeks"),
        ("max-breaks = 'many'", "max-breaks"),
        ("max-breaks = -1", "0 or more"),
        ("max-breaks = true", "max-breaks"),
        ("max-memory = 'much'", "much"),
        ("max-compile-seconds = 'long'", "long"),
        ("[targets.'a.py']\nmax-break = 1", r"max-break of targets\.'a\.py' is not known: try max-breaks$"),
        ("[budgets]\nmax-breaks = 1", "budgets is not known: give max-breaks, .*, targets$"),
        ("targets = 3", "targets"),
        ("[targets.'a.py']\nmax-graphs = nan", "max-graphs"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "dynadiag.toml").write_text(text)
    with pytest.raises(DynadiagError, match=said) as refused:
        find_configuration(tmp_path)
    assert "dynadiag.toml" in str(refused.value)


def test_a_section_that_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool]\ndynadiag = 3\n")
    with pytest.raises(DynadiagError, match=r"pyproject\.toml: tool\.dynadiag is 3: give a table"):
        find_configuration(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"known": 3}', b'{"version": 99}', b"\xff"])
def test_what_is_no_baseline_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    path.write_bytes(content)
    with pytest.raises(UnreadableInput, match=r"known\.json"):
        read_baseline(path)
    with pytest.raises(UnreadableInput, match="--update"):
        read_baseline(tmp_path / "missing.json")
