"""The compressed blocks of a page: texts, drawings of graphs, and the links between their lines, one after the other.

For a large recording there is a process for each core. The processes fork, so that none explains the recording again,
and each opens the recording for itself.
"""

from __future__ import annotations

import base64
import gzip
import os
import signal
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from dynadiag.explanation.explanation import Explanation
from dynadiag.recording.opening import open_recording
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Compile
from dynadiag.render.clean import clean
from dynadiag.render.page.compiles import documents_of, stages_block
from dynadiag.render.page.flame import flame_document, has_sections
from dynadiag.render.page.kernel_stages import KernelStages
from dynadiag.render.page.stages import DocumentView, StageNames, compile_texts

__all__ = ["PagedRecording", "blocks_of"]

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
            yield from _blocks_in_parallel(paged, len(compiles), cores)
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


def _blocks_in_parallel(paged: PagedRecording, count: int, cores: int) -> Iterator[Block]:
    pool = ProcessPoolExecutor(cores, get_context("fork"), _start_worker, (paged,))
    try:
        for blocks in pool.map(_blocks_of_number, range(count)):
            yield from blocks
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker(paged: PagedRecording) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the main process's, which ends the others
    _Worker.recording, _Worker.paged, _Worker.compiles = open_recording(paged.path), paged, paged.documents()


def _blocks_of_number(number: int) -> list[Block]:
    return list(_blocks_of_compile(_Worker.recording, _Worker.paged, *_Worker.compiles[number]))
