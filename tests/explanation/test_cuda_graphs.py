"""CUDA graphs out of events: those that torch writes are its own here, on whatever device the tests run."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import cudagraph_utils
from torch._inductor.cudagraph_utils import PlaceholderInfo

import dynadiag
from dynadiag.explanation.cuda_graphs import CudaGraph, cuda_graph_findings, read_cuda_graphs, with_input_names
from dynadiag.explanation.explanation import explain
from dynadiag.explanation.findings import Fact
from dynadiag.explanation.rules import Rule
from dynadiag.recording.import_export import import_log
from dynadiag.recording.journal import Journal
from dynadiag.recording.opening import fold_in_place, open_recording
from dynadiag.recording.package_files import PackageFiles
from dynadiag.recording.records import Span
from dynadiag.recording.torch_text.reasons import overwritten_output
from dynadiag.render.json_document import document
from dynadiag.render.report import explanation_text
from dynadiag.torch_private import capture as torch_private

MUTATED = 'skipping cudagraphs due to mutated inputs (1 instances). Found from : \n   File "/u/p.py", line 7, in f\n'
AT_RUN_TIME = "skipping cudagraph due to function 0 exceeding max re-recording limit (=128) on cudagraph node 3"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def skips(gm: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> Any:
    """A backend that skips its CUDA graph as Inductor does."""
    cudagraph_utils.log_cudagraph_skip_and_bump_counter(MUTATED)
    return gm.forward


def record_one(times: int) -> None:
    """What torch writes when it records code of compile 0/0, without a device to do it on."""
    from torch._dynamo.utils import dynamo_timed
    from torch._guards import CompileId

    for _ in range(times):
        with dynamo_timed(
            "CUDAGraphNode.record",
            log_pt2_compile_event=True,
            compile_id=CompileId(frame_id=0, frame_compile_id=0),
            is_backward=False,
            dynamo_compile_column_us="runtime_cudagraphify_time_us",
        ):
            pass


def program() -> None:
    torch.compile(lambda x: x + 1, backend=skips)(torch.ones(3))
    record_one(3)
    cudagraph_utils.log_cudagraph_skip_and_bump_counter(AT_RUN_TIME)


def check(found: tuple[CudaGraph, ...]) -> None:
    skipped, recorded = [i for i in found if i.what == "skipped"], [i for i in found if i.what != "skipped"]
    assert (skipped[0].compile_id, skipped[0].reason) == ("0/0", "mutated inputs (1 instances)")
    assert (skipped[0].file, skipped[0].line) == ("/u/p.py", 7)
    assert [(i.compile_id, i.what, i.backward) for i in recorded] == [
        ("0/0", "recorded", False),
        ("0/0", "re-recorded", False),
        ("0/0", "re-recorded", False),
    ]
    assert all(i.seconds is not None and 0 <= i.seconds < 60 for i in recorded)


def test_the_recorder_has_what_torch_says_while_compiling_and_while_running(tmp_path: Path) -> None:
    with dynadiag.record(tmp_path / "run.dynadiag"):
        program()
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        found = read_cuda_graphs(recording)
        explanation = explain(recording)
    check(found)
    (late,) = [item for item in found if item.compile_id == "-"]
    assert late.reason is not None
    assert late.reason.startswith("function 0 exceeding")
    assert sum(item.what == "skipped" for item in found) == 2  # the metrics repeat the first
    text = explanation_text(explanation)
    assert "3 recorded in" in text
    (skip, late_finding) = [item for item in explanation.findings if item.rule == Rule.CUDA_GRAPH]
    assert (skip.span, skip.compile_ids) == (Span("/u/p.py", 7), ("0/0",))
    assert skip.cause is not None
    assert skip.cause.startswith("it writes to an input (1 in all)")
    assert [each.key for each in skip.advice] == ["cuda_graph.return", "cuda_graph.static_address"]
    assert [each.key for each in late_finding.advice] == ["cuda_graph.copy"]
    assert "2 pieces of compiled code run without a CUDA graph." in explanation.headline.sentence
    assert "0/0 recorded 3 times" in text
    assert [item.what for item in document(explanation).cuda_graphs] == [item.what for item in found]


def test_code_of_a_library_has_the_programs_line(tmp_path: Path) -> None:
    def without(gm: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> Any:
        cudagraph_utils.log_cudagraph_skip_and_bump_counter("skipping cudagraphs due to cpu device (primals_1)")
        return gm.forward

    layers = torch.compile(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()), backend=without)
    with dynadiag.record(tmp_path / "run.dynadiag"):
        layers(torch.ones(1, 2))
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        (skip,) = [item for item in explain(recording).findings if item.rule == Rule.CUDA_GRAPH]
    assert skip.owner == "torch"
    assert skip.entry is not None
    assert skip.entry.file == __file__
    assert skip.entry not in [Span(frame.file, frame.line) for frame in skip.called]


def test_a_cached_reason_of_a_program_that_was_moved_has_its_line_here(tmp_path: Path) -> None:
    def cached(gm: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> Any:
        cudagraph_utils.log_cudagraph_skip_and_bump_counter(MUTATED.replace("/u/p.py", f"/old/{Path(__file__).name}"))
        return gm.forward

    with dynadiag.record(tmp_path / "run.dynadiag"):
        torch.compile(lambda x: x + 1, backend=cached)(torch.ones(3))
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        (skip,) = [item for item in explain(recording).findings if item.rule == Rule.CUDA_GRAPH]
    assert skip.span == Span(__file__, 7)


def test_a_log_that_torch_wrote_tells_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._logging._internal import LazyTraceHandler, TorchLogsFormatter, trace_log

    handler = LazyTraceHandler(str(tmp_path))
    handler.setFormatter(TorchLogsFormatter(trace=True))
    trace_log.addHandler(handler)
    try:
        program()
    finally:
        trace_log.removeHandler(handler)
        handler.close()
    (log,) = tmp_path.glob("*.log")
    made = import_log(log, tmp_path / "run.dynadiag")
    with dynadiag.open(made.recordings[0]) as recording:
        check(read_cuda_graphs(recording))


def test_nothing_is_left_on_torchs_logger(tmp_path: Path) -> None:
    logger = logging.getLogger(torch_private.CUDA_GRAPH_LOGGER)
    assert logger is cudagraph_utils.cudagraphs_log
    before = list(logger.handlers)
    with dynadiag.record(tmp_path / "run.dynadiag"):
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
    assert logger.handlers == before


def test_a_run_without_cuda_graphs_has_no_section(tmp_path: Path) -> None:
    with dynadiag.record(tmp_path / "run.dynadiag"):
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        assert read_cuda_graphs(recording) == ()
        assert "cuda graphs" not in explanation_text(explain(recording))


def test_an_output_that_a_later_call_overwrote_has_the_line_that_made_it() -> None:
    error = (
        "Error: accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run. "
        'Stack trace: File "/u/p.py", line 6, in step\n    return torch.sin(x) * 2. To prevent overwriting, clone it.'
    )
    assert overwritten_output(error) == Span("/u/p.py", 6)
    assert overwritten_output("Error: accessing tensor output of CUDAGraphs") is None


def test_code_that_is_recorded_again_since_tensors_moved_is_told_once(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "run.dynadiag")
    journal.append({"dynadiag_run": {"target": "p.py", "argv": ["p.py"], "pid": 1 << 22}})
    reasons = ["static input data pointer changed"] * 3 + ["cudagraph managed tensor data pointer changed"] * 2
    stack = '  File "/u/p.py", line 4, in f\n    return x @ w\n'
    moved = {"inputs": [{"name": "primals_2", "stack": stack}], "input_count": 3}
    for reason in reasons:
        journal.append({"dynadiag_cuda_graph_again": {"reason": reason, "compile_id": "0/0", **moved}})
    journal.append({"dynadiag_exit": {"code": 0}})
    journal.close()
    fold_in_place(tmp_path / "run.dynadiag")
    with open_recording(tmp_path / "run.dynadiag") as recording:
        (graph,) = read_cuda_graphs(recording)
    assert (graph.what, graph.compile_id, graph.kind, graph.value) == ("re-recorded", "0/0", "moved", "3")
    (finding,) = cuda_graph_findings([graph], (), {}, PackageFiles())
    assert finding.evidence == (Fact("moved", "`primals_2`", Span("/u/p.py", 4)),)


@pytest.mark.parametrize(("trains", "name"), [(False, "arg0_1"), (True, "primals_1")])
def test_an_input_that_moved_has_the_name_that_the_program_gives_it(tmp_path: Path, trains: bool, name: str) -> None:
    """Each of the CUDA graphs that Inductor splits code into has some of the inputs, in its own order."""
    layer = torch.nn.Linear(2, 2)
    moved = {"inputs": [{"name": name, "stack": ""}], "input_count": 2}
    again = {"reason": "static input data pointer changed", "compile_id": "0/0", **moved}
    with dynadiag.record(tmp_path / "run.dynadiag"), torch.set_grad_enabled(trains):
        torch.compile(lambda x: layer(x), backend="aot_eager")(torch.ones(1, 2))
        for _ in range(2):
            torch._logging.trace_structured("dynadiag_cuda_graph_again", lambda: again)
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        (finding,) = [item for item in explain(recording).findings if item.rule == Rule.CUDA_GRAPH]
    assert [(fact.label, fact.text) for fact in finding.evidence] == [("moved", "`layer.weight`")]


def test_an_input_that_moved_keeps_its_name_where_autograd_took_others() -> None:
    graph = CudaGraph("0/0", "re-recorded", inputs=(("primals_2", Span(None, None)),))
    given = ("0/0", "dynamo", ("L_x_", "L_y_"))
    assert with_input_names([graph], [given, ("0/0", "forward", ("primals_1", "primals_2", "seed"))], ()) == (graph,)
    (named,) = with_input_names([graph], [given, ("0/0", "forward", ("primals_1", "primals_2"))], ())
    assert named.inputs[0][0] == "L_y_"


MANAGER = """
def _run(reason):
    unexpected_rerecord_reason = reason
    return Recorded()

