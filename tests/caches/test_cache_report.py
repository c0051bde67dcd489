"""The report of one start and of two, on journals written by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dynadiag.caches.cache_report import CacheReport, read_caches
from dynadiag.recording.import_export import import_log
from dynadiag.recording.journal import Journal
from dynadiag.recording.reader import Recording
from dynadiag.render.cache_report import cache_report_text, caches_document
from dynadiag.render.json_document import encode
from dynadiag.render.printer import Printer

SOURCE = """import torch
import torch._inductor.config

torch._inductor.config.epilogue_fusion = {0}


def step(x):
    return x + 1


model = torch.compile(step)
"""
GRAPH = 'class GraphModule(torch.nn.Module):\n    def forward(self, L_x_: "f32[3]"):\n        add = L_x_ + {0}\n'
CONTEXT = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
BYPASS = "Unsupported post grad custom pass"


class Start:
    """A journal of one start that compiles ``step``, written event by event."""

    def __init__(
        self,
        folder: Path,
        number: int,
        source: str,
        variables: Mapping[str, str] | None = None,
        job: Mapping[str, int] | None = None,
    ) -> None:
        self.path = folder / f"{number}.log"
        self.recording = folder / f"{number}.dynadiag"
        self._journal = Journal.create(self.path)
        self._number = 0
        run = {"target": "p.py", "argv": [], "cwd": str(folder), "torch": "2.13.0", "python": "3.11", "pid": number}
        environment = {"TORCHINDUCTOR_CACHE_DIR": "/c", **(variables or {})}
        self.event({"dynadiag_run": {**run, "environment": environment, "job": job}})
        self.event({"dynadiag_source": {"file": "/u/p.py"}}, source)

    def event(self, metadata: dict[str, Any], payload: str | None = None) -> None:
        self._journal.append(metadata, payload)

    def of_compile(self, kind: str, data: Any, payload: str | None = None, frame_compile_id: int | None = None) -> None:
        self._number = self._number if frame_compile_id is None else frame_compile_id
        self.event({kind: data, **CONTEXT, "frame_compile_id": self._number}, payload)

    def compile(
        self,
        outcome: str,
        *components: str,
        key: str = "k",
        seconds: float = 8.0,
        library: str | None = None,
        payload: str | None = None,  # of both lookups, in the place of JSON
        aot: str | None = None,  # the outcome of AOTAutograd's cache, if it is another one
        **told: Any,
    ) -> None:
        self.of_compile("dynadiag_frame", {"file": "/u/p.py", "line": 7, "function": "step"})
        self.of_compile("dynamo_start", {"stack": []})
        self.of_compile("dynamo_output_graph", {}, GRAPH.format(1))
        data = {"key": None if outcome == "bypass" else key, "components": list(components), **told}
        above = json.dumps({"key": f"a{key}", "components": [], **told})
        self.of_compile(
            "artifact", {"name": f"aotautograd_cache_{aot or outcome}", "encoding": "json"}, payload or above
        )
        artifact = {"name": f"fx_graph_cache_{outcome}", "encoding": "json"}
        self.of_compile("aot_inference_graph", {}, GRAPH.format(1))
        self.of_compile("inductor_output_code", {}, "")
        self.of_compile("artifact", artifact, payload or json.dumps(data | {"time_taken_ns": seconds * 1e9}))
        if library is not None:
            built = {"cache": "cpp", "name": "cpp_fused_add_0", "key": "c", "outcome": library, "seconds": 4.0}
            self.of_compile("dynadiag_cache", built)
        metrics = {"entire_frame_compile_time_s": seconds + 1, "has_guarded_code": True, "guard_count": 1}
        self.of_compile(
            "compilation_metrics", metrics | {"inductor_compile_time_s": seconds, "backend_compile_time_s": seconds}
        )

    def section(self, name: str, start: float, end: float | None = None) -> None:
        for kind, time in (("B", start), ("E", end)):
            if time is not None:
                self.of_compile("chromium_event", {}, json.dumps({"name": name, "ph": kind, "ts": time * 1e6}))

    def ended(self, seconds: float, **known: Any) -> Path:
        self.event({"dynadiag_end": {"seconds": seconds, "device": "cpu", **known}})
        self.event({"dynadiag_exit": {"code": 0, "seconds": seconds + 2}})
        self._journal.close()
        import_log(self.path, self.recording)
        return self.recording


def report(*paths: Path) -> CacheReport:
    with ExitStack() as stack:
        return read_caches([stack.enter_context(Recording(path)) for path in paths])


def text_of(found: CacheReport) -> str:
    return cache_report_text(found, Printer(width=100))


@pytest.fixture
def changed(tmp_path: Path) -> CacheReport:
    option = "inductor_config[epilogue_fusion]"
    first, second = (Start(tmp_path, number, SOURCE.format(number == 0)) for number in (0, 1))
    first.compile("miss", "[a] gm: code", f"[b] {option}: True", key="k1")
    second.compile("miss", "[a] gm: code", f"[c] {option}: False", key="k2")
    return report(first.ended(20.0), second.ended(19.0))


def test_a_change_leads_with_its_cause_and_its_cost(changed: CacheReport) -> None:
    text = text_of(changed)
    first = " ".join(text.split("\n\n")[0].split())
    assert first == (
        "The second start still compiled 1 of 1 graph, 8.0 s of 9.0 s of compiling: "
        "torch._inductor.config.epilogue_fusion went from True to False."
    )
    assert "--> /u/p.py:4" in text
    assert "   4 | torch._inductor.config.epilogue_fusion = False" in text
    assert "= key: inductor_config[epilogue_fusion]: True → False" in text
    assert "= cost: 8.0 s\n" in text  # not at each start: only the change costs it


def test_the_document_has_the_entries_of_the_contract(changed: CacheReport) -> None:
    found = json.loads(encode(caches_document(changed)))
    assert [run["compile_seconds"] for run in found["runs"]] == [9.0, 9.0]
    before, after = [entry for entry in found["entries"] if entry["cache"] == "fx_graph"]
    assert (before["run"], before["outcome"], before["changed"]) == (0, "miss", [])
    assert after["changed"] == [{"component": "inductor_config[epilogue_fusion]", "was": "True", "now": "False"}]
    assert (after["file"], after["line"], after["seconds"], after["key"]) == ("/u/p.py", 4, 8.0, "k2")
    assert {"run", "compile_id", "graph", "cache", "outcome", "key", "reason", "file", "line"} <= after.keys()


def test_a_rank_in_the_graph_is_that_of_the_process(tmp_path: Path) -> None:
    first, second = (Start(tmp_path, number, SOURCE.format(True), job={"rank": number}) for number in (0, 1))
    first.compile("miss", "[a] gm: y = worker0.shift(p_0)", key="k1")
    second.compile("miss", "[b] gm: y = worker1.shift(p_0)", key="k2")
    assert "RANK of this process (1) is in it" in " ".join(text_of(report(first.ended(9.0), second.ended(9.0))).split())


def test_keys_that_were_left_out_are_not_said_to_be_the_same(tmp_path: Path) -> None:
    first, second = (Start(tmp_path, number, SOURCE.format(number == 0)) for number in (0, 1))
    for start in (first, second):
        start.compile("miss", payload="<9 characters left out: recorded with --no-source>")
    text = " ".join(text_of(report(first.ended(9.0), second.ended(9.0))).split())
    assert "neither recording has the key of this graph" in text
    assert "the key is the same" not in text


def test_two_starts_alike_compile_nothing(tmp_path: Path) -> None:
    first, second = (Start(tmp_path, number, SOURCE.format(True)) for number in (0, 1))
    first.compile("miss", "[a] gm: code")
    second.compile("hit", "[a] gm: code", seconds=0.5)
    found = report(first.ended(20.0), second.ended(5.0))
    assert text_of(found).startswith("The second start compiled nothing: the graph came from the caches")
    assert not any(entry.changed or entry.causes for entry in found.entries if entry.lookup.cache == "fx_graph")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("", "the library of the C++ kernel is not in the folder of the caches"),
        (
            "torch.compiler.load_cache_artifacts(kept)",
            "torch.compiler.load_cache_artifacts brings graphs, but no C++ libraries",
        ),
    ],
)
def test_a_kernel_that_is_built_again_behind_a_hit_leads(source: str, told: str, tmp_path: Path) -> None:
    first, second = (Start(tmp_path, number, SOURCE.format(True) + source) for number in (0, 1))
    first.compile("miss", "[a] gm: code", library="miss")
    second.compile("hit", "[a] gm: code", seconds=0.5, library="miss")
    text = text_of(report(first.ended(20.0), second.ended(5.0)))
    assert " ".join(text.split("\n\n")[0].split()) == (
        "The second start took the graph from the caches and built 1 C++ kernel again: "
        f"{told} (1.5 s of compiling, 9.0 s in the first)."
    )
    assert "= cost: 4.0 s\n" in text


def test_a_bypass_names_the_line_that_sets_the_pass(tmp_path: Path) -> None:
    start = Start(tmp_path, 0, f"{SOURCE.format(True)}torch._inductor.config.post_grad_custom_pre_pass = step\n")
    start.compile("bypass", cache_bypass_reason=BYPASS)
    found = report(start.ended(20.0))
    (entry,) = [entry for entry in found.entries if entry.lookup.cache == "fx_graph"]
    assert (entry.span.file, entry.span.line, entry.lookup.reason) == ("/u/p.py", 12, BYPASS)
    assert "a post grad custom pass is a plain function without uuid()" in " ".join(text_of(found).split())
    assert "help (not tried): Make the pass a subclass" in text_of(found)
    assert "at each start" in text_of(found)


@pytest.mark.parametrize(
    ("line", "variables", "told", "at"),
    [
        ("torch._inductor.config.fx_graph_cache = False", {}, "fx_graph_cache is False", 12),
        ("", {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0"}, "fx_graph_cache is False, by TORCHINDUCTOR_FX_GRAPH_CACHE=0", 7),
    ],
)
def test_a_cache_that_is_off_is_led_back_to_what_sets_it(
    line: str, variables: dict[str, str], told: str, at: int, tmp_path: Path
) -> None:
    start = Start(tmp_path, 0, f"{SOURCE.format(True)}{line}\n", variables)
    start.of_compile("dynadiag_frame", {"file": "/u/p.py", "line": 7, "function": "step"})
    start.of_compile("dynamo_start", {"stack": []})
    start.of_compile("inductor_output_code", {}, "")
    config = json.dumps({"fx_graph_cache": False})
    start.of_compile("compilation_metrics", {"has_guarded_code": True, "inductor_config": config})
    (entry,) = [each for each in report(start.ended(20.0)).entries if each.lookup.cache == "fx_graph"]
    assert (entry.lookup.outcome, entry.span.line) == ("disabled", at)
    assert entry.causes[0].text.endswith(told)


def test_the_same_key_may_still_miss(tmp_path: Path) -> None:
    first, second = (Start(tmp_path, number, SOURCE.format(True)) for number in (0, 1))
    first.compile("miss", "[a] gm: code")
    second.compile("miss", "[a] gm: code", cache_status_detailed="guard_miss")
    found = report(first.ended(20.0), second.ended(20.0))
    assert "an entry with this key is there, but its guards on sizes fail" in " ".join(text_of(found).split())


def test_a_graph_that_only_the_second_start_has_is_a_recompile(tmp_path: Path) -> None:
    first, second = (Start(tmp_path, number, SOURCE.format(True)) for number in (0, 1))
    first.compile("miss", "[a] gm: code")
    second.compile("hit", "[a] gm: code", seconds=0.5)
    told = json.dumps(["0/0: tensor 'x' size mismatch at index 0. expected 3, actual 4"])
    again = {"name": "recompile_reasons", "encoding": "json"}
    second.of_compile("artifact", again, told, frame_compile_id=1)
    second.compile("miss", "[a] gm: other", key="k2")
    found = report(first.ended(20.0), second.ended(20.0))
    assert "the first run did not compile this graph: step is compiled again, x.size()[0] was 3, now 4" in " ".join(
        text_of(found).split()
    )


def test_seconds_go_to_the_phase_of_the_innermost_section(tmp_path: Path) -> None:
    start = Start(tmp_path, 0, SOURCE.format(True))
    start.compile("miss", "[a] gm: code")
    start.section("entire_frame_compile", 0.0)
    start.section("bytecode_tracing", 1.0, 2.0)
    start.section("inductor_compile", 2.0)
    start.section("compile_file", 3.0, 7.0)
    for name, end in (("inductor_compile", 8.0), ("entire_frame_compile", 9.0)):
        start.of_compile("chromium_event", {}, json.dumps({"name": name, "ph": "E", "ts": end * 1e6}))
    (run,) = report(start.ended(20.0)).runs
    assert {phase.name: phase.seconds for phase in run.phases.phases} == pytest.approx(
        {"import": 2.0, "tracing": 3.0, "Inductor": 2.0, "C++ compiles": 4.0, "the program, and later imports": 11.0}
    )
    assert run.phases.seconds == 22.0
    assert "C++ compiles" in text_of(report(start.recording))


def test_what_torch_imports_later_is_import_and_not_the_program(tmp_path: Path) -> None:
    start = Start(tmp_path, 0, SOURCE.format(True))
    start.compile("miss", "[a] gm: code")
    start.section("entire_frame_compile", 4.0, 9.0)
    imports = [[1.0, 3.0], [3.5, 6.0], "damaged", [None, 2]]  # the second goes on where torch's own section begins
    (run,) = report(start.ended(20.0, imports=imports)).runs
    assert {phase.name: phase.seconds for phase in run.phases.phases} == pytest.approx(
        {"import": 4.5, "tracing": 5.0, "the program itself": 12.5}
    )


def test_recordings_of_two_programs_are_not_compared(tmp_path: Path) -> None:
    first, second = (Start(tmp_path, number, SOURCE.format(True)) for number in (0, 1))
    first.compile("miss", "[a] gm: code")
    second.of_compile("dynadiag_frame", {"file": "/u/other.py", "line": 1, "function": "other"})
    second.of_compile("dynamo_start", {"stack": []})
    second.of_compile("dynamo_output_graph", {}, GRAPH.replace("+", "@").format(5))
    second.of_compile("compilation_metrics", {"has_guarded_code": True, "guard_count": 1})
    found = report(first.ended(20.0), second.ended(20.0))
    assert text_of(found).startswith("The two recordings are of different programs")
