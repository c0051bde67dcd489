"""Graphs that the compiler's caches confuse: none fails by itself, so nothing is reduced."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bisection.test_leftovers import MISTAKEN
from tests.minify.test_command import minify


@pytest.mark.slow
def test_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHINDUCTOR_AUTOGRAD_CACHE", "1")
    code, repro, data, told = minify(tmp_path, MISTAKEN)
    assert (code, data["verdict"], data["rung"]) == (6, "cached", "inductor"), told
    assert any("TORCHINDUCTOR_AUTOGRAD_CACHE=0" in note for note in data["notes"]), data
    assert not repro.exists()
