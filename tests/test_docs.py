"""The pages agree with the code, and are narrow enough to read."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ARCHITECTURE = ROOT / "docs" / "architecture.md"
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.rst")})


def test_the_picture_of_the_imports_is_that_of_the_code() -> None:
    spec = importlib.util.spec_from_file_location("draw_imports", ROOT / "docs" / "draw_imports.py")
    assert spec is not None
    assert spec.loader is not None
    drawing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(drawing)
    page = ARCHITECTURE.read_text()
    assert drawing.updated(page) == page, "run `make docs`"


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
