"""The pages agree with the code, and are narrow enough to read."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from dynadiag.__main__ import COMMANDS
from dynadiag.bisection.verdict import EXIT_CODES as BISECT_CODES
from dynadiag.minify.minify_result import EXIT_CODES as MINIFY_CODES

ROOT = Path(__file__).parents[1]
ARCHITECTURE = ROOT / "docs" / "architecture.md"
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.rst")})


def program_of_docs(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_picture_of_the_imports_is_that_of_the_code() -> None:
    page = ARCHITECTURE.read_text()
    assert program_of_docs("draw_imports").updated(page) == page, "run `make docs`"


def test_the_page_of_advice_is_that_of_the_table() -> None:
    page = (ROOT / "docs" / "advice.md").read_text()
    assert program_of_docs("write_advice").markdown() == page, "run `make docs`"


def test_the_page_of_the_schema_is_that_of_the_tables() -> None:
    page = (ROOT / "docs" / "recording-schema.md").read_text()
    assert program_of_docs("write_schema").markdown() == page, "run `make docs`"


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_the_files_that_a_page_names_are_there(page: str) -> None:
    named = set(re.findall(r"`((?:dynadiag|minifier|tui|tests|docs|benchmarks)/[\w/.]+)`", (ROOT / page).read_text()))
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_names_of_the_architecture_are_defined_where_it_says() -> None:
    pairs = re.findall(r"`(\w+)`\s+\(`([\w/]+\.py)`", ARCHITECTURE.read_text())
    assert len(pairs) > 10
    for name, file in pairs:
        assert re.search(rf"^(class|def) {name}\b", (ROOT / file).read_text(), re.M), f"{name} is not in {file}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_at_most_120_columns_wide(page: Path) -> None:
    """Only a line that cannot be broken may be longer: one word, such as an address, and what leads to it."""
    wide = [
        f"{number}: {len(line)} columns"
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if len(line) > 120 and max(map(len, line.split())) <= 110
    ]
    assert wide == []


def test_the_table_of_outputs_is_that_of_the_parsers() -> None:
    page = (ROOT / "docs" / "outputs.md").read_text()
    assert program_of_docs("write_outputs").markdown() == page, "run `make docs`"


def test_the_commands_for_agents_are_commands_with_these_options() -> None:
    """Each command line of the page is parsed by the parser of its command."""
    lines = re.findall(r"`dynadiag ([^`]+)`", (ROOT / "docs" / "agents.md").read_text())
    assert len(lines) >= 9
    for line in lines:
        name, *words = line.split()
        assert name in COMMANDS
        parser = argparse.ArgumentParser(exit_on_error=False)
        importlib.import_module(f"dynadiag.commands.{name}").prepare_parser(parser)
        parser.parse_args(words)


def test_the_exit_codes_for_agents_are_those_of_the_commands() -> None:
    rows = [line.split("|")[1:-1] for line in (ROOT / "docs" / "agents.md").read_text().splitlines() if "| `" in line]
    of = {cells[0].strip(" `"): [cell.strip() for cell in cells[1:]] for cells in rows}
    codes = ("0", "1", "3", "4", "5", "6")
    told = {text: int(codes[index]) for index, text in enumerate(of["bisect`, `triage"]) if text}
    assert told["found"] == BISECT_CODES["found"]
    assert told["does not fail"] == BISECT_CODES["passes"] == MINIFY_CODES["passes"]
    assert told["fails uncompiled too"] == BISECT_CODES["fails_uncompiled"] == MINIFY_CODES["fails_uncompiled"]
    assert told["not every time, or no culprit"] == BISECT_CODES["flaky"] == BISECT_CODES["stopped"]
    assert int(codes[of["minify"].index("not proved")]) == MINIFY_CODES["reduced"]


def test_the_commands_of_the_first_page_are_commands_on_samples() -> None:
    """Five questions, each with one command that can be typed."""
    page = (ROOT / "docs" / "README.md").read_text()
    asked = re.findall(r"^## (Why .*\?)\n\n```console\n\$ dynadiag (\w+) (.*)\n", page, re.MULTILINE)
    assert len(asked) == 5
    for _, command, words in asked:
        assert command in COMMANDS
        sample = next(word for word in words.split() if word.startswith("samples/"))
        assert (ROOT / sample.partition(":")[0]).exists()
