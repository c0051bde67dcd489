"""State that torch's own bisector left in the cache folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bisect.conftest import Bisected
from tests.bisect.test_bisector import BACKEND


def test_a_status_file_that_was_left_has_no_effect(
    bisected: Bisected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes torch run every compile with backend eager: the fault would not show at all."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    status = tmp_path / "cache" / "bisect" / "bisect_status.txt"
    status.parent.mkdir(parents=True)
    status.write_text("backend=eager\nsubsystem=\n")
    verdict = bisected(BACKEND)
    assert (verdict.verdict, verdict.rung) == ("found", "custom")
    assert [culprit.name for culprit in verdict.culprits] == ["double"]
    assert status.read_text() == "backend=eager\nsubsystem=\n"
