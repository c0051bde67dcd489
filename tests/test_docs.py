"""What the pages say of the code is so."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ARCHITECTURE = ROOT / "docs" / "architecture.md"


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
