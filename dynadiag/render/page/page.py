"""Write the page: the overview as markup, and everything large as compressed blocks that are unpacked on demand."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import IO, Any

import jinja2
from markupsafe import Markup

from dynadiag import __version__
from dynadiag.explanation.explanation import Explanation, explain
from dynadiag.recording.opening import open_recording
from dynadiag.render.clean import clean
from dynadiag.render.page.blocks import PagedRecording, blocks_of
from dynadiag.render.page.differences import ComparisonView, comparison_view
from dynadiag.render.page.flame import has_sections
from dynadiag.render.page.kernel_stages import KernelStages
from dynadiag.render.page.model import PageSection, page_section, with_search
from dynadiag.render.page.ranks import divergence_view
from dynadiag.render.page.redaction import Redaction
from dynadiag.render.page.search import search_of, trial_views
from dynadiag.render.page.stages import StageNames

__all__ = ["summary_html", "write_page"]

_CODE = re.compile(r"`([^`\n]+)`")
_MAX_SHOWN = 5  # findings of a summary


def write_page(
    paths: Sequence[Path],
    output: IO[str],
    redaction: Redaction,
    *,
    compare: bool = False,
    stages: KernelStages | None = None,
) -> None:
    """Write the page of these recordings. One text is read after the other, so that memory stays small.

    With ``compare`` the first recording is compared with each of the others. ``stages`` finds the stages of kernels.
    Raises `UnreadableInput` if a recording cannot be read.
    """
    stages = stages or KernelStages()
    names = [{} if redaction.active else _stage_names(path, stages) for path in paths]
    explanations = [_explain(path) for path in paths]
    sections, paged = [], []
    for index, (path, explanation, own) in enumerate(zip(paths, explanations, names, strict=True)):
        sections.append(_section(path, index, explanation, own, redaction))
        paged.append(PagedRecording(path, explanation, _anchor_prefix(index), own, stages))
    style, script = _asset("page.css"), "".join(map(_asset, ("panes.js", "flame.js", "page.js")))
    stream = (
        _environment()
        .get_template("page.html.j2")
        .generate(
            sections=sections,
            comparisons=_comparisons(paths, sections, redaction) if compare else (),
            divergence=None if compare or not paths[1:] else divergence_view(paths, explanations, sections, redaction),
            version=__version__,
            redacted=redaction.active,
            style=Markup(style),
            script=Markup(script),
            style_hash=_hash(style),
            script_hash=_hash(script),
            blocks=() if redaction.active else chain.from_iterable(map(blocks_of, paged)),
        )
    )
    for piece in stream:
        output.write(piece)


def summary_html(explanation: Explanation) -> str:
    """Return the summary of an explanation for a notebook, without script or style. Foreign text is escaped."""
    view = page_section(explanation, "", Redaction())
    return _environment().get_template("summary.html.j2").render(view=view, shown=_MAX_SHOWN)


def _anchor_prefix(index: int) -> str:
    """The beginning of the anchors of a recording."""
    return "" if index == 0 else f"r{index + 1}-"


def _explain(path: Path) -> Explanation:
    with open_recording(path) as recording:
        return explain(recording)


def _stage_names(path: Path, stages: KernelStages) -> StageNames:
    with open_recording(path) as recording:
        return stages.stage_names(recording)


def _section(path: Path, index: int, explanation: Explanation, names: StageNames, redaction: Redaction) -> PageSection:
    label = f"{index + 1}" if redaction.active else f"{index + 1}: {path.stem}"
    with open_recording(path) as recording:
        view = page_section(
            explanation, _anchor_prefix(index), redaction, label, has_flame=has_sections(recording), stages=names
        )
        trials = recording.trials()
        search = search_of(recording, redaction)
        return view if search is None else with_search(view, search, trial_views(trials, redaction), len(trials))


def _comparisons(
    paths: Sequence[Path], sections: Sequence[PageSection], redaction: Redaction
) -> tuple[ComparisonView, ...]:
    """The comparisons of the first recording with each other one. Searches are left out: they compile nothing."""
    programs = [(path, view) for path, view in zip(paths, sections, strict=True) if not view.search]
    found = []
    for path, view in programs[1:]:
        with open_recording(programs[0][0]) as before, open_recording(path) as after:
            found.append(comparison_view(before, after, (programs[0][1], view), redaction))
    return tuple(found)


def _asset(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The hash of a style or script for the content security policy of the page."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_clean_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["coded"] = _coded
    return environment


def _coded(text: str) -> Markup:
    """A sentence with its code, which is in backticks, as markup."""
    pieces = _CODE.split(clean(text))
    return Markup("").join(Markup("<code>{}</code>").format(each) if n % 2 else each for n, each in enumerate(pieces))


def _clean_value(value: Any) -> Any:
    """A value of a template, cleaned of control characters. Our own markup is not changed."""
    return value if not isinstance(value, str) or isinstance(value, Markup) else clean(value)
