"""The first divergence of the ranks of a job, which leads the page of their recordings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dynadiag.explanation.explanation import Explanation
from dynadiag.job import divergence_finding, find_divergence, open_job
from dynadiag.render.page.model import FindingView, PageSection, finding_view
from dynadiag.render.page.redaction import Redaction

__all__ = ["DivergenceView", "divergence_view"]


@dataclass(frozen=True, slots=True)
class DivergenceView:
    """The divergence as a finding. ``section`` is the recording of the rank that differs from the others."""

    headline: str
    finding: FindingView
    section: PageSection


def divergence_view(
    paths: Sequence[Path], explanations: Sequence[Explanation], sections: Sequence[PageSection], redaction: Redaction
) -> DivergenceView | None:
    """Compare the ranks of these recordings. None if they are alike, or are not ranks of one job."""
    job = open_job(paths)
    found = find_divergence(job)
    places = {each.rank: paths.index(each.path) for each in job.ranks if found and each.restart == found.restart}
    place = next((places[rank] for rank in found.ranks if rank in places), None) if found else None
    if found is None or place is None:
        return None
    explanation = explanations[place]
    view = finding_view(
        divergence_finding(found, dict(explanation.sources)), ("divergence-0",), "", explanation, redaction
    )
    text = f"The ranks diverge: {found.kind}." if redaction.active else f"{found.text[:1].upper()}{found.text[1:]}."
    return DivergenceView(text, replace(view, title=""), sections[place])  # the headline says it
