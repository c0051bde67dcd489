"""What pages show of a sample's report is what the report says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.samples import golden
from tests.samples.running import SAMPLES, TORCH, explained

ROOT = Path(__file__).parents[2]
SHOWN = re.compile(r"^\$ dynadiag explain samples/(\w+)\.py\n(.*?)^```", re.M | re.S)
BLOCKS = [
    pytest.param(sample, text, id=f"{page} {sample}")
    for page in ("README.md", "docs/README.md")
    for sample, text in SHOWN.findall((ROOT / page).read_text())
]


def lines(text: str) -> list[str]:
    """The lines without the folder that a path begins with, without what torch was built for, and without the label of
    a stack: that of a forked program begins with what forks it.
    """
    whole = (line.strip().removeprefix("= called: ") for line in text.splitlines())
    return [re.sub(r"\S*samples/", "samples/", re.sub(r"(torch [\d.]+)\+\w+", r"\1", line)) for line in whole]


@pytest.mark.skipif(TORCH != golden.FOR_TORCH, reason="the pages show torch 2.13")
@pytest.mark.parametrize(("sample", "text"), BLOCKS)
def test_a_page_shows_lines_of_the_report(sample: str, text: str) -> None:
    said = lines(explained(SAMPLES / f"{sample}.py").ended.stdout)
    assert [line for line in lines(text) if line not in ("...", *said)] == []


def test_both_pages_show_a_report() -> None:
    assert len(BLOCKS) >= 3
