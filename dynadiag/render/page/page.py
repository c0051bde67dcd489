"""Write the page: the overview as markup, and everything large as compressed blocks that are unpacked on demand.

For a large recording there is a process for each core. The processes fork, so that none explains the recording again,
and each opens the recording for itself."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import IO, Any

import jinja2
from markupsafe import Markup

from dynadiag import __version__
from dynadiag.caches.start_phases import TimedSection, timed_sections
from dynadiag.explanation.explanation import Explanation, explain
from dynadiag.recording.opening import open_recording
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Compile
from dynadiag.render.clean import clean, clean_line
from dynadiag.render.page.model import (
    ComparisonView,
    PageSection,
    comparison_view,
    divergence_view,
    page_section,
    search_of,
    trial_views,
    with_search,
)
from dynadiag.render.page.stages import (
    DocumentView,
    KernelStages,
    Redaction,
    StageNames,
    compile_texts,
    documents_of,
    stages_block,
)
from dynadiag.render.page.values import VALUES_HEADS

_MAX_BOXES = 4000  # the longest sections; more elements make the page slow, and shorter ones are too narrow to see


@dataclass(frozen=True, slots=True)
class FlameBox:
    """A section. ``start`` is in seconds of compiling: the time between two compiles is left out.

    ``level`` is 0 for an outermost section. Sections that ran in parallel have different levels.
    """

    level: int
    start: float
    section: TimedSection

    @property
    def seconds(self) -> float:
        return self.section.end - self.section.start


def has_sections(recording: Recording) -> bool:
    return bool(recording.counts().get("chromium_event"))


def flame_boxes(sections: Iterable[TimedSection]) -> Iterator[FlameBox]:
    """Yield a box for each section in the order of their starts, above the sections that were open at its start."""
    open_: list[FlameBox] = []
    idle = end = 0.0
    for each in sorted(sections, key=lambda one: (one.start, -one.end)):
        open_ = [box for box in open_ if box.section.end > each.start]
        if not open_:
            idle += max(0.0, each.start - end)
        box = FlameBox(max((box.level + 1 for box in open_), default=0), each.start - idle, each)
        open_.append(box)
        end = max(end, each.end)
        yield box


def flame_document(recording: Recording, compiles: Sequence[Compile]) -> str:
    """The boxes as JSON, for the page's script: rows of level, start, seconds, own seconds, name, phase, compile."""
    boxes = list(flame_boxes(timed_sections(recording)))
    functions = {each.compile_id: clean_line(each.function) for each in compiles}
    shown = sorted(sorted(boxes, key=lambda box: -box.seconds)[:_MAX_BOXES], key=lambda box: (box.start, box.level))
    return json.dumps(
        {
            "seconds": max((box.start + box.seconds for box in boxes), default=0.0),
            "boxes": [_row(box, functions) for box in shown],
            "left_out": len(boxes) - len(shown),
        }
    )


def _row(box: FlameBox, functions: Mapping[str, str]) -> list[object]:
    """The row of a box. The outermost section of a compile has the name of the compiled function."""
    section = box.section
    function = functions.get(section.compile_id) if section.outermost else None
    compile_id = "" if section.compile_id == "-" else section.compile_id
    times = (round(value, 6) for value in (box.start, box.seconds, section.own))
    return [box.level, *times, function or clean_line(section.name), section.phase, compile_id]


Block = tuple[str, str]  # the name of a text, and the text as gzip in base64
_MAX_BLOCK = 64 << 20  # characters of one text; of longer ones the beginning
_MIN_PARALLEL = 16  # compiles for which processes are started: fewer take seconds


@dataclass(frozen=True, slots=True)
class PagedRecording:
    """A recording of a page. ``name`` begins its anchors, ``names`` has the names of the stages of its kernels."""

    path: Path
    explanation: Explanation
    name: str
    names: StageNames
    stages: KernelStages

    def documents(self) -> list[tuple[Compile, tuple[DocumentView, ...]]]:
        """The compiles that have documents."""
        found = documents_of(self.explanation, self.name, self.names)
        return [(item, found[item.index]) for item in self.explanation.compiles if found.get(item.index)]


def blocks_of(paged: PagedRecording) -> Iterator[Block]:
    """The blocks of a recording, in the order of its compiles."""
    with open_recording(paged.path) as recording:
        yield from map(_compress, _texts_of_run(recording, paged))
        compiles = paged.documents()
        cores = len(os.sched_getaffinity(0))
        if cores > 1 and len(compiles) >= _MIN_PARALLEL:
            pool = ProcessPoolExecutor(cores, get_context("fork"), _start_worker, (paged,))
            try:
                for blocks in pool.map(_blocks_of_number, range(len(compiles))):
                    yield from blocks
            finally:
                pool.shutdown(cancel_futures=True)
        else:
            for item, own in compiles:
                yield from _blocks_of_compile(recording, paged, item, own)


def _texts_of_run(recording: Recording, paged: PagedRecording) -> Iterator[tuple[str, str]]:
    for index, text in enumerate(paged.explanation.sources.values()):
        yield f"{paged.name}source-{index}", text
    if has_sections(recording):
        yield f"{paged.name}flame", flame_document(recording, paged.explanation.compiles)


def _blocks_of_compile(
    recording: Recording, paged: PagedRecording, item: Compile, own: tuple[DocumentView, ...]
) -> Iterable[Block]:
    block = stages_block(item, paged.name)
    return map(_compress, compile_texts(recording, paged.explanation, item, own, block, paged.name, paged.stages))


def _compress(block: tuple[str, str]) -> Block:
    name, text = block
    packed = gzip.compress(clean(text[:_MAX_BLOCK]).encode(), 6, mtime=0)
    return name, base64.b64encode(packed).decode("ascii")


class _Worker:
    """The state of a process that makes blocks, set once after the fork."""

    recording: Recording
    paged: PagedRecording
    compiles: list[tuple[Compile, tuple[DocumentView, ...]]]


def _start_worker(paged: PagedRecording) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the main process's, which ends the others
    _Worker.recording, _Worker.paged, _Worker.compiles = open_recording(paged.path), paged, paged.documents()


def _blocks_of_number(number: int) -> list[Block]:
    return list(_blocks_of_compile(_Worker.recording, _Worker.paged, *_Worker.compiles[number]))


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
            values_heads=VALUES_HEADS,
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
