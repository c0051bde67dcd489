"""One case for a maintainer: what the searches found, as one document and as an issue that can be posted."""

from __future__ import annotations

from dynadiag.triage.document import PartDocument, TriageDocument
from dynadiag.triage.environment import describe_environment, short_environment
from dynadiag.triage.issue import TriagedCase, issue_text
from dynadiag.triage.redaction import LEFT_OUT, redacted_bisect, redacted_minify

__all__ = [
    "LEFT_OUT",
    "PartDocument",
    "TriageDocument",
    "TriagedCase",
    "describe_environment",
    "issue_text",
    "redacted_bisect",
    "redacted_minify",
    "short_environment",
]
