"""Where the ranks of a job diverge first, which leads the page of their recordings."""

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
    """The divergence as a finding. ``section`` is the recording of the rank that did the unusual."""

    headline: str
    finding: FindingView
    section: PageSection


def divergence_view(
    paths: Sequence[Path], explained: Sequence[Explanation], sections: Sequence[PageSection], redaction: Redaction
) -> DivergenceView | None:
    """Compare the ranks whose recordings these are. None where they are alike, or are no ranks of one job."""
    job = open_job(paths)
    found = find_divergence(job)
    places = {each.rank: paths.index(each.path) for each in job.ranks if found and each.restart == found.restart}
    place = next((places[rank] for rank in found.ranks if rank in places), None) if found else None
    if found is None or place is None:
        return None
    made = explained[place]
    view = finding_view(divergence_finding(found, dict(made.sources)), ("divergence-0",), "", made, redaction)
    text = f"The ranks diverge: {found.kind}." if redaction.active else f"{found.text[:1].upper()}{found.text[1:]}."
    return DivergenceView(text, replace(view, title=""), sections[place])  # which is the headline
