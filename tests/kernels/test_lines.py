"""Lines of kernels: if one operator changes, exactly the lines that are linked to its node change."""

from __future__ import annotations

import difflib
import re
from collections import Counter

import pytest

from dynadiag.kernels.align import AlignedStatement
from dynadiag.kernels.generated_module import GeneratedModule, KernelCall
from dynadiag.kernels.graph_parser import PrintedNode
from tests.kernels.link_index import LinkIndex
from tests.kernels.programs import CHANGES
from tests.kernels.recorded import foreign, read
from tests.kernels.test_provenance import _function, _marked

_LANGUAGES = ("cpp", "triton")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d*)?(?![\w.])")
_VALUE = re.compile(r"(?<![\w.])tmp\d+")
_ASSIGNED = re.compile(r"^\s*(?:auto )?(tmp\d+) = (.*)$")


def _units(language: str, function: str, *, changed: bool) -> list[GeneratedModule]:
    return [unit for unit in read(language, changed=changed) if unit.calls and _function(language, unit) == function]


def _pairs(language: str, function: str) -> list[tuple[GeneratedModule, KernelCall, GeneratedModule, KernelCall]]:
    """The generated kernels of a function, as they are and as they are with a line changed."""
    before, after = (_units(language, function, changed=changed) for changed in (False, True))
    pairs = [(old, new) for old, new in zip(before, after, strict=True)]
    return [
        (old, one, new, other)
        for old, new in pairs
        for one, other in zip(_generated(old), _generated(new), strict=True)
    ]


def _generated(unit: GeneratedModule) -> list[KernelCall]:
    return [call for call in unit.calls if call.definition]


def _texts(unit: GeneratedModule, call: KernelCall) -> list[tuple[AlignedStatement, str]]:
    """The computing lines of a kernel, numbers of values left out, constants in the place of their names."""
    assert call.definition
    lines = call.definition.source.splitlines()
    constants: dict[str, str] = {}
    found = []
    for line in call.statements:
        text = lines[line.line - call.definition.first_line]
        shown = _VALUE.sub(lambda name: constants.get(name[0], "tmp"), text.strip())
        if assigned := _ASSIGNED.match(text):
            constant = _VALUE.sub(lambda name: constants.get(name[0], "?"), assigned[2])
            known = line.kind == "constant" or (line.kind == "compute" and "?" not in constant)
            constants.pop(assigned[1], None)
            if known:
                constants[assigned[1]] = constant.rstrip(";")
        if line.kind in ("compute", "constant"):
            found.append((line, shown.replace(call.name, "KERNEL")))
    return found


def _different(
    old: list[tuple[AlignedStatement, str]], new: list[tuple[AlignedStatement, str]]
) -> tuple[set[int], set[int]]:
    matcher = difflib.SequenceMatcher(None, [text for _, text in old], [text for _, text in new], autojunk=False)
    left, right = set[int](), set[int]()
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind != "equal":
            left.update(line.line for line, _ in old[a:b])
            right.update(line.line for line, _ in new[c:d])
    return left, right


def _meaning(node: PrintedNode) -> tuple[str, tuple[str, ...]]:
    """What a node computes, whatever it is given."""
    return node.target, tuple(_NUMBER.findall(node.text.partition("(")[2]))


def _gone(one: GeneratedModule, other: GeneratedModule, line: int) -> set[str]:
    """The nodes of the changed line that are not in the other program."""
    kept = Counter(
        _meaning(node) for node in other.graph.nodes.values() if node.source_line and node.source_line.line == line
    )
    gone = set()
    for node in one.graph.nodes.values():
        if node.source_line and node.source_line.line == line and node.computes:
            kept[_meaning(node)] -= 1
            if kept[_meaning(node)] < 0:
                gone.add(node.name)
    return gone


def _linked(call: KernelCall, nodes: set[str]) -> set[int]:
    kinds = ("compute", "constant")
    return {line.line for line in call.statements if line.kind in kinds and nodes.intersection(line.nodes)}


@pytest.mark.parametrize("function", [change[0] for change in CHANGES])
@pytest.mark.parametrize("language", _LANGUAGES)
def test_exactly_the_lines_of_the_changed_operator_change(language: str, function: str) -> None:
    line = _marked(language)[function]
    forward = 0
    for old, one, new, other in _pairs(language, function):
        before, after = _different(_texts(old, one), _texts(new, other))
        linked = _linked(one, _gone(old, new, line)), _linked(other, _gone(new, old, line))
        if one.stage == "backward":  # the rule of differentiation may change with the operator
            at = {node.name for node in old.graph.nodes.values() if node.source_line and node.source_line.line == line}
            assert before <= _linked(one, at)
        else:
            assert (before, after) == linked
            forward += len(before)
    assert forward, "the change must show in a line"


@pytest.mark.parametrize("language", _LANGUAGES)
def test_a_log_without_the_recorder_has_the_same_nodes_for_nearly_all_lines(language: str) -> None:
    lines = [
        (set(ours.nodes), set(theirs.nodes))
        for unit, other in zip(read(language), foreign(language), strict=True)
        for call, same in zip(unit.calls, other.calls, strict=True)
        for ours, theirs in zip(call.statements, same.statements, strict=True)
    ]
    equal = sum(ours == theirs for ours, theirs in lines)
    assert len(lines) > 200
    assert equal >= 0.85 * len(lines), f"{equal} of {len(lines)}"


@pytest.mark.parametrize("language", _LANGUAGES)
def test_most_lines_have_one_node(language: str) -> None:
    """A line that leads to all nodes of its kernel says nothing."""
    lines = [
        line for unit in read(language) for call in unit.calls for line in call.statements if line.kind == "compute"
    ]
    sharp = sum(len(line.nodes) == 1 for line in lines)
    assert sharp >= 0.9 * len(lines), f"{sharp} of {len(lines)}"


@pytest.mark.parametrize("language", _LANGUAGES)
def test_links_of_lines_hold_both_ways(language: str) -> None:
    for unit in read(language):
        index = LinkIndex(unit)
        for call in unit.calls:
            for line in call.statements:
                assert set(line.nodes) <= index.nodes("module", line.line)
                for name in line.nodes:
                    assert line.line in index.module_lines("graph", unit.graph.nodes[name].line)
                for place in index.source_lines("module", line.line):
                    assert line.line in index.module_lines("source", place.line, place.file)
