"""Records what Inductor and Triton know about generated code beyond its text.

The text of a C++ kernel names neither nodes nor lines. The lowered graph does, and it is a local variable of the
function that emits ``inductor_output_code``. It is read once, names only. The Triton kernels that the program compiled
are read when the program ends: their stages are files of Triton's own cache, registers and spills come from the driver.

Why Inductor's scheduler did not fuse two of its nodes is noted as it decides. It considers a pair again whenever one of
them has grown, so the reason for the largest nodes counts, and of those the last one. Names are kept until the code of
the graph is emitted; a text is made only then, and only of pairs that are two kernels in the end.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from dynadiag.recording.records import TRITON_TEXT_STAGES
from dynadiag.torch_private import capture as torch_private
from dynadiag.torch_private import triton_autotuner

_MAX_STAGE_BYTES = 4 << 20  # bytes of one stage that are recorded; the largest seen so far is a tenth of it


def describe_kernels(module: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the data of each kernel of a generated module, and its stages as JSON (``cubin`` in base 64)."""
    for binary in triton_autotuner.built_kernels(module):
        metadata = _metadata(binary)
        yield (
            {
                "module": module,
                "name": binary.name,
                "source": Path(binary.file).name,
                "registers": binary.registers,
                "spills": binary.spills,
                "shared": binary.shared,
                "warps": metadata.get("num_warps"),
                "target": metadata.get("target"),
                "triton": metadata.get("triton_version"),
                "configuration": binary.configuration,
            },
            json.dumps(_stages(binary)),
        )


def _metadata(binary: triton_autotuner.TritonBinary) -> dict[str, Any]:
    text = _read_cache_file(binary, "json")
    found = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}


def _stages(binary: triton_autotuner.TritonBinary) -> dict[str, str]:
    found = {
        stage: text.decode(errors="replace")
        for stage in TRITON_TEXT_STAGES
        if (text := _read_cache_file(binary, stage)) is not None
    }
    if (code := _read_cache_file(binary, "cubin")) is not None:
        found["cubin"] = base64.b64encode(code).decode()
    return found


def _read_cache_file(binary: triton_autotuner.TritonBinary, suffix: str) -> bytes | None:
    """A file of Triton's cache, or None if it is missing or too large."""
    if binary.folder is None:
        return None
    for file in sorted(binary.folder.glob(f"*.{suffix}")):
        if not file.name.startswith("__grp__") and file.stat().st_size <= _MAX_STAGE_BYTES:
            return file.read_bytes()
    return None


def scheduler_json(lowered: Any, refused: RefusedFusions) -> str:
    """Return the operations of a lowered graph, in the order of their code, and the Dynamo nodes of its nodes, as JSON.

    ``operations``: ``[group, kind, outputs, reads, origin, origins, reason]``. Operations of one group are fused.
    ``outputs`` and ``reads`` are names of buffers in the wrapper. ``origin`` is the node whose value the first output
    is (or None), ``origins`` are all nodes that Inductor says went into it, ``reason`` says why Inductor falls back to
    ATen. ``sources`` maps a node to Dynamo's nodes. ``refused``: ``[group, group, reason]`` of pairs that the scheduler
    considered and did not fuse. A branch or a loop body is a lowered graph of its own. Its code
    comes before that of the graph that contains it, and its name is a prefix of its nodes' and buffers' names.
    """
    graphs = [*_subgraphs(lowered, set()), lowered]
    groups = count()
    operations, group_of = list[list[Any]](), dict[str, int]()
    for graph in graphs:
        for name, row in _operations(graph, groups):
            operations.append(row)
            group_of[name] = row[0]
    sources = dict(pair for graph in graphs for pair in _dynamo_sources(graph))
    return json.dumps({"operations": operations, "sources": sources, "refused": list(refused.between(group_of))})


def _subgraphs(lowered: Any, seen: set[str]) -> Iterator[Any]:
    """The lowered graphs of branches and loop bodies, each once, the innermost first."""
    for graph in torch_private.lowered_subgraphs(lowered):
        if graph.name not in seen:
            seen.add(graph.name)
            yield from _subgraphs(graph, seen)
            yield graph


def _operations(lowered: Any, groups: Iterator[int]) -> Iterator[tuple[str, list[Any]]]:
    """The name of each operation, and its row."""
    for group, fused in zip(groups, torch_private.fused_operations(lowered), strict=False):
        for node in fused:
            outputs, reads, origin, origins = torch_private.operation_provenance(node, lowered)
            kind, reason = type(node.node).__name__, torch_private.fallback_reason(node)
            yield node.get_name(), [group, kind, outputs, reads, origin, origins, reason]


def _dynamo_sources(lowered: Any) -> Iterator[tuple[str, list[str]]]:
    for node in lowered.graph.nodes:
        if node.op not in ("placeholder", "output") and (names := torch_private.dynamo_source_names(node)):
            yield lowered.qualify_name(node.name), names


_MAX_PAIRS = 50_000  # pairs of one graph that are kept
_OPERATION = re.compile(r"\w*?op\d+")  # in the name of a fused node, which joins those of its operations


class RefusedFusions:
    """The pairs of nodes that were not fused since the last code was emitted."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, str], tuple[str, tuple[Any, ...]]] = {}

    def add(self, first: str, second: str, reason: str, arguments: tuple[Any, ...]) -> None:
        """Add a pair, or a later reason for it. It never raises."""
        if len(self._pairs) < _MAX_PAIRS:
            self._pairs[first, second] = reason, arguments

    def clear(self) -> None:
        """Forget the pairs: of a graph whose code was emitted, or whose compile failed."""
        self._pairs.clear()

    def between(self, groups: Mapping[str, int]) -> Iterator[tuple[int, int, str]]:
        """Yield pairs of groups of operations that were not fused, each once, with the reason.

        `groups` has the group of each operation by its name. Operations of one group are fused.
        """
        found: dict[tuple[int, int], tuple[int, str, tuple[Any, ...]]] = {}
        for names, (reason, arguments) in self._pairs.items():
            first, second = ([name.lstrip("_") for name in _OPERATION.findall(each)] for each in names)
            of_first, of_second = ({groups.get(name) for name in side} for side in (first, second))
            if len(of_first) == len(of_second) == 1 and of_first != of_second:
                one, other = of_first.pop(), of_second.pop()
                size = len(first) + len(second)
                if one is not None and other is not None and size >= found.get((one, other), (0,))[0]:
                    found[one, other] = size, reason, arguments
        for (one, other), (_, reason, arguments) in found.items():
            yield one, other, reason % arguments if arguments else reason
