"""Kernels: if one operation changes, exactly the kernels that are linked to its line change."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from dynadiag.kernels.generated_module import GeneratedModule, KernelCall
from dynadiag.kernels.graph_parser import SourceLine
from dynadiag.kernels.read_modules import generated_modules
from dynadiag.recording.import_export import import_log
from dynadiag.recording.journal import Journal
from dynadiag.recording.opening import open_recording
from tests.kernels.link_index import LinkIndex
from tests.kernels.programs import CHANGES, program
from tests.kernels.recorded import foreign, read, recorded

_COMPUTING = re.compile(r"^\s*(?:auto )?tmp\w* = |tl\.store\(|\.store\(|_ptr\d+\[")
_LANGUAGES = ("cpp", "triton")


def _marked(language: str) -> dict[str, int]:
    """The line of each function that is changed."""
    found, function = {}, ""
    for number, line in enumerate(program(language, changed=False).splitlines(), 1):
        if line.startswith("def "):
            function = line[4 : line.index("(")]
        if "# change:" in line:
            found[function] = number
    return found


def _function(language: str, unit: GeneratedModule) -> str:
    """The function that a unit was made of."""
    lines = program(language, changed=False).splitlines()
    places = [place.line for call in unit.calls for place in call.source_lines]
    above = [line for line in lines[: max(places)] if line.startswith("def ")]
    return above[-1][4 : above[-1].index("(")]


def _identities(units: list[GeneratedModule]) -> Counter[tuple[str | None, str]]:
    return Counter((call.stage, _nameless(call)) for unit in units for call in unit.calls)


def _nameless(call: KernelCall) -> str:
    if call.definition is None:
        return call.name
    return call.definition.source.replace(call.name, "KERNEL").replace(call.name.partition("_fused")[2], "")


def _of(language: str, function: str, *, changed: bool) -> list[GeneratedModule]:
    return [unit for unit in read(language, changed=changed) if unit.calls and _function(language, unit) == function]


@pytest.mark.parametrize("function", [change[0] for change in CHANGES])
@pytest.mark.parametrize("language", _LANGUAGES)
def test_exactly_the_linked_kernels_change(language: str, function: str) -> None:
    before, after = _of(language, function, changed=False), _of(language, function, changed=True)
    old, new = _identities(before), _identities(after)
    changed = {identity for identity in old if identity not in new}
    line = _marked(language)[function]
    linked = {
        (call.stage, _nameless(call))
        for unit in before
        for call in unit.calls
        if call.definition and any(place.line == line for place in call.source_lines)
    }
    assert changed, "the change must show in some kernel"
    assert changed == linked
    assert len(old) > len(changed) or len(before) == len(changed), "and not in all, where there are several"


@pytest.mark.parametrize("language", _LANGUAGES)
def test_computing_lines_lead_to_a_line_of_the_user(language: str) -> None:
    led, all_lines = 0, 0
    for unit in read(language):
        index = LinkIndex(unit)
        for call in unit.calls:
            if call.definition is None:
                continue
            for number, line in enumerate(call.definition.source.splitlines(), call.definition.first_line):
                if _COMPUTING.search(line):
                    all_lines += 1
                    led += bool(index.source_lines("module", number))
    assert all_lines > 100
    assert led >= 0.95 * all_lines, f"{led} of {all_lines}"


@pytest.mark.parametrize("language", _LANGUAGES)
def test_every_line_that_computes_leads_to_its_kernel(language: str) -> None:
    missing = []
    for unit in read(language):
        index = LinkIndex(unit)
        for place in {node.source_line for node in unit.graph.nodes.values() if node.computes and node.source_line}:
            if not index.module_lines("source", place.line, place.file):
                missing.append(place)
    assert not missing


@pytest.mark.parametrize("language", _LANGUAGES)
def test_links_hold_both_ways(language: str) -> None:
    for unit in read(language):
        index = LinkIndex(unit)
        for call in unit.calls:
            assert call.line in index.module_lines("module", call.line)
            for name in call.nodes:
                assert call.line in index.module_lines("graph", unit.graph.nodes[name].line)
            for place in index.source_lines("module", call.line):
                assert call.line in index.module_lines("source", place.line, place.file)


@pytest.mark.parametrize("language", _LANGUAGES)
def test_a_log_without_the_recorder_has_the_same_lines(language: str) -> None:
    """The same log with nothing of ours in it: what is told from the texts agrees with what Inductor said."""
    pairs = [
        (ours, theirs)
        for unit, other in zip(read(language), foreign(language), strict=True)
        for ours, theirs in zip(unit.calls, other.calls, strict=True)
    ]
    assert "scheduler" not in {theirs.evidence for _, theirs in pairs}
    same = sum(set(ours.source_lines) == set(theirs.source_lines) for ours, theirs in pairs)
    assert same >= 0.95 * len(pairs), f"{same} of {len(pairs)}"


def test_the_recorder_is_what_said_it() -> None:
    assert {call.evidence for unit in read("cpp") for call in unit.calls} == {"scheduler"}


def test_a_line_of_nothing_has_no_mapping() -> None:
    unit = read("cpp")[0]
    index = LinkIndex(unit)
    assert not index.module_lines("source", 1, str(recorded("cpp")))
    assert not index.source_lines("module", 1)
    assert not index.module_lines("graph", 10_000)


_MODULE = """# AOT ID: ['0_inference']
triton_poi_fused_0 = async_compile.triton('triton_poi_fused_0', '''
def triton_poi_fused_0(in_ptr0, out_ptr0):
    tmp0 = tl.load(in_ptr0 + (x0), None)
    tl.store(out_ptr0 + (x0), tmp0, None)
''')

    def call(self, args):
        triton_poi_fused_0.run(arg0_1, buf0, 16, stream=stream0)
"""


def test_a_module_whose_graph_is_not_in_the_log_has_no_mapping(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "log")
    journal.append({"inductor_output_code": {}, "frame_id": 0, "frame_compile_id": 0}, _MODULE)
    journal.close()
    import_log(tmp_path / "log", tmp_path / "a.dynadiag")
    with open_recording(tmp_path / "a.dynadiag") as recording:
        ((call,),) = (unit.calls for unit in generated_modules(recording))
    assert (call.name, call.evidence, call.nodes, call.source_lines) == ("triton_poi_fused_0", "none", (), ())


def test_libraries_calls_have_lines_of_their_own() -> None:
    """A product that reads a kernel's result is linked to its own line, not to that of its input."""
    (unit,) = [one for one in _of("cpp", "before", changed=False) if one.parsed.stage == "forward"]
    product = next(call for call in unit.calls if call.language == "extern")
    sine = next(call for call in unit.calls if call.language == "cpp" and "sin" in call.ops)
    (line,) = {place.line for place in sine.source_lines}
    assert product.source_lines == (SourceLine(sine.source_lines[0].file, line + 1),)
    assert set(product.ops) <= {"mm", "addmm"}
