"""Write the page: the overview as markup, and everything large as compressed blocks that are opened on demand."""

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
from dynadiag.render.page.model import PageSection, view_of, with_search
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
    """Write the page of these recordings. Texts are read one after the other, so that memory stays small.

    ``compare``: the first is compared with each of the others. ``stages`` finds the stages of kernels.
    """
    stages = stages or KernelStages()
    names = [{} if redaction.active else _stage_names(path, stages) for path in paths]
    explained = [_explained(path) for path in paths]
    found = zip(paths, explained, names, strict=True)
    sections = [_section(path, index, made, own, redaction) for index, (path, made, own) in enumerate(found)]
    paged = [
        PagedRecording(path, made, _name(index), own, stages)
        for index, (path, made, own) in enumerate(zip(paths, explained, names, strict=True))
    ]
    style, script = _asset("page.css"), "".join(map(_asset, ("panes.js", "flame.js", "page.js")))
    stream = (
        _environment()
        .get_template("page.html.j2")
        .generate(
            sections=sections,
            comparisons=_comparisons(paths, sections, redaction) if compare else (),
            divergence=None if compare or not paths[1:] else divergence_view(paths, explained, sections, redaction),
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


def summary_html(made: Explanation) -> str:
    """The first section of a report for a notebook: no script, no style of its own, and text as text."""
    view = view_of(made, "", Redaction())
    return _environment().get_template("summary.html.j2").render(view=view, shown=_MAX_SHOWN)


def _name(index: int) -> str:
    """What the anchors of a recording begin with."""
    return "" if index == 0 else f"r{index + 1}-"


def _explained(path: Path) -> Explanation:
    with open_recording(path) as recording:
        return explain(recording)


def _stage_names(path: Path, stages: KernelStages) -> StageNames:
    with open_recording(path) as recording:
        return stages.names(recording)


def _section(path: Path, index: int, made: Explanation, names: StageNames, redaction: Redaction) -> PageSection:
    label = f"{index + 1}" if redaction.active else f"{index + 1}: {path.stem}"
    with open_recording(path) as recording:
        view = view_of(made, _name(index), redaction, label, has_flame=has_sections(recording), stages=names)
        trials = recording.trials()
        search = search_of(recording, redaction)
        return view if search is None else with_search(view, search, trial_views(trials, redaction), len(trials))


def _comparisons(
    paths: Sequence[Path], sections: Sequence[PageSection], redaction: Redaction
) -> tuple[ComparisonView, ...]:
    """The first program's recording against each other one. A search compiles nothing itself."""
    programs = [(path, view) for path, view in zip(paths, sections, strict=True) if not view.search]
    found = []
    for path, view in programs[1:]:
        with open_recording(programs[0][0]) as before, open_recording(path) as after:
            found.append(comparison_view(before, after, (programs[0][1], view), redaction))
    return tuple(found)


def _asset(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The hash by which the page's policy knows its own style and script."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_clean_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["coded"] = _coded
    return made


def _coded(text: str) -> Markup:
    """A sentence whose code stands between backticks, with that code as markup says it."""
    pieces = _CODE.split(clean(text))
    return Markup("").join(Markup("<code>{}</code>").format(each) if n % 2 else each for n, each in enumerate(pieces))


def _clean_value(value: Any) -> Any:
    """Text with its control characters shown; markup of ours is not touched."""
    return value if not isinstance(value, str) or isinstance(value, Markup) else clean(value)
