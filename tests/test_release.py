"""What `make release` refuses before it builds anything."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_PROGRAM = Path(__file__).parents[1] / ".ci/release.py"
_RELEASED = "## [0.1.0] - 2026-01-02\n\n- explain: Explains.\n"


@pytest.mark.parametrize(
    ("changelog", "problem"),
    [
        (f"# Changelog\n\n## [Unreleased]\n\n{_RELEASED}", ""),
        (_RELEASED, ""),
        (f"## [Unreleased]\n\n- fix: Fixes.\n\n{_RELEASED}", "Unreleased"),
        (_RELEASED.replace("0.1.0", "0.0.9"), "its newest release is 0.0.9"),
        ("# Changelog\n", "its newest release is none"),
    ],
)
def test_a_changelog_that_is_not_of_the_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changelog: str, problem: str
) -> None:
    spec = importlib.util.spec_from_file_location("release", _PROGRAM)
    assert spec
    assert spec.loader
    release = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(release)
    (tmp_path / "CHANGELOG.md").write_text(changelog)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    said = list(release.disagreements("0.1.0"))
    assert problem in said[0] if problem else not said
