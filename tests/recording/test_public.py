"""The names that the rest of the house may use."""

from __future__ import annotations

from dynadiag import recording


def test_public_names() -> None:
    assert recording.__all__ == [
        "EventDigest",
        "ImportResult",
        "Journal",
        "Recording",
        "export_log",
        "import_log",
        "open",
    ]
    assert all(callable(getattr(recording, name)) for name in recording.__all__)
