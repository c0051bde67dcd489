"""The stable facts of each sample, as last reviewed."""

from __future__ import annotations

import pytest

from tests.samples import golden
from tests.samples.running import SAMPLES


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n == "fused_ops" else []) for n in golden.NAMES]
)
def test_the_stable_facts_are_the_golden_ones(name: str) -> None:
    assert golden.encoded(name) == golden.kept(name)


def test_every_golden_file_is_of_a_sample_that_exists() -> None:
    assert {path.stem for path in golden.FOLDER.rglob("*.json")} == set(golden.NAMES)
    assert set(golden.NAMES) <= {path.stem for path in SAMPLES.glob("*.py")}
    assert golden.NAMES