class Recorded:
    def __init__(self):
        recording_inputs, self.static_input_data_ptrs = [], [None, 48, 32]
        found.append(read(sys._getframe()))
"""


def test_the_inputs_that_moved_are_those_whose_address_is_another() -> None:
    """torch's manager of CUDA graphs needs a device: its two functions, by their names and locals, are of the test."""
    use = PlaceholderInfo("mm", 'File "/u/p.py", line 4, in f', [], None)
    described = [PlaceholderInfo(name, None, [use], None) for name in ("primals_1", "primals_2", "primals_3")]
    status = cudagraph_utils.CheckInvariantStatus.StaticInputIdxMismatch
    reason = functools.partial(
        cudagraph_utils.log_data_ptr_mismatch, described, [None] * 3, [None, 16, 32], [1, 2], status
    )
    found: list[Any] = []
    scope: dict[str, Any] = {"found": found, "read": torch_private.cuda_graph_moved_inputs, "sys": sys}
    exec(compile(MANAGER, "/torch/_inductor/cudagraph_trees.py", "exec"), scope)
    scope["_run"](reason)
    scope["_run"](str(status))
    assert found == [([("primals_2", use.stack_trace)], 3), ([], 0)]


def test_an_operator_around_which_code_is_split_has_its_line(tmp_path: Path) -> None:
    stack = '  File "/u/p.py", line 4, in f\n    z = price(y)\n'
    data = {"reason": "CUDAGraph-unsafe custom ops", "operator": "shop.price.default", "stack": stack, "graphs": 2}
    journal = Journal.create(tmp_path / "run.dynadiag")
    journal.append({"dynadiag_run": {"target": "p.py", "argv": ["p.py"], "pid": 1 << 22}})
    journal.append({"dynadiag_cuda_graph_split": data, "frame_id": 0, "frame_compile_id": 0, "attempt": 0})
    journal.append({"dynadiag_exit": {"code": 0}})
    journal.close()
    fold_in_place(tmp_path / "run.dynadiag")
    with open_recording(tmp_path / "run.dynadiag") as recording:
        explanation = explain(recording)
    (finding,) = explanation.findings
    assert finding.title.endswith("is split around `shop.price`, which runs in no CUDA graph")
    assert (finding.span, finding.cause) == (Span("/u/p.py", 4), "it is tagged `torch.Tag.cudagraph_unsafe`")
    assert finding.evidence[0].text.startswith("2 CUDA graphs around it")
    assert "cuda graphs: 1 operator left out" in explanation_text(explanation)
